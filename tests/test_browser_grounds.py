"""Tables on a phone and charts on a dark ground, in Chromium."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from views.line_styles import COLOURS, ON_DARK

pytestmark = pytest.mark.browser

COLUMNS = """tables => tables.map(table => ({
  first: Math.min(...[...table.rows].map(row => row.cells[0].getBoundingClientRect().width)),
  letter: parseFloat(getComputedStyle(table).fontSize),
  box: table.parentElement.getBoundingClientRect().right,
}))"""


def test_on_a_phone_a_table_scrolls_before_its_first_column_is_a_letter_wide(open_page):
    query = {"lang": "中文"}
    page = open_page("measured", 390, 844, query=query, ready="stVegaLiteChart")
    page.locator(".stMarkdown table").first.wait_for()
    tables = page.locator(".stMarkdown table").evaluate_all(COLUMNS)
    assert tables
    for table in tables:
        assert table["first"] >= 6 * table["letter"]
        assert table["box"] <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_ground_chooses_the_colours_of_a_chart_and_of_its_legend(open_page, scheme):
    page = open_page("scaling", ready="stVegaLiteChart", color_scheme=scheme)
    light = COLOURS["ps"]
    wanted, other = (light, ON_DARK[light]) if scheme == "light" else (ON_DARK[light], light)
    chart = page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first
    chart.wait_for()
    for part in (chart, page.locator("p.legend span", has_text="Central server")):
        assert pixels(part, wanted) > 10
    assert pixels(chart, other) == 0


def pixels(part, colour: str) -> int:
    """How many of a picture of ``part`` have just that colour."""
    picture = np.asarray(Image.open(io.BytesIO(part.screenshot())).convert("RGB"))
    wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return int((picture == wanted).all(axis=2).sum())
