"""Converts import records to documents and back; totals are sums over finished chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from rowlock.storage.import_rows import chunk_columns, error_columns
from rowlock.storage.imports import (
    ChunkRecord,
    ChunkResult,
    ChunkStatus,
    Counts,
    ErrorGroup,
    ImportId,
    ImportRecord,
    ImportStatus,
    NewImport,
)
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import storable
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.records import JobId

IMPORTS = "rowlock_imports"
CHUNKS = "rowlock_chunks"
ERRORS = "rowlock_import_errors"
SCOPES = "rowlock_import_scopes"

_HAS = {"$exists": True}
INDEXES: tuple[Index, ...] = (
    Index(IMPORTS, "once", (("onceKey", 1),), unique=True, where={"onceKey": _HAS}),
    Index(IMPORTS, "exclusive", (("runningScope", 1),), unique=True, where={"runningScope": _HAS}),
    Index(IMPORTS, "of_scope", (("scope", 1), ("turn", 1)), where={"scope": _HAS}),
    Index(IMPORTS, "of_status", (("status", 1), ("_id", -1))),
    Index(IMPORTS, "of_type", (("type", 1), ("_id", -1))),
    Index(IMPORTS, "of_company", (("companyId", 1), ("_id", -1)), where={"companyId": _HAS}),
    Index(IMPORTS, "uncleaned", (("finishedAt", 1), ("_id", 1)), where={"uncleaned": True}),
    Index(IMPORTS, "cleaned", (("finishedAt", 1), ("_id", 1)), where={"cleanedAt": _HAS}),
    Index(IMPORTS, "changed", (("updatedAt", 1), ("_id", 1))),
    Index(CHUNKS, "of_import", (("importId", 1), ("index", 1)), unique=True),
    Index(CHUNKS, "in_time", (("finishedAt", 1), ("importId", 1)), where={"finishedAt": _HAS}),
    Index(ERRORS, "by_row", (("importId", 1), ("row", 1), ("chunk", 1))),
    Index(ERRORS, "of_chunk", (("importId", 1), ("chunk", 1))),
    Index(SCOPES),
)

_COUNTS = ("rows", "inserted", "updated", "unchanged", "duplicate", "invalid")
_SUMMED = (*_COUNTS, "errorCount")


def once_key(new: NewImport) -> Document:
    """Return the key that two imports of the same file share."""
    return {"sha256": new.sha256, "type": new.type, "companyId": new.company_id or ""}


def import_document(new: NewImport, job_id: JobId, now: datetime) -> Document:
    """Return the document of a new import, without fields that have no value."""
    document = {
        "_id": new.id.lower(),
        "type": new.type,
        "status": ImportStatus.QUEUED.value,
        "fileName": storable(new.file_name),
        "path": new.path,
        "sha256": new.sha256,
        "sizeBytes": new.size_bytes,
        "companyId": new.company_id,
        "projectId": new.project_id,
        "userId": new.user_id,
        "options": new.options,
        "once": new.once,
        "scope": storable(new.scope),
        "parentJobId": job_id,
        "planned": 0,
        "meta": "{}",
        "createdAt": now,
        "updatedAt": now,
        "onceKey": once_key(new) if new.once else None,
    }
    return {name: value for name, value in document.items() if value is not None}


async def records(scope: Scope, ids: Sequence[ImportId]) -> list[ImportRecord]:
    """Return the imports with these ids, in this order, as they were committed."""
    if not ids:
        return []
    found = {one["_id"]: one async for one in scope[IMPORTS].find({"_id": {"$in": list(ids)}})}
    sums = await _sums(scope, {"importId": {"$in": list(found)}})
    return [import_record(found[each], sums.get(each, {})) for each in ids if each in found]


async def standing(scope: Scope, import_id: ImportId, own: Mapping[int, Document]) -> Document:
    """Return the sums over finished chunks: the committed ones, and `own`, those of this transaction by index."""
    sums = await _sums(scope, {"importId": import_id, "index": {"$nin": list(own)}})
    total: Document = sums.get(import_id, {"completed": 0, "finishedAt": None, **dict.fromkeys(_SUMMED, 0)})
    for index, chunk in own.items():
        for name in _SUMMED:
            total[name] += chunk[name]
        total["completed"] += not chunk.get("apart", False)
        if index >= 0:
            total["finishedAt"] = max(chunk["finishedAt"], total["finishedAt"] or chunk["finishedAt"])
    return total


async def _sums(scope: Scope, where: Document) -> dict[ImportId, Document]:
    grouped: Document = {
        "_id": "$importId",
        "completed": {"$sum": {"$cond": ["$apart", 0, 1]}},
        "finishedAt": {"$max": {"$cond": [{"$gte": ["$index", 0]}, "$finishedAt", None]}},
        **{name: {"$sum": f"${name}"} for name in _SUMMED},
    }
    done = {**where, "status": ChunkStatus.DONE.value}
    cursor = await scope[CHUNKS].aggregate([{"$match": done}, {"$group": grouped}])
    return {one["_id"]: one async for one in cursor}


def import_record(document: Document, sums: Document) -> ImportRecord:
    find = document.get
    status, total, completed = ImportStatus(document["status"]), find("totalChunks"), sums.get("completed", 0)
    ended = sums.get("finishedAt")  # of the last chunk: an older message is out of date
    stale = status is ImportStatus.RUNNING and ended is not None and ended >= find("messageAt", ended)
    return ImportRecord(
        id=document["_id"],
        type=document["type"],
        status=status,
        file_name=document["fileName"],
        path=document["path"],
        sha256=document["sha256"],
        size_bytes=document["sizeBytes"],
        company_id=find("companyId"),
        project_id=find("projectId"),
        user_id=find("userId"),
        options=document["options"],
        progress=_progress(document, completed),
        message=None if stale else find("message"),
        total_chunks=total,
        completed_chunks=completed,
        counts=Counts(*(sums.get(name, 0) for name in _COUNTS)),
        error_count=sums.get("errorCount", 0),
        meta=document["meta"],
        error=find("error"),
        result=find("result"),
        created_at=document["createdAt"],
        started_at=find("startedAt"),
        finished_at=find("finishedAt"),
        updated_at=max(document["updatedAt"], ended or document["updatedAt"]),
        cleaned_at=find("cleanedAt"),
        scope=find("scope"),
    )


def _progress(document: Document, completed: int) -> int:
    """Return the progress in percent. Finished chunks stay finished, so it never goes backwards."""
    total = document.get("totalChunks")
    if document["status"] == ImportStatus.SUCCEEDED:
        return 100
    if total is None:
        return int(document["planned"])
    return 10 + 89 * completed // total if total else 99


def waiting_chunk(import_id: ImportId, index: int, job_id: JobId, rows: int) -> Document:
    return {
        "importId": import_id,
        "index": index,
        "jobId": job_id,
        "status": ChunkStatus.WAITING.value,
        "plannedRows": rows,
    }


def chunk_fields(result: ChunkResult, now: datetime) -> Document:
    """Return the fields of a finished chunk."""
    said = chunk_columns(result)
    groups = orjson.loads(said["error_groups"])
    return {
        "status": ChunkStatus.DONE.value,
        **{name: said[name] for name in _COUNTS},
        "errorCount": said["error_count"],
        "errorGroups": [{"column": column, "code": code, "count": count} for column, code, count in groups],
        "notes": said["notes"],
        "finishedAt": now,
    }


def chunk_record(document: Document) -> ChunkRecord:
    groups = [ErrorGroup(one["column"], one["code"], one["count"]) for one in document.get("errorGroups", ())]
    return ChunkRecord(
        document["index"],
        ChunkStatus(document["status"]),
        document["jobId"],
        Counts(*(document.get(name, 0) for name in _COUNTS)),
        tuple(groups),
        document.get("notes", "{}"),
        document.get("finishedAt"),
        document["plannedRows"],
    )


def error_documents(import_id: ImportId, chunk: int, result: ChunkResult) -> list[Document]:
    """Return a document for each row of a chunk that has errors."""
    return [
        {
            "importId": import_id,
            "chunk": chunk,
            "row": row,
            "errors": [dict(zip(_ERROR, error, strict=True)) for error in orjson.loads(errors)],
            "cells": orjson.loads(cells),
        }
        for row, errors, cells in error_columns(result.errors)
    ]


_ERROR = ("column", "code", "reason", "value")


def error_row(document: Document) -> tuple[int, bytes, bytes]:
    """Return (row, errors, cells), as `error_page` takes them."""
    errors: list[list[Any]] = [[error[name] for name in _ERROR] for error in document["errors"]]
    return document["row"], orjson.dumps(errors), orjson.dumps(document["cells"])
