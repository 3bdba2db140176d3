"""Scaling's map, its pieces and its nodes, as the page shows them and the address asks for them."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import shlex
import subprocess
from dataclasses import replace

import pytest

from app_pages.race import LATENCIES, RATES, SIZES
from app_pages.scaling import DEFAULT_LINES, MAX_GPUS, MAX_NODES, VIEWS, build
from simcore.__main__ import main
from simcore.units import parse_bytes, parse_rate, parse_time
from tests.test_app import open_page, words
from tests.test_exports import printed, snippet
from views.race import Setting
from views.scaling.curves import Scaling, headline, place, stretches
from views.scaling.lines import LINES, time_s
from views.scaling.pieces import Pieces
from views.scaling.winners import PAIRS, Winners, cells, rows, table_rows
from views.scaling.winners import headline as map_headline
from views.text import LANGUAGES, load_text

MIB = 2**20
BASE = Setting(8, 8 * MIB, parse_rate("25Gbit/s"), 20e-6)


def spec_of(app) -> dict:
    (element,) = app.get("vega_lite_chart") or app.get("arrow_vega_lite_chart")
    return json.loads(element.proto.spec)


def test_the_map_names_who_wins_where():
    app = open_page("scaling", view="map")
    assert not app.exception
    assert not app.info
    winners = Winners("size", "gpus", DEFAULT_LINES["flat"], BASE)
    assert map_headline(winners, rows(winners), load_text("en")) in words(app)
    assert spec_of(app)["height"] == 440
    assert app.title[0].value == "Which algorithm wins where?"
    for row in table_rows(winners, cells(winners), load_text("en")):
        assert f"| {' | '.join(row)} |" in words(app)


def test_the_pieces_name_the_best():
    app = open_page("scaling", view="pieces")
    assert not app.exception
    assert app.title[0].value == "Why cut a message into pieces?"
    assert "is fastest in 28 pieces: 3.94 ms, 4.8 times as fast as in one." in words(app)
    assert "√((n-2)·S/(α·B)) = 28.38" in words(app)
    assert "| **28** | **3.26 ms** | **680 µs** | **3.94 ms** |" in words(app)
    assert not app.pills
    assert len(spec_of(app)["layer"]) == 7


def test_nodes_change_the_winner():
    app = open_page("scaling", network="nodes", axis="gpus")
    assert not app.exception
    assert "the fastest everywhere: rings in and across nodes." in words(app)
    found = Scaling("gpus", DEFAULT_LINES["nodes"], BASE, "nodes")
    assert headline(found, stretches(found), load_text("en")) in words(app)
    assert [part.names for part in stretches(found)] == [("hierarchical",)]
    flat = Scaling("gpus", ("ring", "ps", "tree"), BASE)
    assert [part.names for part in stretches(flat)] == [("ring",)]


LOOP = re.compile(r"for (\w+) in ([^;]*);")
EXTREMES = [
    {"n": "2", "size": SIZES[0], "rate": RATES[-1], "latency": LATENCIES[0], "frames": "true"},
    {"n": str(MAX_GPUS), "size": SIZES[-1], "rate": RATES[0], "latency": LATENCIES[-1]},
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("query", EXTREMES)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_map_at_its_extremes(language, query, pair):
    own = {"gpus": "n", "size": "size", "bandwidth": "rate", "latency": "latency"}
    hidden = [own[axis] for axis in pair.split("-")]
    asked = {key: value for key, value in query.items() if key not in hidden}
    app = open_page("scaling", view="map", axes=pair, **asked, lang=LANGUAGES[language])
    assert not app.exception
    assert not app.info
    assert not [w for w in (*app.slider, *app.select_slider) if w.key in hidden]
    setting = Setting(
        int(query["n"]),
        parse_bytes(query["size"]),
        parse_rate(query["rate"]),
        parse_time(query["latency"]),
        query.get("frames") == "true",
    )
    winners = Winners(*pair.split("-"), DEFAULT_LINES["flat"], setting)
    text = load_text(language)
    for row in table_rows(winners, cells(winners), text):
        assert f"| {' | '.join(row)} |" in words(app)
    assert app.main[1].markdown[0].value == map_headline(winners, rows(winners), text)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("query", EXTREMES)
def test_the_pieces_at_their_extremes(language, query):
    app = open_page("scaling", view="pieces", **query, lang=LANGUAGES[language])
    assert not app.exception
    assert not app.info
    assert "{" not in words(app)


@pytest.mark.parametrize("view", ["curves", "map"])
@pytest.mark.parametrize("nodes", [1, MAX_NODES])
@pytest.mark.parametrize("language", LANGUAGES)
def test_nodes_at_their_extremes(language, nodes, view):
    every = {"node_lines": LINES["nodes"]} | ({"axes": "latency-size"} if view == "map" else {})
    app = open_page(
        "scaling",
        view=view,
        network="nodes",
        nodes=str(nodes),
        lang=LANGUAGES[language],
        **every,
    )
    assert not app.exception
    assert not app.info
    assert load_text(language)("scaling.in_nodes") in words(app)
    assert load_text(language)("scaling.note_nodes") in words(app)


@pytest.mark.parametrize(
    "bad",
    [
        {"view": "maps"},
        {"view": "map", "axes": "size-size"},
        {"view": "map", "axes": "size"},
        {"network": "node"},
        {"network": "nodes", "nodes": "9"},
        {"network": "nodes", "node_lines": "pairwise"},
        {"view": "pieces", "n": "33"},
        {"view": "pieces", "latency": "1"},
    ],
)
def test_a_bad_value_falls_back_with_a_notice(bad):
    app = open_page("scaling", **bad)
    assert not app.exception
    key, value = list(bad.items())[-1]
    assert app.info[0].value.startswith(f"In the address, `{key}={value}` is not")


def test_one_view_after_the_other_keeps_what_they_share():
    app = open_page("scaling", n="16", view="map", axes="latency-size")
    for view in (*VIEWS, "map"):
        app.segmented_control(key="view").set_value(view).run()
        assert not app.exception
        assert not app.info
        (gpus,) = [slider for slider in app.slider if slider.key == "n"]
        assert gpus.value == 16
    app.segmented_control(key="network").set_value("nodes").run()
    app.segmented_control(key="network").set_value("flat").run()
    assert not app.exception
    assert not app.info


@pytest.mark.parametrize("network", LINES)
@pytest.mark.parametrize("pair", ["size-gpus", "latency-bandwidth"])
def test_the_map_s_files_and_commands_give_its_numbers(
    pair, network, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    lines = ("ring", "hierarchical", "halving-doubling")
    base = Setting(16, MIB, 125e6, 8e-6)
    winners = Winners(*pair.split("-"), lines, base, network)
    page = build(winners, "en")
    shown = list(csv.DictReader(io.StringIO(page.exports.files["csv"])))
    assert len(shown) == len(winners.xs) * len(winners.ys)
    ran = set()
    for line in page.exports.commands.splitlines():
        loops = {variable: values.split() for variable, values in LOOP.findall(line)}
        command = line.split("do ")[-1].split("; done")[0]
        for chosen in list(itertools.product(*loops.values()))[::29]:
            here = dict(zip(loops, chosen, strict=True))
            x = winners.xs[loops["x"].index(here["x"])]
            by_number = winners.up == "gpus"
            y = int(here["y"]) if by_number else winners.ys[loops["y"].index(here["y"])]
            wanted = time_s(here["name"], winners.along(y).at(x), network)
            assert run_line(command, here, capsys)["time_s"] == pytest.approx(wanted, rel=1e-6)
            ran.add(here["name"])
    assert ran == set(lines)


def run_line(command: str, here: dict[str, str], capsys) -> dict:
    """One turn of a loop: the shell writes the nodes' file, the command runs in this process."""
    if "&&" in command:
        before, command = command.split(" && ")
        setting = "; ".join(f"{variable}={value}" for variable, value in here.items())
        subprocess.run(["sh", "-c", f"{setting}; {before}"], check=True)
    for variable, value in here.items():
        command = command.replace(f"${variable}", value)
    assert main([*shlex.split(command)[3:], "--json"]) == 0
    answer: dict = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.parametrize("query", [{"view": "map"}, {"view": "map", "network": "nodes"}])
def test_the_map_s_snippet_prints_its_table_and_its_borders(query):
    app = open_page("scaling", **query)
    lines = printed(snippet(app))
    table = [line for line in lines if "; " in line]
    assert [f"| {line.replace('; ', ' | ')} |" for line in table] == [
        line for line in words(app).splitlines() if re.match(r"\| \d+ \|", line)
    ]
    network = query.get("network", "flat")
    found = rows(Winners("size", "gpus", DEFAULT_LINES[network], BASE, network))
    borders = [line for line in lines if "; " not in line]
    assert len(borders) == len(found)
    for line, row in zip(borders, found, strict=True):
        assert line.count(" up to ") == len(row.parts)
        assert all(place("size", part.end) in line for part in row.parts)


def test_the_commands_of_pieces_give_their_times(capsys):
    pieces = Pieces(replace(BASE, gpus=5, size_bytes=65536))
    page = build(pieces, "en")
    (line,) = page.exports.commands.splitlines()
    _, places, command = re.fullmatch(r"for (x) in ([^;]*); do (.*); done", line).groups()
    for count in places.split()[::4]:
        answer = run_line(command, {"x": count}, capsys)
        assert answer["time_s"] == pytest.approx(float(pieces.time_s(int(count))), rel=1e-9)
