"""Decodes the characters of a part as expat would, and resolves references and Excel's own escapes."""

from __future__ import annotations

import codecs
import io
import re

from rowlock.imports.read.workbook.errors import damaged

# Characters that XML forbids: the fast readers leave them to expat.
_CONTROLS = bytes(set(range(32)) - {9, 10, 13})
_NOT_CHARACTERS = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")
_ENCODING = re.compile(rb"""^<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_DECLARATION = re.compile(r"^\s*<\?xml[^<>]*\?>")
_REFERENCE = re.compile(r"&(?:#([0-9]{1,7})|#x([0-9A-Fa-f]{1,6})|(\w+));|&")
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


class Unreadable(Exception):
    """A reference that is left to expat."""


class Decoder:
    """Decodes blocks of UTF-8 to text with XML's newlines; blocks in another encoding stay bytes, for expat."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._utf8: bool | None = None
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
        self._clean = True

    def feed(self, block: bytes) -> str | bytes:
        """Return the block's text, or the block itself if the part is not in UTF-8."""
        if self._utf8 is None:
            self._utf8 = _is_utf8(block)
        if not self._utf8:
            return block
        self._clean = len(block.translate(None, _CONTROLS)) == len(block)
        if self._clean and b"\xef" in block:
            self._clean = not any(bad in block for bad in _NOT_CHARACTERS)
        return self._decode(block, final=False)

    def finish(self) -> str:
        """Return the text that was held back at the end of the last block."""
        return self._decode(b"", final=True) if self._utf8 else ""

    def regular(self, text: str) -> bool:
        """Return whether each `<` opens a tag: no comments, CDATA, instructions or DOCTYPE, which are left to expat."""
        if not self._clean:
            return False
        # Searching one rare character is much faster than searching two of which the first is common.
        if "]" in text and "]]>" in text:
            return False
        if not ("!" in text and "<!" in text) and not ("?" in text and "<?" in text):
            return True
        return "<!" not in text and text.count("<?") == 1 and _DECLARATION.match(text) is not None

    def _decode(self, block: bytes, *, final: bool) -> str:
        try:
            return self._decoder.decode(block, final=final)
        except UnicodeDecodeError as error:
            raise damaged(f"its part {self._part[:80]} has bytes that are not text") from error


def _is_utf8(start: bytes) -> bool:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in start[:4]:
        return False
    declared = _ENCODING.match(start[:200].removeprefix(codecs.BOM_UTF8))
    return declared is None or declared[1].lower() in (b"utf-8", b"utf8", b"us-ascii")


def unescaped(text: str) -> str:
    """Return the text with its references resolved; raises Unreadable if expat would not resolve one."""
    return _REFERENCE.sub(_resolved, text)


def _resolved(found: re.Match[str]) -> str:
    decimal, hexadecimal, name = found.groups()
    if name is not None:
        if name not in _NAMED:
            raise Unreadable(name)
        return _NAMED[name]
    if decimal is None and hexadecimal is None:
        raise Unreadable(found[0])
    code = int(decimal) if decimal is not None else int(hexadecimal, 16)
    if code in (9, 10, 13) or 32 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or 0x10000 <= code <= 0x10FFFF:
        return chr(code)
    raise Unreadable(found[0])


def plain_text(text: str) -> str:
    """Return the text with Excel's _xHHHH_ escapes resolved, except NUL; a text with a lone surrogate is unchanged."""
    if "_x" not in text:
        return text
    resolved = _ESCAPE.sub(_character, text)
    if any("\ud800" <= character <= "\udfff" for character in resolved):
        try:
            return resolved.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            return text
    return resolved


def _character(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    return chr(code) if code else found[0]
