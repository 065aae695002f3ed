"""Reads workbooks (.xlsx): turns an untrusted zip of XML into rows of typed cells.

package -> parts (which sheet) -> shared, styles -> rows (fast) or sheet (any XML) -> cells (kinds and texts) -> source
"""

from rowlock.imports.read.workbook.source import WorkbookSource, open_workbook

__all__ = ["WorkbookSource", "open_workbook"]
