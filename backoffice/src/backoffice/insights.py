"""Insights: findings for a person to check, from plain statistics; optional summaries by a language model."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Annotated, Any

from pydantic import Field

from backoffice.application import CompanyId, Criticality, DataVersion, Day, app
from backoffice.outliers import outliers
from backoffice.periods import days_before, days_between, months_of
from backoffice.queries import CENTS, Document, Query, Transaction, ask, grouped, put, remove, sum_where
from backoffice.reports import totals_by_category
from backoffice.tables import ensure_tables, key_of, one_at_a_time
from rowlock import Job, Permanent, Unique

OVER_BUDGET = 1.1
PAYABLES_MAX = 100_000  # the newest payables, searched for outliers
KIND_MAX = 100  # insights per kind and day
MESSAGE_LENGTH_MAX = 500
SUMMARY_LENGTH_MAX = 4_000

LanguageModel = Callable[[str, list[str]], Awaitable[str]]
_language_model: LanguageModel | None = None


def use_language_model(ask: LanguageModel | None) -> None:
    """Set the function (company, messages) -> text that summarizes a day's insights. None turns summaries off."""
    global _language_model
    _language_model = ask


@dataclass(frozen=True, slots=True)
class Insight:
    kind: str
    subject: str
    message: str
    figures: dict[str, Any]


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def _scope(payload: Mapping[str, Any]) -> str:
    return f"{payload['companyId']}:{payload.get('date') or today()}"


@app.job(
    "generateAIInsights",
    priority=Criticality.MEDIUM.value,
    unique=Unique.while_active(),
    lock=app.lock("ai_insights", _scope),
)
async def generate_ai_insights(
    job: Job, companyId: CompanyId, date: Day | None = None, dataVersion: DataVersion | None = None
) -> None:
    """Find what is over budget, overdue or unusual on a day (default: today)."""
    day = date or today()
    async with job.transaction() as tx:
        await ensure_tables(tx)
        await one_at_a_time(tx, companyId)
        found = [
            *await _budget(tx, companyId, day),
            *await _overdue(tx, companyId, day),
            *await _unusual(tx, companyId, day),
        ]
        await remove(tx, "insights", company_id=companyId, day=day)
        for insight in found:
            await _keep(tx, job, companyId, day, insight)
        if found and _language_model is not None:
            # In a separate job: the model is slow, may fail, and must not hold a transaction open.
            messages = [insight.message[:MESSAGE_LENGTH_MAX] for insight in found]
            await tx.enqueue("summarizeAIInsights", {"companyId": companyId, "date": day, "messages": messages})
        kinds = {kind: sum(insight.kind == kind for insight in found) for kind in ("budget", "overdue", "outlier")}
        tx.result = {"date": day, "insights": len(found), **kinds}


@app.job("summarizeAIInsights", priority=Criticality.LOW.value)
async def summarize_ai_insights(
    job: Job, companyId: CompanyId, date: Day, messages: Annotated[list[str], Field(max_length=10_000)]
) -> None:
    """Store the language model's summary of a day's insights, if a model is set."""
    if _language_model is None:
        raise Permanent("no language model is in use; call backoffice.insights.use_language_model first")
    summary = (await _language_model(companyId, messages))[:SUMMARY_LENGTH_MAX]
    async with job.transaction() as tx:
        await ensure_tables(tx)
        await remove(tx, "insights", company_id=companyId, day=date, kind="summary")
        await _keep(tx, job, companyId, date, Insight("summary", "all", summary, {"of": len(messages)}))
        tx.result = {"characters": len(summary)}


async def _budget(tx: Transaction, company: str, day: str) -> list[Insight]:
    """Find categories that cost over 110 % of their budget for the year's months so far."""
    start = f"{day[:4]}-01-01"
    totals = await totals_by_category(tx, company, start, day, months_of(start, day))
    found = []
    for category, figures in sorted(totals.items()):
        actual, planned = figures["payablesCents"], figures["budgetCents"]
        if actual <= planned * OVER_BUDGET:
            continue
        against = f"{_money(planned)} planned, {actual / planned:.0%}" if planned else "no budget"
        message = f"{category}: {_money(actual)} since {start} against {against}"
        found.append(Insight("budget", category, message, {"actualCents": actual, "budgetCents": planned}))
    return sorted(found, key=_excess, reverse=True)[:KIND_MAX]


def _excess(insight: Insight) -> int:
    excess: int = insight.figures["actualCents"] - insight.figures["budgetCents"]
    return excess


