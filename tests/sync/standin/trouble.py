"""Failures on demand: by share, by script, or for a while; before the work or after it."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

BEFORE = {
    "429",  # without Retry-After
    "429_after",  # with Retry-After in seconds
    "429_date",  # with Retry-After as a date
    "named_limit",  # a 400 whose category names the limit
    "500",
    "502_html",
    "401",
    "403",
    "cut_before",  # the connection ends without an answer, nothing was done
    "hang_before",  # no answer for a long time, nothing was done
    "redirect",
}
AFTER = {
    "hang",  # done, and no answer for a long time
    "cut",  # done, and the connection ends without an answer
    "cut_inside",  # done, and the connection ends within the answer
    "truncated",  # done, and the answer ends before its length
    "wrong_json",  # done, and the answer is no JSON
    "500_after",  # done, and the answer says that it failed
    "huge",  # done, and the answer is larger than anyone should read
}
MIX = {
    "429": 3.0,
    "429_after": 2.0,
    "named_limit": 1.0,
    "500": 3.0,
    "502_html": 1.0,
    "cut_before": 2.0,
    "hang": 1.0,
    "cut": 3.0,
    "cut_inside": 1.0,
    "truncated": 1.0,
    "wrong_json": 2.0,
    "500_after": 2.0,
}
"""All faults after which a call can still succeed."""


@dataclass(slots=True)
class Script:
    """The next calls that match, this many of them, after letting some pass."""

    kind: str
    times: int = 1
    method: str = ""
    path: str = ""
    skip: int = 0

    def takes(self, method: str, path: str) -> bool:
        if self.times <= 0 or (self.method and method != self.method) or not re.search(self.path, path):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


@dataclass(slots=True)
class Storm:
    """Every call of a stretch of time."""

    kind: str
    begins: float
    ends: float
    path: str = ""


@dataclass(slots=True)
class Trouble:
    share: float = 0.0
    kinds: dict[str, float] = field(default_factory=lambda: dict(MIX))
    retry_after_seconds: float = 1.0
    hang_seconds: float = 3.0
    latency_seconds: tuple[float, float] = (0.0, 0.0)
    scripts: list[Script] = field(default_factory=list)
    storms: list[Storm] = field(default_factory=list)
    seed: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    _rng: random.Random = field(default_factory=random.Random)

    @classmethod
    def told(cls, told: dict[str, Any], happened: Counter[str]) -> Trouble:
        now = time.monotonic()
        told = dict(told)
        scripts = [Script(**each) for each in told.pop("scripts", ())]
        storms = [
            Storm(each["kind"], now + (b := each.get("begins", 0.0)), now + b + each["seconds"], each.get("path", ""))
            for each in told.pop("storms", ())
        ]
        made = cls(**told, scripts=scripts, storms=storms, happened=happened)
        for kind in [*made.kinds, *(each.kind for each in scripts), *(each.kind for each in storms)]:
            if kind not in BEFORE | AFTER:
                raise ValueError(f"no such trouble: {kind}")
        made._rng = random.Random(made.seed)
        return made

    def latency(self) -> float:
        return self._rng.uniform(*self.latency_seconds)

    def choose(self, method: str, path: str, at: float) -> str | None:
        """What happens to this call, if anything does."""
        kind = self._chosen(method, path, at)
        if kind:
            self.happened[kind] += 1
        return kind

    def _chosen(self, method: str, path: str, at: float) -> str | None:
        for storm in self.storms:
            if storm.begins <= at < storm.ends and re.search(storm.path, path):
                return storm.kind
        for script in self.scripts:
            if script.takes(method, path):
                return script.kind
        if self.share and self._rng.random() < self.share:
            return self._rng.choices(list(self.kinds), list(self.kinds.values()))[0]
        return None
