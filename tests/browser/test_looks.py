"""Every page, in light, in dark and on a phone: accessible, legible, without horizontal scrolling; with screenshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Page

from browser.conftest import Visit
from browser.house import House
from browser.scene import PAGES, furnish

PICTURES = Path(__file__).parents[2] / ".cache" / "screenshots"
DESK = {"width": 1_280, "height": 800}
PHONE = {"width": 390, "height": 844}

_scenes: dict[str, dict[str, str]] = {}


@pytest_asyncio.fixture(loop_scope="session")
async def scene(house: House) -> dict[str, str]:
    """Where each page is, in a house that is furnished once."""
    if house.url not in _scenes:
        _scenes[house.url] = await furnish(house)
    return _scenes[house.url]


async def findings(page: Page, *rules: str) -> list[str]:
    """What axe finds against WCAG 2.2 AA and its own good practice; with rules, by these alone."""
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE_SCRIPT)
    found = await page.evaluate("options => axe.run(options)", options)
    return [
        f"{each['impact']} {each['id']}: {each['help']}: {node['html'][:300]} {node.get('failureSummary', '')}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


async def sideways(page: Page) -> list[str]:
    """What makes the page wider than the window."""
    found: list[str] = await page.evaluate(
        """() => {
            const width = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= width) return [];
            return [...document.querySelectorAll("body *")]
                .filter(each => each.getBoundingClientRect().right > width + 1 && !each.closest(".scroll, pre"))
                .map(each => `${each.localName}.${each.className} ${each.getBoundingClientRect().right} of ${width}`)
                .concat(["the page scrolls sideways"]);
        }"""
    )
    return found


async def crowded(page: Page) -> list[str]:
    """Controls that lie on top of each other, and heads of tables that do not stand above their columns."""
    found: list[str] = await page.evaluate(
        """() => {
            const seen = each => each.checkVisibility() && !each.closest(".unseen, .skip");
            const told = each => each.outerHTML.slice(0, 120);
            const controls = [...document.querySelectorAll("main :is(a, button, input, select, summary)")].filter(seen);
            const boxes = controls.map(each => [...each.getClientRects()]);
            const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
                Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
            const over = controls.flatMap((one, i) => controls.slice(i + 1)
                .filter((other, j) => !one.contains(other) && !other.contains(one) &&
                    boxes[i].some(a => boxes[i + 1 + j].some(b => meet(a, b))))
                .map(other => `on top of each other: ${told(one)} and ${told(other)}`));
            const askew = [...document.querySelectorAll("main table")].flatMap(table => {
                const of = row => [...(row?.cells ?? [])];
                const heads = of(table.tHead?.rows[0]), cells = of(table.tBodies[0]?.rows[0]);
                if (!heads.every(seen) || heads.length !== cells.length) return [];
                const left = each => each.getBoundingClientRect().left;
                return heads.filter((head, i) => Math.abs(left(head) - left(cells[i])) > 2)
                    .map(head => `not above its column: ${told(head)}`);
            });
            return over.concat(askew);
        }"""
    )
    return found


async def picture(page: Page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=PICTURES / f"{name}.png", full_page=True, animations="disabled")


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_is_for_everybody(house: House, visit: Visit, scene: dict[str, str], name: str) -> None:
    visitor = await visit(house, None if name == "sign-in" else house.admin, viewport=DESK, color_scheme="light")
    if name == "problem":
        visitor.expects("status of 404")
    page = await visitor.go(scene[name])
    found = await findings(page)
    found += await crowded(page)
    await picture(page, f"{name}-light")
    await page.emulate_media(color_scheme="dark")
    found += await findings(page, "color-contrast", "link-in-text-block")
    await picture(page, f"{name}-dark")
    await page.set_viewport_size(PHONE)
    found += await sideways(page)
    found += await crowded(page)
    found += await findings(page, "color-contrast", "target-size", "scrollable-region-focusable")
    await picture(page, f"{name}-phone")
    assert found == [], "\n".join(found)
