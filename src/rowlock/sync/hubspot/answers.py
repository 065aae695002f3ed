"""What HubSpot's answers say about its limits.

| answer                                | what follows                                                       |
| ------------------------------------- | ------------------------------------------------------------------ |
| out of calls, with Retry-After        | nobody calls for so long                                           |
| policyName DAILY                      | for an hour: whose midnight ends the day, only the account knows   |
| policyName TEN_SECONDLY_ROLLING       | for the interval that the headers name, or 10 s                    |
| policyName SECONDLY (searches)        | for a second                                                       |
| X-HubSpot-RateLimit-Remaining: 0      | the answer is good; nobody calls for a tenth of the interval       |

401, 403 and the category MISSING_SCOPES mean what they mean everywhere: a person has to act.
"""

from __future__ import annotations

from rowlock.sync.answer import Answer, is_refused, retry_after, wait_of

__all__ = ["is_refused", "limited", "spent"]

DAY_REST_SECONDS = 3_600.0
INTERVAL_SECONDS = 10.0
INTERVAL_SECONDS_MAX = 60.0
SECONDLY_REST_SECONDS = 1.0


def limited(answer: Answer) -> float | None:
    """None unless this error means "too many calls"; else for how long to make none: 0 where it does not say."""
    if wait_of(answer) is None:
        return None
    policy = answer.json.get("policyName") if isinstance(answer.json, dict) else None
    match policy:
        case "DAILY":
            rest = DAY_REST_SECONDS
        case "TEN_SECONDLY_ROLLING" | "TEN_SECONDLY":
            rest = _interval_seconds(answer)
        case "SECONDLY":
            rest = SECONDLY_REST_SECONDS
        case _:
            rest = 0.0
    return retry_after(answer.headers) or rest


def spent(answer: Answer) -> float | None:
    """For how long to make no call after this good answer: None unless it was the last that the interval allows."""
    remaining = answer.headers.get("x-hubspot-ratelimit-remaining", "").strip()
    # At full speed every interval ends so, and our own count waits for its end. Only where others use the account as
    # well does this find out: soon again, rather than after a whole interval, which would halve the speed.
    return _interval_seconds(answer) / 10 if remaining == "0" else None


def _interval_seconds(answer: Answer) -> float:
    text = answer.headers.get("x-hubspot-ratelimit-interval-milliseconds", "").strip()
    if not text.isascii() or not text.isdigit():
        return INTERVAL_SECONDS
    return min(int(text[:9]) / 1_000, INTERVAL_SECONDS_MAX)
