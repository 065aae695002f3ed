"""A planner that a file has taken over: it does the harm that its first argument names, instead of reading.

It is started in the place of the real one by a test; the product has no switch for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Order = dict[str, Any]


def say(told: Any) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def confined(order: Order) -> None:
    """As the real one confines itself."""
    from rowlock.imports.read.plan_request import Order as Given
    from rowlock.imports.read.planner import confine

    confine(Given(**order))


def segfault(_: Order) -> None:
    ctypes.string_at(0)


def endless_line(_: Order) -> None:
    while True:
        os.write(1, b"x" * 65_536)


def endless_progress(_: Order) -> None:
    while True:
        os.write(1, b'{"done":0.5}\n' * 5_000)


def endless_errors(_: Order) -> None:
    while True:
        os.write(2, b"x" * 65_536)


def many_errors(_: Order) -> None:
    for _ in range(300):
        os.write(2, b"a warning\n" * 6_553)
    say({"refused": "after 20 MB of warnings", "code": "told"})


def loop(_: Order) -> None:
    while True:
        pass


def processor(order: Order) -> None:
    confined(order)
    loop(order)


def processor_unlimited(order: Order) -> None:
    """A mutant: the limits are taken out."""
    resource.setrlimit = lambda *_: None
    processor(order)


def grow(_: Order) -> None:
    """Up to 600 MB, which is more than it may."""
    held = [bytearray(b"x") * (1 << 20) for _ in range(600)]
    time.sleep(3)  # to be looked at, also by a sandbox that stands still for a moment
    say({"refused": f"it has {len(held)} MB", "code": "too_much"})


def grow_at_once(order: Order) -> None:
    """More than there may be, in one piece."""
    confined(order)
    bytearray(8 << 30)


def fill_disk(order: Order) -> None:
    confined(order)
    with Path(order["folder"], "0.arrow").open("wb", buffering=0) as file:
        while file.write(b"x" * 65_536):
            pass


def deaf(_: Order) -> None:
    os.close(1)
    time.sleep(600)


def fork(order: Order) -> None:
    """It leaves another behind that holds its pipes open."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(order["folder"], "forked").write_text(str(other.pid))


def killed(_: Order) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def deep(_: Order) -> None:
    os.write(1, b'{"found":' + b"[" * 100_000 + b"\n")


def known(_: Order) -> None:
    """What it can see: variables, and open files."""
    files = [int(name) for name in os.listdir("/proc/self/fd")][:-1]  # the last is that of the folder itself
    say({"refused": json.dumps([dict(os.environ), files, sys.path[0]]), "code": "told"})


HARM: dict[str, Callable[[Order], object]] = {
    "abort": lambda _: os.abort(),
    "segfault": segfault,
    "silence": lambda _: None,
    "garbage": lambda _: os.write(1, b"\xff\x00 garbage\n"),
    "half a line": lambda _: os.write(1, b'{"found":'),
    "wrong progress": lambda _: say({"done": 7}) or time.sleep(600),
    "deep": deep,
    "endless line": endless_line,
    "endless progress": endless_progress,
    "endless errors": endless_errors,
    "many errors": many_errors,
    "loop": loop,
    "processor": processor,
    "processor unlimited": processor_unlimited,
    "grow": grow,
    "grow at once": grow_at_once,
    "fill disk": fill_disk,
    "deaf": deaf,
    "fork": fork,
    "killed": killed,
    "known": known,
}


def main(how: str) -> None:
    if how == "no start":
        sys.exit(3)
    line = sys.stdin.readline()
    os.write(1, b'{"done":0.0}\n')
    if how.startswith("{"):  # an answer, as it is; its chunks are in the folder that was ordered
        os.write(1, how.encode() + b"\n")
        return
    HARM[how](json.loads(line))


if __name__ == "__main__":
    main(sys.argv[1])
