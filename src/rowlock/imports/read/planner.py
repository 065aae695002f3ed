"""The planner: reads an untrusted file in a process of its own, under limits, and writes chunks that can be trusted.

    request (stdin) ─▶ read ─▶ header ─▶ split ─▶ chunk files        {"done": 0.4} … {"found": {…}} (stdout)

Whatever the file does to this process, the worker that started it survives and learns why it ended.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from rowlock import control_channel
from rowlock.errors import FileRefused
from rowlock.imports.check.check import key_hash
from rowlock.imports.fields import Field, load
from rowlock.imports.load.background import Aside
from rowlock.imports.read.delimited import open_delimited
from rowlock.imports.read.headers import find_header, refuse_header
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.partition import PARTS_MAX, Splitter, chunk_count, key_cells
from rowlock.imports.read.plan_request import Found, Order
from rowlock.imports.read.plan_result import NAME_CHARS_MAX
from rowlock.imports.read.source import ROW, HeadRow, Source
from rowlock.imports.read.workbook import open_workbook

HEAD_ROWS = 50
_TEXT_BYTES_FLOOR = 1 << 28
_TEXT_RATIO = 200
_BAD_CHARS_MAX = 8 << 20  # of bad records reported one by one; all are counted
_SPARE_FILES = 100  # open files besides one per chunk
_ADDRESS_BYTES = 3 << 30  # Polars reserves far more than it uses; the parent watches what it uses
_DATA_BYTES = 1 << 29  # the limit is this plus twice the memory: a backstop for when the parent cannot watch


def plan(order: Order) -> Found:
    """Read the requested file and write its chunks; raises FileRefused if it cannot be imported or has no rows."""
    path, fields = Path(order.path), load(order.fields)
    unpacked_bytes_max = _unpacked_bytes_max(order, path)
    limits = ReadLimits(order.columns_max, order.cell_chars_max, unpacked_bytes_max, told_max=order.errors_max)
    source: Source
    if order.kind == "xlsx":
        source = open_workbook(path, sheet=order.sheet, limits=limits)
    else:
        source = open_delimited(path, name=order.name, limits=limits)
    head = [_shortened(row) for row in source.head(HEAD_ROWS)]
    if not head:
        raise FileRefused("the file has no rows: there is nothing to import", code="empty_file")
    header = find_header(head, fields)
    refuse_header(header, fields)
    width = len(header.cells)
    by_name = {field.name: field for field in fields}
    key = [(by_name[name], header.match.columns.get(name)) for name in order.partition]
    count = chunk_count(path.stat().st_size, order) if key else order.chunks_max
    bad, bad_chars, groups = list[list[Any]](), 0, Counter[str]()
    bytes_max = _text_bytes_max(order, path)
    with Splitter(order.folder, count, order.chunk_bytes, bytes_max, order.rows_max) as splitter, Aside() as aside:
        for batch in source.batches(header.row, width):
            aside.do(partial(_split, splitter, batch.frame, key, source.typed))
            for record in batch.bad:
                groups[record.code] += 1
                bad_chars += len(record.reason) + sum(map(len, record.cells))
                if len(bad) < order.errors_max and bad_chars <= _BAD_CHARS_MAX:
                    bad.append([record.row, record.code, _kept(record.reason), [*map(_kept, record.cells)]])
            groups.update(batch.counted)
            _say({"done": batch.done})
        aside.wait()
        chunks = splitter.chunks()
    bad_rows = sum(groups.values())
    rows = bad_rows + sum(chunk.rows for chunk in chunks)
    if rows == 0:
        raise FileRefused(f"there are no rows below the header in row {header.row}", code="empty_file")
    return Found(
        header.row,
        list(header.cells),
        header.match.columns,
        [text for _, text in header.match.unknown],
        source.typed,
        source.about,
        source.notices,
        rows,
        chunks,
        bad_rows,
        [[code, number] for code, number in groups.items()],
        bad,
    )


def _split(splitter: Splitter, frame: pl.DataFrame, key: list[tuple[Field, int | None]], typed: bool) -> None:
    if key:
        cells = key_cells(frame, key, typed)
        hashes = key_hash(cells, [field for field, _ in key], typed)
        needed = [field.name for field, _ in key if not (field.nullable or field.has_default)]
        if needed:  # a row without its key is bad in any chunk: spread such rows over all chunks
            blank = pl.any_horizontal(pl.col(name).str.strip_chars() == "" for name in needed)
            hashes = cells.select(pl.when(blank).then(pl.col(ROW).cast(pl.UInt64)).otherwise(hashes)).to_series()
        splitter.add_by_hash(frame, hashes)
    else:
        splitter.add(frame)


def _text_bytes_max(order: Order, path: Path) -> int:
    """Return the most bytes of text that a file may yield; empty cells cost some bytes, too."""
    if order.kind == "xlsx":
        return min(order.unpacked_bytes_max, _TEXT_BYTES_FLOOR + _TEXT_RATIO * path.stat().st_size)
    return 4 * order.unpacked_bytes_max


def _unpacked_bytes_max(order: Order, path: Path) -> int:
    """Return the most bytes that a file may unpack to: gzip shrinks text 10 to 100 times, a zip bomb 1,000 times."""
    if order.kind == "xlsx":
        return order.unpacked_bytes_max
    return min(order.unpacked_bytes_max, _TEXT_BYTES_FLOOR + _TEXT_RATIO * path.stat().st_size)


def _shortened(row: HeadRow) -> HeadRow:
    """Cut each cell to the length of a column's name."""
    return HeadRow(row.row, tuple(_kept(cell[:NAME_CHARS_MAX]) for cell in row.cells))


