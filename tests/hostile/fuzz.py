"""Schemathesis over the whole description of a site: its command, in a separate process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from conformance.stores import PASSWORD
from web.site import Site

TESTS = Path(__file__).parents[1]
ENDLESS = "/api/v1/events"

# What JSON Schema cannot say: which fields go together, which cursors exist, which Idempotency-Key was used before.
SETTINGS = """
[[operations]]
include-path-regex = "^/api/v1/imports/"
checks.positive_data_acceptance.expected-statuses = ["2XX", 401, 403, 404, 409, 413, 415, 422, 429]

[[operations]]
include-method = "POST"
checks.positive_data_acceptance.expected-statuses = ["2XX", 401, 403, 404, 409, 422, 429]

[[operations]]
include-path-regex = "^/api/v1/import-(jobs$|types/)"
checks.positive_data_acceptance.expected-statuses = ["2XX", 304, 401, 403, 404, 422, 429]

[[operations]]
include-path-regex = "^/api/v1/queue(/dead-letter)?$|^/api/admin/queue/failures$"
checks.positive_data_acceptance.expected-statuses = ["2XX", 304, 401, 403, 404, 422, 429]
"""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """What a run found."""

    code: int
    said: str

    @property
    def cases(self) -> int:
        """How many requests were made up."""
        counts = [line.split() for line in self.said.splitlines() if "generated" in line]
        return sum(int(words[0].replace(",", "")) for words in counts if words and words[0].replace(",", "").isdigit())


async def fuzz(site: Site, folder: Path, secrets: list[str], *options: str, seed: int, seconds: float) -> Fuzzed:
    """Let schemathesis loose on a site, with an administrator's token; code 0 where nothing was found."""
    (folder / "schemathesis.toml").write_text(SETTINGS)
    secrets = [*secrets, PASSWORD, *site.tokens.values()]
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "schemathesis.toml")),
        *("run", f"{site.url}/openapi.json", "--exclude-path", ENDLESS, "--seed", str(seed)),
        *("--header", f"Authorization: Bearer {site.tokens['admin']}", "--output-sanitize", "false"),
        *("--generation-database", "none", "--warnings", "off", "--no-color", "--request-timeout", "20", *options),
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "SCHEMATHESIS_HOOKS": "hostile.fuzz_checks",
            "FUZZ_SECRETS": json.dumps(secrets),
            "PYTHONWARNINGS": "ignore",
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(seconds):
            said, _ = await running.communicate()
    except TimeoutError:
        running.kill()
        await running.wait()
        raise AssertionError(f"schemathesis did not end within {seconds:g} s") from None
    assert running.returncode is not None
    return Fuzzed(running.returncode, said.decode(errors="replace"))
