"""The other ways to import a file, each run as `python -m benchmarks.imports.peers NAME` in a fresh process.

The driver creates the table and reads the last line of the output: seconds, CPU, memory, and the bad cells that were
found, by row and column. The arguments are in the environment: BENCH_DATABASE, BENCH_FILE, BENCH_CLEAN,
BENCH_SERVER (the process of PostgreSQL), BENCH_SCRATCH (a directory).
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchmarks.imports import model
from benchmarks.imports.model import COLUMNS, Customer
from benchmarks.usage import cpu

DATABASE = os.environ.get("BENCH_DATABASE", "")
FILE = os.environ.get("BENCH_FILE", "")
CLEAN = os.environ.get("BENCH_CLEAN", "")
SCRATCH = Path(os.environ.get("BENCH_SCRATCH", "."))
SERVER = int(os.environ["BENCH_SERVER"]) if os.environ.get("BENCH_SERVER") else None
_BATCH = 100
_BLOCK_BYTES = 1 << 20

Bad = list[tuple[int, str]]
Ways = dict[str, Callable[[], "Bad | None"]]
figures: dict[str, Any] = {}


@contextmanager
def timed() -> Iterator[None]:
    """Measure the block: wall time, CPU time of this process, of the server and of all other processes."""
    # Without clients: `cpu` then excludes this process from the others; its own CPU time is measured below.
    used, own, began = cpu([], SERVER), time.process_time_ns(), time.perf_counter()
    yield
    figures["seconds"] = time.perf_counter() - began
    figures["client_ns"] = time.process_time_ns() - own
    spent = cpu([], SERVER) - used
    figures["server_ns"], figures["others_ns"] = spent.server, spent.others


def copy_into(connection: Any, table: str) -> None:
    with open(CLEAN, "rb") as file, connection.cursor().copy(model.COPY.format(table)) as copy:
        while block := file.read(_BLOCK_BYTES):
            copy.write(block)


def raw_copy() -> None:
    import psycopg

    with psycopg.connect(DATABASE) as connection, timed():
        copy_into(connection, model.TABLE)
        connection.commit()


def staging_upsert() -> None:
    import psycopg

    with psycopg.connect(DATABASE) as connection, timed():
        connection.execute(model.CREATE_STAGING)
        copy_into(connection, "staging")
        counted = connection.execute(model.UPSERT_STAGING_COUNTED).fetchone()
        connection.commit()
    figures["inserted"] = counted and counted[0]


def row_by_row(rows: Iterable[dict[str, Any]], bad: Bad) -> Iterator[Customer]:
    """Validate rows one at a time; yield the valid ones, and add the cells of the others to `bad`."""
    for number, row in enumerate(rows, 2):
        try:
            yield Customer.model_validate(row)
        except ValidationError as error:
            bad += [(number, str(each["loc"][0])) for each in error.errors(include_url=False, include_context=False)]


def upsert_hundreds(rows: Iterable[dict[str, Any]]) -> Bad:
    """The design of seed 000: rows are validated one by one, and upserted a hundred per transaction."""
    import psycopg

    bad: Bad = []
    waiting: list[tuple[Any, ...]] = []
    with psycopg.connect(DATABASE) as connection, timed(), connection.cursor() as cursor:
        for customer in row_by_row(rows, bad):
            waiting.append(tuple(getattr(customer, column) for column in COLUMNS))
            if len(waiting) == _BATCH:
                cursor.executemany(model.UPSERT_ROW, waiting)
                connection.commit()
                waiting.clear()
        cursor.executemany(model.UPSERT_ROW, waiting)
        connection.commit()
    return bad


def csv_rows() -> Iterator[dict[str, Any]]:
    with open(FILE, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield {column: cell or None for column, cell in row.items()}


def workbook_rows() -> Iterator[dict[str, Any]]:
    import openpyxl

    book = openpyxl.load_workbook(FILE, read_only=True, data_only=True)
    rows = book.worksheets[0].iter_rows(values_only=True)
    header = [str(cell) for cell in next(rows)]
    for row in rows:
        yield {column: _cell(cell) for column, cell in zip(header, row, strict=True)}


def _cell(value: Any) -> Any:
    return value.date() if isinstance(value, dt.datetime) else str(value) if isinstance(value, float) else value


def pandas_to_sql() -> None:
    import pandas
    import sqlalchemy

    engine = sqlalchemy.create_engine(DATABASE.replace("postgresql:", "postgresql+psycopg:"))
    kinds = {"since": sqlalchemy.Date(), "balance": sqlalchemy.Numeric(12, 2), "active": sqlalchemy.Boolean()}
    with engine.connect() as connection, timed():
        frame = pandas.read_csv(CLEAN, parse_dates=["since"])
        frame.to_sql("staging", connection, index=False, if_exists="replace", dtype=kinds)
        connection.execute(sqlalchemy.text(model.UPSERT_STAGING))
        connection.commit()


def dlt_merge() -> None:
    os.environ |= {"DLT_DATA_DIR": str(SCRATCH / "dlt"), "RUNTIME__DLTHUB_TELEMETRY": "false"}
    os.environ["RUNTIME__LOG_LEVEL"] = "CRITICAL"
    import dlt

    @dlt.resource(  # type: ignore[untyped-decorator]
        name=model.TABLE,
        primary_key=model.KEY,
        columns=Customer,
        schema_contract={"columns": "discard_value", "data_type": "discard_row"},
        # Its upsert strategy fails if a key is in the file twice.
        write_disposition={"disposition": "merge", "strategy": "delete-insert"},
    )
    def customers() -> Iterator[dict[str, Any]]:
        yield from csv_rows()

    target = dlt.destinations.postgres(DATABASE.replace("@", ":unused@", 1))  # it requires a password
    where = str(SCRATCH / "dlt")
    pipeline = dlt.pipeline("bench", destination=target, dataset_name="merged", pipelines_dir=where)
    with timed():
        pipeline.run(customers())
        figures["loaded"] = _count("merged.customers")


def _count(table: str) -> int:
    import psycopg

    with psycopg.connect(DATABASE) as connection:
        found: Any = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(found[0])


def sqlite_utils_upsert() -> Bad:
    import sqlite_utils

    bad: Bad = []
    database = sqlite_utils.Database(sqlite3.connect(DATABASE))
    with timed():
        rows = (customer.model_dump() for customer in row_by_row(csv_rows(), bad))
        database[model.TABLE].upsert_all(
            ({**row, "since": row["since"].isoformat(), "balance": str(row["balance"])} for row in rows),
            pk=model.KEY,
            columns={"balance": str},
            batch_size=1_000,
        )
        database.conn.commit()
    return bad


def peak_mb() -> float:
    """Return the peak memory of this process; getrusage would include that of the process that forked it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


WAYS: Ways = {
    "copy": raw_copy,
    "staging": staging_upsert,
    "seed-000": lambda: upsert_hundreds(csv_rows()),
    "pandas": pandas_to_sql,
    "dlt": dlt_merge,
    "openpyxl": lambda: upsert_hundreds(workbook_rows()),
    "sqlite-utils": sqlite_utils_upsert,
}


if __name__ == "__main__":
    figures["bad"] = WAYS[sys.argv[1]]()
    figures["peak_mb"] = peak_mb()
    print("\n" + json.dumps(figures), flush=True)