def _kept(text: str) -> str:
    """Replace NUL characters, which stores cannot keep."""
    return text.replace("\0", "␀")


def confine(order: Order) -> None:
    """Limit this process to the resources that reading a file needs."""
    memory_bytes = order.memory_mb << 20
    for limit, value, more in (
        (resource.RLIMIT_CPU, order.cpu_seconds, 5),  # at the hard limit it is killed without a reason
        (resource.RLIMIT_AS, _ADDRESS_BYTES + memory_bytes, 0),
        (resource.RLIMIT_DATA, _DATA_BYTES + 2 * memory_bytes, 0),
        (resource.RLIMIT_FSIZE, 4 * order.unpacked_bytes_max, 0),
        (resource.RLIMIT_NOFILE, max(order.chunks_max, PARTS_MAX) + _SPARE_FILES, 0),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        _, hard = resource.getrlimit(limit)
        soft, most = (bound if hard == resource.RLIM_INFINITY else min(bound, hard) for bound in (value, value + more))
        resource.setrlimit(limit, (soft, most))


def stay_with(parent: int) -> bool:
    """Have the kernel kill this process when the worker ends; returns False if the worker is gone already."""
    control_channel.end_with_parent(signal.SIGKILL)
    return os.getppid() == parent


def _say(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(told) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    if not stay_with(int(sys.argv[1])):
        return  # the worker is gone
    with open(control_channel.take_standard_input(), "rb") as orders:
        line = orders.readline()
    if not line:
        return  # the spare child was not needed
    order = Order.decode(line)
    confine(order)
    _say({"done": 0.0})  # from here on, a crash is the file's fault
    try:
        _say({"found": orjson.Fragment(plan(order).encode())})
    except FileRefused as refused:
        _say({"refused": str(refused), "code": refused.code, "more": refused.more})
    except MemoryError:
        _say(
            {
                "refused": f"reading the file takes more than {order.memory_mb} MB of memory: split it",
                "code": "file_too_large",
            }
        )
    except OSError as error:
        if error.errno == errno.EFBIG:
            _say(
                {
                    "refused": "the file contains far more text than an import can store: split it",
                    "code": "file_too_large",
                }
            )
        elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE):
            _say({"failed": os.strerror(error.errno)})
        else:
            raise


if __name__ == "__main__":
    main()
