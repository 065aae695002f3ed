"""`rowlock doctor`: checks settings, application and database for common problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rowlock.cli import options

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.storage.records import Finding

_ALIAS_ADVICE = "start workers that have a handler, or give a renamed type its old name with app.alias(old, new)"


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Check the settings, the application and the database, with advice for each problem. "
            "Exit code 1 if there is a problem.",
            "rowlock doctor",
            "rowlock doctor --database postgresql://rowlock@db/jobs --json",
        )
    )(doctor)


def doctor(app: options.App = None, database: options.Database = None, json: options.Json = False) -> int:
    import asyncio

    from rowlock.cli.output import Output

    out = Output(json)
    findings = asyncio.run(_diagnose(app, database))
    bad = any(finding.severity.value == "error" for finding in findings)
    if json:
        shown = [
            {"check": f.check, "severity": f.severity.value, "message": f.message, "advice": f.advice} for f in findings
        ]
        out.json({"ok": not bad, "findings": shown})
    else:
        rows = [[f.severity.value, f.check, f.message, f.advice] for f in findings]
        out.table(("", "check", "found", "advice"), rows, "nothing was checked")
    return 1 if bad else 0


async def _diagnose(name: str | None, database: str | None) -> list[Finding]:
    """Run every check; bad settings end the run, other failures do not stop the rest."""
    from rowlock.app import Rowlock
    from rowlock.cli.application import NAME_IT, import_app
    from rowlock.errors import RowlockError, SettingsError
    from rowlock.settings import load
    from rowlock.storage.records import Finding, Severity

    findings = []
    try:
        settings = load(database_url=database)
        findings.append(Finding("settings", Severity.OK, "every setting is within its limits"))
    except SettingsError as error:
        return [Finding("settings", Severity.ERROR, str(error), "correct the environment; see `rowlock.Settings`")]
    try:
        app = import_app(name, database)
        found = Finding("application", Severity.OK, f"{name} has {len(app.registry)} job types")
        if name is None:
            found = Finding("application", Severity.WARNING, "no application is named, so none is checked", NAME_IT)
        findings.append(found)
    except RowlockError as error:
        findings.append(Finding("application", Severity.ERROR, str(error), "see --app and ROWLOCK_APP"))
        app = Rowlock(settings=settings)
    findings += _settings(app)
    findings += _imports(app)
    findings += _sync(app)
    try:
        async with app:
            findings += await app.store.diagnose()
            findings += await _without_transactions(app)
            if (await app.store.schema()).usable:
                findings += await _work(app, name)
                findings += await _troubles(app)
    except RowlockError as error:
        findings.append(Finding("database", Severity.ERROR, str(error), "see --database and DATABASE_URL"))
    return findings


def _settings(app: Rowlock) -> list[Finding]:
    from rowlock.storage.records import Finding, Severity

    if not app.settings.resilient:
        return []
    return [
        Finding(
            "resilient mode",
            Severity.WARNING,
            "jobs run inside the process that enqueues them and are not stored",
            "unset QUEUE_RESILIENT_MODE when the database is available again",
        )
    ]


def _imports(app: Rowlock) -> list[Finding]:
    """Check that ROWLOCK_IMPORT_STORE is a writable folder."""
    from rowlock.storage import blobs
    from rowlock.storage.records import Finding, Severity

    reason = blobs.unusable_reason(app.settings.import_store) if app.importers else None
    if reason is None:
        return []
    advice = "set ROWLOCK_IMPORT_STORE to a folder that the API and all workers share and can write to"
    return [Finding("imports", Severity.ERROR, reason, advice)]


async def _without_transactions(app: Rowlock) -> list[Finding]:
    """Check whether importers need transactions that the store does not have."""
    from rowlock.storage.records import Finding, Severity

    reason = await app.store.lacks_transactions() if app.importers else None
    if reason is None:
        return []
    from rowlock.imports.importer import Policy

    return [
        Finding(
            "imports",
            Severity.ERROR,
            f"importer {name!r} loads all rows or none, which needs transactions: its uploads are refused",
            f"{reason}; or declare it with policy='partial'",
        )
        for name, declared in sorted(app.importers.items())
        if declared.policy is Policy.ALL_OR_NOTHING
    ]


def _sync(app: Rowlock) -> list[Finding]:
    """Report which integrations are enabled, and which setting enables the others."""
    from rowlock.storage.records import Finding, Severity

    findings = []
    for name, hub in sorted(app.integrations.items()):
        if hub.disabled is None:
            off = ", ".join(operation.name for operation in hub.operations.values() if not operation.enabled)
            text = f"{name} is enabled" + (f", and skips {off}" if off else "")
            findings.append(Finding("sync", Severity.OK, text))
        else:
            findings.append(Finding("sync", Severity.OK, f"{name} is disabled: nothing is sent", hub.disabled))
    return findings


async def _troubles(app: Rowlock) -> list[Finding]:
    """Check integrations for paused calls and dead letters."""
    from rowlock.management.schemas.base import iso
    from rowlock.storage.records import Finding, Severity

    findings = []
    for name, hub in sorted(app.integrations.items()):
        found = await hub.monitor()
        counts = found["counts"]
        for limit in found["limits"]:
            if limit["restsUntil"] is not None:
                text = f"{name} asked to wait until {iso(limit['restsUntil'])} (limit {limit['name']})"
                findings.append(Finding("sync", Severity.WARNING, text, f"see `rowlock sync monitor {name}`"))
        if counts["dead"]:
            text = f"{counts['dead']:,} jobs for {name} are dead letters"
            advice = f"see `rowlock dead list --type '{name}.*'`"
            findings.append(Finding("sync", Severity.WARNING, text, advice))
    return findings


async def _work(app: Rowlock, name: str | None) -> list[Finding]:
    """Check for jobs that no worker will run."""
    from rowlock.management import ManagementService
    from rowlock.management.queues import unserved_warning
    from rowlock.storage.records import Finding, Severity

    if name is None or not len(app.registry):
        return []
    found = await ManagementService(app).health()
    declared = {*app.engine.queues(), *(queue for hub in app.integrations.values() for queue in hub.queues)}
    unserved = unserved_warning(found.unserved_types)
    findings = [
        Finding("job types", Severity.WARNING, warning, _ALIAS_ADVICE)
        if warning == unserved
        else Finding("workers", Severity.WARNING, warning, "see `rowlock queues list` and `rowlock worker --help`")
        for warning in found.warnings
    ]
    for queue in found.queues:
        waiting = queue.ready + queue.delayed
        if waiting and queue.name not in declared:
            findings.append(
                Finding(
                    "queues",
                    Severity.WARNING,
                    f"{waiting:,} jobs wait on queue {queue.name}, which {name} does not declare",
                    f"run `rowlock worker --queue {queue.name}`, or declare it with app.queue(...)",
                )
            )
    return findings or [Finding("workers", Severity.OK, "no job waits without a worker")]
