"""Where the time of a test run goes, and a budget for the whole run."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import PurePosixPath

import pytest

SLOWEST = 10


class Timing:
    """Prints the slowest tests and the seconds per folder; fails a run that takes longer than its budget.

    Seconds are those of the test processes, so with two of them they add up to about twice the elapsed time.
    """

    def __init__(self, started: float, budget_seconds: float) -> None:
        self._started = started
        self._budget_seconds = budget_seconds
        self._by_test: Counter[str] = Counter()
        self._by_folder: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = str(PurePosixPath(report.nodeid.partition("::")[0]).parent)
        self._by_test[report.nodeid] += report.duration
        self._by_folder[folder] += report.duration
        self._tests[folder] += report.when == "setup"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._over_budget() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("where the time goes")
        for test, seconds in self._by_test.most_common(SLOWEST):
            write(f"{seconds:8.1f} s  {test}")
        for folder, seconds in self._by_folder.most_common():
            write(f"{seconds:8.1f} s  {self._tests[folder]:6} tests  {folder}")
        took = f"{self._elapsed_seconds():.0f} s of a budget of {self._budget_seconds:.0f} s"
        if self._over_budget():
            write(
                f"FAILED: the run took {took}; make it faster (the budget is BUDGET_SECONDS in the Makefile)", red=True
            )
        else:
            write(f"The run took {took}")

    def _elapsed_seconds(self) -> float:
        return time.time() - self._started

    def _over_budget(self) -> bool:
        return self._elapsed_seconds() > self._budget_seconds
