"""The reference application, on Rowlock's public names only; `rowlock` runs it unless told otherwise.

| job                        | criticality | guard              | scope                                |
| -------------------------- | ----------- | ------------------ | ------------------------------------ |
| `generateMonthlySnapshots` | critical    | `monthly_snapshot` | `<companyId>:<amendedMonth or full>` |
| `updateReports`            | critical    | `monthly_report`   | `<companyId>:<start>_<end>`          |
| `batchRecalc`              | critical    | `batch_recalc`     | `<companyId>:<start>_<end>`          |
| `generateAIInsights`       | medium      | `ai_insights`      | `<companyId>:<YYYY-MM-DD>`           |
| `sendNotifications`        | low         |                    |                                      |
| `healthPing`               | diagnostic  |                    |                                      |

| import                | file                        | key                          | into                    |
| --------------------- | --------------------------- | ---------------------------- | ----------------------- |
| `customers`           | `Customers.csv`             | e-mail address               | `customers`             |
| `ap`                  | `Accounts-Payable.xlsx`     | invoice number               | `accounts_payable`      |
| `budgetForecast`      | `Budget-Forecast.xlsx`      | year, category, department   | `budgets`               |
| `priceList`           | `Price-List.csv`            | cat, sel                     | `price_list_items`      |
| `priceListComponents` | `Price-List-Components.csv` | item, component code         | `price_list_components` |
| `xactRaw`             | `Xact-Raw.csv`              |                              | `xact_raw`              |
| `xactComponents`      | `Xact-Components.csv`       | project, cat, sel, component | `xact_components`       |

| integration | operations                                                             | off until               |
| ----------- | ---------------------------------------------------------------------- | ----------------------- |
| `hubspot`   | see `backoffice.hubspot`: contacts, companies, payments as deals       | `ROWLOCK_HUBSPOT_TOKEN` |

What is guarded and was completed is skipped when it is asked for again with the same payload; whoever has changed the
data says so with another `dataVersion`. A company is a part of every key; `rowlock demo files DIR` writes such files.
"""

from backoffice import (
    budgets,
    customers,
    diagnostics,
    hubspot,
    insights,
    notifications,
    payables,
    prices,
    reports,
    snapshots,
    xact,
)
from backoffice.application import QUEUE, Criticality, app
from backoffice.tables import ensure_tables

__all__ = [
    "QUEUE",
    "Criticality",
    "app",
    "budgets",
    "customers",
    "diagnostics",
    "ensure_tables",
    "hubspot",
    "insights",
    "notifications",
    "payables",
    "prices",
    "reports",
    "snapshots",
    "xact",
]
