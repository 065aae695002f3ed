"""Dialects and encodings: detected from the content, never from the name alone."""

from __future__ import annotations

import csv
import gzip
import io

import pytest
from tests.imports.csv_files import SMALL, read

from rowlock.errors import FileRefused
from rowlock.imports.read.limits import ReadLimits

TABLES = {
    "comma": ("name,city\nAnn,Oslo\nBo,Paris\n", "comma", [("Ann", "Oslo"), ("Bo", "Paris")]),
    "semicolon": ("name;city\nAnn;Oslo\n", "semicolon", [("Ann", "Oslo")]),
    "tab": ("name\tcity\nAnn\tOslo\n", "tab", [("Ann", "Oslo")]),
    "pipe": ("name|city\nAnn|Oslo\n", "pipe", [("Ann", "Oslo")]),
    "decimal commas": ("name;price\nApple;1,50\nPear;2,25\n", "semicolon", [("Apple", "1,50"), ("Pear", "2,25")]),
    "only decimal commas": ("1,5;2,5\n3,5;4,5\n", "semicolon", [("3,5", "4,5")]),
    "thousands": ("a|b\n1,000|2,000\n3,000|4,000\n", "pipe", [("1,000", "2,000"), ("3,000", "4,000")]),
    "commas in text, tabs": (
        "name\tcity\nSmith, John\tOslo, Norway\nDoe, Jane\tRome, Italy\n",
        "tab",
        [("Smith, John", "Oslo, Norway"), ("Doe, Jane", "Rome, Italy")],
    ),
    "semicolons in one column": ("id,tags\n1,a;b;c\n2,d\n3,e;f\n", "comma", [("1", "a;b;c"), ("2", "d"), ("3", "e;f")]),
    "semicolons in quotes": ('id,tags\n1,"a;b"\n2,"c;d"\n', "comma", [("1", "a;b"), ("2", "c;d")]),
    "pipes in one column": ("id,tags,x\n1,a|b,1\n2,c|d,2\n", "comma", [("1", "a|b", "1"), ("2", "c|d", "2")]),
    "times": ("at,n\n10:30:00,1\n11:45:10,2\n", "comma", [("10:30:00", "1"), ("11:45:10", "2")]),
    "preamble": (
        "Sales report\nMade on 2026-01-31\n\nid;name\n1;Ann\n2;Bo\n3;Cy\n",
        "semicolon",
        [("1", "Ann"), ("2", "Bo"), ("3", "Cy")],
    ),
    "one column": ("name\nAnn\nBo\n", "none", [("Ann",), ("Bo",)]),
    "one column of prose": (
        "note\nHello, world\nfine\none, two, three\nok\n",
        "none",
        [("Hello, world",), ("fine",), ("one, two, three",), ("ok",)],
    ),
    "one column of names": ("name\nSmith, John\nDoe, Jane\n", "none", [("Smith, John",), ("Doe, Jane",)]),
    "one column of decimal commas": ("price\n1,5\n2,25\n", "none", [("1,5",), ("2,25",)]),
    "header only": ("a;b;c\n", "semicolon", []),
    "sep line": ("sep=;\na;b\n1,2;3,4\n", "semicolon", [("1,2", "3,4")]),
    "quoted sep line": ('"sep=|"\r\na|b\r\n1|2\r\n', "pipe", [("1", "2")]),
    "sep line of an odd delimiter": ("SEP=^\na^b\n1^2\n", "'^'", [("1", "2")]),
    "sep line with a tab": ("sep=\t\na\tb\n1\t2\n", "tab", [("1", "2")]),
    "quotes hide delimiters": ('a;b\n"1,2,3";4\n"5,6,7";8\n', "semicolon", [("1,2,3", "4"), ("5,6,7", "8")]),
    "trailing delimiters": ("a,b,\n1,2,\n3,4,\n", "comma", [("1", "2", ""), ("3", "4", "")]),
    "all quoted": ('"a","b"\n"1,5","2"\n', "comma", [("1,5", "2")]),
    "line breaks in quotes": ('a;b\n"x\ny, z, w";1\n"p, q";2\n', "semicolon", [("x\ny, z, w", "1"), ("p, q", "2")]),
    "tab file with quotes that mean nothing": ('a\tb\n"x\t5" pipe\n12"\t"\n', "tab", [('"x', '5" pipe'), ('12"', '"')]),
    "tabs behind commas": (
        "day,\t\tprice,\tnote\n2026-01-31,\t5,\t\tx\n",
        "comma",
        [("2026-01-31", "\t5", "\t\tx")],
    ),
    "pipes in the first column": (
        "id,code\nA_1|b0,4711X\nA_1|c0,4712X\n2|d0,4713\n",
        "comma",
        [("A_1|b0", "4711X"), ("A_1|c0", "4712X"), ("2|d0", "4713")],
    ),
    "spaces after commas": ("a, b\n1, 2\n3, 4\n", "comma", [("1", " 2"), ("3", " 4")]),
}


