"""Detects the encoding of a text file and converts its text to UTF-8.

What cannot be decoded becomes bytes that are not valid UTF-8: a reader decodes each cell strictly and so finds them in
place. Nothing is replaced by another character.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import polars as pl

from rowlock.errors import FileRefused

UTF8_BOM = b"\xef\xbb\xbf"
_BROKEN_MAX = 1_000  # after this many broken bytes, if they are the majority, the rest of the file is not read
_ASCII = bytes(range(128))
_ESCAPED = re.compile("[\udc80-\udcff]")
_LOOK_BYTES = 4_096
_RUN = re.compile(rb"[\x80-\xff]{3,}+")
_MIXED = re.compile(rb"[\xc0-\xff][\x80-\xbf]+[\xc0-\xff]")  # no word in Windows-1252 has a symbol in it
_LETTER = re.compile(rb"[\xc0-\xff]")  # of Windows-1252; the bytes below are mostly symbols
_UNDEFINED = b"\x81\x8d\x8f\x90\x9d"  # in Windows-1252
_ODD_BYTES_MIN = 12  # this many are more than one odd word
_LONG_BYTES = 5
_LONG_WORDS_MIN = 2  # distinct ones: "äöüÄÖÜß" may occur in a Western file, even repeatedly
_FOREIGN_LOOK = 1 << 20  # non-ASCII bytes that are examined


@dataclass(frozen=True, slots=True)
class Encoding:
    """An encoding: its name, its codec, and the byte order mark of the file."""

    name: str
    codec: str
    bom: bytes = b""
    clean: bool = False  # every byte of the file was checked and is valid


UTF8 = Encoding("UTF-8", "utf-8")
WINDOWS = Encoding("Windows-1252", "cp1252")
_MARKED = (
    Encoding("UTF-8", "utf-8", UTF8_BOM),
    Encoding("UTF-32 LE", "utf-32-le", codecs.BOM_UTF32_LE),  # before UTF-16: its mark begins with that of UTF-16
    Encoding("UTF-32 BE", "utf-32-be", codecs.BOM_UTF32_BE),
    Encoding("UTF-16 LE", "utf-16-le", codecs.BOM_UTF16_LE),
    Encoding("UTF-16 BE", "utf-16-be", codecs.BOM_UTF16_BE),
)


def wide_encoding(start: bytes) -> Encoding | None:
    """Return the encoding if the first bytes show it by a byte order mark or the zeros of UTF-16, else None."""
    for marked in _MARKED:
        if start.startswith(marked.bom):
            return marked
    look = start[:_LOOK_BYTES]
    pairs = len(look) // 2
    if pairs < 2:
        return None
    even, odd = look[0 : 2 * pairs : 2].count(0), look[1 : 2 * pairs : 2].count(0)
    if odd > 0.4 * pairs and even < 0.05 * pairs:
        return Encoding("UTF-16 LE", "utf-16-le")
    if even > 0.4 * pairs and odd < 0.05 * pairs:
        return Encoding("UTF-16 BE", "utf-16-be")
    return None


def narrow_encoding(pieces: Callable[[], Iterator[bytes]]) -> Encoding:
    """Return UTF-8, or Windows-1252 if more of the file contradicts UTF-8 than supports it.

    Raises FileRefused if it can be neither: decoding it would produce wrong text.
    """
    if _all_utf8(pieces()):
        return replace(UTF8, clean=True)
    likely = _likely(pieces())
    if likely is WINDOWS and _is_foreign(pieces()):
        raise FileRefused(
            "the file is not in UTF-8, and its letters make no sense in Windows-1252: they are those of another "
            "encoding, such as a Cyrillic, Greek, Japanese or Chinese one; save it as UTF-8 and upload that",
            code="encoding_unknown",
        )
    return likely


def _all_utf8(pieces: Iterator[bytes]) -> bool:
    """Return whether all bytes are valid UTF-8; this check is fast."""
    carried = b""
    for piece in pieces:
        if not carried and piece.isascii():
            continue
        text = carried + piece
        # A character that may continue in the next piece is checked there; its lead byte is one of the last three.
        end = next((len(text) - n for n in (1, 2, 3) if text[-n : len(text) - n + 1] >= b"\xc0"), len(text))
        if not _is_utf8(text[:end]):
            return False
        carried = text[end:]
    return _is_utf8(carried)


def _is_utf8(text: bytes) -> bool:
    try:
        pl.Series([text], dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.PolarsError:
        return False
    return True


def _likely(pieces: Iterator[bytes]) -> Encoding:
    strict, lax = (codecs.getincrementaldecoder("utf-8")(errors) for errors in ("strict", "surrogateescape"))
    valid = broken = 0  # valid: bytes after the first one of valid characters
    for piece in chain(pieces, (b"",)):
        if piece and piece.isascii() and not strict.getstate()[0]:
            continue
        valid += len(piece)
        try:
            valid -= len(strict.decode(piece, not piece))
        except UnicodeDecodeError:
            lax.setstate(strict.getstate())
            text = lax.decode(piece, not piece)
            strict.setstate(lax.getstate())
            valid -= len(text)
            broken += len(_ESCAPED.findall(text))
            if broken > _BROKEN_MAX and broken > valid:
                break
    return replace(UTF8, clean=not broken) if valid >= broken else WINDOWS


def _is_foreign(pieces: Iterator[bytes]) -> bool:
    """Return whether most non-ASCII bytes form words; in the languages of Windows-1252 such letters stand alone."""
    total = in_runs = in_words = undefined = 0
    words: set[bytes] = set()
    for piece in pieces:
        if piece.isascii():
            continue
        beyond, runs = piece.translate(None, _ASCII), _RUN.findall(piece)
        total += len(beyond)
        in_runs += sum(map(len, runs))
        in_words += sum(len(run) for run in runs if _LETTER.search(run))
        undefined += len(beyond) - len(beyond.translate(None, _UNDEFINED))
        if len(words) < _LONG_WORDS_MIN:
            words.update(run for run in runs if len(run) >= _LONG_BYTES)
        if total > _FOREIGN_LOOK:
            break
    if undefined or any(map(_MIXED.search, words)):
        return in_runs >= _ODD_BYTES_MIN and in_runs > total / 2
    return len(words) >= _LONG_WORDS_MIN and in_words > total / 2


def as_utf8(pieces: Iterator[bytes], encoding: Encoding) -> Iterator[bytes]:
    """Yield the text in UTF-8, without the byte order mark."""
    marked = _without(pieces, encoding.bom)
    if encoding.codec == "utf-8":
        yield from marked
    elif encoding.codec == "cp1252":
        for piece in marked:
            yield (
                piece
                if piece.isascii()
                else piece.decode("cp1252", "surrogateescape").encode("utf-8", "surrogateescape")
            )
    else:
        decoder = codecs.getincrementaldecoder(encoding.codec)("rowlock.broken")
        for piece in chain(marked, (b"",)):
            yield decoder.decode(piece, final=not piece).encode("utf-8", "surrogateescape")


def _without(pieces: Iterator[bytes], bom: bytes) -> Iterator[bytes]:
    start = b""
    for piece in pieces:
        start += piece
        if len(start) >= len(bom):
            break
    yield start.removeprefix(bom)
    yield from pieces


def _broken(fault: UnicodeError) -> tuple[str, int]:
    """Decode invalid input to a stand-in for the byte 0xFF, which is never valid UTF-8."""
    assert isinstance(fault, UnicodeDecodeError)
    return "\udcff", fault.end


codecs.register_error("rowlock.broken", _broken)
