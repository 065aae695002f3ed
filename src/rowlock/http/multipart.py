"""Parses multipart/form-data with one file as it arrives; holds no file data, and only small text fields."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from rowlock.errors import SettingsError
from rowlock.http.problem import Problem

_PARTS_MAX = 20
_TEXT_BYTES_MAX = 4_096

logging.getLogger("python_multipart").addHandler(logging.NullHandler())  # warnings about forms need no output


@dataclass(frozen=True, slots=True)
class FileBegins:
    name: str
    media_type: str  # empty if the part has none


@dataclass(frozen=True, slots=True)
class FileEnds:
    pass


@dataclass(frozen=True, slots=True)
class Text:
    name: str
    value: str


Event = FileBegins | bytes | FileEnds | Text


async def events(chunks: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[Event]:
    """Yield the text fields and the one file of a form in order; raises Problem if the form is malformed."""
    parts = _Parts(boundary)
    async for chunk in chunks:
        for event in parts.feed(chunk):
            yield event
    if not parts.over:
        raise _malformed("it is incomplete")


def boundary_of(content_type: str) -> bytes | None:
    """Return the boundary of a form, or None for other content types; raises Problem if a form names none."""
    kind, options = _options(content_type)
    if kind != b"multipart/form-data":
        return None
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise _malformed("its Content-Type has no boundary")
    return boundary


class _Parts:
    """Turns the parser's callbacks into events."""

    def __init__(self, boundary: bytes) -> None:
        multipart = _multipart()
        calls = {
            "on_part_begin": self._begin,
            "on_header_field": self._field,
            "on_header_value": self._value,
            "on_header_end": self._header,
            "on_headers_finished": self._named,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._over,
        }
        self._faults = multipart.exceptions.FormParserError
        try:
            self._parser = multipart.MultipartParser(boundary, calls)
        except self._faults:
            raise _malformed("its boundary is too long") from None
        self.over = False
        self._events: list[Event] = []
        self._count = 0
        self._files = 0

    def feed(self, data: bytes) -> list[Event]:
        self._events = []
        try:
            self._parser.write(data)
        except self._faults as error:
            raise _malformed(str(error)) from None
        return self._events

    def _begin(self) -> None:
        self._count += 1
        if self._count > _PARTS_MAX:
            raise _malformed(f"it has more than {_PARTS_MAX} parts")
        self._headers: dict[bytes, bytes] = {}
        self._header_name = self._header_value = b""
        self._text: bytes | None = None
        self._name = ""

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _header(self) -> None:
        self._headers[self._header_name.lower()] = self._header_value
        self._header_name = self._header_value = b""

    def _named(self) -> None:
        _, options = _options(self._headers.get(b"content-disposition", b"").decode("latin-1"))
        self._name = _text(options.get(b"name", b""))
        if b"filename" not in options:
            if self._name == "file":
                raise _malformed("its field `file` is not a file: it has no file name")
            self._text = b""
            return
        self._files += 1
        if self._name != "file" or self._files > 1:
            raise _malformed("it must have one file, in the field `file`")
        kind, _ = _options(self._headers.get(b"content-type", b"").decode("latin-1"))
        # Browsers write a quotation mark in a file name as %22.
        self._events.append(FileBegins(_text(options[b"filename"]).replace("%22", '"'), kind.decode("latin-1")))

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._text is None:
            self._events.append(data[start:end])
            return
        self._text += data[start:end]
        if len(self._text) > _TEXT_BYTES_MAX:
            raise _malformed(f"its field {self._name[:40]!r} has more than {_TEXT_BYTES_MAX:,} bytes")

    def _end(self) -> None:
        self._events.append(FileEnds() if self._text is None else Text(self._name, _text(self._text)))

    def _over(self) -> None:
        self.over = True


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _options(value: str) -> tuple[bytes, dict[bytes, bytes]]:
    try:
        found: tuple[bytes, dict[bytes, bytes]] = _multipart().multipart.parse_options_header(value)
    except UnicodeEncodeError:
        raise _malformed("it has a malformed header") from None
    return found


def _multipart() -> Any:
    try:
        import python_multipart
    except ImportError:
        raise SettingsError("uploads need python-multipart: pip install 'rowlock[imports]'") from None
    return python_multipart


def _malformed(reason: str) -> Problem:
    return Problem("malformed_form", f"the form cannot be read: {reason}")
