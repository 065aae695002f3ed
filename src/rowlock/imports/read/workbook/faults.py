"""What a workbook can be refused for, each with what to do next."""

from __future__ import annotations

from rowlock.errors import FileRefused

SAVE_AGAIN = "Open it in a spreadsheet program, save it again as .xlsx and upload that."


def damaged(what: str) -> FileRefused:
    """The file was an .xlsx once, or almost."""
    return FileRefused(f"The workbook is damaged: {what}. {SAVE_AGAIN}", code="damaged_file")


def too_large(what: str) -> FileRefused:
    """Reading on would take more memory or time than one file may."""
    return FileRefused(
        f"The workbook is too large: {what}. Split it, or save the sheet as .csv and upload that.",
        code="file_too_large",
    )


def unsafe_xml(part: str) -> FileRefused:
    """No spreadsheet program writes a DOCTYPE; those who attack parsers do."""
    return FileRefused(
        f"The workbook's part {part} has a document type declaration, which is never read. {SAVE_AGAIN}",
        code="unsafe_xml",
    )


def unsafe_archive(what: str) -> FileRefused:
    """The zip around the workbook is made to do harm, or as good as."""
    return FileRefused(f"The workbook's archive is not safe to open: {what}. {SAVE_AGAIN}", code="unsafe_archive")


def unsupported(what: str) -> FileRefused:
    """A file of another program or format."""
    return FileRefused(f"This is {what}, not an .xlsx workbook. {SAVE_AGAIN}", code="unsupported_workbook")
