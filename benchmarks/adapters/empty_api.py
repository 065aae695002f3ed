"""An empty FastAPI route that validates the same body as Rowlock's enqueue, without a store: the cost of HTTP alone."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI

from rowlock.management.schemas.requests import EnqueueRequest

api = FastAPI()


@api.post("/api/v1/queue/enqueue", status_code=201)
async def enqueue(given: EnqueueRequest) -> dict[str, Any]:
    return {"type": given.type, "status": "queued"}


if __name__ == "__main__":
    uvicorn.run(api, port=int(sys.argv[1]), log_level="critical", access_log=False)
