"""The pages of dead letters: grouped by reason, and retried or discarded only after showing their number."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from engine.running import Log
from rowlock import Job, Permanent, Rowlock, Unique
from rowlock.clock import StoreClock
from rowlock.dashboard import bulk_actions as bulk
from rowlock.errors import StoreUnavailable
from rowlock.management import ManagementService
from rowlock.storage.access import Role
from web.conftest import MakeSite
from web.paper import Paper, after, paper, post, press
from web.site import Site

HOSTILE = "</script><script>alert(1)</script><b>"


def declare(app: Rowlock) -> None:
    @app.job("ledger", unique=Unique.while_active(key="ledger"))
    async def ledger(job: Job) -> None:
        raise Permanent("the ledger is closed")

    @app.job("says")
    async def says(job: Job, reason: str) -> None:
        raise Permanent(reason)


@pytest.fixture
async def site(make_site: MakeSite) -> Site:
    """By the real clock: pages tell times from now."""
    return await make_site(declare, clock=StoreClock())


async def dead(site: Site, *reasons: str, **given: Any) -> list[str]:
    """Jobs that died of these reasons."""
    ids = [(await site.enqueue("says", payload={"reason": reason}, **given))["id"] for reason in reasons]
    await site.app.work(drain=True)
    return ids


async def status(site: Site, job_id: str) -> str:
    answer = await site.get(f"/api/v1/queue/{job_id}")
    return str(answer.json()["status"]) if answer.status_code == 200 else "gone"


# -- groups ----------------------------------------------------------------------------------------


async def test_where_nothing_is_dead_all_is_well(site: Site) -> None:
    page = await paper(site, "/dead")
    assert "No job has failed." in page.text
    assert "Retry all…" not in page.links


async def test_dead_jobs_are_grouped_by_type_and_reason(site: Site) -> None:
    await dead(site, "no paper\nin tray 2", "no paper\nin tray 3", "no ink")
    await site.dead()
    page = await paper(site, "/dead")
    groups = page.part("groups")
    assert "4 jobs in 3 groups." in groups
    assert "says 2 jobs no paper First failed" in groups
    assert "says 1 job no ink Failed" in groups
    assert "doomed 1 job it never works" in groups
    assert "rowlock dead retry" in groups


async def test_groups_are_filtered(site: Site) -> None:
    await dead(site, "no paper", companyId="acme")
    await site.enqueue("doomed", queue="other")
    await site.app.work("other", drain=True)
    assert "1 job in 1 group that match." in (await paper(site, "/dead?companyId=acme")).text
    assert "it never works" in (await paper(site, "/dead?queue=other")).text
    page = await paper(site, "/dead?type=nobody")
    assert "No dead letter matches" in page.text
    assert "No such" not in page.text
    assert "The type is longer" in (await paper(site, f"/dead?type={'x' * 201}", status=422)).text


async def test_the_jobs_of_a_group_are_listed(site: Site) -> None:
    first, second, _ = await dead(site, "no paper", "no paper", "no ink")
    page = await paper(site, "/dead")
    group = await paper(site, page.links["See them: says"])
    assert "2 jobs failed for this reason." in group.part("group")
    assert {first, second} == {value for name, value in group.form("Retry the selected jobs…").fields if name == "id"}
    assert group.links["All groups"] == "/dead"


async def test_a_group_that_is_gone_says_so(site: Site) -> None:
    page = await paper(site, "/dead?type=says&reason=no+paper")
    assert "No jobs left" in page.text


@pytest.mark.every_store
async def test_a_long_group_goes_on_page_by_page(site: Site) -> None:
    await dead(site, *["no paper"] * 55)
    page = await paper(site, "/dead?type=says&reason=no+paper")
    older = await paper(site, page.links["Older"])
    assert len([name for name, _ in older.form("Retry the selected jobs…").fields if name == "id"]) == 5
    assert "55 jobs failed" in older.text


async def test_a_group_is_looked_at_once_for_all_who_ask(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await dead(site, "no paper")
    asked = list[str]()
    for name in ("jobs", "count_dead", "dead_groups"):
        monkeypatch.setattr(ManagementService, name, noted(asked, name))
    for _ in range(3):
        await paper(site, "/dead?type=says&reason=no+paper")
    assert sorted(asked) == ["count_dead", "dead_groups", "jobs"]
    await paper(site, "/dead?type=says&reason=no+ink")
    await site.add_token("acme", Role.VIEWER, "acme")
    assert "No jobs left" in (await paper(site, "/dead?type=says&reason=no+paper", "acme")).text


def noted(asked: list[str], name: str) -> Any:
    """The question of this name, which is noted each time that it is asked."""
    ask = getattr(ManagementService, name)

    async def asks(management: ManagementService, *given: Any, **more: Any) -> Any:
        asked.append(name)
        return await ask(management, *given, **more)

    return asks


async def test_a_large_group_is_counted_only_so_far(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await dead(site, *["no paper"] * 4)
    monkeypatch.setattr("rowlock.dashboard.dead_letters.COUNTED_MAX", 3)
    page = await paper(site, "/dead?type=says&reason=no+paper", "operator")
    assert "3+ jobs failed for this reason." in page.text
    sure = await paper(site, page.links["Discard all 3+…"], "operator")
    assert "4 dead letters match." in sure.text


@pytest.mark.every_store
async def test_a_reason_that_was_cut_within_a_secret_leads_to_its_jobs(site: Site) -> None:
    words = f"{'x' * 185} password="
    (job_id,) = await dead(site, f"{words}hunter2 was wrong")
    page = await paper(site, "/dead", "operator")
    assert f"{words}[REDACTED]" in page.text
    group = await paper(site, page.links["See it: says"], "operator")
    assert f"{words}[REDACTED] 1 job failed for this reason." in group.part("group")
    assert "What to do" in group.part("group")
    for path in (page.links["Retry… says"], group.links["Discard it…"]):
        sure = await paper(site, path, "operator")
        assert "1 dead letter matches." in sure.text
        assert f"{words}[REDACTED]" in sure.text
    await press(site, sure, "Discard it")
    assert await status(site, job_id) == "gone"


# -- retry and discard -----------------------------------------------------------------------------


async def test_a_group_is_retried_after_it_was_said_how_many(site: Site) -> None:
    *those, other = await dead(site, "no paper", "no paper", "no ink")
    page = await paper(site, "/dead", "operator")
    sure = await paper(site, page.links["Retry… says"], "operator")
    assert "2 dead letters match." in sure.text
    assert [await status(site, job_id) for job_id in those] == ["failed", "failed"]
    told = await press(site, sure, "Retry 2 jobs")
    assert "2 jobs are queued again." in told.text
    assert [await status(site, job_id) for job_id in those] == ["queued", "queued"]
    assert await status(site, other) == "failed"


async def test_all_are_discarded_after_it_was_said_how_many(site: Site) -> None:
    ids = [*await dead(site, "no paper", "no ink"), *await site.dead()]
    page = await paper(site, "/dead", "operator")
    sure = await paper(site, page.links["Discard all…"], "operator")
    assert "3 dead letters match." in sure.text
    assert "This cannot be undone." in sure.text
    assert "all dead letters" in sure.text
    told = await press(site, sure, "Discard 3 jobs")
    assert "3 jobs are deleted." in told.text
    assert "No job has failed." in told.text
    assert [await status(site, job_id) for job_id in ids] == ["gone"] * 3


async def test_a_filter_is_retried_as_it_is(site: Site) -> None:
    (own,) = await dead(site, "no paper", companyId="acme")
    (other,) = await dead(site, "no paper", companyId="globex")
    page = await paper(site, "/dead?companyId=acme", "operator")
    told = await press(site, await paper(site, page.links["Retry these…"], "operator"), "Retry it")
    assert "1 job is queued again." in told.text
    assert (await status(site, own), await status(site, other)) == ("queued", "failed")


async def test_some_are_chosen_one_by_one(site: Site) -> None:
    first, second, third = await dead(site, *["no paper"] * 3)
    query = urlencode([("from", "/dead?type=says&reason=no+paper"), ("id", first), ("id", third)])
    sure = await paper(site, f"/dead/retry?{query}", "operator")
    assert "2 dead letters match." in sure.text
    told = await press(site, sure, "Retry 2 jobs")
    assert "2 jobs are queued again." in told.text
    assert "1 job failed for this reason." in told.text
    assert [await status(site, each) for each in (first, second, third)] == ["queued", "failed", "queued"]


async def test_without_a_selection_the_page_asks_for_one(site: Site) -> None:
    (job_id,) = await dead(site, "no paper")
    for verb in ("retry", "discard"):
        answer = await site.get(f"/dead/{verb}?{urlencode({'from': '/dead?type=says&reason=no+paper'})}", "operator")
        told = await after(site, answer)
        assert "Choose at least one job first." in told.text
        assert "1 job failed for this reason." in told.text
    assert await status(site, job_id) == "failed"


@pytest.mark.parametrize("given", ["//evil.test/", "https://evil.test", "/\\evil.test"])
async def test_nobody_is_sent_to_another_site(site: Site, given: str) -> None:
    (job_id,) = await dead(site, "no paper")
    answer = await site.get("/dead/retry", "operator", params={"from": given})
    assert answer.headers["location"] == "/"
    sure = await paper(site, "/dead/retry", "operator", params={"from": given, "id": job_id})
    assert sure.links["Go back"] == "/"


async def test_one_is_discarded_after_a_second_look(site: Site) -> None:
    (job_id,) = await dead(site, "no paper")
    page = await paper(site, f"/jobs/{job_id}", "operator")
    sure = await paper(site, page.links["Discard…"], "operator")
    assert "no paper" in sure.text
    assert sure.links["Go back"] == f"/jobs/{job_id}"
    assert "1 job is deleted." in (await press(site, sure, "Discard it")).text
    assert await status(site, job_id) == "gone"


@pytest.mark.parametrize(("verb", "done"), [("Discard", "gone"), ("Retry", "queued")])
async def test_what_died_since_it_was_counted_is_left(site: Site, verb: str, done: str) -> None:
    (seen,) = await dead(site, "no paper")
    sure = await paper(site, f"/dead/{verb.lower()}?type=says", "operator")
    first, second = await dead(site, "no ink", "no paper")
    told = await press(site, sure, f"{verb} it")
    words = "deleted" if verb == "Discard" else "queued again"
    assert f"1 job is {words}. 2 more have failed since; they are still here." in told.text
    assert [await status(site, job_id) for job_id in (seen, first, second)] == [done, "failed", "failed"]


async def test_another_that_died_instead_of_one_that_was_shown_is_left(site: Site) -> None:
    (seen, retried) = await dead(site, "no paper", "no paper")
    sure = await paper(site, "/dead/discard?type=says", "operator")
    await site.post(f"/api/v1/queue/{retried}/retry")  # by somebody else, and it dies once more
    (unseen,) = await dead(site, "no ink")
    told = await press(site, sure, "Discard 2 jobs")
    assert "1 job is deleted. 2 more have failed since; they are still here." in told.text
    assert [await status(site, job_id) for job_id in (seen, retried, unseen)] == ["gone", "failed", "failed"]


@pytest.mark.every_store
async def test_what_dies_between_the_rounds_is_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    early = (await site.enqueue("says", payload={"reason": "no paper"}, queue="later"))["id"]  # an old id dies last
    seen = await dead(site, *["no paper"] * 3)
    monkeypatch.setattr(bulk, "ROUND", 2)
    monkeypatch.setattr(bulk, "ROUNDS_SECONDS", -1.0)
    told = await press(site, await paper(site, "/dead/discard?type=says", "operator"), "Discard 3 jobs")
    await site.app.work("later", drain=True)
    (late,) = await dead(site, "no paper")
    assert "2 are deleted so far; 1 is left." in told.text
    told = await press(site, told, "Discard the rest")
    assert "3 jobs are deleted. 2 more have failed since; they are still here." in told.text
    assert {await status(site, job_id) for job_id in seen} == {"gone"}
    assert [await status(site, job_id) for job_id in (early, late)] == ["failed", "failed"]


@pytest.mark.every_store
async def test_the_rest_is_counted_without_what_died_since(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await dead(site, *["no paper"] * 3)
    monkeypatch.setattr(bulk, "ROUND", 2)
    monkeypatch.setattr(bulk, "ROUNDS_SECONDS", -1.0)
    sure = await paper(site, "/dead/retry?type=says", "operator")
    form = sure.form("Retry 3 jobs")
    answer = await post(site, form.action, **dict(form.fields))
    await dead(site, "no ink")  # and the two that were queued again
    rest = await after(site, answer)
    assert "2 are queued again so far; 1 is left." in rest.text


@pytest.mark.parametrize("given", [{}, {"seenAt": ""}, {"seenAt": "yesterday"}])
async def test_nothing_is_done_before_it_was_said_how_many(site: Site, given: dict[str, str]) -> None:
    ids = await dead(site, "no paper", "no paper")
    for verb in ("Retry", "Discard"):
        sure = Paper(await post(site, f"/dead/{verb.lower()}", type="says", **given))
        assert f"{verb} 2 jobs" in sure.buttons
        assert [await status(site, job_id) for job_id in ids] == ["failed", "failed"]


async def test_a_dry_run_leaves_out_what_died_too_late(site: Site) -> None:
    (seen,) = await dead(site, "no paper")
    management = ManagementService(site.app)
    at = (await management.count_dead()).at
    await dead(site, "no ink")
    for ask in (management.retry_dead, management.discard_dead):
        assert (await ask(dry_run=True)).matched == 2
        assert (await ask(dry_run=True, died_before=at)).matched == 1
    done = await management.discard_dead(died_before=at)
    assert (done.matched, done.discarded) == (1, 1)
    assert await status(site, seen) == "gone"


async def test_nothing_to_do_is_said(site: Site) -> None:
    sure = await paper(site, "/dead/retry?type=nobody", "operator")
    assert "No job matches any more." in sure.text
    assert sure.buttons == ["Sign out"]
    told = await after(site, await post(site, "/dead/retry", type="nobody", seenAt="2026-01-02T03:04:05Z"))
    assert "0 jobs are queued again." in told.text


@pytest.mark.every_store
async def test_conflicts_are_named(site: Site) -> None:
    await site.enqueue("ledger")
    await site.app.work(drain=True)
    (old,) = [job["id"] for job in (await site.get("/api/v1/queue?type=ledger")).json()["jobs"]]
    new = (await site.enqueue("ledger"))["id"]
    sure = await paper(site, "/dead/retry?type=ledger", "operator")
    told = await press(site, sure, "Retry it")
    assert f"0 jobs are queued again. 1 stays here: another job now has its unique key ({old})." in told.text
    assert (await status(site, old), await status(site, new)) == ("failed", "queued")


async def test_a_large_set_goes_on_in_rounds(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await dead(site, *["no paper"] * 7)
    monkeypatch.setattr(bulk, "ROUND", 2)
    told = await press(site, await paper(site, "/dead/retry?type=says", "operator"), "Retry 7 jobs")
    assert "7 jobs are queued again." in told.text
    assert {await status(site, job_id) for job_id in ids} == {"queued"}


async def test_what_takes_too_long_says_how_far_it_is_and_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await dead(site, *["no paper"] * 5)
    monkeypatch.setattr(bulk, "ROUND", 2)
    monkeypatch.setattr(bulk, "ROUNDS_SECONDS", -1.0)
    told = await press(site, await paper(site, "/dead/discard?type=says", "operator"), "Discard 5 jobs")
    assert "2 are deleted so far; 3 are left." in told.text
    told = await press(site, told, "Discard the rest")
    assert "4 are deleted so far; 1 is left." in told.text
    told = await press(site, told, "Discard the rest")
    assert "5 jobs are deleted." in told.text
    assert {await status(site, job_id) for job_id in ids} == {"gone"}


async def test_one_is_not_many(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.enqueue("ledger")
    await dead(site, "no paper", "no paper")  # newer than the ledger's
    (old,) = [job["id"] for job in (await site.get("/api/v1/queue?type=ledger")).json()["jobs"]]
    await site.enqueue("ledger")
    monkeypatch.setattr(bulk, "ROUND", 1)
    monkeypatch.setattr(bulk, "ROUNDS_SECONDS", -1.0)
    sure = await paper(site, "/dead/retry?all=1", "operator")
    told = await press(site, sure, "Retry 3 jobs")
    assert "1 is queued again so far; 2 are left." in told.text
    told = await paper(site, f"/dead/retry?all=1&done=1&kept=1&cursor={old}", "operator")
    assert "1 is queued again so far; 1 is left. 1 stays here: another job now has its unique key." in told.text
    told = await paper(site, f"/dead/retry?all=1&done=2&kept=2&cursor={old}", "operator")
    assert "2 stay here: another job now has their unique key." in told.text


async def test_what_breaks_off_says_how_far_it_came(site: Site, monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    ids = await dead(site, *["no paper"] * 5)
    sure = await paper(site, "/dead/retry?type=says", "operator")
    monkeypatch.setattr(bulk, "ROUND", 2)
    retry, rounds = ManagementService.retry_dead, iter(range(9))

    async def breaks(management: ManagementService, **given: Any) -> Any:
        if next(rounds) == 2:
            raise StoreUnavailable("gone for a moment")
        return await retry(management, **given)

    monkeypatch.setattr(ManagementService, "retry_dead", breaks)
    told = await press(site, sure, "Retry 5 jobs")
    assert "4 jobs are queued again. Then an error occurred: " in told.text
    assert [line["reason"] for line in log.of("http.store_failed")] == ["gone for a moment"]
    assert "The others are still here." in told.text
    assert sorted([await status(site, job_id) for job_id in ids]) == ["failed", *["queued"] * 4]


@pytest.mark.every_store
async def test_lines_that_end_otherwise_are_found_again(site: Site) -> None:
    await dead(site, "no paper\r\nin tray 2")
    page = await paper(site, "/dead", "operator")
    sure = await paper(site, page.links["Retry… says"], "operator")
    assert "1 dead letter matches." in sure.text
    form = sure.form("Retry it")
    fields = {name: value.replace("\r", "\r\n") for name, value in form.fields}  # as browsers send it
    assert "1 job is queued again." in (await after(site, await post(site, form.action, **fields))).text


@pytest.mark.parametrize("verb", ["retry", "discard"])
async def test_which_jobs_must_be_said(site: Site, verb: str) -> None:
    await dead(site, "no paper")
    assert (await post(site, f"/dead/{verb}")).status_code == 422
    assert (await site.get(f"/dead/{verb}", "operator")).status_code == 422
    assert (await post(site, f"/dead/{verb}", type="x" * 300)).status_code == 422
    assert (await post(site, f"/dead/{verb}", all="1", type="says")).status_code == 422


@pytest.mark.parametrize("verb", ["retry", "discard"])
async def test_who_may_only_look_is_offered_nothing_and_refused(site: Site, verb: str) -> None:
    (job_id,) = await dead(site, "no paper")
    for path in ("/dead", "/dead?type=says&reason=no+paper"):
        page = await paper(site, path, "viewer")
        assert not [label for label in (*page.links, *page.buttons) if label.startswith(("Retry", "Discard"))]
    assert (await site.get(f"/dead/{verb}?all=1", "viewer")).status_code == 403
    assert (await post(site, f"/dead/{verb}", "viewer", all="1")).status_code == 403
    assert await status(site, job_id) == "failed"


async def test_one_company_sees_and_changes_its_own_only(site: Site) -> None:
    await site.add_token("acme", Role.OPERATOR, "acme")
    (own,) = await dead(site, "no paper", companyId="acme")
    (other,) = await dead(site, "no ink", companyId="globex")
    page = await paper(site, "/dead", "acme")
    assert "no paper" in page.text
    assert "no ink" not in page.text
    assert "No job matches any more." in (await paper(site, f"/dead/discard?id={other}", "acme")).text
    assert "No jobs left" in (await paper(site, "/dead?type=says&reason=no+ink", "acme")).text
    sure = await paper(site, "/dead/discard?all=1", "acme")
    assert "all dead letters of your company" in sure.text
    assert "1 job is deleted." in (await press(site, sure, "Discard it", "acme")).text
    assert (await status(site, own), await status(site, other)) == ("gone", "failed")


async def test_what_others_have_written_is_text(site: Site) -> None:
    (job_id,) = await dead(site, f"{HOSTILE}\n{'W' * 2_000}", companyId=HOSTILE)
    query = urlencode({"type": "says", "reason": HOSTILE, "companyId": HOSTILE})
    for path in ("/dead", f"/dead?{query}", f"/dead/retry?{query}", f"/dead/discard?id={job_id}"):
        answer = await site.get(path)
        assert answer.status_code == 200
        assert "<script>" not in answer.text
        assert "<b>" not in answer.text
        assert HOSTILE in Paper(answer).text
    assert f"1 job of the company {HOSTILE} failed for this reason." in (await paper(site, f"/dead?{query}")).text
