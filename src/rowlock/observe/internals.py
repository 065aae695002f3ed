"""Hide servers, addresses and files in a text: they are for operators, not for users of one company."""

from __future__ import annotations

import re
import socket
import ssl

from rowlock.errors import StoreError

HIDDEN = "an internal error occurred; operators can see the reason"

_MODULES = (StoreError.__module__, OSError.__module__, socket.gaierror.__module__, ssl.SSLError.__module__)
# Errors of other modules that name hosts or folders.
_OTHERS = (
    *("FolderUnavailable", "OperationalError", "InterfaceError"),
    *("AutoReconnect", "ConnectionFailure", "NetworkTimeout", "NotPrimaryError"),
    *("ServerSelectionTimeoutError", "WaitQueueTimeoutError"),
)
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_GROUP = "[0-9A-Fa-f]{1,4}:"
_PORT = r"(?::[0-9]{1,5}\b)?"
_END = r"\s'\":;,()<>"
_ADDRESS = re.compile(
    r"\b(?:postgres(?:ql)?|mongodb(?:\+srv)?|sqlite|mysql|redis|amqp|file)://\S*"
    rf"|(?<![\w.])(?:{_OCTET}\.){{3}}{_OCTET}{_PORT}(?![\w]|\.[0-9])"
    rf"|\[(?:::|(?:{_GROUP}){{1,6}}:|(?:{_GROUP}){{6}})[0-9A-Fa-f:.]{{0,39}}(?:%\w{{1,20}})?\]{_PORT}"
    # a dotted name with a port, but not a file with a line number, and not part of a URL
    r"|(?<![\w./@-])\w[\w-]*+(?:\.(?!(?:csv|tsv|txt|xlsx|xlsm|xls|json|xml|pdf|zip|py):)[A-Za-z][\w-]*+)++:[0-9]{2,5}\b"
    # an absolute path of two parts or more, but not part of a URL
    rf"|(?<![\w:/.])/(?:[^/{_END}]+/)+[^{_END}]*"
    rf"|\b[A-Za-z]:\\[^{_END}]+"
    rf"|(?<!\\)\\{{2,4}}[^\\{_END}]++\\{{1,2}}[^{_END}]*"
)


def without_inner(text: str) -> str:
    """Replace the text from the first store or file system error on, and all addresses and paths."""
    return _ADDRESS.sub("…", _KINDS.sub(HIDDEN, text))


def _tree(root: type[BaseException]) -> list[type[BaseException]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _tree(child))]


def _names() -> list[str]:
    """Return the names of errors in known modules only, as any imported module may have an OSError called Error."""
    kinds = [kind for root in (StoreError, OSError) for kind in _tree(root)]
    return sorted({kind.__name__ for kind in kinds if kind.__module__ in _MODULES} | {*_OTHERS})


_KINDS = re.compile(rf"\b(?:{'|'.join(_names())})\b.*", re.DOTALL)
