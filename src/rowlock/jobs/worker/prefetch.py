"""Prefetch: how far a consumer claims ahead of its runners, as their speed and the store's justify."""

from __future__ import annotations

from collections import deque

_HORIZON_SECONDS = 0.2  # prefetch what the runners will do in this time
_CLAIM_SECONDS = 0.1  # and no more than the store hands out in this time
_KEPT = 0.9  # of the store's measured speed, from claim to claim: some are slow because others have their turn
_BYTES = 32 * 1_048_576  # of prefetched payloads, roughly
_REFILL = 0.75  # of the prefetch: below it the next claim is sent, and arrives before the rest is used up
_UNSETTLED = 0.5  # of the prefetch: if more than this is done and not settled, the next claim waits
_STALE_SECONDS = 1.0  # of work at the present speed: what is claimed beyond it is released
_LOOKS = 3  # rounds of the watchdog over which the present speed is measured
_LOOK_SECONDS = 0.3  # at least, between the first and the last of these rounds
_GROWTH = 4  # factor of the prefetch after a claim that was filled


class Prefetch:
    """Measures claims and finished jobs, and decides how many jobs to claim."""

    def __init__(self, concurrency: int, jobs_max: int) -> None:
        self._concurrency = concurrency
        self._jobs_max = jobs_max
        self._jobs = concurrency  # the present prefetch
        self._mean_seconds = _HORIZON_SECONDS  # of handler calls
        self._weight = 1e9  # of the next call in that mean
        self._mean_bytes = 1.0  # of the payloads of the last claim
        self._claimed_per_second = 0.0  # by the fastest of the last claims that were filled
        self.refill_at = 0.0  # jobs in the buffer
        self.unit = 1  # jobs in the last handler call
        self._received = 0  # jobs in total, without the released ones
        self._claims: deque[tuple[float, int]] = deque()  # with waiting jobs: arrival, and `_received` after it
        self._looks: deque[tuple[float, int]] = deque(maxlen=_LOOKS)  # time, and jobs started by then

    def ended(self, seconds: float) -> None:
        """Record how long a handler took."""
        # The first calls count in full, so that the speed is known after a few jobs; later ones by a twentieth.
        self._weight = max(0.05, self._weight / (1 + self._weight))
        self._mean_seconds += self._weight * (seconds - self._mean_seconds)

    def set_unit(self, jobs: int) -> None:
        """Set how many jobs a handler call takes."""
        self.unit = jobs

    def received(self, jobs: int, payload_bytes: int, now: float) -> None:
        """Record the jobs that a claim returned."""
        self._mean_bytes = max(1.0, payload_bytes / jobs)
        self._received += jobs
        self._claims.append((now, self._received))

    def filled(self, jobs: int, seconds: float) -> None:
        """Record that a claim was filled, so there may be more jobs."""
        self._claimed_per_second = max(jobs / max(seconds, 1e-6), _KEPT * self._claimed_per_second)
        self._jobs = min(max(self._jobs, 1) * _GROWTH, self._most())

    def surplus(self, now: float, buffered: int) -> int:
        """Return how many buffered jobs to release, the last ones first; called a few times a second.

        Jobs start in the order in which they were claimed, so the first buffered job has waited longest. If it has
        waited more than a second, or the buffer holds more than a second of work at the measured speed, only the jobs
        that start within the horizon stay. The number of starts comes from sums, at no cost per job.
        """
        started = self._received - buffered
        while self._claims and self._claims[0][1] <= started:
            self._claims.popleft()
        self._looks.append((now, started))
        if not self._claims:
            return 0
        waited = now - self._claims[0][0]
        since, started_then = self._looks[0]
        watched = now - since
        per_second = (started - started_then) / watched if watched > 0 else 0.0
        most = max(per_second * _STALE_SECONDS, self._concurrency * self.unit)
        # The speed measured while there was nothing to start means nothing.
        slow = _LOOK_SECONDS <= watched <= waited and buffered > most
        kept = min(buffered, int(per_second * _HORIZON_SECONDS))
        if kept == buffered or not (slow or waited > _STALE_SECONDS):
            return 0
        self._received -= buffered - kept
        self._claims = deque([(now - waited, self._received)] if kept else ())
        self._slowed(self._concurrency / per_second if per_second else _STALE_SECONDS)
        return buffered - kept

    def _slowed(self, seconds: float) -> None:
        """Prefetch nothing until jobs, which now take this many seconds, are fast again."""
        self._jobs = 0
        self._mean_seconds = max(self._mean_seconds, min(seconds, _STALE_SECONDS))

    def room(self, free: int, buffered: int, unsettled: int) -> int:
        """Return how many jobs to claim: one call per free runner and the prefetch; 0 while most of that is buffered.

        Also 0 while the store is behind with settlements: finished jobs go before new ones, and would run again if this
        process died now.
        """
        self._jobs = ahead = min(self._jobs, self._most())
        if unsettled > max(ahead * _UNSETTLED, self._concurrency * self.unit):
            return 0
        self.refill_at = ahead * _REFILL
        if free == 0 and buffered > self.refill_at:
            return 0
        # Half at a time: the runners work on the first half while the second is claimed.
        return min(free * self.unit + ahead - buffered, max(self._jobs_max // 2, self.unit, free))

    def _most(self) -> int:
        soon = self._concurrency * _HORIZON_SECONDS / max(self._mean_seconds, 1e-6)
        quick = max(self._claimed_per_second * _CLAIM_SECONDS, self._concurrency)
        return int(min(max(self._jobs_max, self.unit), soon, quick, _BYTES / self._mean_bytes))
