"""The past forked in a real Chromium: by mouse, by keyboard, on two pages, and back again."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from simcore import parse_slow_link
from simcore.units import format_time
from tests.test_browser import read, scrub_to, wait_for
from views.race import Setting, race
from views.ring import RingSetting, ring_run
from views.whatif.troubles import Base, Straggler, what_if

pytestmark = pytest.mark.browser

WHATIF = what_if(Base(4, 8 * 2**20, 25e6), Straggler(1, 0.2), ("ps", "ring", "ps-sharded"))
RACE = race(Setting(4, 8 * 2**20, 25e6))


def asked(page) -> list[str]:
    """The changes in the address."""
    return parse_qs(urlsplit(page.url).query).get("change", [])


def changes(page, count: int) -> list[str]:
    """Those in the address, once the player shows so many."""
    page.wait_for_function(
        """count => [...document.querySelectorAll("*")].filter((node) => node.shadowRoot)
          .some((host) => host.shadowRoot.querySelector(".player")
            && host.shadowRoot.querySelectorAll('[data-testid="change-mark"]').length === count)""",
        arg=count,
    )
    page.wait_for_function(
        "count => new URLSearchParams(location.search).getAll('change').length === count",
        arg=count,
    )
    return asked(page)


def ghost_s(page, name: str) -> float:
    return float(page.get_by_test_id(f"ghost-{name}").get_attribute("data-time"))


def ends(page, runs) -> None:
    """The lanes are done when the simulation says, as the counters and the captions show."""
    page.get_by_test_id("end").click()
    assert read(page)["t"] == pytest.approx(max(run.trace.time_s for run in runs))
    for run in runs:
        caption = page.get_by_test_id(f"caption-{run.trace.name}").inner_text()
        assert format_time(run.trace.time_s) in caption


def test_a_gpu_stalls_and_the_new_future_is_drawn_beside_the_old_one(open_page):
    page = open_page("whatif")
    for pair in WHATIF:
        assert ghost_s(page, pair.name) == pair.before.trace.time_s
    scrub_to(page, 0.2)
    page.get_by_test_id("fork").click()
    page.locator('[data-lane="ring"] .gpu[data-rank="2"]').click()
    assert page.get_by_test_id("fork-gpu").input_value() == "2"
    page.get_by_test_id("fork-for_s").select_option(label="500 ms")
    stood = read(page)
    page.get_by_test_id("fork_apply").click()
    (spelt,) = changes(page, 1)
    change = parse_slow_link(spelt)
    assert (change.link, change.factor) == ("gpu2", 0)
    assert change.from_s == pytest.approx(stood["t"], rel=1e-5)
    assert change.until_s - change.from_s == pytest.approx(0.5, rel=1e-4)
    shown = read(page)
    assert shown["t"] == stood["t"]  # the clock does not jump, and the past is the same
    for name, (nbytes, words) in stood["bytes"].items():
        assert shown["bytes"][name] == [pytest.approx(nbytes, rel=1e-12), words]
    after = [pair.after.fork(change.from_s, [change]) for pair in WHATIF]
    for pair in WHATIF:
        assert ghost_s(page, pair.name) == pair.after.trace.time_s
    late_s = after[1].trace.time_s - WHATIF[1].after.trace.time_s
    assert f"Ring: +{format_time(late_s)}" in page.get_by_test_id("fork-summary").inner_text()
    page.get_by_test_id("speed").evaluate(
        "(node) => { node.value = 4; node.dispatchEvent(new Event('input')); }"
    )
    page.get_by_test_id("play").click()  # on, into the new future
    wait_for(page, "!r.playing && r.t > 1")
    ends(page, after)
    page.get_by_test_id("fork_undo").click()
    assert changes(page, 0) == []
    for pair in WHATIF:
        assert ghost_s(page, pair.name) == pair.before.trace.time_s
    ends(page, [pair.after for pair in WHATIF])


def test_by_keyboard_on_the_race_and_the_focus_stays(open_page):
    page = open_page()
    page.get_by_test_id("fork").focus()
    page.keyboard.press("Enter")
    focused = "document.activeElement.shadowRoot.activeElement.dataset.testid"
    assert page.evaluate(focused) == "fork-kind"
    at_s = read(page)["t"]
    page.keyboard.press("End")  # the last kind: a link is cut
    assert page.get_by_test_id("fork-kind").input_value() == "cut"
    assert page.evaluate(focused) == "fork-kind"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # from GPU 1
    page.keyboard.press("Tab")
    page.keyboard.press("End")  # to GPU 3
    page.keyboard.press("Tab")
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "fork_apply"
    assert read(page)["t"] == at_s  # none of these keys was the player's
    page.keyboard.press("Enter")
    (first,) = changes(page, 1)
    assert parse_slow_link(first).link == "gpu1->gpu3"
    assert page.evaluate(focused) == "fork_apply"
    assert page.get_by_text("no change").count() == 1
    page.get_by_test_id("fork-src").select_option("1")
    page.get_by_test_id("fork-dst").select_option("2")
    page.get_by_test_id("fork_apply").focus()
    page.keyboard.press("Enter")
    both = changes(page, 2)
    assert both[0] == first
    slow = [parse_slow_link(spelt) for spelt in both]
    after = [run.simulation.fork(slow[0].from_s, slow) for run in RACE]
    ends(page, after)
    assert after[2].trace.time_s > RACE[2].time_s
    page.get_by_test_id("fork_undo").focus()
    page.keyboard.press("Enter")
    assert changes(page, 1) == [first]
    page.get_by_test_id("fork_undo").focus()
    page.keyboard.press("Enter")
    changes(page, 0)
    assert page.evaluate(focused) == "fork"  # there is nothing left to undo, nor to change
    ends(page, [run.simulation for run in RACE])


def test_a_click_chooses_a_link_and_another_its_way_back(open_page):
    page = open_page("whatif", query={"what": "half-duplex"})
    page.get_by_test_id("fork").click()
    kinds = page.get_by_test_id("fork-kind").locator("option")
    assert kinds.evaluate_all("nodes => nodes.map((node) => node.value)") == [
        "stall",
        "port",
        "link",
        "cut",
    ]  # a port has one direction only
    ring = page.locator('[data-lane="ring"]')
    ring.locator('[data-link="2>3"]').click()

    def chosen():
        return [page.get_by_test_id(f"fork-{key}").input_value() for key in ("kind", "src", "dst")]

    assert chosen() == ["link", "2", "3"]
    assert ring.locator('[data-link="2>3"].to-change').count() == 1
    server = page.locator('[data-lane="ps"]')
    server.locator('[data-link="3>0"], [data-link="0>3"]').last.click()
    first = chosen()
    assert sorted(first[1:]) == ["0", "3"]
    server.locator('[data-link="3>0"], [data-link="0>3"]').last.click()
    assert chosen() == ["link", first[2], first[1]]
    page.get_by_test_id("fork-kind").select_option("cut")
    ring.locator('[data-link="1>2"]').click()
    assert chosen() == ["cut", "1", "2"]
    ring.locator('.gpu[data-rank="3"]').click()
    assert page.get_by_test_id("fork-kind").input_value() == "stall"
    assert page.get_by_test_id("fork-gpu").input_value() == "3"
    assert page.locator(".gpu.to-change").count() == 3  # in every network
    page.get_by_test_id("fork").click()
    assert page.get_by_test_id("fork-panel").is_hidden()
    assert page.locator(".gpu.to-change").count() == 0


def test_the_address_holds_the_changes_through_reload_and_language(open_page):
    spelt = ["gpu2:0@0.1s..0.3s", "gpu0.rx:4@0.4s.."]
    page = open_page(query=[("change", one) for one in spelt])
    assert changes(page, 2) == spelt
    page.get_by_test_id("fork").click()
    scrub_to(page, 0.5)
    at_s = read(page)["t"]
    page.get_by_text("中文", exact=True).click()
    page.get_by_text("停在这里，改点什么").wait_for()
    assert changes(page, 2) == spelt
    assert read(page)["t"] == at_s
    assert page.get_by_test_id("fork-panel").is_visible()
    assert "GPU 2 停住" in page.get_by_test_id("forked").inner_text()
    page.get_by_test_id("fork_clear").click()
    assert changes(page, 0) == []
    page.get_by_test_id("fork_apply").click()
    (one,) = changes(page, 1)
    page.reload()
    page.get_by_test_id("time").first.wait_for()
    assert changes(page, 1) == [one]
    after = [run.simulation.fork(0.0, [parse_slow_link(one)]) for run in RACE]
    page.get_by_test_id("end").click()
    assert read(page)["t"] == pytest.approx(max(run.trace.time_s for run in after))


TOO_WIDE = """() => {
  const roots = [document, ...[...document.querySelectorAll("*")].map((e) => e.shadowRoot)];
  const main = document.querySelector('[data-testid="stMain"]');
  return [document.documentElement.scrollWidth - innerWidth, main.scrollWidth - main.clientWidth,
    ...roots.filter(Boolean).flatMap((root) => [...root.querySelectorAll(".player, .player *")])
      .map((node) => node.getBoundingClientRect().right - innerWidth)];
}"""


@pytest.mark.parametrize("language", ["English", "中文"])
@pytest.mark.parametrize("what", ["straggler", "uplink"])
def test_a_phone_shows_the_panel_and_both_futures(open_page, what, language):
    query = {"what": what, "lang": language, "change": "gpu1->gpu2:0@0.1s..0.9s"}
    page = open_page("whatif", 390, 844, query)
    page.get_by_test_id("fork").click()
    page.get_by_test_id("fork-kind").select_option("link")
    assert max(page.evaluate(TOO_WIDE)) <= 0.5
    assert page.get_by_test_id("ghost-ring").count() == 1


def stroke(page, selector: str) -> tuple[str, float]:
    """Colour, and width in pixels of the screen."""
    return tuple(
        page.locator(selector).evaluate(
            """(node) => [getComputedStyle(node).stroke,
              parseFloat(node.getAttribute("stroke-width"))]"""
        )
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_full_while_others_wait_is_seen_at_a_glance(open_page, scheme):
    """A slow link is the widest and the only orange one; so are uplinks, in boxes of their own."""
    query = {"what": "slow-link", "lines": "ring", "n": "8"}
    page = open_page("whatif", query=query, color_scheme=scheme)
    hot = '[data-lane="ring"] .flow.hot'
    assert page.locator(hot).count() == 1
    colour, width = stroke(page, hot)
    assert page.locator('[data-lane="ring"] .hub-label:not(:empty)').text_content() == "100\u00a0%"
    others = page.locator('[data-lane="ring"] .flow:visible:not(.hot)')
    for other in others.all():
        assert float(other.get_attribute("stroke-width")) < width
        assert other.evaluate("(node) => getComputedStyle(node).stroke") != colour
    page.get_by_text("Nodes share an uplink").click()
    lane = '[data-lane="ring-scattered"]'
    page.locator(f"{lane} .uplink.hot").first.wait_for()
    names = [
        bar.get_attribute("data-uplink") for bar in page.locator(f"{lane} [data-uplink]").all()
    ]
    assert names == ["node0.up", "node0.down", "node1.up", "node1.down"]
    assert page.locator(f"{lane} .uplink.hot").count() == 4
    assert page.locator(f"{lane} .box").count() == 2
    fill = page.locator(f"{lane} .uplink.hot").first.evaluate("(n) => getComputedStyle(n).fill")
    assert fill == colour


def test_the_rings_numbers_stay_right_when_its_past_is_forked(open_page):
    page = open_page("ring", query={"t": "1us"})
    page.get_by_test_id("fork").click()
    page.get_by_test_id("fork_apply").click()
    (change,) = changes(page, 1)
    setting = RingSetting(4, 8, 12.5e6)
    before = ring_run(setting).simulation
    after = before.fork(1e-6, [parse_slow_link(change)])
    ends(page, [after])
    assert ghost_s(page, "ring") == before.trace.time_s
    sums = setting.inputs().sum(axis=0)
    for rank in range(4):
        values = page.get_by_test_id(f"cell-{rank}-3").locator(".values").inner_text()
        assert values == " ".join(map(str, sums[6:]))
