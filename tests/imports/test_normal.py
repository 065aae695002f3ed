"""Texts of keys and headers that look equal are equal."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from imports.conftest import MakeOffice, told
from rowlock import Importer, Run
from rowlock.imports.check.check import key_hash
from rowlock.imports.check.coerce import BLANKS
from rowlock.imports.check.columns import convert
from rowlock.imports.fields import fields_of
from rowlock.imports.formats import Formats
from rowlock.imports.normalize import normal_text, normal_texts
from rowlock.imports.read.headers import match_headers

PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("Jose\u0301", "Jos\u00e9"),
        ("\ufeffkey", "key"),
        ("ke\u200by", "key"),
        ("cus\u00adtomer", "customer"),
        ("a\u200db\u200cc", "abc"),
        ("e\u200d\u0301", "\u00e9"),
        ("\u200eabc\u202c", "abc"),
        ("\u200d\u200c", ""),
        (PERSIAN, PERSIAN),
        (PERSIAN + "\u200c", PERSIAN),
        (FAMILY, FAMILY),
        (FAMILY + "\u200d x", FAMILY + " x"),
        ("\u3000\u200dx", "\u3000x"),
        ("\u064b\u0300\u200d\u064b\u200c\u11a8", "\u064b\u064b\u0300\u11a8"),
        ("\u212b\u200dx", "\u00c5x"),
        ("plain", "plain"),
        ("\uff21", "\uff21"),
    ],
)
def test_the_normal_form(written: str, normal: str) -> None:
    assert normal_text(written) == normal
    assert normal_texts(pl.Series([written, None]))[0] == normal


_CHARACTERS = st.sampled_from(
    "aeEs\u064b\u11a8\u0301\u0308\u0323\u00e9\u212b\u1e63\u00ad\u200b\u200c\u200d\u200e\u2060\ufeff\u0645\u1100\u1161 "
    "\u00a0\u2003\u202f\u3000\U0001f468\n"
)


@given(st.text(_CHARACTERS, max_size=8))
def test_single_texts_and_columns_have_one_form_that_stays(text: str) -> None:
    normal = normal_text(text)
    assert normal_texts(pl.Series([text], dtype=pl.String))[0] == normal
    assert normal_text(normal) == normal
    assert normal_text(normal.strip(BLANKS)) == normal.strip(BLANKS)
    assert normal_text(f" {text}\u3000").strip(BLANKS) == normal.strip(BLANKS)
    assert normal_text(unicodedata.normalize("NFD", text)) == normal


@pytest.mark.parametrize("case", ["lower", "upper", None])
@given(text=st.text(_CHARACTERS | st.sampled_from("\u0390\u0130\u01f0\u1fb7"), min_size=1, max_size=6))
def test_the_hash_of_a_key_is_that_of_the_text_which_is_stored(case: str | None, text: str) -> None:
    (name, _) = fields_of(Person, Formats())
    field = replace(name, normal=True, lower=case == "lower", upper=case == "upper")
    (stored,) = normal_texts(convert(field, pl.Series("name", [text]), None).values)
    if stored:
        texts = pl.DataFrame({"name": [text, stored]})
        assert key_hash(texts, [field], False).n_unique() == 1


class Person(BaseModel):
    name: str
    note: str = ""


@pytest.mark.parametrize("cell", ["na\u00adme", "\u200bname", "\ufeffNAME\u200d", "n\u2060ame"])
def test_a_header_is_known_whatever_is_invisible_in_it(cell: str) -> None:
    assert match_headers([cell], fields_of(Person, Formats())).columns == {"name": 0}


def test_accents_of_headers_may_be_characters_of_their_own() -> None:
    class Paper(BaseModel):
        resume: str = ""
        résumé: str = ""

    found = match_headers(["resume", "re\u0301sume\u0301"], fields_of(Paper, Formats()))
    assert found.columns == {"resume": 0, "r\u00e9sum\u00e9": 1}


@pytest.mark.every_store
async def test_keys_that_look_the_same_are_one_row_over_chunks_and_imports(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer("odd", row=Person, key=["name"], into="odd"), import_chunk_bytes=1_024
    )
    twins = ["Jose\u0301", "Jos\u00e9", "Jo\u00ads\u00e9", "\u200bJos\u00e9\ufeff ", "Jos\u200d\u00e9"]
    rows = [f"{name},{n}" for n in range(40) for name in (*twins, f"Ann{n}")]
    record = await office.run("name,note\n" + "\n".join(rows), type="odd")

    assert (record.total_chunks or 0) > 1
    assert told(record) == (240, 41, 0, 0, 199, 0), record.error
    assert ("Jos\u00e9", "39") in await office.table("name", "note", of="odd")
    again = await office.run("name,note\nJose\u0301,39\n", type="odd")
    assert told(again) == (1, 0, 0, 1, 0, 0)


async def test_joiners_before_white_space_bring_no_key_into_two_chunks(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer("odd", row=Person, key=["name"], into="odd"), import_chunk_bytes=1_024
    )
    rows = [f"{PERSIAN}{n}\u0645{end},{n}" for n in range(40) for end in ("", "\u200c ", "\u200c\u3000")]
    record = await office.run("name,note\n" + "\n".join(rows), type="odd")

    assert (record.total_chunks or 0) > 1
    assert told(record) == (120, 40, 0, 0, 80, 0), record.error


async def test_keys_that_a_hook_makes_have_the_normal_form_and_other_texts_are_kept(make_office: MakeOffice) -> None:
    class Naming(Importer):
        def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
            return frame.with_columns(pl.lit("Jose\u0301").alias("name"))

    office = await make_office(lambda app: app.importer("odd", row=Person, key=["name"], into="odd")(Naming))
    record = await office.run("name,note\nx,a\u00adb\n", type="odd")

    assert told(record) == (1, 1, 0, 0, 0, 0), record.error
    assert await office.table("name", "note", of="odd") == [("Jos\u00e9", "a\u00adb")]