@pytest.mark.parametrize("case", TABLES)
def test_the_delimiter_is_the_one_that_makes_an_even_table(case: str) -> None:
    content, delimiter, cells = TABLES[case]
    found = read(content, header_row=4 if case == "preamble" else None)
    assert found.about["delimiter"] == delimiter
    assert (found.cells, found.bad) == (cells, [])


def test_the_name_of_a_tsv_file_settles_what_is_even() -> None:
    content = "a,b\tc,d\n1,2\t3,4\n"
    assert read(content, name="x.TSV").cells == [("1,2", "3,4")]
    assert read(content, name="x.tsv.gz").about["delimiter"] == "tab"


def test_a_tsv_file_that_has_commas_is_read_by_them() -> None:
    assert read("a,b\n1,2\n", name="x.tsv").cells == [("1", "2")]


def test_comments_above_the_table_of_a_tsv_file_do_not_hide_its_tabs() -> None:
    comments = "".join(f"##field=<id={n},type=text;kind={n}>\n" for n in range(8))
    found = read(comments + "#id\tname\n1\tAnn;a=1;b=2\n2\tBo;a=1;b=2\n", name="x.tsv", header_row=9)
    assert found.about["delimiter"] == "tab"
    assert (found.rows, found.bad) == ([(10, ("1", "Ann;a=1;b=2")), (11, ("2", "Bo;a=1;b=2"))], [])
    commas = "a,b\n" * 8 + "1,2\t3\n"
    assert read(commas, name="x.tsv").about["delimiter"] == "comma"


@pytest.mark.parametrize("lines", [99, 150, 400])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_letters_of_many_lines_in_cells_hide_no_delimiter(delimiter: str, lines: int) -> None:
    letter = "\n".join("thanks, all is well, we hope; yours, Ann"[: 7 + 5 * (n % 8)] for n in range(lines))
    rows = [("1", letter, "a"), ("2", "none", "b")] * 20
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([("id", "letter", "by"), *rows])
    found = read(out.getvalue(), limits=ReadLimits())
    assert (found.cells, found.bad) == (rows, [])


def test_rows_are_numbered_without_the_sep_line_and_lines_with_it() -> None:
    found = read("sep=;\na;b\n1;2\n3;4;5\n")
    assert found.head[0] == (1, ("a", "b"))
    assert found.rows == [(2, ("1", "2"))]
    assert found.bad == [(3, "too_many_cells")]
    assert "line 4" in found.reasons[0]


QUOTES = {
    "single quotes": ("a,b\n'1,1','2'\n'it''s',4\n", "single quote", [("1,1", "2"), ("it's", "4")]),
    "apostrophes": ("a,b\n'tis,2\n3,rock 'n' roll\n", "double quote", [("'tis", "2"), ("3", "rock 'n' roll")]),
    "text marks of a spreadsheet": ("a,b\n'007,'008\n", "double quote", [("'007", "'008")]),
    "backslashes before quotes": (
        'a,b\n"say \\"hi\\", ok",2\n"C:\\\\x",4\n',
        "double quote",
        [('say "hi", ok', "2"), ("C:\\x", "4")],
    ),
    "backslashes that mean nothing": (
        'a,b\n"C:\\dir\\",2\n"D:\\",4\n',
        "double quote",
        [("C:\\dir\\", "2"), ("D:\\", "4")],
    ),
    "backslashes before delimiters": (
        "a,b\n1\\,5,2\n3,4\\,5\nx,y\n",
        "double quote",
        [("1,5", "2"), ("3", "4,5"), ("x", "y")],
    ),
    "backslashes in front of letters": ('a,b\n"say \\"hi\\"",\\N\n', "double quote", [('say "hi"', "\\N")]),
}


@pytest.mark.parametrize("case", QUOTES)
def test_other_quoting_is_taken_where_the_sample_is_clear(case: str) -> None:
    content, quote, cells = QUOTES[case]
    found = read(content)
    assert (found.about["quote"], found.cells, found.bad) == (quote, cells, [])


@pytest.mark.parametrize(("ends", "word"), [("\n", "LF"), ("\r\n", "CRLF"), ("\r", "CR")])
def test_the_line_ending_is_told(ends: str, word: str) -> None:
    assert read(f"a,b{ends}1,2{ends}").about["line_ending"] == word
    assert read("a,b\n1,2\r\n").about["line_ending"] == "mixed"


