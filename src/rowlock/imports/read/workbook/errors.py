"""The reasons why a workbook is refused, each with what to do next."""

from __future__ import annotations

from rowlock.errors import FileRefused

SAVE_AGAIN = "Open it in a spreadsheet program, save it again as .xlsx and upload that."


def damaged(what: str) -> FileRefused:
    """The file is a broken .xlsx."""
    return FileRefused(f"The workbook is damaged: {what}. {SAVE_AGAIN}", code="damaged_file")


def too_large(what: str) -> FileRefused:
    """Reading the file would take more memory or time than allowed."""
    return FileRefused(
        f"The workbook is too large: {what}. Split it, or save the sheet as .csv and upload that.",
        code="file_too_large",
    )


def unsafe_xml(part: str) -> FileRefused:
    """The XML has a DOCTYPE: no spreadsheet program writes one, but attacks on parsers do."""
    return FileRefused(
        f"The workbook's part {part} has a document type declaration, which is not allowed. {SAVE_AGAIN}",
        code="unsafe_xml",
    )


def unsafe_archive(what: str) -> FileRefused:
    """The zip archive is malicious or looks as if it were."""
    return FileRefused(f"The workbook's archive is not safe to open: {what}. {SAVE_AGAIN}", code="unsafe_archive")


def unsupported(what: str) -> FileRefused:
    """The file belongs to another program or format."""
    return FileRefused(f"This is {what}, not an .xlsx workbook. {SAVE_AGAIN}", code="unsupported_workbook")
