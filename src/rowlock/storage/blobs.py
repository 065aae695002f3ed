"""The import store: uploads and chunks as files with generated names, in a folder shared by the API and all workers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rowlock.errors import SettingsError, StoreUnavailable

T = TypeVar("T")

_SCRATCH = "scratch"  # files that are being received or made, not yet blobs
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_REASONS = {
    errno.ENOSPC: "it has no space left",
    errno.EDQUOT: "its quota is used up",
    errno.EROFS: "it is read-only",
    errno.EACCES: "this process has no write permission",
    errno.EPERM: "this process has no write permission",
    errno.ENOTDIR: "it is not a folder",
    errno.EEXIST: "it is not a folder",
}


class Blobs:
    """Files by name. A file is durable when its put returns; a failed put leaves no partial file."""

    def __init__(self, url: str) -> None:
        self._root = folder_of(url)
        try:
            from obstore.store import LocalStore
        except ImportError:
            raise SettingsError("imports need obstore: pip install 'rowlock[imports]'") from None
        self._make: Callable[[], Any] = lambda: LocalStore(prefix=self._root, mkdir=True)
        self._made: Any = None

    @property
    def _store(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def scratch(self) -> Path:
        """The folder in which files are made before they are put: on the same disk, so that they can be moved."""
        folder = self._root / _SCRATCH
        with _told():
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def put_file(self, name: str, path: Path) -> None:
        """Moves the file at `path` to this name. The name never shows a partial file."""
        await _in_thread(self._put_file, _checked(name), path)

    def _put_file(self, name: str, path: Path) -> None:
        import obstore

        _sync(path)
        inside = path.absolute().is_relative_to(self._root)
        try:
            if inside:
                obstore.rename(self._store, path.absolute().relative_to(self._root).as_posix(), name)
            else:
                obstore.put(self._store, name, path)
                _sync(self._path(name))
            for folder in (self._path(name).parent, *self._path(name).parent.parents):
                _sync(folder)  # the directory entries must be durable, too
                if folder == self._root:
                    break
        except BaseException:
            with contextlib.suppress(OSError):
                self._path(name).unlink(missing_ok=True)
            raise
        if not inside:
            path.unlink(missing_ok=True)

    async def put(self, name: str, data: bytes) -> None:
        """Stores these bytes under this name."""
        await _in_thread(self._put, _checked(name), data)

    def _put(self, name: str, data: bytes) -> None:
        path = self.scratch / f"{name.replace('/', '-')}-{os.urandom(6).hex()}"
        try:
            path.write_bytes(data)
            self._put_file(name, path)
        finally:
            path.unlink(missing_ok=True)

    async def get(self, name: str) -> bytes:
        """Returns the bytes of a file; raises FileNotFoundError if it does not exist."""
        import obstore

        def read() -> bytes:
            return bytes(obstore.get(self._store, name).bytes())

        _checked(name)
        return await _in_thread(read)

    async def local(self, name: str) -> Path:
        """Returns a path at which the file can be read; raises FileNotFoundError if it does not exist."""
        path = self._path(name)
        if not await _in_thread(path.is_file):
            raise FileNotFoundError(errno.ENOENT, "no such file in the import store", name)
        return path

    async def linked(self, name: str, path: Path) -> None:
        """Gives a file a second name, at `path` in the scratch folder; raises FileNotFoundError if it does not exist.

        No byte is copied, and each name keeps the file when the other is deleted.
        """

        def link() -> None:
            try:
                path.hardlink_to(self._path(name))
            except FileNotFoundError:
                raise
            except OSError:  # a file system without hard links
                shutil.copyfile(self._path(name), path)

        await _in_thread(link)

    def _path(self, name: str) -> Path:
        return self._root / _checked(name)

    async def exists(self, name: str) -> bool:
        """Returns whether there is a file of this name."""
        _checked(name)
        return await _in_thread(lambda: self._path(name).is_file())

    async def delete(self, prefix: str) -> int:
        """Removes the file of this name, or all files in the folder of this name; returns how many (0 is no error)."""
        return await _in_thread(self._delete, _checked(prefix.rstrip("/")))

    def _delete(self, prefix: str) -> int:
        import obstore

        names = [str(found["path"]) for page in obstore.list(self._store, prefix) for found in page]
        if self._path(prefix).is_file():
            names.append(prefix)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, name)
        top = self._path(prefix)
        for folder in sorted({(self._root / name).parent for name in names} | {top}, reverse=True):
            while folder.is_relative_to(top):  # not above it: a concurrent put may need the folder
                try:
                    folder.rmdir()
                except OSError:  # it is not empty, or gone
                    break
                folder = folder.parent
        return len(names)

    async def folders(self, within: str) -> list[str]:
        """Returns the names of the folders directly within this one."""
        folder = self._path(within)

        def found() -> list[str]:
            return sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []

        return await _in_thread(found)

    async def clean_scratch(self, seconds: float) -> int:
        """Removes scratch files older than `seconds`, left by processes that died; returns how many."""

        def clean() -> int:
            folder, before, count = self._root / _SCRATCH, time.time() - seconds, 0
            for path in folder.iterdir() if folder.is_dir() else ():
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime < before:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                        count += 1
            return count

        return await _in_thread(clean)


async def _in_thread(work: Callable[..., T], *given: Any) -> T:
    def run() -> T:
        with _told():
            return work(*given)

    return await asyncio.to_thread(run)


@contextmanager
def _told() -> Iterator[None]:
    """Turns errors of the disk into FolderUnavailable, whose message names no path."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, BaseError) as error:
        raise unavailable(error) from error


def folder_of(url: str) -> Path:
    """Returns the folder that ROWLOCK_IMPORT_STORE names; raises SettingsError for anything else."""
    scheme, found, rest = url.partition("://")
    if (found and scheme != "file") or not (rest if found else url).strip():
        raise SettingsError(f"ROWLOCK_IMPORT_STORE: it must be a folder, not {f'{scheme}://…' if found else repr(url)}")
    return Path(rest if found else url).absolute()


def unusable_reason(url: str) -> str | None:
    """Returns why imports would fail in this folder, or None. Creates nothing: the first upload makes the folder."""
    try:
        folder = folder_of(url)
        there = next(place for place in (folder, *folder.parents) if place.exists())
    except SettingsError as error:
        return str(error)
    except OSError as error:
        return str(unavailable(error))
    if not there.is_dir():
        return f"ROWLOCK_IMPORT_STORE: {there} is not a folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"ROWLOCK_IMPORT_STORE: this process has no write permission for {there}"
    return None


class FolderUnavailable(StoreUnavailable):
    """The import folder failed; the message names no path."""


def unavailable(error: BaseException) -> FolderUnavailable:
    """Returns the error for a failed import folder: the reason, and that nothing was kept."""
    number = error_number(error)
    reason = _REASONS.get(number or 0) or (os.strerror(number) if number else type(error).__name__)
    return FolderUnavailable(f"the folder of imports (ROWLOCK_IMPORT_STORE) failed: {reason}; nothing was stored")


def error_number(error: BaseException) -> int | None:
    """Returns the errno of an error, which Rust libraries give only in the text; None without one."""
    number: int | None = getattr(error, "errno", None)
    if number is None:
        found = re.search(r"\(os error (\d+)\)", str(error))
        number = int(found[1]) if found else None
    return number


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None or ".." in name:
        raise ValueError(f"{name!r} is not the name of a blob")
    return name


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
