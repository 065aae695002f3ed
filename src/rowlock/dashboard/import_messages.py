"""Titles and advice for refused files and failed imports, for people who do not know Rowlock."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rowlock.dashboard.filters import sentence
from rowlock.imports.check.reasons import CODES

_TITLES = {
    "duplicate_import": "This file was imported before",
    "unknown_import_type": "What kind of data is in this file?",
    "company_required": "Which company is this file for?",
    "company_scope": "This is another company's",
    "malformed_form": "No file arrived",
    "file_name_bad": "No file was chosen",
    "file_type_unknown": "Files of this kind cannot be imported",
    "file_old_format": "This is an old Excel file",
    "old_workbook": "This is an old Excel file",
    "file_content_mismatch": "The file is not what its name says",
    "not_a_workbook": "The file is not a workbook",
    "unsupported_workbook": "This kind of workbook cannot be read",
    "not_text": "The file is not a text file",
    "encoding_unknown": "The letters in the file cannot be read",
    "file_empty": "The file is empty",
    "empty_file": "There are no rows in the file",
    "file_encrypted": "The file is protected with a password",
    "encrypted_file": "The file is protected with a password",
    "file_damaged": "The file is damaged",
    "damaged_file": "The file is damaged",
    "truncated_file": "The file is cut off",
    "unreadable_file": "The file cannot be read",
    "unsafe_archive": "The file looks dangerous and was not opened",
    "unsafe_xml": "The file looks dangerous and was not opened",
    "file_too_large": "The file is too large",
    "file_too_slow": "Reading the file took too long",
    "file_missing": "The uploaded file is gone",
    "request_timeout": "The file stopped arriving",
    "missing_columns": "Columns are missing in the file",
    "duplicate_column": "A column is in the file twice",
    "too_many_columns": "The file has too many columns",
    "sheet_not_found": "The sheet is not in the workbook",
    "table_mismatch": "The table in the database does not fit",
    "too_many_errors": "There are too many errors",
    "not_all_rows_valid": "Some rows have errors, so none was imported",
    "job_failed": "Something went wrong on our side",
    "job_cancelled": "Its work was cancelled",
    "ledger_mismatch": "The numbers do not add up",
}
_NEXT = {
    "unknown_import_type": "Choose it in the list “What is in the file”, then send the file again.",
    "company_required": "Write the company's id under “More choices”, then send the file again.",
    "malformed_form": "Choose a file, then send it.",
    "file_name_bad": "Choose a file, then send it.",
    "file_type_unknown": "Open the file in the program that made it, and save it as .xlsx or .csv.",
    "file_empty": "Look whether the file was saved, and whether it is the right one.",
    "empty_file": "There has to be a row with the names of the columns, and at least one row below it.",
    "damaged_file": "Open it in a spreadsheet program and save it again, or get it anew from where it came.",
    "file_damaged": "Open it in a spreadsheet program and save it again, or get it anew from where it came.",
    "encoding_unknown": "Open it in the program that made it, and save it again as UTF-8 (in Excel: “CSV UTF-8”).",
    "truncated_file": "Get it anew from where it came: the end of it is missing.",
    "unreadable_file": "Open it in a spreadsheet program and save it again as .xlsx or .csv.",
    "unsupported_workbook": "Open it in a spreadsheet program and save it as .xlsx.",
    "file_too_large": "Divide it into several files with the same first row; of a workbook, a CSV file is smaller.",
    "file_too_slow": "Divide it into several files with the same first row, or save it as .csv.",
    "file_missing": "Upload the file again.",
    "request_timeout": "Look at your connection, then send the file again.",
    "missing_columns": "Add or rename the columns in the row with the names, save the file, and upload it again.",
    "duplicate_column": "Rename or remove one of them, save the file, and upload it again.",
    "sheet_not_found": "Rename the sheet in the workbook, or write the sheet's name under “More choices”.",
    "table_mismatch": "Nothing is wrong with your file. Whoever looks after this system has to mend the table first.",
    "too_many_errors": "Correct the rows below, and upload the file again. It may also be the wrong kind of file.",
    "not_all_rows_valid": "Correct the rows below, save the file, and upload it again.",
    "job_failed": "Nothing is wrong with your file, as far as we know. Let it go on; if that fails again, ask whoever "
    "looks after this system.",
    "ledger_mismatch": "Ask whoever looks after this system before you import this file again.",
}
_MENDED_HERE = frozenset({"job_failed", "job_cancelled", "table_mismatch", "unknown_import_type", "file_too_slow"})


@dataclass(frozen=True, slots=True)
class Told:
    """An error for people."""

    code: str
    title: str
    text: str
    advice: str


def told(code: str, message: str) -> Told:
    """Return an error for people: a title, the message, and advice."""
    title = sentence(_TITLES.get(code, "The file cannot be imported"))
    return Told(code, title, sentence(message), _NEXT.get(code, ""))


def nameless() -> Told:
    """Return the error for a file whose import type was not chosen and does not follow from its name."""
    return replace(told("unknown_import_type", ""), text="Its name does not tell, and nothing was chosen.")


def may_go_on(code: str) -> bool:
    """Return whether a failed import may succeed when resumed, because the error is not in its file."""
    return code in _MENDED_HERE or code not in _TITLES


def about_code(code: str) -> str:
    """Return the general reason of an error code, for groups without an example."""
    return CODES.get(code, code.replace("_", " "))
