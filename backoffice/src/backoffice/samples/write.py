"""Writes the sample files into a folder, with their expected outcomes in truth.json."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from backoffice.samples.bad import bad_files
from backoffice.samples.good import Sample, good_files
from backoffice.samples.outcome import Outcome

TRUTH = "truth.json"
README = "README.txt"
_WRITTEN_BY = "backoffice demo files"


class SamplesError(Exception):
    """The files cannot be written as asked; the message says why."""


def write_samples(
    folder: Path, count: int, seed: int, types: Collection[str], force: bool, seen: Callable[[int], None]
) -> dict[str, Any]:
    """Write the files of these types (default: all), each whole or not at all; returns the content of truth.json.

    Raises SamplesError for a file that this command did not write, or that was changed since, unless `force` is set.
    """
    samples = [*good_files(seed, count), *bad_files(seed)]
    known = {sample.type: None for sample in samples}
    if unknown := [name for name in types if name not in known]:
        raise SamplesError(f"--type {unknown[0]}: there are {', '.join(known)}")
    samples = [sample for sample in samples if not types or sample.type in types]
    try:
        (folder / "bad").mkdir(parents=True, exist_ok=True)
        before = _before(folder)
        if not force:
            _refuse_others(folder, samples, before)
        files = {name: told for name, told in before.items() if (folder / name).exists()}
        for done, sample in enumerate(samples):
            files[sample.path] = _write(folder, sample)
            seen(100 * (done + 1) // len(samples) - 100 * done // len(samples))
        truth = {"writtenBy": _WRITTEN_BY, "seed": seed, "rows": count, "files": files}
        _put(folder / README, _readme(files).encode())
        _put(folder / TRUTH, json.dumps(truth, indent=2, ensure_ascii=False).encode() + b"\n")
    except OSError as error:
        raise SamplesError(f"{error.filename or folder}: {error.strerror}") from None
    return truth


def _before(folder: Path) -> dict[str, Any]:
    """Return the files that an earlier call wrote into this folder, by name."""
    try:
        told = json.loads((folder / TRUTH).read_bytes())
        return dict(told["files"]) if told["writtenBy"] == _WRITTEN_BY else {}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}


def _refuse_others(folder: Path, samples: list[Sample], before: Mapping[str, Any]) -> None:
    for name in (*(sample.path for sample in samples), README, TRUTH):
        path = folder / name
        if not path.exists():
            continue
        ours = bool(before) if name in (README, TRUTH) else _digest(path) == before.get(name, {}).get("sha256")
        if not ours:
            raise SamplesError(
                f"{path} is there already and was not written by this command, or was changed since; "
                f"choose another folder, or replace it with --force"
            )


def _write(folder: Path, sample: Sample) -> dict[str, Any]:
    path = folder / sample.path
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as to:
            outcome: Outcome = sample.write(to)
        told = {"type": sample.type, "about": sample.about, **outcome.told()}
        told |= {"words": outcome.words, "bytes": part.stat().st_size, "sha256": _digest(part)}
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return told


def _put(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _readme(files: Mapping[str, Any]) -> str:
    width = max(map(len, files))
    listed = [f"{name:<{width}}  {told['about']}: {told['words']}" for name, told in files.items()]
    return "\n".join([*_INTRODUCTION, *listed, ""])


_INTRODUCTION = (
    "Sample files for the imports of the reference application, written by `backoffice demo files`.",
    "",
    "    rowlock import Customers.csv --type customers --wait --app backoffice:app",
    "",
    "The expected result of each file, in tables that have none of its rows, is below and, with every error, in",
    "truth.json. The components of the price list need the price list; import it first.",
    "",
)
