"""The player as one file: plays without a server, asks for nothing, speaks without scripts."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from simcore.units import format_time
from tests.offline import check_counters, moment, opened, scrub_to
from views.lanes import lanes_of
from views.pictures.frame import frame_svg
from views.player import payload, player_script, poster_s
from views.race import Setting, race
from views.standalone import html_page
from views.text import load_text

SETTING = Setting(4, 8 * 2**20, 25e6, frames=True)
THREE = ("ps", "dp", "ring")


def write(tmp_path: Path, language: str = "en", title: str = "The race") -> Path:
    text = load_text(language)
    lanes = lanes_of(race(SETTING, THREE), text)
    start_s = poster_s(lanes[2].trace)
    page = html_page(payload(lanes, text, start_s), title, frame_svg(lanes, start_s, text))
    path = tmp_path / "race.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.mark.browser
def test_plays_from_a_file_without_a_request(browser, tmp_path):
    traces = [run.trace for run in race(SETTING, THREE)]
    total_s = max(trace.time_s for trace in traces)
    with opened(browser, write(tmp_path)) as page:
        page.get_by_test_id("time").wait_for()
        assert page.evaluate("document.documentElement.lang") == "en"
        assert 0 < moment(page) < total_s
        check_counters(page, traces)
        for share in (0.0, 0.31, 0.77):
            scrub_to(page, share)
            check_counters(page, traces)
        page.get_by_test_id("player").focus()
        page.keyboard.press("Home")
        assert moment(page) == 0
        page.keyboard.press("Space")
        page.locator('[data-testid="time"]:not([data-value="0"])').wait_for()
        check_counters(page, traces)
        page.keyboard.press("End")
        assert moment(page) == total_s
        check_counters(page, traces)


@pytest.mark.browser
def test_follows_the_readers_colours_language_and_width(browser, tmp_path):
    with opened(browser, write(tmp_path, "zh"), width=390, color_scheme="dark") as page:
        player = page.get_by_test_id("player")
        page.get_by_test_id("time").wait_for()
        assert page.evaluate("document.documentElement.lang") == "zh-CN"
        assert player.get_attribute("data-scheme") == "dark"
        page.emulate_media(color_scheme="light")
        page.locator('.player[data-scheme="light"]').wait_for()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.browser
def test_says_the_outcome_and_shows_a_frame_where_scripts_are_off(browser, tmp_path):
    with opened(browser, write(tmp_path), java_script_enabled=False) as page:
        for run in race(SETTING, THREE):
            title = load_text("en")(f"strategy.{run.name}")
            line = f"Done: after {format_time(run.time_s)} every GPU holds the sum."
            page.locator("dt", has_text=title).locator("+ dd", has_text=line).wait_for()
        page.get_by_role("img", name="Central server, DataParallel, Ring at").wait_for()
        page.get_by_text("lower bound 526.3 ms", exact=True).wait_for()


@pytest.mark.browser
def test_nothing_in_the_data_or_the_title_becomes_part_of_the_page(browser, tmp_path):
    evil = "</script><script>document.title = 'taken'</script>"
    text = load_text("en")
    lanes = lanes_of(race(SETTING, THREE), text)
    data = payload(lanes, text, 0.0)
    data["lanes"][0]["title"] = evil
    path = tmp_path / "evil.html"
    path.write_text(html_page(data, evil), encoding="utf-8")
    with opened(browser, path) as page:
        page.get_by_test_id("time").wait_for()
        assert page.title() == evil
        page.get_by_role("heading", name=evil, exact=True).first.wait_for()
        assert page.locator("script").count() == 2


class Scripts(HTMLParser):
    """The text of every script element."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside = False

    def handle_starttag(self, tag, attrs):
        assert not {"src", "href", "action"} & {k for k, v in attrs if not v.startswith("data:")}
        self.inside = tag == "script"
        if self.inside:
            self.found.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.found[-1] += data


def test_holds_the_data_as_they_are(tmp_path):
    page = write(tmp_path, "zh", 'Quoted "title" & more').read_text(encoding="utf-8")
    text = load_text("zh")
    lanes = lanes_of(race(SETTING, THREE), text)
    scripts = Scripts()
    scripts.feed(page)
    data, code = scripts.found
    expected = payload(lanes, text, poster_s(lanes[2].trace))
    assert json.loads(data) == json.loads(json.dumps(expected))
    assert code.startswith(player_script())
    assert not re.search(r"</script|<!--", code, re.IGNORECASE)
    assert "<title>Quoted &quot;title&quot; &amp; more</title>" in page
