#!/bin/sh
# Obtains chromium for the tests of the pages: from the PATH, or by apt-get as root.
# Without it (no Debian, no network, not root) those tests are skipped with that reason; nothing else depends on it.
set -eu

if command -v chromium > /dev/null || [ -x "${ROWLOCK_TEST_CHROMIUM:-/nowhere}" ]; then
    exit 0
fi
if ! command -v apt-get > /dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "chromium is not here: install it (Debian: apt-get install chromium), or name one in ROWLOCK_TEST_CHROMIUM;" \
        "until then the tests of the pages are skipped" >&2
    exit 0
fi

install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium > /dev/null
}

install || { apt-get -qq update && install; } || echo "chromium could not be had: the tests of the pages are skipped" >&2
