"""The reference application, on Rowlock's public names only; `rowlock` runs it unless told otherwise.

| job                        | criticality | guard              | scope                                |
| -------------------------- | ----------- | ------------------ | ------------------------------------ |
| `generateMonthlySnapshots` | critical    | `monthly_snapshot` | `<companyId>:<amendedMonth or full>` |
| `updateReports`            | critical    | `monthly_report`   | `<companyId>:<start>_<end>`          |
| `batchRecalc`              | critical    | `batch_recalc`     | `<companyId>:<start>_<end>`          |
| `generateAIInsights`       | medium      | `ai_insights`      | `<companyId>:<YYYY-MM-DD>`           |
| `sendNotifications`        | low         |                    |                                      |
| `healthPing`               | diagnostic  |                    |                                      |

What is guarded and was completed is skipped when it is asked for again with the same payload; whoever has changed the
data says so with another `dataVersion`.
"""

from backoffice import diagnostics, insights, notifications, reports, snapshots
from backoffice.application import QUEUE, Criticality, app
from backoffice.tables import ensure_tables

__all__ = [
    "QUEUE",
    "Criticality",
    "app",
    "diagnostics",
    "ensure_tables",
    "insights",
    "notifications",
    "reports",
    "snapshots",
]
