"""Tokens for one company see no address and no path of a server; operators of all companies do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from engine.running import Log
from rowlock import Backoff, Importer, Job, NoTransactions, Run, StatementRefused, StoreError, StoreUnavailable
from rowlock.management import ManagementService
from rowlock.observe.internals import HIDDEN, without_inner
from rowlock.storage.access import Role
from web.importing import Customer, raw
from web.site import Site, problem

ADDRESS = "postgresql://rowlock@db7.internal:5433/shop"
FILE = "/srv/rowlock/imports/0/1.arrow"
SAID = f"PostgreSQL at {ADDRESS} is not available: see {FILE}"
INNER = ("db7.internal", "5433", "/srv/", ".py")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("chunk 3 failed: StoreUnavailable: " + SAID, f"chunk 3 failed: {HIDDEN}"),
        (f"FileNotFoundError: [Errno 2] No such file: '{FILE}'", HIDDEN),
        (f"chunk 3 is damaged ([Errno 5] I/O error: '{FILE}')", "chunk 3 is damaged ([Errno 5] I/O error: '…')"),
        ("StatementRefused: permission denied\nfor table people", HIDDEN),
        ("ServerSelectionTimeoutError: db7.internal:27017: timed out", HIDDEN),
        ("OSError", HIDDEN),
        (f"cannot read {ADDRESS} or 10.0.0.7:5432", "cannot read … or …"),
        (r"cannot read C:\data\store\1.arrow", "cannot read …"),
        ("cannot reach db-1.internal:5432 or [fe80::1%eth0]:5432", "cannot reach … or …"),
        ("mongo_1.shop.svc.cluster.local:27017: [Errno 111] refused", "…: [Errno 111] refused"),
        ("from [2001:db8:0:0:0:0:0:1] and [::1]:80, 255.255.255.0", "from … and …, …"),
        (r"cannot read \\files\imports\1.csv, nor '\\\\files\\imports'", "cannot read …, nor '…'"),
        ("ConnectionFailure: db7:27017: [Errno 111]", HIDDEN),
        ("FolderUnavailable: the folder of imports failed", HIDDEN),
        ("gaierror: [Errno -2] Name or service not known: db7", HIDDEN),
        # what is no address stays
        ("Permanent: Error: the period 2026-01 is closed; ask accounting", None),
        ("Error 400: property hs_x does not exist", None),
        ("UnsupportedOperation: the shop takes no such orders; itimer_error", None),
        ("write 1.234.567.890 as 1234567890, 1.2.3.4.5 or 1.2.3.400", None),
        ("prices.csv:12 has no price at 10:30, 31.01.2026:10, [10:30:15], [1:5], row a:12", None),
        ("see https://shop.example.org:8443/help", None),
        ("ValueError: 12/31/2026 is no date; see https://example.org/help/dates", None),
        ("importer 'prices': enrich() failed: KeyError: 'list'; write and/or, 1/2, 3.10.2", None),
        ("the price list is missing: /prices", None),
    ],
)
def test_what_is_hidden(text: str, shown: str | None) -> None:
    assert without_inner(text) == (text if shown is None else shown)


def test_what_is_hidden_does_not_depend_on_what_is_imported() -> None:
    """`shutil.Error` and some classes of drivers are OSErrors."""
    text = "import shutil; from rowlock.observe.internals import without_inner; print(without_inner('Error: closed'))"
    told = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout
    assert told == "Error: closed\n"


@pytest.fixture
async def shop(site: Site) -> Site:
    """Where an import and a job of a company have failed for a reason of the server's."""

    @site.app.importer("owned", row=Customer, key=["email"], into="web_owned", company="company_id")
    class Owned(Importer):
        async def prepare(self, run: Run) -> None:
            raise StoreUnavailable(SAID)

    @site.app.job("export", retry=Backoff(max_attempts=1))
    async def export(job: Job) -> None:
        raise StoreUnavailable(SAID)

    await site.add_token("acme", Role.ADMIN, "acme")
    return site


async def looked_at(site: Site, import_id: str, job_id: str, token: str) -> str:
    """All that is answered about them."""
    failures = await site.get(f"/api/admin/queue/failures?jobId={job_id}", token)
    failure = failures.json()["data"]["failures"][0]["id"]
    api = (
        *("import-jobs", f"import-jobs/{import_id}", "queue", f"queue/{job_id}", f"queue/{import_id}"),
        *(
            f"queue/{job_id}?raw=true",
            "queue/dead-letter",
            "queue/dead-letter/groups",
            f"queue/{job_id}/timeline",
            f"queue/{import_id}/timeline",
        ),
    )
    paths = [f"/api/v1/{path}" for path in api] + [f"/api/admin/queue/failures/{failure}", f"/imports/{import_id}"]
    answers = [await site.get(path, token) for path in [*paths, "/imports", "/dead", f"/jobs/{job_id}", "/jobs"]]
    assert [str(answer.url) for answer in answers if answer.status_code != 200] == []
    return "\n".join(answer.text for answer in [failures, *answers])


async def test_a_company_sees_neither_addresses_nor_paths(shop: Site) -> None:
    taken = await raw(shop, token="acme", type="owned")
    import_id = taken.json()["id"]
    job_id = (await shop.enqueue("export", companyId="acme"))["id"]
    store = shop.app.store
    await shop.app.work(drain=True)
    waiting = await looked_at(shop, import_id, job_id, "acme")
    assert [word for word in INNER if word in waiting] == []
    assert f"an attempt failed and is retried: {HIDDEN}" in waiting
    for _ in range(4):
        await store.run_now(import_id)
        await shop.app.work(drain=True)
    await shop.app.imports.close()
    ended = await looked_at(shop, import_id, job_id, "acme")
    assert [word for word in INNER if word in ended] == []
    assert f"a job of this import failed: {HIDDEN}" in ended
    seen = await looked_at(shop, import_id, job_id, "admin")
    assert [word for word in INNER if word not in seen] == []
    await finds_by_the_reason(ManagementService(shop.app, "acme"))


async def finds_by_the_reason(management: ManagementService) -> None:
    groups = (await management.dead_groups(type="export")).groups
    assert [(group.reason, group.count) for group in groups] == [(HIDDEN, 1)]
    assert [job.type for job in (await management.jobs(reason=HIDDEN, type="export")).jobs] == ["export"]
    assert (await management.count_dead(reason=HIDDEN, type="export")).matched == 1


async def test_an_answer_about_the_store_names_no_address(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable(SAID)

    monkeypatch.setattr(site.app.store, "page", away)
    told = problem(await site.get("/api/v1/queue"), 503, "store_unavailable")
    assert [word for word in INNER if word in str(told)] == []


@pytest.mark.parametrize("kind", [StatementRefused, NoTransactions])
async def test_what_an_operator_must_change_is_not_to_be_tried_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, log: Log, kind: type[StoreError]
) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise kind(SAID)

    monkeypatch.setattr(site.app.store, "page", refuse)
    answer = await site.get("/api/v1/queue")
    told = problem(answer, 500, "internal_error")
    assert told["detail"] == "an operator must correct the configuration; see the server's log"
    assert "retry-after" not in answer.headers
    assert [line["path"] for line in log.of("http.store_failed")] == ["/api/v1/queue"]