TEXT = "name,city\nJosé,Zürich\nŁukasz,東京🎉\n"
ENCODED = {
    "UTF-8": (TEXT.encode(), "UTF-8"),
    "UTF-8 with a mark": (TEXT.encode("utf-8-sig"), "UTF-8"),
    "UTF-16 LE with a mark": (b"\xff\xfe" + TEXT.encode("utf-16-le"), "UTF-16 LE"),
    "UTF-16 BE with a mark": (b"\xfe\xff" + TEXT.encode("utf-16-be"), "UTF-16 BE"),
    "UTF-16 LE": (TEXT.encode("utf-16-le"), "UTF-16 LE"),
    "UTF-16 BE": (TEXT.encode("utf-16-be"), "UTF-16 BE"),
    "UTF-32 LE with a mark": (b"\xff\xfe\0\0" + TEXT.encode("utf-32-le"), "UTF-32 LE"),
    "UTF-32 BE with a mark": (b"\0\0\xfe\xff" + TEXT.encode("utf-32-be"), "UTF-32 BE"),
    "gzip": (gzip.compress(TEXT.encode()), "UTF-8"),
    "gzip of UTF-16": (gzip.compress(TEXT.encode("utf-16")), "UTF-16 LE"),
    "gzip of many members": (b"".join(gzip.compress(line.encode()) for line in TEXT.splitlines(True)), "UTF-8"),
    "gzip of a cut character": (gzip.compress(TEXT.encode()[:14]) + gzip.compress(TEXT.encode()[14:]), "UTF-8"),
    "gzip with padding": (gzip.compress(TEXT.encode()) + b"\0" * 512, "UTF-8"),
}


@pytest.mark.parametrize("case", ENCODED)
def test_the_same_text_comes_out_of_every_encoding(case: str) -> None:
    content, encoding = ENCODED[case]
    found = read(content)
    assert found.head[0] == (1, ("name", "city"))
    assert found.cells == [("José", "Zürich"), ("Łukasz", "東京🎉")]
    assert (found.bad, found.about["encoding"]) == ([], encoding)


def test_windows_1252_is_read_as_such() -> None:
    found = read("name,price\nJosé “Pepe”,5 €\nZoë,7 €\n".encode("cp1252"))
    assert found.about["encoding"] == "Windows-1252"
    assert found.cells == [("José “Pepe”", "5 €"), ("Zoë", "7 €")]


def test_what_is_read_as_windows_1252_is_told() -> None:
    told = "the file is not UTF-8 and was read as Windows-1252; if letters are wrong, save it as UTF-8"
    assert read("name\nZoë\n".encode("cp1252")).notices == [told]
    assert read("name\nZoë\n").notices == []


@pytest.mark.parametrize(
    "text",
    [
        "ÄÖÜ\ncréée\nÆØÅ",
        "äöüÄÖÜß\nÀÉÈÇ\nñçé\n" * 20,
        "a\xa0\xa0\xa0\xa0b\n" * 20,
        "“a”…\n•••\n———\n" * 20,
        "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ\n" * 3,
        "Große Straße, 5 °C, ½ kg, «très élevé»\n" * 20,
    ],
)
def test_letters_of_the_west_are_windows_1252(text: str) -> None:
    found = read(b"a;b\n" + "".join(f"1;{line}\n" for line in text.splitlines()).encode("cp1252"))
    assert (found.about["encoding"], found.bad) == ("Windows-1252", [])
    assert [cells[1] for cells in found.cells] == text.splitlines()


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp1251", "Иван Петров;Москва"),
        ("koi8-r", "Иван Петров;Москва"),
        ("cp866", "Иван Петров;Москва"),
        ("cp1253", "Γιώργος;Θεσσαλονίκη"),
        ("cp1255", "ירושלים;הרצליה"),
        ("euc-jp", "東京都;鈴木一郎さん"),
        ("shift_jis", "東京都;鈴木一郎さん"),
        ("shift_jis", "本日はいい天気;です"),
        ("gbk", "北京市;王小明先生"),
        ("big5", "臺灣省;中華民國"),
        ("euc-kr", "서울특별시;김철수"),
    ],
)
def test_letters_of_another_encoding_refuse_the_file_instead_of_becoming_others(codec: str, text: str) -> None:
    with pytest.raises(FileRefused, match="save it as UTF-8") as refused:
        read(b"name;city\n" + text.encode(codec) + b"\nAnn;Oslo\n" + text.encode(codec) + b"\n")
    assert refused.value.code == "encoding_unknown"


def test_bytes_that_windows_1252_does_not_know_cost_their_record() -> None:
    found = read(b"a,b\n\xe9,1\n\x81,2\n\xe8,3\n")
    assert found.rows == [(2, ("é", "1")), (4, ("è", "3"))]
    assert found.bad == [(3, "bad_encoding")]
    assert found.reasons == ["the byte 0x81 on line 3 is not Windows-1252"]


