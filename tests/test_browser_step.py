"""One training step in a real Chromium: it opens everywhere, in silence, and its bars speak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.browser import download
from views.step.runs import StepChoice, run_step
from views.step.words import time_words

pytestmark = pytest.mark.browser

WAYS = (
    {},
    {"color_scheme": "dark", "query": {"lang": "中文"}},
    {"width": 390, "height": 844, "query": {"a": "ps-dedicated", "b": "fsdp"}},
)


@pytest.mark.parametrize("way", WAYS)
def test_the_page_opens_in_silence_and_fits(open_page, way):
    page = open_page("step", ready="figure", **way)
    page.get_by_test_id("stDownloadButton").nth(2).wait_for()
    assert page.locator('[data-testid="stException"]').count() == 0
    assert page.locator('[data-testid="stAlert"]').count() == 0
    main = page.get_by_test_id("stMain")
    assert main.evaluate("(main) => main.scrollWidth <= main.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    figure = page.get_by_test_id("figure").first
    shown, hidden = ("narrow", "wide") if way.get("width") == 390 else ("wide", "narrow")
    assert figure.locator(f"svg.{shown}").is_visible()
    assert not figure.locator(f"svg.{hidden}").is_visible()
    smallest = figure.locator(f"svg.{shown} text").evaluate_all(
        "texts => Math.min(...texts.map((text) => text.getBoundingClientRect().height))"
    )
    assert smallest >= 10  # pixels: it can be read
    assert figure.get_attribute("data-scheme") == way.get("color_scheme", "light")


def test_bars_are_read_out_by_pointer_and_by_keys(open_page):
    page = open_page("step", ready="figure")
    figure = page.get_by_test_id("figure").first
    readout = figure.locator(".readout")
    hint = readout.inner_text()
    figure.locator("svg.wide g.bar").nth(5).hover()
    figure.locator(".readout.says").wait_for()
    assert " to " in readout.inner_text()
    page.mouse.move(5, 5)
    figure.locator(".readout:not(.says)").wait_for()
    figure.focus()
    told = []
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        told.append(readout.inner_text())
    assert len(set(told)) == 3
    page.keyboard.press("ArrowLeft")
    assert readout.inner_text() == told[1]
    page.keyboard.press("Escape")
    assert readout.inner_text() == hint


def test_a_control_changes_the_sentence_the_picture_and_the_address(open_page):
    page = open_page("step", ready="figure", query={"rate": "10Gbit/s"})
    choice = StepChoice("resnet50", "V100 16GB", 64, 4, rate="10Gbit/s")
    time = time_words(run_step(choice, "ddp").time_s)
    page.get_by_text(f"DDP needs {time} a step").wait_for()
    page.get_by_role("slider", name="GPUs").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**n=5**")
    later = time_words(run_step(replace(choice, gpus=5), "ddp").time_s)
    page.get_by_text(f"DDP needs {later} a step").wait_for()
    figure = page.get_by_test_id("figure").first
    figure.locator("svg.wide", has_text=f"DDP: {later}").wait_for()
    page.get_by_text("中文", exact=True).click()
    figure.locator("svg.wide", has_text="反向").wait_for()
    page.locator("code", has_text="--gpus 5").first.wait_for()  # the files come last
    assert download(page, "CSV").suggested_filename == "step-resnet50-5gpus.csv"
