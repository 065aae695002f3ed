"""The application whose imports are under attack: an upsert by key, and an import that only inserts.

With FAULTS_MUTANT set, one guard of the product is removed, see `mutants`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from faults import mutation
from rowlock import Rowlock
from rowlock.settings import Settings


class Person(BaseModel):
    email: Annotated[str, StringConstraints(to_lower=True, pattern=r"^[A-Za-z0-9.]+@[A-Za-z.]+$")]
    name: str = Field(min_length=1, max_length=40)
    points: int = Field(ge=0)


class Node(BaseModel):
    k: int
    parent: int | None = None


def make_app(settings: Settings | None = None) -> Rowlock:
    made = Rowlock(settings=settings)
    made.importer("people", row=Person, key=["email"], into="people")
    made.importer("tree", row=Node, key=["k"], into="tree")
    made.importer("log", row=Person, into="log", mode="insert")
    made.importer("replaced", row=Person, key=["email"], into="replaced", mode="replace")
    made.importer("whole", row=Person, key=["email"], into="whole", policy="all_or_nothing")
    return made


mutation.apply()
app = make_app()
