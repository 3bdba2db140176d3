"""The player as a widget: what Python shows, and the module's contract with a notebook's page."""

from __future__ import annotations

import importlib.util
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from simcore import build_schedule, simulate, uniform
from tests.offline import check_counters, moment, opened, scrub_to
from tests.support import require
from views.lanes import lane_of, lanes_of
from views.player import payload, player_script, poster_s, source_text
from views.race import Setting, race
from views.text import load_text

SETTING = Setting(4, 8 * 2**20, 25e6, frames=True)
THREE = ("ps", "dp", "ring")
WIDGET = "application/vnd.jupyter.widget-view+json"


def play(*arguments):
    found = importlib.util.find_spec("anywidget")
    require("notebooks", None if found else "pip install anywidget")
    from views.widget import play as it

    return it(*arguments)


def test_shows_a_frame_and_words_where_no_widget_can_run():
    runs = race(SETTING, THREE)
    widget = play(runs)
    shown, _ = widget._repr_mimebundle_()
    assert shown[WIDGET]["model_id"] == widget.model_id
    assert ET.fromstring(shown["image/svg+xml"]).tag.endswith("svg")
    title, *lines = shown["text/plain"].splitlines()
    assert title == "Central server, DataParallel, Ring at 131.6 ms"
    assert lines == [
        "Central server: 2.105 s in all. Step 1 of 2: push",
        "DataParallel: 2.105 s in all. Step 1 of 6: gradients in",
        "Ring: 526.3 ms in all. Step 2 of 6: reduce-scatter",
    ]
    text = load_text("en")
    start_s = poster_s(runs[2].trace)
    assert widget.data == payload(lanes_of(runs, text), text, start_s)
    assert widget.moment_s is None


def test_takes_one_or_several_of_whatever_holds_a_run():
    run = simulate(build_schedule("ring", 4), uniform(4, 25e6), 1000)
    inputs = np.arange(4000).reshape(4, 1000)
    lane = lane_of(run, load_text("en"), title="Mine", inputs=inputs)
    for shown, titles in (
        (run, ["Ring"]),
        ([run, run], ["Ring", "Ring"]),
        (race(SETTING, THREE)[0], ["Central server"]),
        ({"a": run}.values(), ["Ring"]),
        (lane, ["Mine"]),
    ):
        assert [lane["title"] for lane in play(shown).data["lanes"]] == titles
    assert play(lane).data == play(lane_of(run, load_text("en"), "Mine"), "en", inputs).data
    cells = play(run, "en", inputs).data["lanes"][0]["cells"]
    assert cells["start"][1][0] == list(range(1000, 1250))
    assert play(run, "zh").data["lang"] == "zh-CN"


@pytest.mark.parametrize("name", ["ps-sharded", "tree", "halving-doubling", "pairwise"])
def test_plays_every_algorithm(name):
    run = simulate(build_schedule(name, 4), uniform(4, 25e6), 1000)
    (lane,) = play(run).data["lanes"]
    phrases = load_text("en").phrases
    wanted = phrases.get(f"phase.{name}.add", phrases["phase.any.add"])
    assert lane["phases"][0]["label"] == wanted


@pytest.mark.parametrize(
    ("shown", "error", "words"),
    [
        (lambda run: [], ValueError, "nothing to show"),
        (lambda run: "ring", TypeError, "str cannot be shown; accepted: what simulate"),
        (lambda run: [run, 3], TypeError, "int cannot be shown"),
        (lambda run: run.trace, TypeError, "Trace cannot be shown"),
    ],
)
def test_says_what_it_takes(shown, error, words):
    run = simulate(build_schedule("ring", 4), uniform(4, 25e6), 1000)
    with pytest.raises(error, match=words):
        play(shown(run))
    totals = simulate(build_schedule("ring", 4), uniform(4, 25e6), 1000, keep="totals")
    with pytest.raises(ValueError, match='keep="totals"'):
        play(totals)
    with pytest.raises(ValueError, match=r"shape \(4, 8\); this run has \(4, 1000\)"):
        play(run, "en", np.zeros((4, 8)))
    doubling = simulate(build_schedule("halving-doubling", 4), uniform(4, 25e6), 8)
    with pytest.raises(ValueError, match="'halving-doubling' sends several chunks"):
        play(doubling, "en", np.zeros((4, 8)))


