"""The reference application, built on Rowlock's public names only.

| job                        | criticality | lock               | scope                                |
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

An identical job over HTTP or the command line is refused for 24 hours (`QUEUE_UNIQUE`), except `healthPing`. Jobs of
the first four types are instead refused while the same job waits or runs.

A job with a lock is skipped if it completed before with the same payload; after a change of the data, enqueue it with
another `dataVersion`. Every key includes the company. `backoffice demo files DIR` writes sample files.
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
