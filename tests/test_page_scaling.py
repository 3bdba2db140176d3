"""Scaling: lines are the engine's, the fastest is named rightly, records lie where they belong."""

from __future__ import annotations

import csv
import io
import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

from app_pages.race import LATENCIES, RATES, SIZES
from app_pages.scaling import DEFAULT_LINES as DEFAULTS
from app_pages.scaling import MAX_GPUS, build
from simcore.__main__ import main
from simcore.algorithms import build_schedule
from simcore.cost import closed_form
from simcore.engine import simulate
from simcore.measured.records import load_records
from simcore.units import format_time, parse_bytes, parse_rate, parse_time
from tests.test_app import open_page, words
from views.line_styles import COLOURS, DASHES, HATCHES, SHAPES, legend_html
from views.race import Setting
from views.scaling.chart import chart
from views.scaling.curves import AXES, TIE, Scaling, headline, place, stretches
from views.scaling.lines import LINES as LINES_OF
from views.scaling.lines import time_s
from views.scaling.rows import export_rows, measured_points, table_rows
from views.text import LANGUAGES, load_text

LINES = LINES_OF["flat"]
DEFAULT_LINES = DEFAULTS["flat"]
MIB = 2**20
BASE = Setting(8, 8 * MIB, parse_rate("25Gbit/s"), 20e-6)
SHIPPED = Setting(4, 8 * MIB, parse_rate("200Mbit/s"), frames=True)


def spec_of(app) -> dict:
    (element,) = app.get("vega_lite_chart") or app.get("arrow_vega_lite_chart")
    return json.loads(element.proto.spec)


def test_the_untouched_page_names_where_the_fastest_changes():
    app = open_page("scaling")
    assert not app.exception
    scaling = Scaling("size", DEFAULT_LINES, BASE)
    found = stretches(scaling)
    assert [part.names for part in found] == [("ps",), ("tree",), ("ring",)]
    assert headline(scaling, found, load_text("en")) in words(app)
    assert spec_of(app)["height"] == 420
    for part in found[:-1]:
        assert place("size", part.end) in words(app)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("lines", [("ring",), DEFAULT_LINES, LINES])
@pytest.mark.parametrize("base", [BASE, replace(BASE, gpus=5, size_bytes=65536), SHIPPED])
def test_stretches_are_where_nothing_shown_is_faster(axis, lines, base):
    scaling = Scaling(axis, lines, base)
    found = stretches(scaling)
    ends = [part.end for part in found]
    assert ends == sorted(set(ends))
    assert ends[-1] == scaling.xs[-1]
    begin = scaling.xs[0]
    for part in found:
        places = [x for x in scaling.xs if begin <= x <= part.end]
        for x in [*places, part.end]:
            least = min(scaling.time_s(name, x) for name in lines)
            for name in part.names:
                assert scaling.time_s(name, x) <= least * (1 + TIE)
        begin = part.end * 1.0011 if axis != "gpus" else part.end + 1
    for language in LANGUAGES:
        sentence = headline(scaling, found, load_text(language))
        assert "{" not in sentence
        assert sentence.endswith((".", "。"))


def test_a_crossing_is_where_the_formulas_meet():
    """2(α + 7 S/B) = 14(α + S/8/B) at S = 12 α B / 12.25."""
    base = replace(BASE, frames=False)
    first, _ = stretches(Scaling("size", ("ring", "ps"), base))
    assert first.end == pytest.approx(12 * base.latency_s * base.bytes_per_s / 12.25, rel=2e-3)
    gpus = Scaling("gpus", ("ring", "ps"), Setting(2, 32768, 3.125e9, 20e-6, frames=False))
    first, second = stretches(gpus)
    n = np.arange(2, 65)
    ring_s = 2 * (n - 1) * (20e-6 + np.ceil(32768 / 4 / n) * 4 / 3.125e9)
    server_s = 2 * (20e-6 + (n - 1) * 32768 / 3.125e9)
    assert (first.names, second.names) == (("ring",), ("ps",))
    assert first.end == n[ring_s <= server_s * (1 + TIE)].max()


