"""Call limits as the service sees them: arrivals in any sliding window, by its own clock."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import Any

SEARCH = "search"


@dataclass(slots=True)
class Window:
    """At most `count` calls in any `seconds`; arrivals that were refused count too."""

    name: str
    count: int
    seconds: float
    group: str | None = None  # only calls of this group
    spares: tuple[str, ...] = ()  # no calls of these
    arrivals: list[float] = field(default_factory=list)
    most: int = 0
    overruns: int = 0

    def takes(self, group: str | None) -> bool:
        return group == self.group if self.group else group not in self.spares

    def add(self, at: float) -> bool:
        """Count an arrival; whether it was within the limit."""
        insort(self.arrivals, at)
        used = self.used(at)
        self.most = max(self.most, used)
        self.overruns += used > self.count
        return used <= self.count

    def used(self, at: float) -> int:
        """How many calls arrived in the `seconds` that end at this moment."""
        return bisect_right(self.arrivals, at) - bisect_right(self.arrivals, at - self.seconds)

    def judged(self) -> dict[str, Any]:
        """The most that any window of this length held, looked at once more over all arrivals."""
        most = max((self.used(at) for at in self.arrivals), default=0)
        return {
            "name": self.name,
            "count": self.count,
            "seconds": self.seconds,
            "calls": len(self.arrivals),
            "most": max(most, self.most),
            "overruns": self.overruns,
        }


HUBSPOT = (
    {"name": "TEN_SECONDLY_ROLLING", "count": 100, "seconds": 10.0, "spares": [SEARCH]},
    {"name": "SECONDLY", "count": 5, "seconds": 1.0, "group": SEARCH},
    {"name": "DAILY", "count": 250_000, "seconds": 86_400.0},
)


class Windows:
    def __init__(self, told: Any = HUBSPOT) -> None:
        self.all = [
            Window(
                name=str(each["name"]),
                count=int(each["count"]),
                seconds=float(each["seconds"]),
                group=each.get("group"),
                spares=tuple(each.get("spares", ())),
            )
            for each in told
        ]

    def arrive(self, at: float, group: str | None) -> Window | None:
        """Count a call; the first limit that it breaks, if any."""
        broken = [window for window in self.all if window.takes(group) and not window.add(at)]
        return broken[0] if broken else None

    def headers(self, at: float, group: str | None) -> dict[str, str]:
        """What HubSpot says of the limits; nothing about searches."""
        if group == SEARCH:
            return {}
        said = {}
        for window in self.all:
            remaining = str(max(0, window.count - window.used(at)))
            if window.name == "DAILY":
                said |= {"x-hubspot-ratelimit-daily": str(window.count)}
                said |= {"x-hubspot-ratelimit-daily-remaining": remaining}
            elif window.group is None:
                said |= {"x-hubspot-ratelimit-max": str(window.count)}
                said |= {"x-hubspot-ratelimit-remaining": remaining}
                said |= {"x-hubspot-ratelimit-interval-milliseconds": str(int(window.seconds * 1000))}
        return said
