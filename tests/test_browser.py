"""The page in a real Chromium: it plays, and its counters are the engine's at every moment."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.browser import at_rest, download
from views.race import Setting, race

pytestmark = pytest.mark.browser

READ = """player => ({
  t: Number(player.querySelector('[data-testid="time"]').dataset.value),
  text: player.querySelector('[data-testid="time"]').textContent,
  playing: player.querySelector('[data-testid="play"]').dataset.playing === "true",
  bytes: Object.fromEntries([...player.querySelectorAll(".number")].map(
    (node) => [node.dataset.testid, [Number(node.dataset.value), node.textContent]])),
})"""


def read(page):
    """Time and counters of one frame."""
    return page.get_by_test_id("player").evaluate(READ)


def check_counters(shown, runs, decimals=2):
    for run in runs:
        for way, column in zip(("sent", "received"), run.trace.bytes_at(shown["t"]), strict=True):
            ids = [f"{way}-{run.name}-{rank}" for rank in range(run.trace.n)]
            got = [shown["bytes"][name] for name in ids]
            assert np.allclose([value for value, _ in got], column, rtol=1e-9, atol=1e-3), (
                way,
                run,
            )
            words = [f"{nbytes / 2**20:.{decimals}f}" for nbytes in column]
            for (_, word), expected in zip(got, words, strict=True):
                assert abs(float(word) - float(expected)) < 1.5 * 10**-decimals


def scrub_to(page, share):
    page.get_by_test_id("scrub").evaluate(
        "(node, share) => { node.value = share; node.dispatchEvent(new Event('input')); }", share
    )


def wait_for(page, condition):
    """Until the player's reading satisfies a JavaScript ``condition`` on ``r``."""
    page.wait_for_function(
        f"""() => {{
          const hosts = [...document.querySelectorAll("*")].filter((node) => node.shadowRoot);
          const player = hosts.map((h) => h.shadowRoot.querySelector(".player")).find(Boolean);
          const r = player && ({READ})(player);
          return r && ({condition});
        }}"""
    )


def test_counters_are_the_engines_at_rest_by_step_by_scrubbing_and_while_playing(open_page):
    page = open_page()
    runs = race(Setting(4, 8 * 2**20, 25e6))
    total_s = max(run.time_s for run in runs)
    poster = read(page)
    assert 0 < poster["t"] < min(run.time_s for run in runs)
    assert not poster["playing"]
    check_counters(poster, runs)
    for share in (0.0, 0.123, 0.5, 0.77, 1.0):
        scrub_to(page, share)
        shown = read(page)
        assert share * total_s <= shown["t"] <= share * total_s * 1.2  # room for measured marks
        check_counters(shown, runs)
    page.get_by_test_id("restart").click()
    assert read(page)["t"] == 0
    starts = np.unique(np.concatenate([run.trace.spans.start_s for run in runs]))
    page.get_by_test_id("forward").click()
    shown = read(page)
    assert shown["t"] == pytest.approx(starts[1])
    check_counters(shown, runs)
    page.get_by_test_id("back").click()
    assert read(page)["t"] == 0
    page.get_by_test_id("play").click()
    for _ in range(4):
        before = read(page)
        assert before["playing"]
        check_counters(before, runs)
        wait_for(page, f"r.t > {before['t']}")
    page.get_by_test_id("play").click()
    paused = read(page)
    assert not paused["playing"]
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    assert read(page)["t"] == paused["t"]
    page.get_by_test_id("end").click()
    shown = read(page)
    assert shown["t"] == total_s
    check_counters(shown, runs)
    assert page.locator(".lane.finished").count() == len(runs)


def test_keyboard_speed_and_the_end(open_page):
    page = open_page(query={"n": 3})
    page.get_by_test_id("player").focus()
    page.keyboard.press("Home")
    assert read(page)["t"] == 0
    page.keyboard.press("ArrowRight")
    first = read(page)["t"]
    assert first > 0
    page.keyboard.press("ArrowLeft")
    assert read(page)["t"] == 0
    page.get_by_test_id("speed").evaluate(
        "(node) => { node.value = 4; node.dispatchEvent(new Event('input')); }"
    )
    page.get_by_test_id("player").focus()
    page.keyboard.press("Space")
    wait_for(page, "!r.playing && r.t > 0")  # sixteen times as fast: over in half a second
    total_s = max(run.time_s for run in race(Setting(3, 8 * 2**20, 25e6)))
    assert read(page)["t"] == pytest.approx(total_s)
    page.keyboard.press("Home")
    page.keyboard.press("End")
    assert read(page)["t"] == pytest.approx(total_s)


