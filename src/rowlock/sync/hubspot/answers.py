"""How to interpret HubSpot's answers about its rate limits.

| answer                                | the whole fleet makes no call for                                  |
| ------------------------------------- | ------------------------------------------------------------------ |
| out of calls, with Retry-After        | the time in the header                                             |
| policyName DAILY                      | an hour: only the account knows in which time zone its day ends    |
| policyName TEN_SECONDLY_ROLLING       | the interval in the headers (default: 10 s)                        |
| policyName SECONDLY (searches)        | a second                                                           |
| X-HubSpot-RateLimit-Remaining: 0      | a tenth of the interval, although this call succeeded              |

401, 403 and the category MISSING_SCOPES are handled as for any service: a person has to act.
"""

from __future__ import annotations

from rowlock.sync.response import Answer, is_refused, retry_after, wait_of

__all__ = ["is_refused", "limited", "spent"]

DAY_REST_SECONDS = 3_600.0
INTERVAL_SECONDS = 10.0
INTERVAL_SECONDS_MAX = 60.0
SECONDLY_REST_SECONDS = 1.0


def limited(answer: Answer) -> float | None:
    """Return how many seconds to make no call after "too many calls", 0 if the answer does not say; else None."""
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
    """Return how many seconds to make no call after a 2xx answer that used up the interval's calls; else None."""
    remaining = answer.headers.get("x-hubspot-ratelimit-remaining", "").strip()
    # At full speed every interval ends like this, and our own count waits for its end. The header adds information
    # only if others use the account too. Ask again after a tenth: a whole interval would halve the speed.
    return _interval_seconds(answer) / 10 if remaining == "0" else None


def _interval_seconds(answer: Answer) -> float:
    text = answer.headers.get("x-hubspot-ratelimit-interval-milliseconds", "").strip()
    if not text.isascii() or not text.isdigit():
        return INTERVAL_SECONDS
    return min(int(text[:9]) / 1_000, INTERVAL_SECONDS_MAX)
