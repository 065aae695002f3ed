"""`rowlock enqueue`: enqueue one job from the command line."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError
from rowlock.cli.management import asks
from rowlock.cli.times import moment_of

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output
    from rowlock.jobs.policy import Unique
    from rowlock.management.schemas.jobs import EnqueuedSchema, JobSchema

_READ_BYTES_MAX = 64 * 1_048_576  # the most that any payload may have; the management service checks the actual limit


class OnConflict(StrEnum):
    reject = "reject"
    return_existing = "return_existing"


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Enqueue a job. The output starts with its id; the job is durable when the command returns.",
            "rowlock enqueue digest.send",
            """rowlock enqueue email.send --payload '{"to": "a@b.c", "subject": "Hi"}' --delay-seconds 60""",
            "rowlock enqueue email.send --payload @email.json --unique-key nightly-2030-01-01",
            "rowlock enqueue digest.send --server https://jobs.example.org --token-file ~/.rowlock-token --wait",
        )
    )(enqueue)


@asks(create=True, needs_app=True)
async def enqueue(
    management: Management,
    out: Output,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The job type.")],
    payload: Annotated[
        str, typer.Option(metavar="JSON", help="The payload, a JSON object; @FILE reads a file, - standard input.")
    ] = "{}",
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="The queue (default: the queue of the type).")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="The priority; lower runs first (default: that of the type, or 100).")
    ] = None,
    delay_seconds: Annotated[float, typer.Option(help="Delay in seconds before it runs.")] = 0.0,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="The earliest time to run it, such as 2030-01-31T08:00:00Z.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Attempts before it is a dead letter.")] = None,
    company_id: Annotated[str | None, typer.Option(metavar="ID", help="The company that the job belongs to.")] = None,
    unique: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Refuse the job if one with the same type and payload exists: forever, while_active (it waits or "
            "runs), window:SECONDS (it was enqueued within SECONDS), or none (never refuse). Default: the policy of "
            "the type, then QUEUE_UNIQUE.",
        ),
    ] = None,
    unique_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Compare this key instead of type and payload; without --unique it means --unique forever.",
        ),
    ] = None,
    on_conflict: Annotated[
        OnConflict, typer.Option(help="If the job exists already: fail, or return the existing job.")
    ] = OnConflict.reject,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it ends; exit code 1 unless it succeeds.")] = False,
    wait_seconds: Annotated[float, typer.Option(min=0.0, help="Time limit of --wait in seconds.")] = 3_600.0,
) -> int:
    job = await management.enqueue(
        type,
        payload_of(payload),
        queue=queue,
        priority=priority,
        delay_seconds=delay_seconds,
        at=moment_of(at, "--at"),
        max_attempts=max_attempts,
        company_id=company_id,
        unique=_unique(unique, unique_key, on_conflict),
    )
    if wait:
        job = await over(management, job, wait_seconds, out)
    verb = "" if job.created else "already exists: "
    out.tell(job, f"{job.id}  {verb}{job.type} on {job.queue}, {job.status}")
    return 0 if not wait or job.status == "succeeded" else 1


def payload_of(given: str) -> Any:
    """Parse `--payload`: JSON, @FILE for a file of it, or - for standard input."""
    from rowlock.errors import BadPayload, PayloadTooLarge
    from rowlock.jobs.payload import loads

    try:
        # One byte more than the limit is enough to detect the size.
        if given == "-":
            text = sys.stdin.buffer.read(_READ_BYTES_MAX + 1)
        elif given.startswith("@"):
            with Path(given[1:]).open("rb") as file:
                text = file.read(_READ_BYTES_MAX + 1)
        else:
            text = given.encode()
    except OSError as error:
        raise UsageError(f"--payload {given}: {error.strerror}") from None
    if len(text) > _READ_BYTES_MAX:
        raise PayloadTooLarge(f"--payload: more than {_READ_BYTES_MAX:,} bytes, the limit for payloads")
    try:
        return loads(text)
    except ValueError as error:
        raise BadPayload(f"--payload is not JSON: {error}; for example --payload '{{\"seconds\": 3}}'") from None


def _unique(policy: str | None, key: str | None, on_conflict: OnConflict) -> Unique | None:
    from rowlock.errors import SettingsError
    from rowlock.jobs.policy import Unique

    if policy is None and key is None:
        return None
    try:
        return Unique.parse(policy or "forever", on_conflict=on_conflict.value, key=key)
    except SettingsError as error:
        raise UsageError(f"--unique {error}") from None


async def over(management: Management, job: EnqueuedSchema, seconds: float, out: Output) -> EnqueuedSchema:
    """Wait `seconds` at most until the job is over, with a progress line; returns its last state."""
    from rowlock.cli.unserved import watching_workers
    from rowlock.management import waiting
    from rowlock.management.schemas.jobs import EnqueuedSchema

    if job.status.final:
        return job  # it ran at once in resilient mode, and is not recorded
    shown = 0
    with out.progress(f"{job.type} {job.id}", 100) as advance:

        def seen(look: JobSchema) -> None:
            nonlocal shown
            percent = look.progress or 0  # a job that is over has none
            if percent > shown:
                advance(percent - shown)
                shown = percent

        async def queue() -> str:
            return str(job.queue)

        async with watching_workers(management, queue, out):
            last = await waiting.wait(management, job.id, seconds, seen)
    job = EnqueuedSchema(**dict(last), created=job.created)
    if not job.status.final:
        out.note(f"job {job.id} is {job.status} after {seconds:g} s; check that a worker is running")
    return job
