"""The columns and rules that each store can declare, in its own syntax."""

from __future__ import annotations

from typing import Any

TYPES_STRICT = ("INTEGER", "REAL", "TEXT", "ANY")

KEY_TYPES: dict[str, list[tuple[str, Any]]] = {
    "sqlite": [
        ("integer", "INTEGER"),
        ("integer", "BIGINT"),
        ("text", "TEXT"),
        ("text", "STRING"),
        ("text", "ANY"),
        ("decimal", "TEXT"),
        ("decimal", "NUMERIC"),
        ("date", "DATE"),
        ("uuid", "TEXT"),
    ],
    "postgres": [
        ("integer", "smallint"),
        ("integer", "bigint"),
        ("text", "text"),
        ("text", "varchar(5)"),
        ("decimal", "numeric"),
        ("decimal", "numeric(6,2)"),
        ("date", "date"),
        ("uuid", "uuid"),
    ],
    "mongo": [
        ("integer", "int"),
        ("integer", "long"),
        ("text", "string"),
        ("decimal", "decimal"),
        ("date", "date"),
        ("uuid", "string"),
        ("uuid", "binData"),
    ],
}

TYPES: dict[str, list[tuple[str, Any]]] = {
    "sqlite": [
        *(("text", each) for each in ("TEXT", "VARCHAR(5)", "STRING", "ANY", "")),
        *(("integer", each) for each in ("INTEGER", "SMALLINT", "NUMERIC", "REAL", "TEXT")),
        *(("decimal", each) for each in ("TEXT", "NUMERIC", "DECIMAL(6,2)", "REAL")),
        *(("float", each) for each in ("REAL", "DOUBLE PRECISION")),
        *(("boolean", each) for each in ("BOOLEAN", "INTEGER")),
        *(("date", each) for each in ("DATE", "TEXT")),
        *(("datetime", each) for each in ("DATETIME", "TIMESTAMP", "TEXT")),
        *(("time", each) for each in ("TIME", "TEXT")),
        *(("uuid", each) for each in ("UUID", "TEXT")),
        *(("json", each) for each in ("JSON", "TEXT")),
    ],
    "postgres": [
        *(("text", each) for each in ("text", "varchar(5)", "char(6)", "mood", "short_text")),
        *(("integer", each) for each in ("smallint", "integer", "bigint", "numeric(5,0)", "numeric(6,-2)", "text")),
        *(("integer", each) for each in ("real", "double precision", "small_number")),
        *(("decimal", each) for each in ("numeric", "numeric(6,2)", "numeric(10,-2)", "text", "real")),
        *(("decimal", each) for each in ("double precision",)),
        *(("float", each) for each in ("real", "double precision")),
        ("boolean", "boolean"),
        *(("date", each) for each in ("date", "text", "timestamp")),
        *(("datetime", each) for each in ("timestamptz", "timestamptz(0)", "timestamp", "timestamp(3)")),
        *(("time", each) for each in ("time", "time(0)")),
        *(("uuid", each) for each in ("uuid", "text")),
        *(("json", each) for each in ("jsonb", "json", "text")),
    ],
    "mongo": [
        ("text", "string"),
        *(("integer", each) for each in ("int", "long", "decimal", "double", "string", ("int", "long"))),
        *(("decimal", each) for each in ("decimal", "double", "string", "number")),
        ("float", "double"),
        ("boolean", "bool"),
        *(("date", each) for each in ("date", "string")),
        *(("datetime", each) for each in ("date", ("date", "string"))),
        ("time", "string"),
        *(("uuid", each) for each in ("string", "binData")),
        *(("json", each) for each in ("object", "string")),
    ],
}

_NUMBERS = ["{c} < 100", "{c} <> 7", "{c} BETWEEN -1 AND 1250"]
_TEXTS = ["{c} <> 'moon'", "length({c}) < 4", "{c} IN ('a', 'b', 'Ann', 'red')"]
_LONG: list[dict[str, Any]] = [{"maximum": 99}, {"minimum": 0, "description": "not negative"}, {"not": {"enum": [7]}}]
_WORD: list[dict[str, Any]] = [{"not": {"enum": ["moon"]}}, {"maxLength": 3}, {"enum": ["a", "b", "Ann", None]}]

RULES: dict[str, dict[tuple[str, str], list[Any]]] = {
    "sqlite": {
        **{("integer", each): _NUMBERS for each in ("INTEGER", "SMALLINT")},
        **{("text", each): _TEXTS for each in ("TEXT", "VARCHAR(5)")},
    },
    "postgres": {
        **{("integer", each): _NUMBERS for each in ("smallint", "integer", "bigint")},
        **{("decimal", each): _NUMBERS for each in ("numeric", "numeric(6,2)")},
        **{("text", each): _TEXTS for each in ("text", "varchar(5)")},
    },
    "mongo": {
        **{("integer", each): _LONG for each in ("int", "long")},
        ("text", "string"): _WORD,
    },
}