@pytest.mark.parametrize("name", LINES)
def test_lines_are_the_engines_and_the_closed_forms(name):
    at = replace(BASE, gpus=6, size_bytes=MIB)
    flags = {
        "ps-dedicated": {"servers": 6},
        "double-tree": {"pieces": 8},
        "hierarchical": {"gpus_per_node": 3},
    }.get(name, {})
    schedule = build_schedule(name, 6, **flags)
    cluster = replace(at, gpus=schedule.n).cluster()
    run = simulate(schedule, cluster, MIB // 4)
    assert time_s(name, at) == pytest.approx(run.trace.time_s, rel=1e-11)
    form = closed_form(name, cluster, MIB // 4, **flags)
    if form:
        assert time_s(name, at) == pytest.approx(form.time_s)


def test_no_line_without_extra_servers_is_below_the_bound():
    for axis in AXES:
        scaling = Scaling(axis, LINES, BASE)
        for x in scaling.xs:
            for name in LINES:
                if name != "ps-dedicated":
                    assert scaling.time_s(name, x) >= scaling.bound_s(x) * (1 - 1e-9)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize(
    ("n", "size", "rate", "latency", "frames"),
    [
        ("2", SIZES[0], RATES[-1], LATENCIES[0], "false"),
        (str(MAX_GPUS), SIZES[-1], RATES[0], LATENCIES[-1], "true"),
    ],
)
def test_the_page_at_its_extremes(language, axis, n, size, rate, latency, frames):
    query = {"n": n, "size": size, "rate": rate, "latency": latency, "frames": frames}
    own = {"gpus": "n", "size": "size", "bandwidth": "rate", "latency": "latency"}[axis]
    del query[own]
    app = open_page("scaling", axis=axis, **query, lang=LANGUAGES[language])
    assert not app.exception
    assert not app.info
    given = (int(n), parse_bytes(size), parse_rate(rate), parse_time(latency), frames == "true")
    scaling = Scaling(axis, DEFAULT_LINES, Setting(*given))
    text = load_text(language)
    found, points = stretches(scaling), measured_points(scaling, load_records())
    for row in table_rows(scaling, points, text):
        assert f"| {' | '.join(row)} |" in words(app)
    own_is_shown = [w for w in (*app.slider, *app.select_slider) if w.key == own]
    assert own_is_shown == [], "what stands on the axis has no control"
    wanted = chart(scaling, found, points, text)
    assert len(spec_of(app)["layer"]) == len(wanted["layer"])
    assert len(json.dumps(wanted)) < 60_000


def test_the_chart_holds_the_lines_the_bound_and_the_crossings():
    text = load_text("en")
    scaling = Scaling("size", DEFAULT_LINES, BASE)
    found = stretches(scaling)
    bound, lines, rule, ring, label = chart(scaling, found, [], text)["layer"]
    assert [row["time_s"] for row in bound["data"]["values"]] == [
        scaling.bound_s(x) for x in scaling.xs
    ]
    by_name = {(row["line"], row["x"]): row for row in lines["data"]["values"]}
    for name in DEFAULT_LINES:
        for x in scaling.xs:
            row = by_name[text(f"strategy.{name}"), x]
            assert row["time_s"] == scaling.time_s(name, x)
            assert row["time"] == format_time(row["time_s"])
    for layer in (rule, ring, label):
        assert [row["x"] for row in layer["data"]["values"]] == [
            pytest.approx(part.end) for part in found[:-1]
        ]
    legend = legend_html(scaling.lines, text)
    assert all(f"> {text(f'strategy.{name}')}</span>" in legend for name in DEFAULT_LINES)


def test_every_line_has_a_colour_a_dash_and_a_shape_of_its_own():
    for styles in (COLOURS, DASHES, SHAPES, HATCHES):
        assert set(styles) == set(LINES)
        assert len({str(style) for style in styles.values()}) == len(LINES)


def test_measured_points_lie_on_their_lines_and_nowhere_else():
    records = load_records()
    gpus = measured_points(Scaling("gpus", LINES, SHIPPED), records)
    assert {(p.name, p.x) for p in gpus} == {
        *((a, n) for a in ("ring", "ps", "dp") for n in (2, 3, 4)),
        # And not the extra server or the 4 pieces of other records: the lines have more of them.
        *((a, 4) for a in ("ps-sharded", "tree", "halving-doubling", "pairwise", "hierarchical")),
    }
    assert {p.record.source for p in gpus} == {"replayed", "vendor"}
    sizes = measured_points(Scaling("size", LINES, SHIPPED), records)
    assert {p.x for p in sizes} == {2 * MIB, 8 * MIB}
    for points in (gpus, sizes):
        for point in points:
            if point.record.source == "replayed":
                simulated = time_s(
                    point.name,
                    replace(SHIPPED, gpus=point.record.gpus, size_bytes=point.record.size_bytes),
                )
                assert simulated == pytest.approx(point.record.simulated["time_s"], rel=1e-4)
                assert simulated == pytest.approx(point.record.median_s, rel=0.05)
    for other in (
        replace(SHIPPED, frames=False),
        replace(SHIPPED, latency_s=1e-6),
        replace(SHIPPED, bytes_per_s=1e9),
    ):
        assert measured_points(Scaling("gpus", LINES, other), records) == []
    assert measured_points(Scaling("latency", LINES, SHIPPED), records) == []


def test_measured_runs_stand_in_the_table_and_the_chart():
    app = open_page("scaling", axis="gpus", rate="200Mbit/s", latency="0us", frames="true")
    assert not app.exception
    (row,) = [line for line in words(app).splitlines() if line.startswith("| 4 |")]
    assert row.count("◆") == 3
    assert row.count("◇") == 1
    assert load_text("en")("scaling.measured") in words(app)
    what = [
        value["what"]
        for layer in spec_of_values(app)
        for value in layer
        if isinstance(value, dict) and "what" in value
    ]
    assert "◇ torch.all_reduce, vendor's own" in what
    other = open_page("scaling", axis="gpus")
    assert "those shipped are of 2, 3, 4 GPUs, 2 MiB, 8 MiB, 200Mbit/s" in words(other)


def spec_of_values(app):
    """The rows of each layer, as the page built them."""
    page = build(
        Scaling("gpus", DEFAULT_LINES, replace(BASE, bytes_per_s=25e6, latency_s=0.0, frames=True)),
        "en",
    )
    assert len(page.chart["layer"]) == len(spec_of(app)["layer"])
    return [layer["data"]["values"] for layer in page.chart["layer"]]


@pytest.mark.parametrize(
    "bad",
    [{"axis": "gpu"}, {"lines": "rnig"}, {"n": "33"}, {"rate": "25"}, {"frames": "2"}],
)
def test_a_bad_value_falls_back_with_a_notice(bad):
    app = open_page("scaling", **bad)
    assert not app.exception
    ((key, value),) = bad.items()
    assert app.info[0].value.startswith(f"In the address, `{key}={value}` is not")
    assert "the central server up to 30.58 KiB" in words(app)


def test_no_line_chosen_shows_the_default_with_a_notice():
    app = open_page("scaling")
    app.pills(key="lines").set_value([]).run()
    assert not app.exception
    assert "nothing is chosen" in app.info[0].value
    assert "the central server up to 30.58 KiB" in words(app)
    app.pills(key="lines").set_value(["ring"]).run()
    assert "only the ring is shown" in words(app)


def test_files_and_commands_reproduce_the_page(capsys):
    base = Setting(4, 64 * 1024, 125e6, 5e-6)
    for axis in AXES:
        scaling = Scaling(axis, ("ring", "ps-dedicated", "double-tree", "hierarchical"), base)
        page = build(scaling, "en")
        rows = list(csv.DictReader(io.StringIO(page.exports.files["csv"])))
        assert rows == [{k: str(v) for k, v in row.items()} for row in export_rows(scaling, [])]
        assert len(rows) == 5 * len(scaling.xs)
        assert len(json.loads(page.exports.files["json"])["rows"]) == len(rows)
        for line in page.exports.commands.splitlines():
            names, places, command = read_loop(line)
            for name in names:
                for place_x in places[::5]:
                    x = x_of(axis, place_x)
                    here = command.replace("$name", name).replace("$x", place_x)
                    assert main([*shlex.split(here)[3:], "--json"]) == 0
                    answer = json.loads(capsys.readouterr().out)
                    assert answer["time_s"] == pytest.approx(scaling.time_s(name, x), rel=1e-9)


def x_of(axis: str, place_x: str) -> float:
    """The place of the axis that a command's word stands for."""
    frames = 1514 / 1448  # commands give the data's rate
    if axis == "bandwidth":
        return min(AXES[axis], key=lambda x: abs(x - parse_rate(place_x) * frames))
    return {"gpus": int, "size": parse_bytes, "latency": parse_time}[axis](place_x)


def read_loop(line: str) -> tuple[list[str], list[str], str]:
    outer, inner, command, *_ = line.split("; ")
    names = outer.removeprefix("for name in ").split()
    places = inner.removeprefix("do for x in ").split()
    return names, places, command.removeprefix("do ")
