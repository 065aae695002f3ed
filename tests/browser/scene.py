"""A site with at least one of everything, for looking at every page."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from browser import sheets
from browser.house import OVER, House

PAGES = (
    *("overview", "jobs", "jobs-failed", "jobs-none", "job-succeeded", "job-failed", "job-running", "job-delayed"),
    *("dead", "dead-group", "imports", "import-done", "import-errors", "import-preview", "import-refused"),
    *("sync", "sync-crm", "sync-hubspot", "problem", "sign-in"),
)


async def furnish(house: House) -> dict[str, str]:
    """The address of each of PAGES."""
    done = await house.enqueue("note", {"to": "ada@example.org", "lines": [1, 2.5, None, True]}, companyId="acme")
    running = await house.enqueue("demo.sleep", {"seconds": 3_000}, companyId="acme")
    delayed = await house.enqueue("healthPing", delaySeconds=7_200)
    refused = "the mail server refuses our password"
    (dead, *_) = await house.dead(3, reason=refused)
    await house.dead(1, reason="no such mailbox: eve@example.org\nand a second line that groups do not look at")
    cancelled = await house.enqueue("healthPing", delaySeconds=7_200)
    await house.ask("POST", f"/api/v1/queue/{cancelled}/cancel")
    await house.ask("POST", "/api/v1/sync/crm/keep", json={"payload": {"name": "a", "text": "hello"}})
    await house.reaches(done, "succeeded")
    await house.reaches(running, "processing")
    imports = {
        "import-done": await upload(house, sheets.good(12)),
        "import-errors": await upload(house, sheets.bad(9)),
        "import-preview": await upload(house, [*sheets.good(3), *sheets.bad(20)[15:]], dryRun="true"),
        "import-refused": await upload(house, [("x",)], header=("Colour",)),
    }
    addresses = {
        "overview": "/",
        "jobs": "/jobs",
        "jobs-failed": "/jobs?status=failed",
        "jobs-none": "/jobs?type=no.such.type",
        "job-succeeded": f"/jobs/{done}",
        "job-failed": f"/jobs/{dead}",
        "job-running": f"/jobs/{running}",
        "job-delayed": f"/jobs/{delayed}",
        "dead": "/dead",
        "dead-group": f"/dead?type=invoice.send&reason={quote(refused)}",
        "imports": "/imports",
        **{name: f"/imports/{import_id}" for name, import_id in imports.items()},
        "sync": "/sync",
        "sync-crm": "/sync/crm",
        "sync-hubspot": "/sync/hubspot",
        "problem": "/jobs/there-is-none",
        "sign-in": "/sign-in",
    }
    assert set(addresses) == set(PAGES)
    return addresses


async def upload(
    house: House,
    rows: Sequence[sheets.Row],
    header: sheets.Row = sheets.HEADER,
    name: str = "customers.csv",
    **options: str,
) -> str:
    """The id of an import that is over."""
    data = "\r\n".join(",".join(row) for row in (header, *rows)).encode()
    answer = await house.ask(
        "POST",
        "/api/v1/imports/csv/upload",
        files={"file": (name, data, "text/csv")},
        data={"force": "true"} | options,
    )
    assert answer.status_code == 202, answer.text
    import_id = str(answer.json()["id"])
    found: dict[str, object] = {}

    async def over() -> bool:
        found.update(await house.get(f"/api/v1/import-jobs/{import_id}"))
        return str(found["status"]).lower() in OVER

    await house.until(over, lambda: f"{import_id}: {found.get('status')}")
    return import_id
