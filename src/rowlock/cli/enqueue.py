"""`rowlock enqueue`: one job, from the command line."""

from __future__ import annotations

import sys
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.output import Output
    from rowlock.jobs.policy import Unique
    from rowlock.storage.records import JobRecord

_LOOK_SECONDS = 0.1


class OnConflict(StrEnum):
    reject = "reject"
    return_existing = "return_existing"


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Enqueue a job. The answer begins with its id; the job is durable when the command returns.",
            "rowlock enqueue healthPing",
            """rowlock enqueue demo.sleep --payload '{"seconds": 3}' --delay-seconds 60""",
            "rowlock enqueue demo.sleep --payload @job.json --unique-key nightly-2030-01-01",
        )
    )(enqueue)


def enqueue(
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The job type, as the application names it.")],
    payload: Annotated[
        str, typer.Option(metavar="JSON", help="The payload, a JSON object; @FILE reads a file, - standard input.")
    ] = "{}",
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Another queue than the type's own.")] = None,
    priority: Annotated[int | None, typer.Option(help="Lower runs first. Otherwise the type's, or 100.")] = None,
    delay_seconds: Annotated[float, typer.Option(help="Run it no sooner than so many seconds from now.")] = 0.0,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Run it no sooner than 2030-01-31T08:00:00Z.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Attempts before it counts as failed.")] = None,
    company_id: Annotated[str | None, typer.Option(metavar="ID", help="The company that the job belongs to.")] = None,
    unique: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="forever, while_active or window:SECONDS: refuse the job where one with the same type and payload "
            "exists, ever, while that one waits or runs, or so long after it was enqueued.",
        ),
    ] = None,
    unique_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Compare this instead of type and payload; alone it means --unique forever."),
    ] = None,
    on_conflict: Annotated[
        OnConflict, typer.Option(help="What to do where the job exists: fail, or answer with that one.")
    ] = OnConflict.reject,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it is over; exit code 1 unless it succeeded.")
    ] = False,
    wait_seconds: Annotated[float, typer.Option(min=0.0, help="How long --wait waits.")] = 3_600.0,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.output import job_json
    from rowlock.cli.session import command

    choices: dict[str, Any] = {
        "queue": queue,
        "priority": priority,
        "delay_seconds": delay_seconds,
        "at": _moment(at),
        "max_attempts": max_attempts,
        "company_id": company_id,
        "unique": _unique(unique, unique_key, on_conflict),
    }

    async def work(app: Rowlock, out: Output) -> int:
        data = _payload(payload, app.settings.payload_bytes_max)
        receipt = await app.enqueue(type, data, **choices)
        record = await app.get(receipt.job_id)
        assert record is not None
        if wait:
            record = await _over(app, record, wait_seconds, out)
        if json:
            out.json(job_json(record, app.redact) | {"created": receipt.created})
        else:
            verb = "" if receipt.created else "existed already: "
            out.line(f"{record.id}  {verb}{record.type} on {record.queue}, {record.status.value}")
        return 0 if not wait or record.status.value == "succeeded" else 1

    return command(app, database, json, work, create=True)


def _payload(given: str, bytes_max: int) -> Any:
    from rowlock.errors import BadPayload
    from rowlock.jobs.payload import loads

    try:
        # One byte too many is enough to be refused for its size.
        if given == "-":
            text = sys.stdin.buffer.read(bytes_max + 1)
        elif given.startswith("@"):
            with Path(given[1:]).open("rb") as file:
                text = file.read(bytes_max + 1)
        else:
            text = given.encode()
    except OSError as error:
        raise UsageError(f"--payload {given}: {error.strerror}") from None
    try:
        return loads(text)
    except ValueError as error:
        if len(text) > bytes_max:
            from rowlock.errors import PayloadTooLarge

            raise PayloadTooLarge(f"--payload: more than the limit of {bytes_max:,} bytes") from None
        raise BadPayload(f"--payload is not JSON: {error}; for example --payload '{{\"seconds\": 3}}'") from None


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--at {text}: not a time such as 2030-01-31T08:00:00Z") from None
    return moment if moment.tzinfo else moment.astimezone()


def _unique(policy: str | None, key: str | None, on_conflict: OnConflict) -> Unique | None:
    from rowlock.jobs.policy import Unique

    if policy is None and key is None:
        return None
    name, _, seconds = (policy or "forever").partition(":")
    chosen: dict[str, Any] = {"on_conflict": on_conflict.value, "key": key}
    if name == "window" and seconds:
        try:
            return Unique.window(float(seconds), **chosen)
        except ValueError:
            raise UsageError(f"--unique {policy}: {seconds!r} is not a number of seconds") from None
    if name == "forever" and not seconds:
        return Unique.forever(**chosen)
    if name == "while_active" and not seconds:
        return Unique.while_active(**chosen)
    raise UsageError(f"--unique {policy}: must be forever, while_active or window:SECONDS")


async def _over(app: Rowlock, record: JobRecord, seconds: float, out: Output) -> JobRecord:
    """The record when the job is over, with a progress line meanwhile."""
    import asyncio

    from rowlock.errors import JobNotFound

    shown = 0
    with out.progress(f"{record.type} {record.id}", 100) as advance:
        try:
            async with asyncio.timeout(seconds):
                while not record.status.final:
                    await asyncio.sleep(_LOOK_SECONDS)
                    found = await app.get(record.id)
                    if found is None:
                        raise JobNotFound(f"job {record.id} was removed while we waited for it")
                    record = found
                    if (record.progress or 0) > shown:  # a job that is over has none
                        advance((record.progress or 0) - shown)
                        shown = record.progress or 0
        except TimeoutError:
            out.note(f"job {record.id} is {record.status.value} after {seconds:g} s; is a worker running?")
    return record
