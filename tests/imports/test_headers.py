"""Headers: which column belongs to which field, and the errors if that is not clear."""

from __future__ import annotations

import datetime as dt

import pytest
from pydantic import AliasChoices, BaseModel, Field

from rowlock.errors import FileRefused
from rowlock.imports.fields import fields_of
from rowlock.imports.formats import Formats
from rowlock.imports.read.headers import Header, HeaderMatch, find_header, letter, match_headers, refuse_header
from rowlock.imports.read.source import HeadRow


class Customer(BaseModel):
    email: str
    full_name: str = Field(title="Name of the customer")
    signed_up: dt.date = Field(validation_alias=AliasChoices("Signup Date", "registriert am"))
    city: str = Field("", alias="Ort")
    customer_no: str = ""


FIELDS = fields_of(Customer, Formats())
ALL = ("email", "full_name", "Signup Date")


def match(*cells: str) -> HeaderMatch:
    return match_headers(cells, FIELDS)


def refused(*cells: str) -> FileRefused:
    with pytest.raises(FileRefused) as caught:
        refuse_header(Header(3, cells, match(*cells)), FIELDS)
    return caught.value


@pytest.mark.parametrize(
    ("cell", "field"),
    [
        ("email", "email"),
        (" email ", "email"),
        ("E-Mail", "email"),
        ("E_MAIL", "email"),
        ("eMail", "email"),
        ("É-mail", "email"),
        ("\ufeffemail", "email"),
        ("e mail", "email"),
        ("E-mail Address", "email"),
        ("Email No.", "email"),
        ("fullName", "full_name"),
        ("FULL NAME", "full_name"),
        ("Full\u00a0Name", "full_name"),
        ("Full\r\nName", "full_name"),
        ("Name of the customer", "full_name"),
        ("Signup Date", "signed_up"),
        ("signed_up", "signed_up"),
        ("Registriert am", "signed_up"),
        ("Ort", "city"),
        ("city", "city"),
        ("Customer No.", "customer_no"),
    ],
)
def test_a_header_is_known_by_name_alias_title_and_other_spellings(cell: str, field: str) -> None:
    assert match(cell).columns == {field: 0}


@pytest.mark.parametrize(
    "cell", ["mail", "emails", "address", "Number", "customer", "name", "full", "up", "", "  ", "---"]
)
def test_what_only_resembles_a_name_is_not_taken_for_it(cell: str) -> None:
    assert match(cell).columns == {}


def test_unknown_columns_and_missing_fields_are_told() -> None:
    found = match("email", "", "Foo", "Foo", "full_name")
    assert found.columns == {"email": 0, "full_name": 4}
    assert found.unknown == [(2, "Foo"), (3, "Foo")]
    assert found.missing == ["signed_up"]
    assert found.twice == []


def test_a_last_word_is_left_out_only_where_that_leaves_no_choice() -> None:
    assert match("E-mail Address", "E-mail Number").columns == {}
    exact = match("email", "E-mail Address")
    assert (exact.columns, exact.unknown, exact.twice) == ({"email": 0}, [(1, "E-mail Address")], [])


def test_a_spelling_that_two_fields_share_is_neither() -> None:
    class Two(BaseModel):
        a_b: str
        ab: str

    fields = fields_of(Two, Formats())
    assert match_headers(["A B"], fields).columns == {}
    assert match_headers(["a_b", "ab"], fields).columns == {"a_b": 0, "ab": 1}


def test_a_field_with_two_columns_is_refused_naming_both() -> None:
    problem = refused("email", "x", "E-Mail", "full_name", "Signup Date")
    assert problem.code == "duplicate_column"
    assert "A ('email') and C ('E-Mail') are both for 'email'" in str(problem)
    assert problem.more["twice"] == {"email": ["A", "C"]}


def test_the_same_text_twice_is_refused_for_a_field_and_only_reported_for_none() -> None:
    assert "A ('email') and B ('email')" in str(refused("email", "email", "full_name", "Signup Date"))
    refuse_header(Header(1, (*ALL, "note", "note"), match(*ALL, "note", "note")), FIELDS)


def test_missing_columns_are_refused_with_what_was_found_and_the_nearest_names() -> None:
    problem = refused("emial", "Full-Nam", "Signup Date", "Totals")
    assert problem.code == "missing_columns"
    assert problem.more == {
        "missing": ["email", "full_name"],
        "found": ["emial", "Full-Nam", "Signup Date", "Totals"],
        "nearest": {"email": ["emial"], "full_name": ["Full-Nam"]},
        "row": 3,
    }
    assert "'email' (did you mean 'emial'?)" in str(problem)
    assert "row 3 was read as the header" in str(problem)


def test_a_long_header_is_not_told_in_full() -> None:
    problem = refused(*(f"column {number}" for number in range(1_000)))
    assert len(problem.more["found"]) == 50  # type: ignore[arg-type]
    assert len(str(problem)) < 2_000


@pytest.mark.parametrize(
    ("index", "name"), [(0, "A"), (25, "Z"), (26, "AA"), (52, "BA"), (701, "ZZ"), (702, "AAA"), (16_383, "XFD")]
)
def test_columns_have_the_letters_of_a_spreadsheet(index: int, name: str) -> None:
    assert letter(index) == name


def test_rows_above_the_header_are_passed_over() -> None:
    head = [
        HeadRow(1, ("Report of January", "", "")),
        HeadRow(3, ("email", "", "")),
        HeadRow(5, ("Email", "Full name", "Signup date")),
        HeadRow(6, ("a@b.c", "Ann", "2026-01-31")),
        HeadRow(7, ALL),
    ]
    header = find_header(head, FIELDS)
    assert (header.row, header.cells) == (5, ("Email", "Full name", "Signup date"))
    assert header.match.columns == {"email": 0, "full_name": 1, "signed_up": 2}


def test_without_a_complete_header_the_row_with_most_fields_is_taken_and_else_the_first() -> None:
    head = [HeadRow(1, ("x",)), HeadRow(2, ("email", "y")), HeadRow(4, ("email", "city")), HeadRow(5, ("email", "Ort"))]
    assert find_header(head, FIELDS).row == 4
    assert find_header([HeadRow(2, ("x",)), HeadRow(3, ("y",))], FIELDS).row == 2


def test_an_empty_file_has_no_header() -> None:
    with pytest.raises(FileRefused, match="empty"):
        find_header([], FIELDS)


def test_a_model_without_required_fields_takes_the_first_row_that_has_any() -> None:
    class Loose(BaseModel):
        a: str = ""
        b: str = ""

    fields = fields_of(Loose, Formats())
    assert find_header([HeadRow(1, ("title",)), HeadRow(2, ("b", "zzz")), HeadRow(3, ("a", "b"))], fields).row == 2
