"""A simple model of rate limits and subject locks; times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowlock.storage.calls import CallLimit

SOON = 0.002  # what a store may keep of a moment's fractions


@dataclass
class MadeCall:
    """A call that was allowed; it reaches the other side at some time from `taken_at` to `latest`."""

    limits: list[CallLimit]
    taken_at: float
    held_until: float
    ended_at: float | None = None

    @property
    def latest(self) -> float:
        """The last moment at which the call can have arrived: the caller has given up when its hold ends."""
        return self.held_until if self.ended_at is None else min(self.ended_at, self.held_until)

    def free_at(self, limit: CallLimit) -> float:
        return (self.held_until if self.ended_at is None else self.ended_at) + limit.seconds


@dataclass
class CallModel:
    now: float = 0.0
    calls: dict[str, MadeCall] = field(default_factory=dict)
    rests: dict[str, float] = field(default_factory=dict)

    def of(self, limit: CallLimit) -> list[MadeCall]:
        return [call for call in self.calls.values() if limit in call.limits]

    def in_use(self, limit: CallLimit, slack: float = 0.0) -> int:
        return sum(call.free_at(limit) + slack > self.now for call in self.of(limit))

    def must_wait(self, limit: CallLimit) -> bool:
        return self.in_use(limit) >= limit.count or self.rests.get(limit.key, 0.0) > self.now

    def may_begin(self, limit: CallLimit) -> bool:
        return self.in_use(limit, _slack(limit)) < limit.count and self.rests.get(limit.key, 0.0) + SOON <= self.now

    def soonest(self, limit: CallLimit, slack: float) -> float:
        """How long until one more may begin, if all that run ended now."""
        free_at = sorted(
            (
                min(call.free_at(limit), self.now + limit.seconds if call.ended_at is None else float("inf")) + slack
                for call in self.of(limit)
            ),
            reverse=True,
        )
        until = free_at[limit.count - 1] if len(free_at) >= limit.count else 0.0
        return max(until, self.rests.get(limit.key, 0.0)) - self.now

    def most_at_once(self, limit: CallLimit) -> int:
        """How many calls can have arrived in one window of the limit, whatever the network did."""
        calls = self.of(limit)
        # The worst window begins with the last moment of some call.
        return max(
            (
                sum(call.latest >= begin and call.taken_at < begin + limit.seconds for call in calls)
                for begin in {call.latest for call in calls}
            ),
            default=0,
        )


def _slack(limit: CallLimit) -> float:
    """How much longer than its window a call may count."""
    return limit.step_seconds + SOON


@dataclass
class Subject:
    holder: str | None = None
    held_until: float = 0.0
    marks: dict[str, str] = field(default_factory=dict)


@dataclass
class SubjectModel:
    subjects: dict[str, Subject] = field(default_factory=dict)

    def hold(self, now: float, keys: list[str], holder: str, seconds: float) -> dict[str, dict[str, str]]:
        granted = {}
        for key in keys:
            subject = self.subjects.setdefault(key, Subject())
            if subject.holder in (None, holder) or subject.held_until <= now:
                subject.holder, subject.held_until = holder, now + seconds
                granted[key] = dict(subject.marks)
        return granted

    def mark(self, holder: str, marks: dict[str, dict[str, str]]) -> list[str]:
        mine = [key for key in marks if key in self.subjects and self.subjects[key].holder == holder]
        for key in mine:
            subject = self.subjects[key]
            subject.holder = None
            for name, mark in marks[key].items():
                subject.marks[name] = max(mark, subject.marks.get(name, ""))
        return mine

    def free(self, holder: str, keys: list[str]) -> None:
        for key in keys:
            if key in self.subjects and self.subjects[key].holder == holder:
                self.subjects[key].holder = None
