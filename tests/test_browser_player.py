"""Every control of the player, by mouse and by keyboard, and its words against the engine."""

from __future__ import annotations

import re

import numpy as np
import pytest

from simcore.schedule import Op
from simcore.trace import Lane
from simcore.units import format_rate, format_time
from tests.test_browser import check_counters, read, scrub_to, wait_for
from views.race import Setting, race

pytestmark = pytest.mark.browser

MIB = 2**20
RUNS = race(Setting(4, 8 * MIB, 25e6))
TOTAL_S = max(run.time_s for run in RUNS)


def focused(page):
    """The test id of what has the focus, inside the component too."""
    return page.evaluate(
        """() => {
          let node = document.activeElement;
          while (node?.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
          return node?.dataset.testid ?? null;
        }"""
    )


def keys(page, *names):
    for name in names:
        page.keyboard.press(name)


def test_the_table_of_keys_opens_closes_and_gives_the_focus_back(open_page):
    page = open_page()
    page.get_by_test_id("player").focus()
    keys(page, "?")
    table = page.get_by_role("dialog", name="Keys")
    table.wait_for()
    assert focused(page) == "help-close"
    shown = table.locator("kbd").all_inner_texts()
    assert shown == ["Space", *"←→", "Home", "End", *",.", *"LAG", *"09", *"PN", "?"]
    keys(page, "End", "l", ".")  # they wait until it is closed
    assert read(page)["t"] < TOTAL_S / 2
    assert page.get_by_test_id("loop").get_attribute("aria-pressed") == "false"
    keys(page, "?")
    table.wait_for(state="hidden")
    assert focused(page) == "player"
    page.get_by_test_id("help-open").click()
    table.wait_for()
    keys(page, "Escape")
    table.wait_for(state="hidden")
    assert focused(page) == "help-open"
    keys(page, "Enter")
    page.get_by_test_id("help-close").click()
    table.wait_for(state="hidden")


def test_the_ring_page_tells_of_its_table_too(open_page):
    page = open_page("ring", query={"lang": "中文"}, ready="cells")
    page.get_by_test_id("help-open").click()
    page.get_by_role("dialog", name="快捷键").get_by_text("在数据块表中移动").wait_for()


def test_keys_that_the_player_takes_do_not_reach_the_page_and_others_do(open_page):
    page = open_page()
    page.evaluate("() => { window.got = []; window.onkeydown = (e) => window.got.push(e.key); }")
    page.get_by_test_id("player").focus()
    keys(page, "l", "n", ",", "a", "3", "Home", "?", "?", "Tab", "x")
    assert page.evaluate("window.got") == ["Tab", "x"]
    page.get_by_test_id("gpu").focus()
    keys(page, "l")  # a choice by its letter, in a list
    assert page.get_by_test_id("loop").get_attribute("aria-pressed") == "true", "still as before"


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_loop_starts_again_until_it_is_switched_off(open_page, motion):
    page = open_page(reduced_motion=motion)
    loop = page.get_by_test_id("loop")
    loop.click()
    assert loop.get_attribute("aria-pressed") == "true"
    page.get_by_test_id("player").focus()
    keys(page, *"." * 4, "End", "Space")
    for _ in range(2):
        wait_for(page, f"r.playing && r.t < {TOTAL_S / 2}")
        wait_for(page, f"r.playing && r.t >= {TOTAL_S * 0.999}")
        check_counters(read(page), RUNS)
    keys(page, "l")
    assert loop.get_attribute("aria-pressed") == "false"
    wait_for(page, "!r.playing")
    assert read(page)["t"] == pytest.approx(TOTAL_S)


def test_the_speed_by_keys_and_by_its_slider(open_page):
    page = open_page()
    speed, text = page.get_by_test_id("speed"), page.get_by_test_id("speed-text")
    page.get_by_test_id("player").focus()
    keys(page, ",")
    assert text.inner_text() == "1/2×"
    keys(page, *"." * 9)
    assert text.inner_text() == "16×"
    assert speed.input_value() == "4"
    keys(page, *"," * 20)
    assert text.inner_text() == "1/64×"
    assert speed.get_attribute("aria-valuetext") == "1/64×"
    before = read(page)["t"]
    speed.focus()
    keys(page, "ArrowRight")
    assert text.inner_text() == "1/32×"
    keys(page, "End")
    assert text.inner_text() == "16×"
    assert read(page)["t"] == before, "these arrows are the slider's"
    keys(page, "Space")
    wait_for(page, "!r.playing && r.t > 1")  # and this key is the player's


def test_phases_by_their_buttons_and_by_keys(open_page):
    page = open_page()
    begins = {}
    for run in RUNS:
        spans = run.trace.spans
        sends = spans.lane == Lane.SEND
        for op in Op:
            begins[run.name, str(op)] = spans.start_s[sends & (spans.op == op)].min()
    for run in RUNS:
        lane = page.locator(f'[data-lane="{run.name}"]')
        for op, key in (("copy", "g"), ("add", "a")):
            scrub_to(page, 0.05)
            lane.get_by_test_id(f"phase-{op}").click()
            assert read(page)["t"] == pytest.approx(begins[run.name, op])
            scrub_to(page, 0.05)
            keys(page, key)  # the focus is in this lane
            assert read(page)["t"] == pytest.approx(begins[run.name, op])
    page.get_by_test_id("player").focus()
    keys(page, "g")
    assert read(page)["t"] == pytest.approx(begins["ps", "copy"]), "the first strategy's"


