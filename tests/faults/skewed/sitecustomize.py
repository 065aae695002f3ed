"""On PYTHONPATH, this module moves a process's clock forward by FAULTS_CLOCK_SECONDS.

It runs before any other import, so that no module keeps the true clock. Monotonic time stays: no clock setting moves
it.
"""

from __future__ import annotations

import datetime
import os
import time
from typing import Any

_OFFSET_SECONDS = float(os.environ.get("FAULTS_CLOCK_SECONDS", "0"))
_true_time, _true_time_ns, _TrueDatetime = time.time, time.time_ns, datetime.datetime
_OFFSET = datetime.timedelta(seconds=_OFFSET_SECONDS)


class _Kind(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _TrueDatetime)


class _Skewed(_TrueDatetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _TrueDatetime.now(tz) + _OFFSET

    @classmethod
    def utcnow(cls) -> Any:
        return _TrueDatetime.utcnow() + _OFFSET

    @classmethod
    def today(cls) -> Any:
        return _TrueDatetime.today() + _OFFSET


if _OFFSET_SECONDS:
    time.time = lambda: _true_time() + _OFFSET_SECONDS
    time.time_ns = lambda: _true_time_ns() + int(_OFFSET_SECONDS * 1e9)
    _Skewed.__name__ = _Skewed.__qualname__ = "datetime"
    datetime.datetime = _Skewed  # type: ignore[misc]
