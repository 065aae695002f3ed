"""What the document says of each job type: how critical it is, and which lock it takes."""

from __future__ import annotations

import ast
import inspect
import json
from importlib import import_module
from pathlib import Path

import pytest

import backoffice
from backoffice import Criticality, insights, periods
from backoffice.outliers import VALUES_MIN, outliers, scores
from backoffice.queries import sql, store_of
from public_modules import PUBLIC_MODULES
from rowlock import BadPayload, Permanent

TYPES = {
    # name: criticality, guard's key, a payload, its scope
    "generateMonthlySnapshots": ("CRITICAL", "monthly_snapshot", {"amendedMonth": "2026-03"}, "acme:2026-03"),
    "updateReports": (
        "CRITICAL",
        "monthly_report",
        {"periodStart": "2026-01-01", "periodEnd": "2026-03-31"},
        "acme:2026-01-01_2026-03-31",
    ),
    "batchRecalc": (
        "CRITICAL",
        "batch_recalc",
        {"periodStart": "2026-01-01", "periodEnd": "2026-03-31"},
        "acme:2026-01-01_2026-03-31",
    ),
    "generateAIInsights": ("MEDIUM", "ai_insights", {"date": "2026-11-16"}, "acme:2026-11-16"),
    "sendNotifications": ("LOW", None, {}, None),
    "healthPing": ("DIAGNOSTIC", None, {}, None),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_has_the_criticality_guard_and_scope_of_the_document(name: str) -> None:
    criticality, key, payload, scope = TYPES[name]
    declared = backoffice.app.registry.require(name)
    assert declared.priority == Criticality[criticality]
    assert declared.queue == "ai-cfo-jobs"
    if key is None:
        assert declared.lock is None
        return
    assert declared.lock is not None
    lock = declared.lock.key({"companyId": "acme", **payload}, "acme")
    assert (lock.company_id, lock.job_key, lock.scope_key) == ("acme", key, scope)


def test_what_is_critical_runs_first() -> None:
    assert Criticality.CRITICAL < Criticality.MEDIUM < Criticality.LOW < Criticality.DIAGNOSTIC


@pytest.mark.parametrize("payload", [{}, {"amendedMonth": None}])
def test_snapshots_without_a_month_are_the_full_ones(payload: dict[str, None]) -> None:
    lock = backoffice.app.registry.require("generateMonthlySnapshots").lock
    assert lock is not None
    assert lock.key({"companyId": "acme", **payload}, None).scope_key == "acme:full"


@pytest.mark.parametrize("payload", [{}, {"date": None}])
def test_insights_without_a_day_are_those_of_today(payload: dict[str, None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insights, "today", lambda: "2026-11-16")
    lock = backoffice.app.registry.require("generateAIInsights").lock
    assert lock is not None
    assert lock.key({"companyId": "acme", **payload}, None).scope_key == "acme:2026-11-16"


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("generateMonthlySnapshots", {}),
        ("generateMonthlySnapshots", {"companyId": ""}),
        ("generateMonthlySnapshots", {"companyId": "a:b"}),
        ("generateMonthlySnapshots", {"companyId": "a" * 101}),
        ("generateMonthlySnapshots", {"companyId": "acme", "amendedMonth": "2026-13"}),
        ("generateMonthlySnapshots", {"companyId": "acme", "amendedMonth": "2026-3"}),
        ("generateMonthlySnapshots", {"companyId": "acme", "amendedMonth": "0000-01"}),
        ("generateMonthlySnapshots", {"companyId": "acme", "amendedMonth": "2026-03\n"}),
        ("generateMonthlySnapshots", {"companyId": "acme", "month": "2026-03"}),
        ("updateReports", {"companyId": "acme", "periodStart": "2026-01-01"}),
        ("updateReports", {"companyId": "acme", "periodStart": "2026-01-01", "periodEnd": "2026-02-30"}),
        ("batchRecalc", {"companyId": "acme", "periodStart": 0, "periodEnd": "2026-02-28"}),
        ("generateAIInsights", {"companyId": "acme", "date": "yesterday"}),
        ("sendNotifications", {"companyId": "acme", "message": ""}),
        ("sendNotifications", {"companyId": "acme", "message": "x" * 4_001}),
        ("sendNotifications", {"companyId": "acme", "message": "hi", "channel": "pigeon"}),
    ],
)
async def test_a_bad_payload_is_refused(name: str, payload: dict[str, object]) -> None:
    arguments = backoffice.app.registry.require(name).arguments
    assert arguments is not None
    with pytest.raises(BadPayload, match=name):
        arguments(json.dumps(payload))


def test_only_public_names_are_used() -> None:
    checked = 0
    for file in Path(inspect.getfile(backoffice)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rowlock":
                assert node.module in PUBLIC_MODULES, file
                assert {name.name for name in node.names} <= set(import_module(node.module).__all__), file
                checked += 1
            elif isinstance(node, ast.Import):
                assert not any(name.name.split(".")[0] == "rowlock" for name in node.names), file
    assert checked


# -- the small parts -------------------------------------------------------------------------------


def test_the_months_of_a_period() -> None:
    assert periods.months_of("2025-11-30", "2026-02-01") == ["2025-11", "2025-12", "2026-01", "2026-02"]
    assert periods.months_of("2026-02-10", "2026-02-10") == ["2026-02"]
    assert len(periods.months_of("1977-01-01", "2026-12-31")) == periods.PERIOD_MONTHS_MAX


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [("2026-02-10", "2026-02-09", "before it starts"), ("1976-12-31", "2026-12-31", "601 months, the limit is 600")],
)
def test_a_period_that_is_none_is_never_tried_again(start: str, end: str, reason: str) -> None:
    with pytest.raises(Permanent, match=reason):
        periods.months_of(start, end)


@pytest.mark.parametrize("cents", [0, 1, 11, 12, 100, 1_200_007, -5])
def test_twelve_months_share_a_years_budget_to_the_cent(cents: int) -> None:
    shares = [periods.share_cents(cents, month) for month in periods.months_of("2026-01-01", "2026-12-31")]
    assert sum(shares) == cents
    assert max(shares) - min(shares) <= 1


def test_an_unusual_value_is_found_and_does_not_hide_another() -> None:
    usual = [100, 101, 99, 102, 98, 100, 103, 97]
    assert outliers(usual) == []
    assert [place for place, _ in outliers([*usual, 5_000, 400])] == [8, 9]
    assert outliers([*usual, 1]) == []  # what is unusually small costs nothing


def test_where_most_are_alike_an_unusual_value_is_found_too() -> None:
    assert [place for place, _ in outliers([100] * 20 + [900])] == [20]
    assert scores([100] * 20) == [0.0] * 20


def test_too_few_values_say_nothing() -> None:
    assert outliers([1] * (VALUES_MIN - 2) + [1_000_000]) == []
    assert outliers([1, 2, 3, 1, 2, 3, 2, 1_000_000])[0][0] == VALUES_MIN - 1


def test_placeholders_are_those_of_the_store() -> None:
    class Fake:
        connection = object()

    assert sql(Fake(), "a = ? AND b = ?") == "a = ? AND b = ?"
    Connection = type("Connection", (), {"__module__": "asyncpg.connection"})
    fake = Fake()
    fake.connection = Connection()
    assert sql(fake, "a = ? AND b = ?") == "a = $1 AND b = $2"
    Session = type("AsyncClientSession", (), {"__module__": "pymongo.asynchronous.client_session"})
    fake.connection = Session()
    assert store_of(fake) == "mongodb"
