"""RateLimit: how many calls a service allows per account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rowlock.errors import SettingsError
from rowlock.storage.calls import CallLimit


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `count` calls of one account in any `per_seconds`, over all its calls or those of one group."""

    count: int
    per_seconds: float = 1.0
    group: str | None = None

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.per_seconds <= 366 * 86_400:
            raise SettingsError(f"{self}: count must be at least 1, per_seconds more than 0 and at most a year")
        if self.group is not None and not (self.group.isprintable() and 0 < len(self.group) <= 40):
            raise SettingsError(f"{self}: a group is named by 1 to 40 printable characters")

    @property
    def name(self) -> str:
        """The limit's name within its integration: "10 s", "search 1 s"."""
        return f"{self.group} {self.per_seconds:g} s" if self.group else f"{self.per_seconds:g} s"


COURTESY = (RateLimit(10, per_seconds=1.0),)
"""Default limits of an integration: 10 calls per second."""


def checked_limits(what: str, limits: Sequence[RateLimit]) -> tuple[RateLimit, ...]:
    """Return the limits. Raises SettingsError if two have the same name or none counts for all calls."""
    names = [limit.name for limit in limits]
    if len(set(names)) < len(names):
        raise SettingsError(f"{what}: two limits are of the same group and the same seconds: {', '.join(names)}")
    if all(limit.group is not None for limit in limits):
        raise SettingsError(f"{what}: at least one limit must be without a group: it counts for all calls")
    return tuple(limits)


def keys_of(account: str, limits: Sequence[RateLimit]) -> list[CallLimit]:
    """Return the limits of one account in the form that the store counts."""
    return [CallLimit(f"{account}/{limit.name}", limit.count, limit.per_seconds) for limit in limits]
