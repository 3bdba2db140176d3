"""Scaling's views in Chromium: chosen by a click, kept in the address, given away as a figure."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.browser import WAIT_MS, download
from tests.test_accessible import axe, grave  # noqa: F401 - a fixture

pytestmark = pytest.mark.browser


def test_views_follow_each_other_and_stay_in_the_address(open_page):
    page = open_page("scaling", ready="stVegaLiteChart")
    page.get_by_role("radio", name="Map").click()
    page.wait_for_url("**view=map**")
    page.get_by_text("the ring on 68").wait_for()
    page.get_by_role("radio", name="Latency per message × Gradient buffer").click()
    page.wait_for_url("**axes=latency-size**")
    page.get_by_text("Borders run straight").wait_for()
    page.reload()
    page.get_by_text("Borders run straight").wait_for()
    page.get_by_role("radio", name="Pieces").click()
    page.get_by_role("heading", name="Why cut a message into pieces?").wait_for()
    page.get_by_text("fastest in 28 pieces").wait_for()


def test_pointing_at_the_map_tells_who_is_next(open_page):
    page = open_page("scaling", ready="stVegaLiteChart", query={"view": "map"})
    chart = page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first
    chart.wait_for()
    tip = page.locator("#vg-tooltip-element")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.move(box["x"] + 0.76 * box["width"], box["y"] + 0.5 * box["height"])
    tip.get_by_text("Ring, ").wait_for(timeout=WAIT_MS)
    assert "Binomial tree ×" in tip.inner_text()


@pytest.mark.parametrize("query", [{"view": "map"}, {"view": "pieces"}, {"network": "nodes"}])
def test_nothing_serious_is_wrong(open_page, axe, query):  # noqa: F811
    page = open_page("scaling", ready="stVegaLiteChart", query=query)
    page.get_by_test_id("copy").wait_for()
    assert grave(axe, page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.querySelector('[data-testid=stMain]').clientWidth <= 390")
    wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(wider)


@pytest.mark.parametrize("name", ["scaling", "traffic"])
def test_the_figure_is_drawn_by_the_click(open_page, name):
    page = open_page(name, ready="stHeading", query={"lang": "中文"})
    given = download(page, "图（SVG）")
    assert given.suggested_filename.endswith(".svg")
    picture = ElementTree.fromstring(Path(given.path()).read_text(encoding="utf-8"))
    assert picture.tag.endswith("svg")
