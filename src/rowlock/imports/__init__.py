"""Spreadsheet imports: upload -> detect the file type -> plan -> split into chunks -> validate -> load -> report."""
