"""Commands of `rowlock` in the process of the test: as from a shell, without the time to start a process."""

from __future__ import annotations

import contextlib
import io
import os
from typing import NamedTuple
from unittest import mock

from rowlock.cli import main

APP = "hostile.app:app"


class Done(NamedTuple):
    code: object
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err


def command(*arguments: str, url: str, **environment: str) -> Done:
    """Run a command on a database; what it printed, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with (
        mock.patch.dict(os.environ, {"DATABASE_URL": url, "ROWLOCK_APP": APP, **environment}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main([*arguments, "--app", APP, "--database", url])
        except SystemExit as end:
            code = end.code
    return Done(code, out.getvalue(), err.getvalue())
