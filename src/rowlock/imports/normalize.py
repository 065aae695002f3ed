"""Text normalisation for keys and headers: they are compared, and keys are stored, in this form.

    characters    NFC: a letter with its accent is one character
    removed       soft hyphens, zero-width spaces, byte order marks, marks of writing direction, and the like
    joiners       zero-width joiners and non-joiners stay inside a text after a character from U+0600 on, because they
                  are significant in scripts such as Persian and Devanagari, and in emoji; not beside white space

So texts that look the same are equal, whichever program wrote them. Normalising a normalised text changes nothing, with
or without white space around it: keys are normalised more than once.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_DOUBTFUL = "[\u00ad\u0300-\U0010ffff]"  # texts without these characters are normalised already
# These patterns mean the same to the regex engines of Python and Rust.
_LEFT_OUT = "[\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
_WIDE_BLANKS = "\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_IDLE_JOINERS = f"(^|[\u0001-\u05ff{_WIDE_BLANKS}])[\u200c\u200d]+"
_LAST_JOINERS = f"[\u200c\u200d]+([\t-\r \u0085\u00a0{_WIDE_BLANKS}]|\\z)"
_left_out, _idle_joiners = re.compile(_LEFT_OUT), re.compile(_IDLE_JOINERS)
_last_joiners = re.compile(_LAST_JOINERS.replace(r"\z", r"\Z"))  # Python's name of the end


def normal_text(text: str) -> str:
    """Return the normalised text."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", _left_out.sub("", text))
    # NFC may reorder marks after the joiner between them was removed; another joiner may become removable then.
    while (made := unicodedata.normalize("NFC", _last_joiners.sub(r"\1", _idle_joiners.sub(r"\1", text)))) != text:
        text = made
    return text


def normal_texts(texts: pl.Series) -> pl.Series:
    """Return the normalised texts."""
    if texts.str.len_bytes().sum() == texts.str.len_chars().sum():
        return texts
    where = texts.str.contains(_DOUBTFUL).arg_true()
    if not len(where):
        return texts
    some = texts.gather(where).str.replace_all(_LEFT_OUT, "").str.normalize("NFC")
    while some.str.contains("[\u200c\u200d]").any():
        made = some.str.replace_all(_IDLE_JOINERS, "${1}").str.replace_all(_LAST_JOINERS, "${1}").str.normalize("NFC")
        if made.equals(some):
            break
        some = made
    from rowlock.imports.read.lines import replaced

    return replaced(texts, where, some)
