"""Where files rest: uploads and chunks, under generated names, in a folder that the API and all workers share."""

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

_SCRATCH = "scratch"  # files that are being received or made: no blob of anyone's
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_REASONS = {
    errno.ENOSPC: "it has no space left",
    errno.EDQUOT: "its quota is used up",
    errno.EROFS: "it is read-only",
    errno.EACCES: "this process may not write there",
    errno.EPERM: "this process may not write there",
    errno.ENOTDIR: "it is not a folder",
    errno.EEXIST: "it is not a folder",
}


class Blobs:
    """Files by name. What was put is durable when the call returns; a call that fails leaves nothing half-written."""

    def __init__(self, url: str) -> None:
        scheme, found, rest = url.partition("://")
        if found and scheme != "file":
            raise SettingsError(f"ROWLOCK_IMPORT_STORE: it must be a folder, not {scheme}://…")
        try:
            from obstore.store import LocalStore
        except ImportError:
            raise SettingsError("imports need obstore: pip install 'rowlock[imports]'") from None
        self._root = Path(rest if found else url).absolute()
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
        """Take over a file under this name; `path` is gone then. Nobody sees a part of it under the name."""
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
                _sync(folder)  # the entry in its folder must be durable, too, and that of the folder in its own
                if folder == self._root:
                    break
        except BaseException:
            with contextlib.suppress(OSError):
                self._path(name).unlink(missing_ok=True)
            raise
        if not inside:
            path.unlink(missing_ok=True)

    async def put(self, name: str, data: bytes) -> None:
        """Keep these bytes under this name."""
        await _in_thread(self._put, _checked(name), data)

    def _put(self, name: str, data: bytes) -> None:
        path = self.scratch / f"{name.replace('/', '-')}-{os.urandom(6).hex()}"
        try:
            path.write_bytes(data)
            self._put_file(name, path)
        finally:
            path.unlink(missing_ok=True)

    async def get(self, name: str) -> bytes:
        """The bytes of a file; FileNotFoundError where there is none of this name."""
        import obstore

        def read() -> bytes:
            return bytes(obstore.get(self._store, name).bytes())

        _checked(name)
        return await _in_thread(read)

    async def local(self, name: str) -> Path:
        """A path at which the file can be read; FileNotFoundError where there is none of this name."""
        path = self._path(name)
        if not await _in_thread(path.is_file):
            raise FileNotFoundError(errno.ENOENT, "no such file in the import store", name)
        return path

    async def linked(self, name: str, path: Path) -> None:
        """Give a file a second name, at `path` in the scratch folder; FileNotFoundError where there is none of `name`.

        No byte is copied, and each name keeps the file when the other is deleted.
        """

        def link() -> None:
            try:
                path.hardlink_to(self._path(name))
            except FileNotFoundError:
                raise
            except OSError:  # a file system without such names
                shutil.copyfile(self._path(name), path)

        await _in_thread(link)

    def _path(self, name: str) -> Path:
        return self._root / _checked(name)

    async def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        _checked(name)
        return await _in_thread(lambda: self._path(name).is_file())

    async def delete(self, prefix: str) -> int:
        """Remove a file, or all that are in a folder of this name, and count them; none is no error."""
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
            while folder.is_relative_to(top):  # not above it: someone may be about to put a file there
                try:
                    folder.rmdir()
                except OSError:  # it is not empty, or gone
                    break
                folder = folder.parent
        return len(names)

    async def folders(self, within: str) -> list[str]:
        """The folders directly within this one, by their names alone."""
        folder = self._path(within)

        def found() -> list[str]:
            return sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []

        return await _in_thread(found)

    async def sweep_scratch(self, seconds: float) -> int:
        """Remove what was begun longer ago than this and never put, and count it: whoever made it has died."""

        def sweep() -> int:
            folder, before, count = self._root / _SCRATCH, time.time() - seconds, 0
            for path in folder.iterdir() if folder.is_dir() else ():
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime < before:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                        count += 1
            return count

        return await _in_thread(sweep)


async def _in_thread(work: Callable[..., T], *given: Any) -> T:
    def run() -> T:
        with _told():
            return work(*given)

    return await asyncio.to_thread(run)


@contextmanager
def _told() -> Iterator[None]:
    """Faults of a disk in words that tell nobody where it is."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, BaseError) as error:
        raise unavailable(error) from error


def unavailable(error: BaseException) -> StoreUnavailable:
    """The folder of imports failed: why, and that nothing was kept."""
    number = error_number(error)
    reason = _REASONS.get(number or 0) or (os.strerror(number) if number else type(error).__name__)
    return StoreUnavailable(f"the folder of imports (ROWLOCK_IMPORT_STORE) failed: {reason}; nothing was kept")


def error_number(error: BaseException) -> int | None:
    """The number of the system's error; libraries in Rust tell it in their text only."""
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
