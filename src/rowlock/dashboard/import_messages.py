"""Titles and advice for refused files and failed imports, for people who do not know Rowlock."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rowlock.dashboard.filters import sentence
from rowlock.imports.check.reasons import CODES

_TITLES = {
    "duplicate_import": "This file was imported before",
    "unknown_import_type": "What kind of data is in this file?",
    "company_required": "Which company is this file for?",
    "company_scope": "This belongs to another company",
    "malformed_form": "No file was received",
    "file_name_bad": "No file was chosen",
    "file_type_unknown": "Files of this kind cannot be imported",
    "file_old_format": "This is an old Excel file",
    "old_workbook": "This is an old Excel file",
    "file_content_mismatch": "The file is not what its name says",
    "not_a_workbook": "The file is not a workbook",
    "unsupported_workbook": "This kind of workbook cannot be read",
    "not_text": "The file is not a text file",
    "encoding_unknown": "The encoding of the file is unknown",
    "file_empty": "The file is empty",
    "empty_file": "There are no rows in the file",
    "file_encrypted": "The file is protected with a password",
    "encrypted_file": "The file is protected with a password",
    "file_damaged": "The file is damaged",
    "damaged_file": "The file is damaged",
    "truncated_file": "The file is incomplete",
    "unreadable_file": "The file cannot be read",
    "unsafe_archive": "The file looks dangerous and was not opened",
    "unsafe_xml": "The file looks dangerous and was not opened",
    "file_too_large": "The file is too large",
    "file_too_slow": "Reading the file took too long",
    "file_missing": "The uploaded file was deleted",
    "request_timeout": "The upload was interrupted",
    "missing_columns": "Columns are missing in the file",
    "duplicate_column": "A column is in the file twice",
    "too_many_columns": "The file has too many columns",
    "sheet_not_found": "The sheet is not in the workbook",
    "table_mismatch": "The database table does not match this import",
    "too_many_errors": "There are too many errors",
    "not_all_rows_valid": "Some rows have errors, so none was imported",
    "job_failed": "A job of this import failed",
    "job_cancelled": "A job of this import was cancelled",
    "ledger_mismatch": "The numbers do not add up",
}
_NEXT = {
    "unknown_import_type": "Choose the kind in the list “What is in the file”, then upload the file again.",
    "company_required": "Enter the company's id under “More options”, then upload the file again.",
    "malformed_form": "Choose a file, then upload it.",
    "file_name_bad": "Choose a file, then upload it.",
    "file_type_unknown": "Open the file in the program that created it, and save it as .xlsx or .csv.",
    "file_empty": "Check that the file was saved and that it is the right one.",
    "empty_file": "The file needs a header row with the column names, and at least one row below it.",
    "damaged_file": "Open it in a spreadsheet program and save it again, or get a new copy.",
    "file_damaged": "Open it in a spreadsheet program and save it again, or get a new copy.",
    "encoding_unknown": "Open it in the program that created it, and save it as UTF-8 (in Excel: “CSV UTF-8”).",
    "truncated_file": "Get a new copy: the end of the file is missing.",
    "unreadable_file": "Open it in a spreadsheet program and save it again as .xlsx or .csv.",
    "unsupported_workbook": "Open it in a spreadsheet program and save it as .xlsx.",
    "file_too_large": "Split it into several files with the same header row, or save a workbook as .csv.",
    "file_too_slow": "Split it into several files with the same header row, or save it as .csv.",
    "file_missing": "Upload the file again.",
    "request_timeout": "Check your connection, then upload the file again.",
    "missing_columns": "Add the columns or rename them in the header row, save the file, and upload it again.",
    "duplicate_column": "Rename or remove one of them, save the file, and upload it again.",
    "sheet_not_found": "Rename the sheet in the workbook, or enter its name under “More options”.",
    "table_mismatch": "Your file is not the problem. Your administrator must correct the table first.",
    "too_many_errors": "Correct the rows below, and upload the file again. It may also be the wrong kind of file.",
    "not_all_rows_valid": "Correct the rows below, save the file, and upload it again.",
    "job_failed": "Your file is probably not the problem. Resume the import; if it fails again, ask your "
    "administrator.",
    "ledger_mismatch": "Ask your administrator before you import this file again.",
}
_RESUMABLE = frozenset({"job_failed", "job_cancelled", "table_mismatch", "unknown_import_type", "file_too_slow"})


@dataclass(frozen=True, slots=True)
class Message:
    """An error for people."""

    code: str
    title: str
    text: str
    advice: str


def for_people(code: str, message: str) -> Message:
    """Return an error for people: a title, the message, and advice."""
    title = sentence(_TITLES.get(code, "The file cannot be imported"))
    return Message(code, title, sentence(message), _NEXT.get(code, ""))


def nameless() -> Message:
    """Return the error for a file whose import type was not chosen and does not follow from its name."""
    return replace(
        for_people("unknown_import_type", ""), text="The file name does not show the kind, and none was chosen."
    )


def may_go_on(code: str) -> bool:
    """Return whether a failed import may succeed when resumed, because the error is not in its file."""
    return code in _RESUMABLE or code not in _TITLES


def about_code(code: str) -> str:
    """Return the general reason of an error code, for groups without an example."""
    return CODES.get(code, code.replace("_", " "))