def test_other_settings_keep_it_playing_and_stand_in_the_url(open_page):
    page = open_page()
    page.get_by_test_id("speed").evaluate(
        "(node) => { node.value = -4; node.dispatchEvent(new Event('input')); }"
    )
    page.get_by_test_id("play").click()
    slider = page.get_by_role("slider", name="GPUs")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.get_by_test_id("sent-ring-6").wait_for()
    shown = read(page)
    assert shown["playing"]
    check_counters(shown, race(Setting(7, 8 * 2**20, 25e6)))
    page.wait_for_url("**n=7**")


def test_chinese_in_the_dark(open_page):
    page = open_page(color_scheme="dark")
    assert page.get_by_test_id("player").get_attribute("data-scheme") == "dark"
    assert page.evaluate("document.documentElement.lang") == "en"
    page.get_by_text("中文", exact=True).click()
    page.get_by_role("heading", name="谁最先完成").wait_for()
    page.wait_for_function("document.documentElement.lang === 'zh-CN'")
    page.locator("[data-testid='caption-ring']", has_text="第 2 步，共 6 步：").wait_for()


@pytest.mark.parametrize(
    ("path", "query", "ready"),
    [
        ("", {"n": 4}, "time"),
        ("", {"n": 16}, "time"),
        ("", {"n": 64}, "time"),
        ("ring", {"n": 8, "numbers": 24}, "cells"),
        ("ring", {"n": 16, "numbers": 24}, "cells"),
        ("traffic", {"n": 3}, "stHtml"),
        ("scaling", {"axis": "latency"}, "stVegaLiteChart"),
        ("staleness", {"scale": "lr"}, "stVegaLiteChart"),
    ],
)
def test_a_phone_needs_no_sideways_scrolling(open_page, path, query, ready):
    page = open_page(path, 390, 844, {**query, "lang": "中文"}, ready)
    for folded in page.locator("details > summary").all():
        folded.click()
    too_wide = """() => {
      const roots = [document, ...[...document.querySelectorAll("*")].map((e) => e.shadowRoot)];
      const main = document.querySelector('[data-testid="stMain"]');
      return [document.documentElement.scrollWidth - innerWidth,
        main.scrollWidth - main.clientWidth,
        ...roots.filter(Boolean).flatMap((root) => [...root.querySelectorAll(".player, .player *")])
          .map((node) => node.getBoundingClientRect().right - innerWidth)];
    }"""
    assert max(page.evaluate(too_wide)) <= 0.5


# Where the thumb stands, and the shown time, both as parts of the axis.
THUMB = """(player) => {
  const find = (id) => player.querySelector(`[data-testid=${id}]`);
  const head = new DOMMatrix(player.querySelector(".playhead").style.transform).m41 + 5;
  const scrub = find("scrub");
  const left = parseFloat(scrub.style.marginLeft) + 8, width = parseFloat(scrub.style.width) - 16;
  return [Number(scrub.value), (head - left) / width];
}"""


def test_reduced_motion_shows_only_the_moments_at_which_something_happens(open_page):
    page = open_page(reduced_motion="reduce")
    runs = race(Setting(4, 8 * 2**20, 25e6))
    spans = [run.trace.spans for run in runs]
    events = np.concatenate([[0.0], *(np.r_[s.start_s, s.end_s] for s in spans)])
    poster_s = read(page)["t"]
    assert np.abs(events - poster_s).min() > 1e-3, "it starts between two events"
    page.get_by_test_id("play").click()
    wait_for(page, "r.playing")
    assert read(page)["t"] >= poster_s, "no step back"
    wait_for(page, f"r.t > {poster_s}")
    page.get_by_test_id("play").click()
    page.get_by_test_id("restart").click()
    page.get_by_test_id("play").click()
    for _ in range(3):
        shown = read(page)
        assert np.abs(events - shown["t"]).min() < 1e-9
        check_counters(shown, runs)
        thumb, t_s = page.get_by_test_id("player").evaluate(THUMB)
        assert thumb == pytest.approx(t_s, abs=1e-4), "the thumb stands at the time that is shown"
        wait_for(page, f"r.t > {shown['t']}")


def test_names_for_those_who_do_not_see(open_page):
    page = open_page()
    for name in ("Play", "To the start", "Previous event", "Next event", "To the end"):
        page.get_by_role("button", name=name, exact=True).wait_for()
    page.get_by_role("slider", name="Time", exact=True).wait_for()
    page.get_by_role("region", name="Ring", exact=True).wait_for()
    assert page.get_by_test_id("caption-ps").get_attribute("aria-live") == "polite"
    assert json.dumps(read(page)["bytes"])