def test_a_few_broken_bytes_do_not_make_another_encoding_of_utf_8() -> None:
    found = read("a,b\né,ü\n".encode() + b'"x\n\xe9",1\n' + "ø,å\n".encode())
    assert found.about["encoding"] == "UTF-8"
    assert found.rows == [(2, ("é", "ü")), (4, ("ø", "å"))]
    assert found.bad == [(3, "bad_encoding")]
    assert found.reasons == ["the byte 0xE9 on line 4 is not UTF-8"]


def test_a_character_cut_at_the_end_of_the_file_costs_the_last_record() -> None:
    found = read("a,b\né,ü\n1,".encode() + "é".encode()[:1])
    assert (found.cells, found.bad) == ([("é", "ü")], [(3, "bad_encoding")])


@pytest.mark.parametrize("broken", [b"\x00\xd8", b"\x00\xdc"])
def test_half_a_character_of_utf_16_costs_its_record(broken: bytes) -> None:
    found = read(b"\xff\xfe" + "a,b\n1,".encode("utf-16-le") + broken + "\n2,3\n".encode("utf-16-le"))
    assert (found.cells, found.bad) == ([("2", "3")], [(2, "bad_encoding")])
    assert found.reasons == ["a character on line 2 is not valid UTF-16 LE"]


def test_an_odd_byte_at_the_end_of_utf_16_costs_the_last_record() -> None:
    found = read(b"\xff\xfe" + "a,b\n1,2\n3,4".encode("utf-16-le") + b"\x41")
    assert (found.cells, found.bad) == ([("1", "2")], [(3, "bad_encoding")])


def test_what_contradicts_utf_8_late_in_the_file_still_counts() -> None:
    found = read(b"a,b\n" + b"1,2\n" * 400_000 + b"\xe9,3\n", limits=ReadLimits())
    assert found.about["encoding"] == "Windows-1252"
    assert found.rows[-1] == (400_002, ("é", "3"))


REFUSED = {
    "nothing": (b"", "empty_file"),
    "only a mark": (b"\xef\xbb\xbf", "empty_file"),
    "only a mark of UTF-16": (b"\xff\xfe", "empty_file"),
    "only line breaks": (b"\r\n\n\r \n", "empty_file"),
    "only line breaks, many": (b"\n" * 400_000, "empty_file"),
    "only delimiters": (b",,,\n,,,\n", "empty_file"),
    "only a sep line": (b"sep=;\n", "empty_file"),
    "gzip of nothing": (gzip.compress(b""), "empty_file"),
    "zip": (b"PK\x03\x04" + b"abc" * 50, "not_text"),
    "pdf": (b"%PDF-1.7\nabc", "not_text"),
    "jpeg": (b"\xff\xd8\xff\xe0abc", "not_text"),
    "png": (b"\x89PNG\r\n\x1a\nabc", "not_text"),
    "ole": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1abc", "not_text"),
    "zeros": (b"\0" * 5_000, "not_text"),
    "a gzip in a gzip": (gzip.compress(gzip.compress(b"a,b\n")), "not_text"),
    "machine code": (bytes(range(256)) * 20, "not_text"),
    "gzip cut off": (gzip.compress(TEXT.encode() * 50)[:-9], "truncated_file"),
    "gzip cut in the second member": (gzip.compress(b"a,b\n") + gzip.compress(b"1,2\n")[:12], "truncated_file"),
    "gzip of wrong sums": (gzip.compress(TEXT.encode())[:-8] + b"\0" * 8, "damaged_file"),
    "gzip and garbage": (gzip.compress(TEXT.encode()) + b"garbage", "damaged_file"),
    "too much": (b"a,b\n" + b"1,2\n" * 300_000, "file_too_large"),
    "a gzip bomb": (gzip.compress(b"\n" * (4 << 20)), "file_too_large"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_no_table_is_refused_with_a_reason(case: str) -> None:
    content, code = REFUSED[case]
    with pytest.raises(FileRefused) as refused:
        read(content)
    assert refused.value.code == code
    assert str(refused.value)


@pytest.mark.parametrize("name", ["excel", "excel-tab", "unix"])
def test_each_dialect_of_the_standard_writer_is_recognised(name: str) -> None:
    table = [["id", "name", "note"], ["1", "Ann", 'said "hi", twice'], ["2", "Bo", "two\nlines"], ["3", "", "a;b|c"]]
    written = io.StringIO(newline="")
    csv.writer(written, dialect=name).writerows(table)
    found = read(written.getvalue())
    assert (found.cells, found.bad) == ([tuple(row) for row in table[1:]], [])


def test_an_unpacked_size_at_the_limit_is_read() -> None:
    content = b"a,b\n" + b"1,2\n" * 10
    limits = ReadLimits(unpacked_bytes_max=len(content), block_bytes=SMALL.block_bytes)
    assert len(read(gzip.compress(content), limits=limits).rows) == 10
