#!/bin/sh
# Obtains pgbouncer for the tests that run behind it: from the PATH, by apt-get as root, or unpacked into .cache/pgbouncer.
# Without it (no Debian, no network) those tests are skipped with that reason; nothing else depends on it.
set -eu
cd "$(dirname "$0")/../.."
cache=.cache/pgbouncer

if command -v pgbouncer > /dev/null || [ -x /usr/sbin/pgbouncer ] || [ -x "$cache/usr/sbin/pgbouncer" ] ||
    [ -x "${ROWLOCK_TEST_PGBOUNCER:-/nowhere}/pgbouncer" ]; then
    exit 0
fi
if ! command -v apt-get > /dev/null; then
    echo "pgbouncer is not here and there is no apt-get: install it, or name its folder in ROWLOCK_TEST_PGBOUNCER" >&2
    exit 0
fi

unpack() {
    mkdir -p "$cache/packages"
    (cd "$cache/packages" && apt-get download -qq pgbouncer libc-ares2 libevent-2.1-7)
    for package in "$cache"/packages/*.deb; do
        dpkg -x "$package" "$cache"
    done
}

install() {
    # RUNLEVEL=1: not started as a service; the tests start their own.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends pgbouncer > /dev/null
}

if [ "$(id -u)" -eq 0 ]; then
    install || { apt-get -qq update && install; } || unpack
else
    unpack
fi || echo "pgbouncer could not be had: the tests behind it are skipped" >&2
