"""The docs say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import http_page
from docs.settings_page import PAGE, page

ROOT = Path(__file__).parents[2]
OVERVIEWS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "backoffice/README.md")]
PAGES = [*OVERVIEWS, *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def test_the_settings_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run `.venv/bin/python tests/docs/settings_page.py`"


def test_the_http_page_is_up_to_date() -> None:
    assert http_page.PAGE.read_text() == http_page.page(), "run `.venv/bin/python tests/docs/http_page.py`"


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file: Path) -> None:
    broken = [target for target in LINK.findall(file.read_text()) if not (file.parent / target).exists()]
    assert broken == []
