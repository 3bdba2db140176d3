"""The map of winners: every cell and border is what brute-force simulation says."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.algorithms import build_schedule
from simcore.cluster import Level, even_groups, uniform
from simcore.engine import simulate
from views.race import FRAME_FACTOR, Setting
from views.scaling.curves import TIE, stretches
from views.scaling.lines import LINES, NODE_GPUS, bound_s, flags_for, time_s
from views.scaling.winners import (
    FINEST,
    PAIRS,
    Winners,
    cells,
    headline,
    region_title,
    rows,
    shares,
    table_header,
    table_rows,
)
from views.scaling.winners_chart import chart
from views.scaling.winners_regions import bands, roomiest
from views.text import LANGUAGES, load_text

MIB = 2**20
BASE = Setting(8, 8 * MIB, 3.125e9, 20e-6)
DEFAULT = ("ring", "ps", "tree")


def brute_s(name: str, at: Setting, network: str) -> float:
    """The time from the engine, on a cluster made here."""
    schedule = build_schedule(name, at.gpus, **flags_for(name, at.gpus, network))
    settings = {"wire_time_per_payload_byte": FRAME_FACTOR if at.frames else 1.0}
    rate = at.bytes_per_s
    if network == "nodes":
        groups = even_groups(schedule.n, NODE_GPUS)
        node = Level("node", groups, latency_s=at.latency_s / 4, uplink_bytes_per_s=rate)
        settings["levels"] = (node,)
        rate *= 10
    cluster = uniform(schedule.n, rate, at.latency_s, **settings)
    return simulate(schedule, cluster, at.size_bytes // 4, keep="totals").trace.time_s


def winners_of(pair: str, lines=DEFAULT, base=BASE, network="flat") -> Winners:
    across, up = pair.split("-")
    return Winners(across, up, lines, base, network)


@given(
    st.sampled_from([(network, name) for network in LINES for name in LINES[network]]),
    st.integers(1, 3),
    st.integers(2, 11),
    st.integers(512, 2**22) | st.integers(7, 20).map(lambda power: 2**power),
    st.floats(1e7, 5e10),
    st.floats(0, 1e-3),
    st.booleans(),
)
@settings(max_examples=80)
def test_a_line_is_the_engine_s_time_however_it_was_worked_out(
    line, nodes, gpus, elements, rate, latency_s, frames
):
    """By a formula, from another size of the same proportions, or simulated."""
    network, name = line
    n = nodes * NODE_GPUS if network == "nodes" else gpus
    at = Setting(n, elements * 4, rate, latency_s, frames)
    simulated = brute_s(name, at, network)
    assert time_s(name, at, network) == pytest.approx(simulated, rel=1e-9)
    if name != "ps-dedicated":
        assert bound_s(at, network) <= simulated * (1 + 1e-9)


@pytest.mark.parametrize("network", LINES)
@pytest.mark.parametrize("pair", PAIRS)
def test_cells_name_the_fastest_and_the_next_by_brute_force(pair, network):
    lines = LINES[network] if network == "nodes" else (*DEFAULT, "halving-doubling")
    winners = winners_of(pair, lines, network=network)
    for cell in cells(winners)[:: 7 if network == "flat" else 19]:
        at = winners.along(cell.y).at(cell.x)
        times = {name: brute_s(name, at, network) for name in lines}
        least = min(times.values())
        assert cell.time_s == pytest.approx(least, rel=1e-9)
        near = {name for name, time in times.items() if time <= least * (1 + TIE * 1.001)}
        surely = {name for name, time in times.items() if time <= least * (1 + TIE * 0.999)}
        assert surely <= set(cell.names) <= near
        others = [time for name, time in times.items() if name not in cell.names]
        assert cell.second_s == pytest.approx(min(others, default=0.0), rel=1e-9)
        assert bool(cell.second) == bool(others)


@given(
    st.sampled_from(PAIRS),
    st.sampled_from([DEFAULT, ("ring", "ps"), ("tree", "halving-doubling", "ps", "dp")]),
    st.integers(2, 32),
    st.sampled_from([2048, 65536, 8 * MIB]),
    st.sampled_from([25e6, 3.125e9]),
    st.sampled_from([0.0, 1e-6, 1e-3]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=15)
def test_every_place_of_the_map_belongs_to_a_fastest_one(
    pair, lines, gpus, size, rate, latency_s, random
):
    """Also between cells, up to a pixel from a border."""
    winners = winners_of(pair, lines, Setting(gpus, size, rate, latency_s))
    for row in rows(winners)[::3]:
        begin, along = winners.xs[0], winners.along(row.y)
        for part in row.parts:
            inside = random.uniform(math.log(begin), math.log(part.end))
            x = math.exp(inside)
            if begin * FINEST < x < part.end / FINEST:
                times = {name: time_s(name, along.at(x)) for name in lines}
                fastest = min(times.values())
                assert min(times[name] for name in part.names) <= fastest * (1 + TIE) + 1e-12
            begin = part.end


def test_borders_are_the_crossings_of_the_curves():
    winners = winners_of("size-gpus")
    for row in rows(winners):
        fine = stretches(replace(winners.along(row.y)))
        assert [part.names for part in fine] == [part.names for part in row.parts]
        for exact, drawn in zip(fine, row.parts, strict=True):
            assert drawn.end == pytest.approx(exact.end, rel=FINEST - 1 + 1e-3)


def test_a_border_is_where_the_formulas_meet():
    """2(α + 7 S/B) = 14(α + S/8/B): S = 12 αB / 12.25, a diagonal of the map."""
    base = replace(BASE, frames=False)
    for row in rows(winners_of("latency-size", ("ring", "ps"), base)):
        if len(row.parts) == 2:
            wanted = row.y * 12.25 / 12 / base.bytes_per_s
            assert row.parts[0].names == ("ring",)
            assert row.parts[0].end == pytest.approx(wanted, rel=FINEST - 1)


def test_ties_are_shown_as_ties():
    """With two GPUs these three do the very same."""
    winners = winners_of("size-gpus", ("ring", "halving-doubling", "pairwise"))
    (row,) = [row for row in rows(winners) if row.y == 2]
    assert [part.names for part in row.parts] == [winners.lines]
    stripes = list(bands(winners, [row]))
    assert [stripe.name for stripe in stripes] == list(winners.lines)
    edges = [stripes[0].low, *(stripe.high for stripe in stripes)]
    assert edges == pytest.approx([2 * (1.5 ** ((2 * k - 3) / 6)) for k in range(4)])
    (cell,) = [c for c in cells(winners) if (c.x, c.y) == (2048, 2)]
    assert (cell.names, cell.second) == (winners.lines, "")
    assert (
        region_title(cell.names, load_text("en"))
        == "Ring = Halving and doubling = Rotated exchange"
    )


@pytest.mark.parametrize("pair", PAIRS)
def test_rectangles_cover_the_map_once(pair):
    winners = winners_of(pair)
    found = rows(winners)
    area = sum(
        math.log(band.end / band.begin) * math.log(band.high / band.low)
        for band in bands(winners, found)
    )
    whole = math.log(winners.xs[-1] / winners.xs[0]) * math.log(found[-1].high / found[0].low)
    assert area == pytest.approx(whole)
    assert sum(shares(winners, found).values()) == pytest.approx(1)
    for row, above in pairwise(found):
        assert row.high == above.low
    for row in found:
        assert row.low < row.y < row.high
        assert row.parts[-1].end == winners.xs[-1]


@pytest.mark.parametrize("network", LINES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_chart_and_the_table_say_the_same(language, network):
    text = load_text(language)
    lines = DEFAULT if network == "flat" else ("ring", "hierarchical", "ps")
    winners = winners_of("size-gpus", lines, network=network)
    found, places = rows(winners), cells(winners)
    spec = chart(winners, found, places, text)
    regions, shapes, halo, names, tips = spec["layer"]
    assert len(json.dumps(spec)) < 100_000
    drawn = [(row["line"], row["x"], row["x2"]) for row in regions["data"]["values"]]
    assert drawn == [
        (text(f"strategy.{band.name}"), pytest.approx(band.begin), pytest.approx(band.end))
        for band in bands(winners, found)
    ]
    for values in (shapes["data"]["values"], halo["data"]["values"], names["data"]["values"]):
        assert values
    titles = {row["title"] for row in names["data"]["values"]}
    assert titles == {region_title(cell.names, text) for cell in places}
    table = table_rows(winners, places, text)
    assert all(len(row) == len(table_header(winners, text)) for row in table)
    by_place = {row["place"]: row["fastest"] for row in tips["data"]["values"]}
    assert len(by_place) == len(places)
    for row in table:
        for place_x, words in zip(table_header(winners, text)[1:], row[1:], strict=True):
            fastest = by_place[f"{place_x}, {row[0]}"].rsplit(", ", 1)[0]
            assert words.startswith(fastest)
    sentence = headline(winners, found, text)
    assert sentence.endswith((".", "。"))
    assert "{" not in sentence


def test_a_name_stands_inside_its_region_away_from_others():
    winners = winners_of("size-gpus")
    places = cells(winners)
    for names in {cell.names for cell in places}:
        spot = roomiest(winners, places, names)
        assert spot.names == names
    ring = roomiest(winners, places, ("ring",))
    assert ring.x > MIB  # the left edge of the ring's region is not where its name belongs
