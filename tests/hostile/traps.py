"""Must never be imported or called: each import and call writes a mark to the file named by HOSTILE_MARK."""

from __future__ import annotations

import os
from typing import Any


def spring(*args: Any, **kwargs: Any) -> str:
    with open(os.environ["HOSTILE_MARK"], "a") as mark:
        mark.write(f"called with {args} {kwargs}\n")
    return "sprung"


spring("imported")
