"""One request, parsed, and the inputs of a batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sync.standin.refusal import malformed

BATCH_MAX = 100
Answer = tuple[int, Any]


@dataclass(slots=True)
class Asked:
    """One request, as far as it has been understood."""

    path: dict[str, str]
    query: dict[str, str]
    body: Any
    touched: set[str]  # the objects that it writes, for the judge: kind/id

    @property
    def kind(self) -> str:
        return self.path["kind"]

    def inputs(self, *required: str, known: set[str]) -> list[dict[str, Any]]:
        """The inputs of a batch, with these fields."""
        given = self.body.get("inputs")
        if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
            raise malformed("Invalid input JSON: inputs must be a list of objects")
        if not 0 < len(given) <= BATCH_MAX:
            raise malformed(f"The maximum number of inputs supported in a batch request is {BATCH_MAX}: {len(given)}")
        for each in given:
            if missing := [field for field in required if field not in each]:
                raise malformed(f"Invalid input JSON: required fields were not set: {missing}")
            if unknown := sorted(set(each) - set(required) - known):
                raise malformed(f"Invalid input JSON: unknown fields {unknown}")
            if not isinstance(each.get("id", ""), str):
                raise malformed(f"Invalid input JSON: id is no string: {each['id']!r}")
        ids = Counter((each.get("idProperty"), str(each["id"]).lower()) for each in given if "id" in each)
        if twice := [value for (_, value), times in ids.items() if times > 1]:
            raise malformed(f"Duplicate IDs found in batch input: {twice}")
        return given
