"""Hostile texts: the time of each pattern grows linearly with the length of the text."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from rowlock.imports.check.numbers import read_number
from rowlock.imports.check.reasons import BadCell
from rowlock.imports.error_report import inert
from rowlock.imports.formats import Formats
from rowlock.imports.read.dialect import _NUMBER, _PROSE
from rowlock.observe.internals import without_inner
from rowlock.observe.redaction import Redactor

redact = Redactor()
PIECES = [
    "://:", "://", "://a:b", "://a:@", "http://", "http://a@", "https://a", "@", "a", "a ", "key", "key=", "key ",
    "keyerror", "token=\\\"x", "token ", "--", "--key", "--key ", "-", "--a-key ", "\\", "\\\"", "\"", "'", "key=\"",
    "key='", "key=\\\\\"", "key\\", "key:'\"", "password=", "bearer ", "basic", "basic aaaaaa", "authorization: ",
    "authorization:a ", "[REDACTED]", "key=[REDACTED]", " ", "\n", "\t", "A", "aB", "0", "_", "%", "\\n", "é", "ключ=",
    "tokensite", "githubtoken", "secretkeys=",
]  # fmt: skip


def cpu_seconds(work: Callable[[str], object], text: str) -> float:
    """The least of some runs, so that what else the machine does matters little."""
    found = []
    for _ in range(3):
        began = time.process_time()
        work(text)
        found.append(time.process_time() - began)
    return min(found)


def repeated(piece: str, length: int) -> str:
    return (piece * (length // len(piece) + 1))[:length]


def grows(work: Callable[[str], object], text: Callable[[int], str], length: int) -> float:
    """How many times longer a text of four times the length takes: about 4 if linear, 16 if quadratic."""
    return cpu_seconds(work, text(4 * length)) / max(cpu_seconds(work, text(length)), 1e-4)


@pytest.mark.parametrize("piece", PIECES)
def test_redaction_of_a_hostile_text_costs_little_more_than_of_a_plain_one(piece: str) -> None:
    """Patterns with a limit of 500 characters are linear too, and 500 times slower."""
    plain = cpu_seconds(redact.text, repeated("GET /customers/12 answered 404 in 12 ms, attempt=3 of 5: x\n", 100_000))
    assert cpu_seconds(redact.text, repeated(piece, 100_000)) < 12 * plain


def test_redaction_of_pieces_in_every_order_is_linear() -> None:
    for first in PIECES:
        assert grows(redact.text, lambda length, a=first: repeated("".join(a + b for b in PIECES), length), 20_000) < 9
        assert grows(redact.text, lambda length, a=first: a + repeated(" ", length) + "x", 20_000) < 9


@pytest.mark.parametrize("piece", ["key", "a_", "aB", "A", "1", "tokens", "api", "x", "keyA"])
def test_the_name_of_a_key_is_judged_in_linear_time(piece: str) -> None:
    assert grows(redact.is_secret, lambda length: repeated(piece, length) + "é", 20_000) < 9


INNER = [
    "a", "a.", "a-", "a.b:", "a:", "1.", "1.2.3.", "255.", "/a", "/", "//", "[", "[1:", "[::", "1:", "\\", "\\\\a",
    "\\\\a\\", "C:\\", "file:", "file:/", "Error", "OSErrorx", "x OS", "a.csv:", "_", ":1", "%a",
]  # fmt: skip


@pytest.mark.parametrize("piece", INNER)
def test_addresses_are_found_in_linear_time(piece: str) -> None:
    assert grows(without_inner, lambda length: repeated(piece, length), 20_000) < 9
    pairs = "".join(piece + second for second in INNER)
    assert grows(without_inner, lambda length: repeated(pairs, length), 20_000) < 9


def number(text: str) -> None:
    with suppress(BadCell):
        read_number(text, Formats(currency=("EUR", "€")), exponent=True)


@pytest.mark.parametrize("piece", ["\t", " ", ";", "'", "\n;", "; ", "=", "\u200b", ";\u200b"])
def test_cells_of_an_error_report_are_made_inert_in_linear_time(piece: str) -> None:
    assert grows(inert, lambda length: "x" + repeated(piece, length) + "x", 2_000) < 9


@pytest.mark.parametrize("piece", [" ", "1 ", "EUR", " EUR", "1", "1.", ",111"])
def test_numbers_are_read_in_linear_time(piece: str) -> None:
    assert grows(number, lambda length: "1" + repeated(piece, length) + "x", 2_000) < 9
    assert grows(lambda text: (_NUMBER.fullmatch(text.encode()), _PROSE.fullmatch(text.encode())),
                 lambda length: repeated(piece, length) + "x|", 2_000) < 9  # fmt: skip


@pytest.mark.parametrize(
    "cell", ["12", "-1.234,50 €", "£ 12", "12 £", "(12.00)", "1'000.00 CHF", "12%", "+5 ", "1\u00a0000,00\u00a0EUR"]
)
def test_what_looks_like_a_number_is_one(cell: str) -> None:
    assert bool(_NUMBER.fullmatch(cell.encode())) == (cell != "£ 12")


@pytest.mark.parametrize("cell", ["", "x", "1x", "-", "12 EURO", "1;2"])
def test_what_does_not_look_like_a_number_is_none(cell: str) -> None:
    assert not _NUMBER.fullmatch(cell.encode())
