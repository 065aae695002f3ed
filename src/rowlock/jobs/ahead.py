"""How far a lane claims ahead of its runners: as far as their speed, and the store's, justify."""

from __future__ import annotations

_HORIZON_SECONDS = 0.2  # claim ahead what the runners will do in this time
_CLAIM_SECONDS = 0.1  # and no more than the store hands out in this time
_KEPT = 0.9  # of how quick that was, from claim to claim: some take long because others have their turn
_BYTES = 32 * 1_048_576  # of payloads claimed ahead, about
_REFILL = 0.75  # of what is claimed ahead: below it the next claim goes out, and is there before the rest is used up
_UNSETTLED = 0.5  # of what is claimed ahead: when more than that is done and not settled, the next claim waits
_GROWTH = 4  # what is claimed ahead, after a claim that got all it asked for


class Ahead:
    """Learns from claims and from jobs that ended; answers how many to claim now."""

    def __init__(self, concurrency: int, jobs_max: int) -> None:
        self._concurrency = concurrency
        self._jobs_max = jobs_max
        self._jobs = concurrency  # so many, at present
        self._mean_seconds = _HORIZON_SECONDS  # of handlers
        self._weight = 1e9  # of the next one's in that mean
        self._mean_bytes = 1.0  # of the payloads of the last claim
        self._claimed_per_second = 0.0  # by the quickest of the last claims that found all that they asked for
        self.refill_at = 0.0  # jobs in the buffer
        self.unit = 1  # how many jobs the last call took

    def ended(self, seconds: float) -> None:
        """A handler returned after so long."""
        # The first ones count in full, so that a lane knows its speed after a few jobs; later ones by a twentieth.
        self._weight = max(0.05, self._weight / (1 + self._weight))
        self._mean_seconds += self._weight * (seconds - self._mean_seconds)

    def received(self, jobs: int, payload_bytes: int) -> None:
        """A claim brought so many."""
        self._mean_bytes = max(1.0, payload_bytes / jobs)

    def filled(self, jobs: int, seconds: float) -> None:
        """It brought all that it was asked for, so there may be more."""
        self._claimed_per_second = max(jobs / max(seconds, 1e-6), _KEPT * self._claimed_per_second)
        self._jobs = min(max(self._jobs, 1) * _GROWTH, self._most())

    def waited(self, seconds: float) -> None:
        """What was claimed ahead has not started in so long: claim for free runners alone until jobs are quick."""
        self._jobs = 0
        self._mean_seconds = max(self._mean_seconds, seconds)

    def room(self, free: int, buffered: int, unsettled: int) -> int:
        """How many to ask for: free runners, and as many ahead as will start soon; 0 while most of those are there.

        0 too while the store is behind with the settlements: what is done comes before what is new, and would run again
        if this process died now.
        """
        self._jobs = ahead = min(self._jobs, self._most())
        if unsettled > max(ahead * _UNSETTLED, self._concurrency * self.unit):
            return 0
        self.refill_at = ahead * _REFILL
        if free == 0 and buffered > self.refill_at:
            return 0
        # Half at a time: the first half is at work while the second is on its way.
        return min(free * self.unit + ahead - buffered, max(self._jobs_max // 2, self.unit, free))

    def _most(self) -> int:
        soon = self._concurrency * _HORIZON_SECONDS / max(self._mean_seconds, 1e-6)
        quick = max(self._claimed_per_second * _CLAIM_SECONDS, self._concurrency)
        return int(min(max(self._jobs_max, self.unit), soon, quick, _BYTES / self._mean_bytes))