def events_of(rank):
    times = []
    for run in RUNS:
        spans = run.trace.spans
        mine = spans.rank == rank
        times += spans.start_s[mine & (spans.lane == Lane.SEND)].tolist()
        times += spans.end_s[mine & (spans.lane == Lane.RECEIVE)].tolist()
    times = np.sort(times)
    return times[np.r_[times[1:] - times[:-1] > 1e-9, True]]


def lit(page):
    ranks = page.locator("[data-rank].lit").evaluate_all("all => all.map((n) => n.dataset.rank)")
    return {*ranks}


def test_a_gpu_is_chosen_everywhere_and_its_events_followed(open_page):
    page = open_page()
    chooser = page.get_by_test_id("gpu")
    page.get_by_test_id("player").focus()
    keys(page, "Home", "2")
    assert chooser.input_value() == "2"
    assert lit(page) == {"2"}
    shown = []
    for _ in events_of(2)[1:]:
        keys(page, "n")
        shown.append(read(page)["t"])
    assert shown == pytest.approx(events_of(2)[1:].tolist())
    keys(page, "n")
    assert read(page)["t"] == shown[-1], "the last one"
    page.get_by_test_id("gpu_back").click()
    assert read(page)["t"] == pytest.approx(shown[-2])
    page.get_by_test_id("gpu_forward").click()
    assert read(page)["t"] == shown[-1]
    page.locator('[data-lane="ring"] .gpu[data-rank="3"]').click()
    assert chooser.input_value() == "3"
    page.get_by_role("heading", name="Who finishes").hover()
    assert lit(page) == {"3"}, "also when the pointer has left"
    page.locator('[data-lane="dp"] .row[data-rank="1"]').hover()
    assert lit(page) == {"1"}
    chooser.select_option("–")
    page.get_by_role("heading", name="Who finishes").hover()
    assert lit(page) == set()
    chooser.select_option("1")
    assert lit(page) == {"1"}
    scrub_to(page, 0.03)
    assert "to GPU 1," in page.get_by_test_id("caption-ring").inner_text()
    page.get_by_test_id("player").focus()
    keys(page, "9")  # there is none
    assert chooser.input_value() == "1"
    keys(page, "1")
    assert chooser.input_value() == ""
    keys(page, "Home", "n")  # none chosen: GPU 0's
    assert chooser.input_value() == "0"
    assert read(page)["t"] == pytest.approx(events_of(0)[1])


def test_a_cell_chooses_its_gpu_and_a_gpu_its_cells(open_page):
    page = open_page("ring", ready="cells")
    page.get_by_test_id("cell-2-3").click()
    assert page.get_by_test_id("gpu").input_value() == "2"
    page.get_by_test_id("gpu").select_option("1")
    assert page.get_by_test_id("cell-1-3").get_attribute("aria-selected") == "true"
    assert page.get_by_test_id("history-title").inner_text() == "History of chunk 3 on GPU 1"
    page.get_by_test_id("end").click()
    assert lit(page) == {"1"}


def rows_of(page, name):
    rows = page.get_by_test_id(name).locator("tbody tr").all()
    return [row.locator("td").all_inner_texts() for row in rows]


def under_way(run, t_s):
    """What the moment's table should show of a run whose rates do not change."""
    spans = run.trace.spans
    rows = []
    for row in np.flatnonzero(spans.lane == Lane.SEND):
        start, end = spans.start_s[row], spans.end_s[row]
        if start <= t_s < end:
            rate = spans.nbytes[row] / (end - start)
            chunk = str(spans.chunk[row]) if run.schedule.chunks > 1 else "all"
            port = run.simulation.case.cluster.payload_bytes_per_s[0][0]
            share = f"{100 * rate / port:.0f}\u00a0%"
            ends = (spans.step[row] + 1, spans.rank[row], spans.peer[row])
            rows.append([*map(str, ends), chunk, format_rate(rate), share, format_time(end)])
    return sorted(rows)


