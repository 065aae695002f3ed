"""The application whose imports are under attack: rows by key, and rows that are only ever added.

With FAULTS_MUTANT set, one guard of the product is taken out, see `mutants`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from faults import mutants
from rowlock import Rowlock
from rowlock.settings import Settings


class Person(BaseModel):
    email: Annotated[str, StringConstraints(to_lower=True, pattern=r"^[A-Za-z0-9.]+@[A-Za-z.]+$")]
    name: str = Field(min_length=1, max_length=40)
    points: int = Field(ge=0)


def make_app(settings: Settings | None = None) -> Rowlock:
    made = Rowlock(settings=settings)
    made.importer("people", row=Person, key=["email"], into="people")
    made.importer("log", row=Person, into="log", mode="insert")
    return made


mutants.apply()
app = make_app()
