"""I19, from within: a planner that a file has taken over can only fail to read that file."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from faults.until import until
from hostile import evil_planner
from hostile.bad_files import GOOD, HEADER
from hostile.sandboxed import left_over, measured, order_of, read
from rowlock.errors import FileRefused, StoreUnavailable
from rowlock.imports.read import sandbox as sandbox_module
from rowlock.imports.read import sandbox_process as child_module
from rowlock.imports.read.plan_request import Order
from rowlock.imports.read.plan_result import Nonsense, judge
from rowlock.imports.read.sandbox import Sandbox

Evil = Callable[[str], None]


@pytest.fixture
def order(tmp_path: Path) -> Order:
    path, scratch = tmp_path / "good.csv", tmp_path / "scratch"
    path.write_text(HEADER + GOOD)
    scratch.mkdir()
    return order_of(path, scratch)


@pytest.fixture
def evil(monkeypatch: pytest.MonkeyPatch) -> Evil:
    """Every planner that is started from now on does this harm."""

    def does(how: str) -> None:
        command = [sys.executable, "-P", evil_planner.__file__, how, str(os.getpid())]
        monkeypatch.setattr(child_module, "command", lambda: command)

    return does


@pytest.fixture
async def sandbox(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    async def never(*_: object) -> None:
        """Each order has a child that was started for it."""

    monkeypatch.setattr(Sandbox, "_warm_later", never)
    made = Sandbox()
    with measured() as use:
        yield made
    await made.close()
    assert left_over(use) == []


async def outcome(sandbox: Sandbox, order: Order, seconds: float = 20.0) -> tuple[str, str]:
    """The code and the words that an order ends with; it never takes longer than it may."""
    began = time.monotonic()
    try:
        await read(sandbox, order, seconds)
    except FileRefused as refused:
        told = refused.code, str(refused)
    except RuntimeError as error:
        told = "", str(error)
    assert time.monotonic() - began < seconds + 20
    return told


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("abort", "unreadable_file", "signal 6"),
        ("segfault", "unreadable_file", "signal 11"),
        ("silence", "unreadable_file", "exit code 0"),
        ("garbage", "unreadable_file", "output is invalid"),
        ("half a line", "unreadable_file", "exit code 0"),
        ("wrong progress", "unreadable_file", "output is invalid"),
        ("deep", "unreadable_file", "output is invalid"),
        ("endless line", "unreadable_file", "more output than expected"),
        ("endless errors", "unreadable_file", "more output than expected"),
        ("many errors", "told", "after 20 MB of warnings"),
        ("deaf", "unreadable_file", "stopped answering"),
        ("grow at once", "file_too_large", "memory"),
        ("killed", "", "was killed"),
        ("no start", "", "does not start: exit code 3"),
    ],
)
async def test_however_a_reader_ends_the_worker_knows_why(
    sandbox: Sandbox, order: Order, evil: Evil, how: str, code: str, words: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    evil(how)
    told = await outcome(sandbox, order)
    assert told[0] == code, told
    assert words in told[1]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250 << 10  # in KB: not what it said, twice


@pytest.mark.parametrize("how", ["loop", "endless progress"])
async def test_a_reader_that_never_ends_is_ended_when_its_time_is_up(
    sandbox: Sandbox, order: Order, evil: Evil, how: str
) -> None:
    evil(how)
    assert await outcome(sandbox, order, 0.5) == (
        "file_too_slow",
        "reading the file took longer than 0.5 seconds: split it",
    )


async def test_the_processor_s_time_is_limited_and_the_attack_notices_when_it_is_not(
    sandbox: Sandbox, order: Order, evil: Evil
) -> None:
    limited = Order(**orjson.loads(order.encode()) | {"cpu_seconds": 1})
    evil("processor")
    assert "CPU time" in (await outcome(sandbox, limited, 60.0))[1]
    evil("processor unlimited")
    with measured() as use:
        reading = asyncio.create_task(read(sandbox, limited))
        while use.cpu_seconds < 1.3 and not reading.done():
            await asyncio.sleep(0.02)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert reading.cancelled()


async def test_a_reader_that_takes_too_much_memory_is_ended_and_the_attack_notices_when_it_is_not(
    order: Order, evil: Evil, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asleep(_: object) -> None:
        return None

    evil("grow")
    limited = Order(**orjson.loads(order.encode()) | {"memory_mb": 200})
    for guarded in (True, False):
        if not guarded:
            monkeypatch.setattr(sandbox_module._Reading, "_watch", asleep)
        sandbox = Sandbox()
        with measured() as use:
            code, _ = await outcome(sandbox, limited)
        await sandbox.close()
        # What a child takes between two looks comes on top.
        assert (code, use.memory_mb <= 300) == (("file_too_large", True) if guarded else ("too_much", False))


async def test_no_chunk_grows_past_its_limit(sandbox: Sandbox, order: Order, evil: Evil) -> None:
    evil("fill disk")
    small = Order(**orjson.loads(order.encode()) | {"unpacked_bytes_max": 1 << 20})
    assert (await outcome(sandbox, small))[0] == "unreadable_file"
    assert (Path(order.folder) / "0.arrow").stat().st_size == 4 << 20


async def test_what_a_reader_has_started_ends_with_it(sandbox: Sandbox, order: Order, evil: Evil) -> None:
    evil("fork")
    assert (await outcome(sandbox, order))[0] == "unreadable_file"
    pid = int((Path(order.folder) / "forked").read_text())
    until(lambda: not _runs(pid), 20, "what the reader has started still runs")


async def test_a_reader_sees_no_secret_and_no_open_file(
    sandbox: Sandbox, order: Order, evil: Evil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://canary@localhost/canary")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "open").open("w"):
        evil("known")
        code, words = await outcome(sandbox, order)
    variables, files, first = orjson.loads(words)
    assert code == "told"
    assert set(variables) == {"PATH", "PYTHONPATH", "POLARS_MAX_THREADS", "LC_ALL"}
    assert files == [0, 1, 2]
    assert first not in ("", str(tmp_path))
    assert "canary" not in words


async def test_a_reader_s_last_words_are_for_the_operator_only(
    sandbox: Sandbox, order: Order, evil: Evil, tmp_path: Path
) -> None:
    evil("fill disk")
    small = Order(**orjson.loads(order.encode()) | {"unpacked_bytes_max": 1 << 20})
    _, words = await outcome(sandbox, small)
    assert "OSError" in words
    assert str(tmp_path) not in words


async def test_an_error_of_the_progress_callback_is_not_an_error_of_the_file(sandbox: Sandbox, order: Order) -> None:
    async def fail(_: float) -> None:
        raise TimeoutError("the store")

    with pytest.raises(TimeoutError, match="the store"):
        await sandbox.plan(order, 20.0, fail)


async def test_after_all_of_them_a_good_file_is_read(
    sandbox: Sandbox, order: Order, evil: Evil, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = child_module.command
    for how in ("abort", "no start", "endless line", "deaf", "killed"):
        evil(how)
        await outcome(sandbox, order)
    monkeypatch.setattr(child_module, "command", good)
    assert (await read(sandbox, order)).rows == 1


async def test_a_cancelled_order_leaves_no_reader_behind(order: Order, evil: Evil) -> None:
    evil("loop")
    sandbox = Sandbox()
    with measured() as use:
        reading = asyncio.create_task(read(sandbox, order))
        while not use.pids:
            await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await sandbox.close()
    assert reading.cancelled()
    assert left_over(use) == []


# -- what it says ------------------------------------------------------------------------------------

ANSWER: dict[str, Any] = {
    "header_row": 1,
    "header": ["E-mail", "Name", "x"],
    "columns": {"email": 0, "name": 1},
    "unknown": ["x"],
    "typed": False,
    "about": {"encoding": "utf-8"},
    "notices": ["one"],
    "rows": 3,
    "chunks": [{"path": "0.arrow", "rows": 2}],
    "bad_rows": 1,
    "bad_groups": [["unclosed_quote", 1]],
    "bad": [[3, "unclosed_quote", "a quote is not closed", ["x", "y"]]],
}


def answer(folder: str, **changed: Any) -> bytes:
    found = ANSWER | changed
    if isinstance(found["chunks"], list):
        found["chunks"] = [
            chunk | {"path": f"{folder}/{chunk['path']}"} if isinstance(chunk, dict) and "path" in chunk else chunk
            for chunk in found["chunks"]
        ]
    return orjson.dumps({"found": found})


def test_an_answer_that_can_be_true_is_taken(order: Order) -> None:
    (Path(order.folder) / "0.arrow").write_bytes(b"x")
    found = judge(answer(order.folder), order)
    assert (found.rows, found.chunks[0].path) == (3, f"{order.folder}/0.arrow")
    assert found.refused(False).counts.invalid == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"header_row": 0},
        {"header_row": "1"},
        {"header_row": 1 << 40},
        {"header_row": True},
        {"header": []},
        {"header": ["x"] * 1_001},
        {"header": ["x" * 201, "y", "z"]},
        {"header": [None, "b", "c"]},
        {"columns": {"email": 3}},
        {"columns": {"email": -1}},
        {"columns": {"email": 0.5}},
        {"unknown": ["x"] * 4},
        {"typed": "no"},
        {"about": {"x": "y" * 70_000}},
        {"about": []},
        {"notices": ["x"] * 101},
        {"notices": ["x" * 5_000]},
        {"notices": ["a\0b"]},
        {"rows": 4},
        {"rows": -1},
        {"rows": 1e300},
        {"chunks": []},
        {"chunks": [{"path": "0.arrow", "rows": 0}]},
        {"chunks": [{"path": "0.arrow", "rows": 1}] * 2},
        {"chunks": [{"path": "missing.arrow", "rows": 2}]},
        {"chunks": [{"path": "../good.csv", "rows": 2}]},
        {"chunks": [{"path": "link.arrow", "rows": 2}]},
        {"chunks": [{"path": "hard.arrow", "rows": 2}]},
        {"chunks": [{"path": "folder", "rows": 2}]},
        {"chunks": [{"path": "pipe", "rows": 2}]},
        {"chunks": [{"path": "", "rows": 2}]},
        {"chunks": [{"path": "0.arrow", "rows": 2, "more": 1}]},
        {"chunks": "0.arrow"},
        {"bad_rows": 2},
        {"bad_groups": [["unclosed_quote", 2]]},
        {"bad_groups": [["Drop Table", 1]]},
        {"bad": [[3, "unclosed_quote", "a", ["x"]]] * 2},
        {"bad": [[0, "unclosed_quote", "a", ["x"]]]},
        {"bad": [[3, "unclosed_quote", "a", "x"]]},
        {"bad": [[3, "unclosed_quote", "a", ["\0"]]]},
        {"other": 1},
    ],
    ids=str,
)
def test_an_answer_that_cannot_be_true_is_nonsense(order: Order, changed: dict[str, Any]) -> None:
    folder = Path(order.folder)
    (folder / "0.arrow").write_bytes(b"x")
    (folder / "link.arrow").symlink_to("/etc/passwd")
    (folder / "hard.arrow").hardlink_to(order.path)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    with pytest.raises(Nonsense):
        judge(answer(order.folder, **changed), order)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b'"x"',
        b"\xff",
        b'{"refused":1,"code":"x"}',
        b'{"refused":"x","code":"' + b"x" * 51 + b'"}',
        b'{"refused":"x","failed":"y"}',
        b'{"refused":"a\\u0000b"}',
        b'{"failed":["x"]}',
        b'{"refused":"x","more":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
        b'{"refused":"\\ud800"}',
    ],
)
def test_lines_that_are_no_answer_are_nonsense(order: Order, line: bytes) -> None:
    with pytest.raises(Nonsense):
        judge(line, order)


def test_a_refusal_is_cut_to_what_a_person_reads(order: Order) -> None:
    with pytest.raises(FileRefused) as refused:
        judge(orjson.dumps({"refused": "x" * 10_000, "code": "c", "more": {"found": "y" * 100_000}}), order)
    assert len(str(refused.value)) == 4_000
    assert refused.value.more == {}


def test_a_full_disk_is_no_refusal(order: Order) -> None:
    with pytest.raises(StoreUnavailable, match="No space"):
        judge(b'{"failed":"No space left on device"}', order)


# -- when the worker dies ----------------------------------------------------------------------------

WORKER = """
import asyncio, sys, threading
from rowlock.imports.read.plan_request import Order
from rowlock.imports.read.sandbox import Sandbox

async def begun(done):
    print("reading", flush=True)

def work():
    asyncio.run(Sandbox().plan(Order.decode(sys.argv[1].encode()), 100.0, begun))

if sys.argv[2] == "main":
    work()
else:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("thread", ["main", "other"])
def test_a_reader_ends_with_its_worker(order: Order, tmp_path: Path, thread: str) -> None:
    endless = tmp_path / "pipe.csv"
    os.mkfifo(endless)
    waiting = Order(**orjson.loads(order.encode()) | {"path": str(endless)})
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, waiting.encode().decode(), thread], stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "reading\n"
        (reader,) = psutil.Process(worker.pid).children()
        assert reader.is_running()
    finally:
        worker.kill()
        worker.communicate()
    until(lambda: not _runs(reader.pid), 20, "the reader outlives its worker")


def test_a_reader_whose_worker_died_before_it_could_tie_itself_to_it_does_nothing(order: Order) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    command = [sys.executable, "-P", "-m", "rowlock.imports.read.planner", str(gone.pid)]
    done = subprocess.run(command, input=order.encode(), capture_output=True, check=True, timeout=60)
    assert (done.stdout, list(Path(order.folder).iterdir())) == (b"", [])


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
