"""Errors of the MongoDB driver are translated to those of Rowlock."""

from __future__ import annotations

import pytest
from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError

from rowlock.errors import StoreUnavailable
from rowlock.storage.mongo.errors import translated

URL = "mongodb://127.0.0.1/rowlock"
FULL = "WiredTigerIndexStandard::_insert: index: ready; 28: No space left on device"


@pytest.mark.parametrize(
    "error",
    [
        OperationFailure("no space", 14031),
        OperationFailure(FULL, 8),
        BulkWriteError({"writeErrors": [{"index": 0, "code": 8, "errmsg": FULL}]}),
        BulkWriteError({"writeErrors": [], "writeConcernErrors": [{"code": 14031, "errmsg": "no space"}]}),
    ],
)
def test_a_full_disk_is_told_as_one(error: PyMongoError) -> None:
    told = translated(error, URL)
    assert isinstance(told, StoreUnavailable)
    assert f"the disk of MongoDB at {URL} is full" in str(told)


@pytest.mark.parametrize("kind", ["writeErrors", "writeConcernErrors"])
def test_a_batch_that_was_stopped_with_its_server_may_be_tried_again(kind: str) -> None:
    error = BulkWriteError({kind: [{"code": 11600, "errmsg": "interrupted at shutdown"}]})
    told = translated(error, URL)
    assert isinstance(told, StoreUnavailable)
    assert "interrupted at shutdown" in str(told)


def test_a_batch_with_a_key_that_is_there_says_so_without_its_documents() -> None:
    error = BulkWriteError({"writeErrors": [{"code": 11000, "errmsg": "E11000 dup key: { email: 'ada@example.org' }"}]})
    assert str(translated(error, URL)) == f"MongoDB at {URL}: this id or key already exists"
