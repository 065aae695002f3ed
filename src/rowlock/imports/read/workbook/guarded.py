"""An expat parser that refuses what no workbook needs: document types, entities, deep nesting."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from xml.parsers import expat

from rowlock.imports.read.workbook.errors import damaged, unsafe_xml

DEPTH_MAX = 200
TAG_CHARS_MAX = 2 << 20

Start = Callable[[str, dict[str, str]], None]
End = Callable[[str], None]
Text = Callable[[str], None]


class GuardedParser:
    """Passes a document's elements and text to handlers; removes the root's namespace prefix from element names."""

    def __init__(self, part: str, start: Start, end: End, text: Text | None = None) -> None:
        self.part = part
        self.depth = 0
        self.prefix: str | None = None  # of the root, with its colon; other prefixes are other vocabularies
        self._start, self._end = start, end
        self._at, self._held = 0, 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.EntityDeclHandler = self._refuse
        self._parser.StartElementHandler = self._open
        self._parser.EndElementHandler = self._close
        if text is not None:
            self._parser.CharacterDataHandler = text

    def feed(self, data: bytes | str, final: bool = False) -> None:
        """Parse more of the document; raises FileRefused if it is malformed."""
        try:
            self._parser.Parse(data, final)
            self._refuse_long_tags(len(data))
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code) or "malformed"
            raise damaged(f"its part {self.part[:80]} is not valid XML ({reason}, line {error.lineno})") from error
        except (ValueError, UnicodeError, LookupError) as error:
            raise damaged(f"its part {self.part[:80]} is in an encoding that cannot be read") from error

    def _refuse_long_tags(self, fed: int) -> None:
        """Refuse endless tags and comments: expat parses an unfinished one from its start on every feed."""
        at = self._parser.CurrentByteIndex
        self._held = self._held + fed if at == self._at else 0
        self._at = at
        if self._held > TAG_CHARS_MAX:
            raise damaged(f"its part {self.part[:80]} has a tag or a comment that never ends")

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.prefix is None:
            self.prefix = name[: name.find(":") + 1]
        elif self.depth > DEPTH_MAX:
            raise damaged(f"its part {self.part[:80]} is nested too deeply")
        self._start(self._own(name) if self.prefix else name, attributes)

    def _close(self, name: str) -> None:
        self.depth -= 1
        self._end(self._own(name) if self.prefix else name)

    def _own(self, name: str) -> str:
        prefix = self.prefix or ""
        return name.removeprefix(prefix) if name.startswith(prefix) else f":{name}"

    def _refuse(self, *_: object) -> None:
        raise unsafe_xml(self.part[:80])


def parse(part: str, blocks: Generator[bytes, None, None], start: Start, end: End, text: Text | None = None) -> None:
    """Parse a whole part."""
    parser = GuardedParser(part, start, end, text)
    with closing(blocks):
        for block in blocks:
            parser.feed(block)
    parser.feed(b"", final=True)