async def _overdue(tx: Transaction, company: str, day: str) -> list[Insight]:
    """Find vendors with overdue payables: amounts by age, the largest total first."""
    ages = [days_before(day, days) for days in (30, 60, 90)]
    rows = await ask(tx, _OVERDUE, *ages, company, day, day, KIND_MAX)
    found = []
    for vendor, count, since, *sums in rows:
        total, to_30, to_60, to_90 = map(int, sums)
        by_days = {"1-30": to_30, "31-60": to_60 - to_30, "61-90": to_90 - to_60, "over 90": total - to_90}
        oldest = days_between(since, day)
        payables = "payable" if count == 1 else "payables"
        message = f"{vendor}: {count} {payables} overdue, {_money(total)}, the oldest for {oldest} days"
        figures = {"count": int(count), "cents": total, "oldestDays": oldest, "centsByDays": by_days}
        found.append(Insight("overdue", vendor, message, figures))
    return found


async def _unusual(tx: Transaction, company: str, day: str) -> list[Insight]:
    """Find payables of the last year that are far above the usual amount of their category."""
    rows = await ask(tx, _LAST_YEAR, company, f"{int(day[:4]) - 1:04}{day[4:]}", day, PAYABLES_MAX)
    found = []
    rows.sort()
    for category, group in groupby(rows, key=lambda row: str(row[0])):
        payables = [(str(number), str(vendor), int(cents)) for _, number, vendor, cents in group]
        for place, score in outliers([cents for _, _, cents in payables]):
            number, vendor, cents = payables[place]
            message = f"{category}: invoice {number} of {vendor} over {_money(cents)} is unusual (score {score:.1f})"
            found.append(Insight("outlier", number, message, {"cents": cents, "score": round(score, 2)}))
    return sorted(found, key=lambda insight: -insight.figures["score"])[:KIND_MAX]


async def _keep(tx: Transaction, job: Job, company: str, day: str, insight: Insight) -> None:
    await put(
        tx,
        "insights",
        key_of("insights"),
        company_id=company,
        day=day,
        kind=insight.kind,
        subject=insight.subject,
        message=insight.message,
        figures=json.dumps(insight.figures, sort_keys=True),
        job_id=job.id,
    )


def _money(cents: int) -> str:
    return f"{cents / 100:,.2f}"


def _still_due(since: str) -> Document:
    return sum_where({"$gte": ["$due_on", since]}, "$amount_cents")


_OVERDUE = Query(
    "accounts_payable",
    ("vendor", "number", "since", "cents", "to_30", "to_60", "to_90"),
    """
    SELECT vendor, count(*), min(due_on), CAST(sum(amount_cents) AS BIGINT),
           CAST(sum(CASE WHEN due_on >= ? THEN amount_cents ELSE 0 END) AS BIGINT),
           CAST(sum(CASE WHEN due_on >= ? THEN amount_cents ELSE 0 END) AS BIGINT),
           CAST(sum(CASE WHEN due_on >= ? THEN amount_cents ELSE 0 END) AS BIGINT)
    FROM accounts_payable
    WHERE company_id = ? AND due_on < ? AND (paid_on IS NULL OR paid_on > ?)
    GROUP BY vendor ORDER BY 4 DESC, vendor LIMIT ?
    """,
    lambda day_30, day_60, day_90, company, day, paid_by, limit: [
        {"$match": {"company_id": company, "due_on": {"$lt": day}}},
        {"$match": {"$or": [{"paid_on": None}, {"paid_on": {"$gt": paid_by}}]}},
        *grouped(
            {"vendor": "$vendor"},
            number={"$sum": 1},
            since={"$min": "$due_on"},
            cents=CENTS,
            to_30=_still_due(day_30),
            to_60=_still_due(day_60),
            to_90=_still_due(day_90),
        ),
        {"$sort": {"cents": -1, "vendor": 1}},
        {"$limit": limit},
    ],
)
_LAST_YEAR = Query(
    "accounts_payable",
    ("category", "invoice_number", "vendor", "amount_cents"),
    """
    SELECT category, invoice_number, vendor, amount_cents FROM accounts_payable
    WHERE company_id = ? AND issued_on > ? AND issued_on <= ?
    ORDER BY issued_on DESC LIMIT ?
    """,
    lambda company, after, until, limit: [
        {"$match": {"company_id": company, "issued_on": {"$gt": after, "$lte": until}}},
        {"$sort": {"issued_on": -1}},
        {"$limit": limit},
    ],
)