def test_the_ring_step_by_step(open_page):
    """From the first page by the navigation; cells by mouse and keyboard; phases; language."""
    page = open_page()
    page.get_by_role("link", name="Ring, step by step").click()
    page.get_by_test_id("cells").wait_for()
    page.get_by_test_id("restart").click()
    cell = page.get_by_test_id("cell-2-3")
    cell.click()
    assert cell.get_attribute("aria-selected") == "true"
    assert cell.get_attribute("aria-label").startswith("GPU 2, chunk 3: [9, 5]; 1 of 4")
    page.keyboard.press("ArrowRight")  # at the edge: stays, and the player does not step
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert read(page)["t"] == 0
    title = page.get_by_test_id("history-title")
    assert title.inner_text() == "History of chunk 1 on GPU 2"
    assert page.locator(".gpu.lit").get_attribute("data-rank") == "2"
    assert page.locator(".gpu-row.lit rect").count() == 12  # six sent, six received
    history = page.get_by_test_id("history").locator("tbody tr")
    assert history.count() == 3
    assert page.get_by_test_id("history").locator("tr.later").count() == 2
    page.get_by_test_id("phase-copy").click()
    times = [0.64e-6 * step for step in range(7)]
    assert read(page)["t"] == pytest.approx(times[3])
    assert page.get_by_test_id("history").locator("tr.later").count() == 1
    assert page.locator(".cells td.done").count() == 4
    assert "to GPU 2" in page.get_by_test_id("caption-ring").inner_text()
    page.get_by_test_id("forward").click()
    assert read(page)["t"] == pytest.approx(times[4])
    assert page.locator(".cells td.done").count() == 8
    page.get_by_test_id("phase-add").click()
    assert read(page)["t"] == 0
    page.get_by_test_id("end").click()
    assert page.locator(".cells td.done").count() == 16
    page.get_by_text("中文", exact=True).click()
    page.get_by_role("heading", name="环形 all-reduce 如何用").wait_for()
    page.get_by_text("GPU 2 上数据块 1 的历史").wait_for()  # the chosen cell stays
    assert download(page, "CSV").suggested_filename == "ring-4x32B.csv"


def test_traffic_follows_its_controls(open_page):
    page = open_page("traffic", ready="stHtml", color_scheme="dark")
    panel = page.locator('[data-algorithm="ps-dedicated"]')
    panel.wait_for()
    assert panel.locator("tbody tr").count() == 8
    slider = page.get_by_role("slider", name="Servers k")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text("5 extra servers move more, 64 MiB").wait_for()
    page.wait_for_url("**servers=5**")
    panel.locator("tbody tr").nth(8).wait_for()
    at_rest(page)
    assert panel.locator("tbody tr").count() == 9
    bars = panel.locator("tbody td.out i").evaluate_all(
        "bars => bars.map((bar) => bar.getBoundingClientRect().width)"
    )
    assert bars[0] == pytest.approx(bars[-1] * 5 / 4, rel=0.05)  # a shard from each of 4 workers
    rows = json.loads(Path(download(page, "JSON").path()).read_text())["rows"]
    assert (
        sum(row["sent_bytes"] for row in rows if row["algorithm"] == "ps-dedicated") == 64 * 2**20
    )


def test_scaling_changes_its_axis_and_its_lines(open_page):
    page = open_page("scaling", ready="stVegaLiteChart")
    page.get_by_text("the central server up to 30.58 KiB").first.wait_for()
    legend = page.locator("p.legend")
    legend.get_by_text("Halving and doubling").wait_for(state="detached")
    page.get_by_role("button", name="Halving and doubling").click()
    legend.get_by_text("Halving and doubling").wait_for()
    page.wait_for_url("**halving-doubling**")
    page.get_by_role("radio", name="GPUs", exact=True).click()
    page.get_by_role("slider", name="GPUs").wait_for(state="detached")
    page.wait_for_url("**axis=gpus**")
    page.get_by_text("With 8 MiB, 25Gbit/s and 20 µs latency per message").first.wait_for()
    page.reload()
    page.get_by_text("With 8 MiB, 25Gbit/s and 20 µs latency per message").first.wait_for()
    legend.get_by_text("Halving and doubling").wait_for()


def test_from_page_to_page_and_back(open_page):
    """The language stays; every page has its own setting, and the way back leads to it."""
    page = open_page(query={"lang": "中文"})
    page.get_by_role("slider", name="GPU 数量").focus()
    page.keyboard.press("End")
    page.wait_for_url("**n=64**")
    page.get_by_role("link", name="环形逐步演示").click()
    page.get_by_test_id("cells").wait_for()
    assert page.locator(".cells tbody tr").count() == 4  # 64 would be refused here
    page.get_by_role("slider", name="GPU 数量").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_test_id("cell-4-4").wait_for()
    page.get_by_role("link", name="扩展规律").click()
    page.get_by_text("30.58 KiB 及以下").first.wait_for()
    page.go_back()
    page.get_by_test_id("cells").wait_for()
    at_rest(page)
    assert page.locator('[data-testid="stException"]').count() == 0
    assert page.locator('[data-testid="stAlert"]').count() == 0