def test_the_moment_as_a_table_is_the_engines_at_several_moments(open_page):
    page = open_page()
    page.get_by_text("This moment as a table").click()
    for share in (0.0, 0.05, 0.137, 0.4, 0.61, 0.9, 1.0):
        scrub_to(page, share)
        t_s = read(page)["t"]
        for run in RUNS:
            assert sorted(rows_of(page, f"moment-{run.name}")) == under_way(run, t_s)
            sent, received = run.trace.bytes_at(t_s)
            expected = [
                [str(rank), f"{sent[rank] / MIB:.2f}", f"{received[rank] / MIB:.2f}"]
                for rank in range(4)
            ]
            assert rows_of(page, f"moment-bytes-{run.name}") == expected
    title = page.get_by_test_id("moment-ring").locator("caption")
    scrub_to(page, 0.05)
    before = title.inner_text()
    assert before.startswith("Ring at ")
    page.get_by_test_id("play").click()
    wait_for(page, f"r.t > {0.08 * TOTAL_S}")
    assert title.inner_text() == before, "it costs a running player nothing"
    page.get_by_test_id("play").click()
    assert title.inner_text() != before
    assert rows_of(page, "moment-ps") == under_way(RUNS[0], read(page)["t"])


def test_the_counters_are_a_table_to_assistive_technology(open_page):
    page = open_page()
    table = page.get_by_role("table", name="Ring: bytes of every GPU").first
    assert table.get_by_role("columnheader").all_inner_texts() == [
        *("GPU", "sent, MiB", "received, MiB")
    ]
    assert table.get_by_role("row").count() == 5
    assert table.get_by_role("cell").count() == 8


def test_captions_say_the_engines_numbers_at_several_moments(open_page):
    page = open_page()
    checked = 0
    for share in (0.02, 0.06, 0.11, 0.2, 0.3, 0.5, 0.7, 0.85):
        scrub_to(page, share)
        t_s = read(page)["t"]
        for run in RUNS:
            spans = run.trace.spans
            now = (spans.lane == Lane.SEND) & (spans.start_s <= t_s) & (t_s < spans.end_s)
            caption = page.get_by_test_id(f"caption-{run.name}").inner_text()
            if not now.any():
                assert caption.startswith(f"Done: after {format_time(run.time_s)}")
                continue
            step = int(spans.step[now].min())
            assert caption.startswith(f"Step {step + 1} of {run.schedule.n_steps}: ")
            if found := re.search(r"GPU (\d) sends .* to GPU (\d)", caption):
                src, dst = map(int, found.groups())
                row = np.flatnonzero(now & (spans.rank == src) & (spans.peer == dst))[0]
                if found := re.search(r"chunk (\d)", caption):
                    assert int(found[1]) == spans.chunk[row]
                if found := re.search(r"\((\d) of 4 contributions\)", caption):
                    arrived = spans.op[row] == Op.ADD
                    assert arrived
                    assert int(found[1]) == step + 2, "one more with every step"
            else:
                assert re.search(r"(push to|pull the sum from) GPU 0", caption)
                assert "33\u00a0% of it for each" in caption
            checked += 1
    assert checked > 12


def test_sixty_four_gpus_are_the_engines_where_blocks_end(open_page):
    lines = ("ps", "dp", "ring")
    page = open_page(query={"n": 64, "lines": lines})
    runs = race(Setting(64, 8 * MIB, 25e6), lines)
    page.get_by_text("This moment as a table").click()
    page.get_by_test_id("gpu").select_option("40")
    note = "drawn in blocks of up to 2 steps"
    page.locator(".legend").get_by_text(note).wait_for()
    page.get_by_test_id("restart").click()
    ring = runs[2]
    for block in range(1, 4):
        page.get_by_test_id("gpu_forward").click()
        t_s = read(page)["t"]
        assert t_s == pytest.approx(2 * block * ring.time_s / 126)
        for run in runs:
            sent, received = run.trace.bytes_at(t_s * (1 + 1e-12))
            expected = [
                [str(rank), f"{sent[rank] / MIB:.2f}", f"{received[rank] / MIB:.2f}"]
                for rank in range(64)
            ]
            assert rows_of(page, f"moment-bytes-{run.name}") == expected
    assert len(rows_of(page, "moment-ring")) == 64
    assert rows_of(page, "moment-ring")[0][0] == "7–8"
    caption = page.get_by_test_id("caption-ring").inner_text()
    assert caption.startswith("Steps 7–8 of 126: 64 of 64 GPUs are passing chunks on.")
    assert "to GPU 40," in caption
    each = page.get_by_test_id("sent-ring").inner_text()
    assert each == f"each GPU {ring.trace.bytes_at(t_s)[0][0] / MIB:.2f}"
    page.get_by_test_id("end").click()
    assert page.get_by_test_id("sent-ps").inner_text() == "GPU 0: 504.00 · others 8.00"


def test_sixteen_gpus_step_by_step_name_all_contributions(open_page):
    page = open_page("ring", query={"n": 16, "numbers": 16}, ready="cells")
    page.get_by_test_id("phase-copy").click()
    cell = page.get_by_test_id("cell-15-0")  # chunk 0 went from GPU 0 all the way round to here
    cell.click()
    assert cell.locator(".who").inner_text() == "16"
    label = cell.get_attribute("aria-label")
    names = ", ".join(map(str, range(15, -1, -1)))
    assert label.endswith(f"16 of 16 contributions: GPU {names}")
    history = page.get_by_test_id("history").locator("tbody tr").nth(1)
    assert history.locator("td").last.inner_text() == names.replace(", ", "·")
