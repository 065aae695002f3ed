"""The base class of all schemas of answers: camelCase over HTTP, snake_case in Python."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Told(BaseModel):
    """What is answered."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
