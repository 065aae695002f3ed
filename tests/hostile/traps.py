"""Nobody may import this or call what is in it: whoever does leaves a mark in the file that HOSTILE_MARK names."""

from __future__ import annotations

import os
from typing import Any


def spring(*args: Any, **kwargs: Any) -> str:
    with open(os.environ["HOSTILE_MARK"], "a") as mark:
        mark.write(f"called with {args} {kwargs}\n")
    return "sprung"


spring("imported")
