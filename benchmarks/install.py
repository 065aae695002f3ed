"""The peers' environments, in a cache directory: created once, and again when a pinned version changes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.systems import Runtime, System

HERE = Path(__file__).resolve().parent
CONSTRAINTS = HERE / "constraints.txt"
PACKAGE_JSON = HERE / "package.json"
_PYTHON_EXTRAS = ("asyncpg", "psycopg[binary]", "uvloop")
IMPORT_PACKAGES = ("dlt[postgres]", "openpyxl", "pandas", "pydantic", "SQLAlchemy", "sqlite-utils")


class InstallError(Exception):
    """The peers' environment could not be created; the message has the installer's output."""


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "rowlock-bench"


def install(systems: list[System], cache: Path) -> list[System]:
    """Install what these systems need. Returns those that can run here; prints the others with the reason."""
    runtimes = {system.runtime for system in systems}
    usable = {Runtime.ROWLOCK: _has_rowlock(), Runtime.PEERS: True, Runtime.NODE: shutil.which("npm") is not None}
    why = {Runtime.ROWLOCK: "rowlock cannot be imported here", Runtime.NODE: "node and npm are not on the PATH"}
    if Runtime.PEERS in runtimes:
        _install_python(sorted({s.package for s in systems if s.runtime is Runtime.PEERS}), cache / "peers")
    if Runtime.NODE in runtimes and usable[Runtime.NODE]:
        _install_node(cache / "node")
    for system in systems:
        if not usable[system.runtime]:
            print(f"skipped {system.name}: {why[system.runtime]}", flush=True)
    return [system for system in systems if usable[system.runtime]]


def install_for_imports(cache: Path) -> None:
    """Install the packages of the other ways to import a file."""
    _install_python(list(IMPORT_PACKAGES), cache / "imports")


def import_python(cache: Path) -> str:
    """Return the interpreter that runs the other ways to import a file."""
    return str(cache / "imports" / "bin" / "python")


def import_versions(cache: Path) -> dict[str, str]:
    names = [package.partition("[")[0] for package in IMPORT_PACKAGES]
    ask = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names!r}}}))"
    return dict(json.loads(_run([import_python(cache), "-c", ask])))


def program(system: System, cache: Path) -> list[str]:
    """Return the command that runs this system's adapter."""
    if system.runtime is Runtime.NODE:
        own = cache / "node" / "node_modules" / "node" / "bin" / "node"
        return [str(own) if own.exists() else "node", str(HERE / "adapters" / f"{system.adapter}.cjs")]
    python = sys.executable if system.runtime is Runtime.ROWLOCK else str(cache / "peers" / "bin" / "python")
    return [python, "-m", f"benchmarks.adapters.{system.adapter}"]


def version(system: System, cache: Path) -> str:
    if system.runtime is Runtime.ROWLOCK:
        return importlib.metadata.version(system.package)
    if system.runtime is Runtime.NODE:
        manifest = cache / "node" / "node_modules" / system.package / "package.json"
        return str(json.loads(manifest.read_text())["version"])
    ask = f"import importlib.metadata as m; print(m.version({system.package!r}))"
    return _run([str(cache / "peers" / "bin" / "python"), "-c", ask]).strip()


def _has_rowlock() -> bool:
    return subprocess.run([sys.executable, "-c", "from rowlock import Rowlock"], capture_output=True).returncode == 0


def _install_python(packages: list[str], directory: Path) -> None:
    wanted = CONSTRAINTS.read_text() + " ".join(packages)
    if _is_current(directory, wanted):
        return
    print(f"installing {', '.join(packages)}", flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(directory)])
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS)]
    _run([*pip, *packages, *_PYTHON_EXTRAS])
    _mark_current(directory, wanted)


def _install_node(directory: Path) -> None:
    wanted = PACKAGE_JSON.read_text()
    if _is_current(directory, wanted):
        return
    print("installing graphile-worker, pg-boss", flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    shutil.copy(PACKAGE_JSON, directory)
    _run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(directory)])
    _mark_current(directory, wanted)


def _is_current(directory: Path, wanted: str) -> bool:
    mark = directory / "installed"
    return mark.exists() and mark.read_text() == hashlib.sha256(wanted.encode()).hexdigest()


def _mark_current(directory: Path, wanted: str) -> None:
    (directory / "installed").write_text(hashlib.sha256(wanted.encode()).hexdigest())


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InstallError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