# What anywidget does with a module: its default export is called without arguments, and render
# with a model and an element. The page is one that somebody else made.
PAGE = """<!doctype html>
<html lang="fr"><head><meta charset="utf-8"><title>A notebook</title>
<style>body {{ --jp-layout-color0: #101418; --jp-content-font-color1: #eeeeee; }}</style></head>
<body data-theme="dark"><button id="theirs">Run</button><div id="output"></div>
<script type="module">
{script}
const state = {state};
const listeners = new Set();
globalThis.log = {{ keys: [], saved: [] }};
globalThis.model = {{
  get: (name) => state[name],
  set: (name, value) => {{ state[name] = value; }},
  save_changes: () => log.saved.push(state.moment_s),
  on: (event, act) => event === "change:data" && listeners.add(act),
  off: (event, act) => event === "change:data" && listeners.delete(act),
  change: (data) => {{ state.data = data; listeners.forEach((act) => act()); }},
  listeners: () => listeners.size,
}};
document.addEventListener("keydown", (event) => log.keys.push(event.key));
const widget = await mount();
globalThis.leave = widget.render({{ model, el: document.getElementById("output") }});
</script></body></html>"""


@pytest.fixture
def notebook(browser, tmp_path):
    text = load_text("en")
    lanes = lanes_of(race(SETTING, THREE), text)
    state = {
        "data": payload(lanes, text, poster_s(lanes[2].trace)),
        "stylesheet": source_text("player.css"),
        "moment_s": None,
    }
    path = tmp_path / "notebook.html"
    words = json.dumps(state).replace("<", r"\u003c")
    path.write_text(PAGE.format(script=player_script(), state=words), encoding="utf-8")
    with opened(browser, path) as page:
        page.get_by_test_id("time").wait_for()
        yield page


@pytest.mark.browser
def test_plays_in_somebody_elses_page(notebook):
    page = notebook
    traces = [run.trace for run in race(SETTING, THREE)]
    check_counters(page, traces)
    scrub_to(page, 0.4)
    check_counters(page, traces)
    assert page.evaluate("document.documentElement.lang") == "fr"
    width = page.locator("#theirs").evaluate("node => node.getBoundingClientRect().width")
    assert width != 34, "the player's own buttons are 34 px wide, theirs are not"
    assert page.get_by_test_id("restart").evaluate("node => node.offsetWidth") == 34


@pytest.mark.browser
def test_tells_python_where_the_clock_was_left(notebook):
    page = notebook
    scrub_to(page, 0.4)
    page.wait_for_function("log.saved.length === 1")
    assert page.evaluate("log.saved[0]") == moment(page)
    assert page.evaluate("model.get('moment_s')") == moment(page)


@pytest.mark.browser
def test_shows_other_data_and_goes_away(notebook):
    page = notebook
    other = race(Setting(3, 2**20, 25e6), THREE)
    text = load_text("zh")
    data = payload(lanes_of(other, text), text, 0.0)
    page.evaluate("data => model.change(data)", data)
    page.get_by_test_id("sent-ring-3").wait_for(state="detached")
    check_counters(page, [run.trace for run in other])
    assert page.locator(".player").get_attribute("lang") == "zh-CN"
    assert page.evaluate("document.documentElement.lang") == "fr"
    page.evaluate("leave()")
    assert page.evaluate("model.listeners()") == 0


@pytest.mark.browser
def test_keeps_its_keys_to_itself_and_leaves_the_notebook_its_own(notebook):
    page = notebook
    page.get_by_test_id("player").focus()
    for key in ("Home", "ArrowRight", "Space"):
        page.keyboard.press(key)
    page.get_by_test_id("play").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("log.keys") == []
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Control+b")
    reached = [key for key in page.evaluate("log.keys") if key not in ("Shift", "Control")]
    assert reached == ["Enter", "b"]
    page.locator("#theirs").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("log.keys").count("ArrowDown") == 1


@pytest.mark.browser
def test_takes_the_notebooks_colours_and_follows_them(notebook):
    page = notebook
    player = page.get_by_test_id("player")
    ground = "node => getComputedStyle(node).backgroundColor"
    assert player.evaluate(ground) == "rgb(16, 20, 24)"
    assert player.get_attribute("data-scheme") == "dark"
    page.evaluate(
        """() => {
          document.body.style.setProperty("--jp-layout-color0", "#ffffff");
          document.body.dataset.theme = "light";
        }"""
    )
    page.locator('.player[data-scheme="light"]').wait_for()
    assert player.evaluate(ground) == "rgb(255, 255, 255)"
