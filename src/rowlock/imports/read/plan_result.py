"""Validates the plan result before it is used: a sandbox that a file has taken over may answer anything."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rowlock.errors import FileRefused, StoreUnavailable
from rowlock.imports.read.plan_request import ChunkFile, Found, Order

MESSAGE_CHARS_MAX = 4_000
NAME_CHARS_MAX = 200  # of a column's name; longer ones are cut
_ABOUT_BYTES_MAX = 64 << 10
_NOTICES_MAX = 100
_CHUNKS_MORE = 200  # parts per chunk, as chunks that became too large are divided
_ROW_MAX = (1 << 32) - 1


class Nonsense(Exception):
    """Output that a working planner never sends."""


Row = Annotated[int, Field(ge=1, le=_ROW_MAX)]
Count = Annotated[int, Field(ge=0, le=_ROW_MAX)]
Code = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,50}$")]
Name = Annotated[str, Field(max_length=NAME_CHARS_MAX)]
Text = Annotated[str, Field(max_length=MESSAGE_CHARS_MAX)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Chunk(_Strict):
    path: str
    rows: Row


class _Found(_Strict):
    header_row: Row
    header: list[Name]
    columns: dict[str, Count]
    unknown: list[Name]
    typed: bool
    about: dict[str, Any]
    notices: Annotated[list[Text], Field(max_length=_NOTICES_MAX)]
    rows: Row
    chunks: list[_Chunk]
    bad_rows: Count
    bad_groups: list[tuple[Code, Row]]
    bad: list[tuple[Row, Code, Text, list[str]]]


class _Answer(_Strict):
    found: _Found | None = None
    refused: str | None = None
    code: Code = "file_refused"
    more: dict[str, Any] | None = None
    failed: Text | None = None


class _Progress(_Strict):
    done: Annotated[float, Field(ge=0, le=1)]


def progress(line: bytes) -> float:
    """Return how much of the file was read, from 0 to 1; raises Nonsense for an invalid line."""
    try:
        return _Progress.model_validate_json(line).done
    except ValidationError as error:
        raise Nonsense("invalid progress") from error


def judge(line: bytes, order: Order) -> Found:
    """Return the validated plan result; raises Nonsense if it is invalid.

    Raises FileRefused or StoreUnavailable if the planner answers that.
    """
    try:
        said = _Answer.model_validate_json(line)
    except ValidationError as error:
        raise Nonsense(f"invalid answer: {error.errors()[0]['type']}") from error
    if b"\\u0000" in line and _has_nul(said.model_dump()):
        raise Nonsense("a NUL character")
    if [said.found, said.refused, said.failed].count(None) != 2:
        raise Nonsense("no result, or several")
    if said.refused is not None:
        more = said.more if _is_small(said.more) else None
        raise FileRefused(_cut(said.refused), code=said.code, more=more)
    if said.failed is not None:
        raise StoreUnavailable(f"the chunks of {order.name} cannot be written: {said.failed}")
    assert said.found is not None
    _check(said.found, order)
    return Found(**said.found.model_dump(exclude={"chunks"}), chunks=_chunks(said.found.chunks, order))


def _check(found: _Found, order: Order) -> None:
    width = len(found.header)
    groups = sum(count for _, count in found.bad_groups)
    checks = {
        "columns": 0 < width <= order.columns_max and all(index < width for index in found.columns.values()),
        "unknown columns": len(found.unknown) <= width,
        "rows": found.rows == found.bad_rows + sum(chunk.rows for chunk in found.chunks),
        "bad records": groups == found.bad_rows and len(found.bad) <= min(found.bad_rows, order.errors_max),
        "chunks": len(found.chunks) <= _CHUNKS_MORE * order.chunks_max,
        "about": _is_small(found.about),
    }
    for what, fits in checks.items():
        if not fits:
            raise Nonsense(f"impossible {what}")


def _chunks(told: list[_Chunk], order: Order) -> list[ChunkFile]:
    """Return the chunks; raises Nonsense unless each is a regular file, listed and linked once, in `order.folder`."""
    folder, seen = Path(order.folder), set[str]()
    for chunk in told:
        path = Path(chunk.path)
        if path.parent != folder or path.name in ("", ".", "..") or chunk.path in seen:
            raise Nonsense("a chunk outside its folder")
        seen.add(chunk.path)
        try:
            kept = os.lstat(path)
        except OSError as error:
            raise Nonsense("a chunk file that does not exist") from error
        if not stat.S_ISREG(kept.st_mode) or kept.st_nlink != 1:
            raise Nonsense("a chunk that is not a regular file")
    return [ChunkFile(chunk.path, chunk.rows) for chunk in told]


def _is_small(given: dict[str, Any] | None) -> bool:
    try:
        return len(orjson.dumps(given)) <= _ABOUT_BYTES_MAX
    except TypeError:  # nested too deeply to be stored
        return False


def _has_nul(given: Any) -> bool:
    match given:
        case str():
            return "\0" in given
        case dict():
            return any(_has_nul(key) or _has_nul(value) for key, value in given.items())
        case list() | tuple():
            return any(map(_has_nul, given))
    return False


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARS_MAX else message[: MESSAGE_CHARS_MAX - 1] + "…"
