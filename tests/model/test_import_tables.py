"""Random files into random tables: every row has one outcome, and the table equals that of the oracle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from conformance.stores import STORES, Rig
from model.import_bench import ImportBench, deaf_store, nothing, plan_here
from model.import_cases import Case, Features, cases
from model.import_mutants import MUTANTS
from model.import_oracle import Denied, Oracle, Verdicts
from model.import_values import canonical
from rowlock.imports.read.sandbox import Sandbox
from rowlock.storage.imports import ErrorRow, ImportRecord, ImportStatus

FEATURES = Features()
OUTCOMES = ("rows", "inserted", "updated", "unchanged", "duplicate", "invalid")


NOTICED_ON = dict(zip(MUTANTS, ("sqlite", "postgres", "mongo"), strict=True))


def bench_of(kind: type[Rig], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ImportBench]:
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    resource = request.getfixturevalue(kind.resource) if kind.resource else None
    monkeypatch.setattr(Sandbox, "plan", plan_here)
    monkeypatch.setattr(Sandbox, "warm", nothing)
    monkeypatch.setattr("rowlock.app.open_store", deaf_store)
    bench = ImportBench(kind(tmp_path, resource), tmp_path)
    yield bench
    bench.close()


@pytest.fixture(params=STORES, ids=[kind.name for kind in STORES])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ImportBench]:
    yield from bench_of(request.param, request, tmp_path)


@pytest.fixture(params=MUTANTS)
def mutated(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ImportBench]:
    """A bench with a mutant of the product, each mutant on another store."""
    (kind,) = (kind for kind in STORES if kind.name == NOTICED_ON[request.param])
    MUTANTS[request.param](request.getfixturevalue("monkeypatch"))
    yield from bench_of(kind, request, tmp_path)


class Trial:
    """One case: a dry run, the import, and the same file again, beside the oracle."""

    def __init__(self, bench: ImportBench, case: Case, seen: Counter[str]) -> None:
        self.bench = bench
        self.seen = seen  # what has been tried, so that a test can tell whether anything was
        self.case = case
        self.oracle: Oracle = bench.oracle(case)
        self.survivors, self.bad, self.duplicates = case.survivors()

    def run(self) -> None:
        try:
            self.oracle.create()
            self._run()
        finally:
            self.oracle.drop()

    def _run(self) -> None:
        case, bench, subject = self.case, self.bench, self.oracle.subject
        bench.declare(case, subject)
        path = bench.write(case, subject)
        before = self._agree()
        self.contested = self._contested(before)
        dry, _ = bench.load(case, path, dry_run=True)
        assert self._agree() == before, "a dry run has changed the table"
        record, errors = bench.load(case, path)
        reported = self._reported(errors)
        if case.policy == "all_or_nothing":
            self._compare_whole(before, record, reported)
            return
        if case.mode == "replace":
            self.oracle.wipe()
            if record.status is ImportStatus.FAILED and '"no_valid_rows"' in (record.error or ""):
                assert not self.oracle.load(self.survivors).inserted
                assert self.oracle.table(self.oracle.subject) == before, "rows were removed that nothing replaces"
                self.seen["nothing to replace with"] += 1
                return
        if self.contested:
            self._justify(record, reported)
            return
        verdicts = self.oracle.load(self.survivors)
        if any(why.startswith(Denied.__name__) for why in verdicts.refused.values()):
            self._denied(before, record, reported, verdicts)
            return
        self._compare(record, reported, verdicts)
        after = self._agree()
        if not any(spec.refers == "own" for spec in case.columns):
            assert _counts(dry) == _counts(record), "a dry run has told something else"
        again, errors = bench.load(case, path)
        assert self._agree_with(after), "the same file again has changed the table"
        if case.mode == "upsert":
            assert (again.counts.inserted, again.counts.updated) == (0, 0)
            assert self._reported(errors) == reported
        elif case.mode == "insert":
            assert (again.counts.inserted, again.counts.updated, again.counts.unchanged) == (0, 0, 0)
        else:
            assert _counts(again) == _counts(record)

    def _compare(self, record: ImportRecord, reported: set[int], verdicts: Verdicts) -> None:
        assert record.status is ImportStatus.SUCCEEDED, record.error
        self._sums(record)
        refused = set(verdicts.refused)
        assert reported - self.bad == refused, f"the oracle: {verdicts.refused}"
        assert self.bad <= reported
        counts = record.counts
        assert (counts.inserted, counts.updated, counts.unchanged, counts.invalid - len(self.bad)) == verdicts.counts
        self._agree()

    def _compare_whole(self, before: dict[Any, Any], record: ImportRecord, reported: set[int]) -> None:
        """All rows or none."""
        if self.case.mode == "replace":
            self.oracle.wipe()
        verdicts = self.oracle.load(self.survivors)
        if not self.bad and not verdicts.refused:
            self._compare(record, reported, verdicts)
            return
        denied = any(why.startswith(Denied.__name__) for why in verdicts.refused.values())
        if record.status is ImportStatus.SUCCEEDED and self.contested:
            return  # in another order all of them go in
        assert record.status is ImportStatus.FAILED, record
        assert reported or denied, record.error
        assert self.contested or denied or reported <= self.bad | set(verdicts.refused)
        assert self.oracle.table(self.oracle.subject) == before, "rows were loaded though not all were"
        self.seen["all or none"] += 1

    def _justify(self, record: ImportRecord, reported: set[int]) -> None:
        """Rows contradict each other, and the store chooses which of them goes in: for a reason."""
        if self.case.rights == "no_update" and record.status is ImportStatus.FAILED:
            assert "permission denied" in (record.error or ""), record.error
            return
        assert record.status is ImportStatus.SUCCEEDED, record.error
        self._sums(record)
        accepted = {n: values for n, values in self.survivors.items() if n not in reported}
        verdicts = self.oracle.load(accepted)
        assert not verdicts.refused, "the database itself does not take these rows"
        counts = record.counts
        assert (counts.inserted, counts.updated, counts.unchanged) == verdicts.counts[:3]
        self._agree()
        for number in reported - self.bad - self.contested:
            assert not self.oracle.takes(self.survivors[number]), f"row {number} was refused without a reason"

    def _denied(self, before: Mapping[Any, Any], record: ImportRecord, reported: set[int], verdicts: Verdicts) -> None:
        """A right is missing: the import fails, unless it refuses the rows that need it for something else."""
        denied = {number for number, why in verdicts.refused.items() if why.startswith(Denied.__name__)}
        if record.status is ImportStatus.SUCCEEDED:
            assert denied <= reported
            return
        assert "permission denied" in (record.error or ""), record.error
        expected = self.oracle.table(self.oracle.own)
        for key, row in self.oracle.table(self.oracle.subject).items():
            assert row in (before.get(key), expected.get(key))

    def _sums(self, record: ImportRecord) -> None:
        counts = record.counts
        for outcome in OUTCOMES:
            self.seen[outcome] += getattr(counts, outcome)
        self.seen["refused"] += counts.invalid - len(self.bad)
        self.seen["several chunks"] += (record.total_chunks or 0) > 1
        self.seen["contested"] += bool(self.contested)
        assert counts.balanced
        assert counts.rows == len(self.case.file)
        assert counts.duplicate == self.duplicates

    def _reported(self, errors: list[ErrorRow]) -> set[int]:
        numbers = [row.row for row in errors]
        assert len(numbers) == len(set(numbers)), "a row is reported twice"
        return set(numbers)

    def _agree(self) -> dict[Any, Any]:
        own = self.oracle.table(self.oracle.own)
        assert self._agree_with(own), (self.oracle.table(self.oracle.subject), own)
        return own

    def _agree_with(self, expected: dict[Any, Any]) -> bool:
        return self.oracle.table(self.oracle.subject) == expected

    def _contested(self, before: Mapping[Any, Any]) -> set[int]:
        """The rows whose unique value another row of the file has, or one that the file may change."""
        case, found = self.case, set[int]()
        keys = {number: self._key(values) for number, values in self.survivors.items()}
        for spec in case.columns:
            if spec.unique is None:
                continue
            holders: dict[Any, set[int]] = defaultdict(set)
            for number, values in self.survivors.items():
                holders[self._shared(spec, values.get(spec.name))].add(number)
            place = self.oracle.names.index(spec.name)
            held = {} if case.mode == "replace" else {row[place]: key for key, row in before.items()}
            kept = {self._folded(value): key for value, key in held.items()}
            for value, numbers in holders.items():
                moves = kept.get(value) in set(keys.values())
                others = {n for n in numbers if keys[n] != kept.get(value)}
                if len(numbers) > 1 or (moves and others):
                    found |= numbers
        return found

    def _key(self, values: Mapping[str, Any]) -> Any:
        specs = [self.case.spec(name) for name in self.case.key]
        return tuple(canonical(spec.kind, spec.type, values[spec.name]) for spec in specs)

    def _shared(self, spec: Any, value: Any) -> Any:
        return self._folded(canonical(spec.kind, spec.type, value))

    def _folded(self, value: Any) -> Any:
        return value.casefold() if isinstance(value, str) else value


def _counts(record: ImportRecord) -> tuple[Any, ...]:
    c = record.counts
    return record.status, c.rows, c.inserted, c.updated, c.unchanged, c.duplicate, c.invalid


def run_cases(bench: ImportBench, **more: Any) -> Counter[str]:
    """Try random cases; what they were."""
    seen: Counter[str] = Counter()

    @settings(**more, print_blob=True, suppress_health_check=list(HealthCheck))
    @given(case=cases(bench.rig.name, FEATURES))
    def check(case: Case) -> None:
        Trial(bench, case, seen).run()

    check()
    return seen


@pytest.mark.timeout(3_600)  # seconds; shrinking a failure takes minutes
def test_the_table_is_what_the_database_makes_of_each_row(bench: ImportBench) -> None:
    seen = run_cases(bench, max_examples=20, derandomize=True, database=None)
    assert all(seen[what] for what in ("inserted", "duplicate", "invalid", "refused", "several chunks")), seen


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_the_table_is_what_the_database_makes_of_each_row_of_many_files(bench: ImportBench) -> None:
    run_cases(bench, max_examples=2_000)


@pytest.mark.timeout(600)
def test_the_oracle_notices(mutated: ImportBench) -> None:
    with pytest.raises(AssertionError):
        run_cases(mutated, max_examples=200, derandomize=True, database=None, phases=[Phase.generate])
