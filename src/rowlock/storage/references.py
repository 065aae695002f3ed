"""Orders the rows of a load that refer to each other, so that each row follows those that it refers to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FOREIGN_KEY = "foreign_key"


@dataclass(frozen=True, slots=True)
class SelfReference:
    """A foreign key from a table to itself."""

    name: str  # of the constraint; "" if unnamed
    columns: Sequence[str]
    referred: Sequence[str]  # columns of the same table, in the same order

    def query(self, own: Mapping[str, str], stage: str, place: str, table: str) -> str | None:
        """Returns SQL for pairs of a staged row and the row it refers to, if the table does not have that yet.

        The second is another staged row, or NULL. `own` maps names to columns of the stage. Returns None if the rows
        have no values for this key.
        """
        if not own.keys() >= set(self.columns):
            return None
        pairs = [(own[column], referred) for column, referred in zip(self.columns, self.referred, strict=False)]
        there = " AND ".join(f"t.{_quoted(referred)} = c.{column}" for column, referred in pairs)
        filled = " AND ".join(f"c.{column} IS NOT NULL" for column, _ in pairs)
        found, others = "NULL", ""
        if own.keys() >= set(self.referred):
            staged = " AND ".join(f"p.{own[referred]} = c.{column}" for column, referred in pairs)
            found, others = f"p.{place}", f" LEFT JOIN {stage} p ON {staged}"
        return (
            f"SELECT c.{place}, {found} FROM {stage} c{others}"  # noqa: S608 - quoted, and own names
            f" WHERE {filled} AND NOT EXISTS (SELECT 1 FROM {table} t WHERE {there})"
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(slots=True)
class References:
    """Which staged rows, by place, refer to other rows that are not in the table yet."""

    parents: Mapping[int, Sequence[int]]
    missing: frozenset[int] = frozenset()  # rows that refer to a row neither in the table nor staged

    @classmethod
    def of(cls, found: Iterable[tuple[int, int | None]]) -> References:
        """Builds References from pairs of a row and the row it refers to; None means that no such row exists."""
        parents: dict[int, list[int]] = {}
        missing = set()
        for row, parent in found:
            if parent is None:
                missing.add(row)
            elif parent != row:
                parents.setdefault(row, []).append(parent)
        return cls(parents, frozenset(missing))

    def groups(self, places: Iterable[int]) -> list[list[int]]:
        """Returns the places, each after those that it refers to; rows in a cycle of references are one group.

        Strongly connected components after Tarjan, without recursion: a chain may be as long as a file.
        """
        groups: list[list[int]] = []
        number: dict[int, int] = {}  # in the order of discovery
        lowest: dict[int, int] = {}
        grouped: set[int] = set()
        path: list[int] = []
        for start in places:
            if start in number:
                continue
            number[start] = lowest[start] = len(number)
            path.append(start)
            stack = [(start, iter(self.parents.get(start, ())))]
            while stack:
                place, parents = stack[-1]
                for parent in parents:
                    if parent not in number:
                        number[parent] = lowest[parent] = len(number)
                        path.append(parent)
                        stack.append((parent, iter(self.parents.get(parent, ()))))
                        break
                    if parent not in grouped:
                        lowest[place] = min(lowest[place], number[parent])
                else:
                    stack.pop()
                    if stack:
                        below = stack[-1][0]
                        lowest[below] = min(lowest[below], lowest[place])
                    if lowest[place] == number[place]:
                        group = [path.pop()]
                        while group[-1] != place:
                            group.append(path.pop())
                        grouped.update(group)
                        groups.append(sorted(group))
        return groups

    def hopeless(self, groups: Iterable[Sequence[int]]) -> set[int]:
        """Returns the rows that refer to a missing row, directly or through others."""
        found: set[int] = set()
        for group in groups:
            if any(place in self.missing or not found.isdisjoint(self.parents.get(place, ())) for place in group):
                found.update(group)
        return found
