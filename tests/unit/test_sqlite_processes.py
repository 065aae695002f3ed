"""Several processes on one file: no job is lost, none has two owners, no process starves."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path

from rowlock.clock import StoreClock
from rowlock.ids import uuid7s
from rowlock.storage.records import NewJob, Status
from rowlock.storage.sqlite import SqliteStore

JOBS = 3_000
PROCESSES = 3

WORKER = """
import asyncio, json, sys
from rowlock.clock import StoreClock
from rowlock.ids import uuid7
from rowlock.storage.records import Settlement
from rowlock.storage.sqlite import SqliteStore

async def main():
    store, owner, done = SqliteStore(sys.argv[1], StoreClock()), uuid7(), []
    await store.open()
    sys.stdin.readline()
    while claimed := await store.claim("default", owner, 25):
        assert await store.settle(owner, [Settlement(job.id, job.lease) for job in claimed]) == []
        done += [job.id for job in claimed]
    await store.close()
    print(json.dumps(done))

asyncio.run(main())
"""


async def test_processes_share_the_jobs_of_one_file(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/jobs.db", StoreClock())
    await store.open()
    await store.migrate()
    ids = uuid7s(JOBS)
    await store.enqueue([NewJob(id, "send.email", "{}") for id in ids])
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, store.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    done = [json.loads(child.communicate(timeout=60)[0]) for child in children]
    assert sorted(chain(*done)) == sorted(ids)
    assert (await store.counts())[Status.SUCCEEDED] == JOBS
    await store.close()
