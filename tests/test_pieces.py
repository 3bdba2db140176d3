"""Pieces against time: the formula is the engine's time, and the best is what a scan finds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.algorithms import build_schedule
from simcore.engine import simulate
from simcore.schedule import Collective
from views.race import Setting
from views.scaling.pieces import (
    FLAT,
    MOST,
    Pieces,
    export_rows,
    formula,
    headline,
    simulated_s,
    table_rows,
)
from views.scaling.pieces_chart import chart
from views.text import LANGUAGES, load_text

MIB = 2**20
BASE = Setting(8, 8 * MIB, 3.125e9, 20e-6)
SETTINGS = [
    BASE,
    replace(BASE, gpus=2),
    replace(BASE, gpus=32, latency_s=1e-3),
    replace(BASE, latency_s=0.0),
    replace(BASE, size_bytes=64 * 1024, latency_s=1e-3),
    replace(BASE, size_bytes=2**30, latency_s=1e-6, frames=False),
]

given_settings = st.builds(
    Setting,
    st.integers(2, 12),
    st.integers(1, 4000).map(lambda elements: 4 * elements),
    st.floats(1e5, 1e9),
    st.floats(0, 1e-2),
    st.booleans(),
)


@given(given_settings, st.integers(1, 300))
def test_the_formula_is_the_engine_s_time_for_any_number_of_pieces(at, count):
    pieces = Pieces(at)
    count = min(count, pieces.most)
    schedule = build_schedule("ring-broadcast", at.gpus, pieces=count)
    run = simulate(schedule, at.cluster(), at.size_bytes // 4)
    assert schedule.collective is Collective.ALL_GATHER
    assert float(pieces.time_s(count)) == pytest.approx(run.trace.time_s, rel=1e-9)
    assert simulated_s(pieces, count) == pytest.approx(run.trace.time_s, rel=1e-9)
    assert float(pieces.waits_s(count) + pieces.sends_s(count)) == float(pieces.time_s(count))
    assert pieces.bound_s == pytest.approx(run.lower_bound_s, rel=1e-9)


@given(given_settings.filter(lambda at: at.size_bytes <= 240))
@settings(max_examples=15)
def test_the_best_is_what_a_scan_of_simulations_finds(at):
    pieces = Pieces(at)
    times = {count: simulated_s(pieces, count) for count in range(1, pieces.most + 1)}
    least = min(times.values())
    assert times[pieces.best] <= least * (1 + 2 * FLAT)
    assert all(times[count] > least for count in range(1, pieces.best))


@pytest.mark.parametrize("at", SETTINGS)
def test_the_rule_is_near_the_best(at):
    """√((n-2)·S/(α·B)), within what whole numbers and the axis allow."""
    pieces = Pieces(at)
    assert 1 <= pieces.best <= pieces.most <= MOST
    if at.latency_s and at.gpus > 2 and pieces.rule < pieces.most:
        assert pieces.best == pytest.approx(pieces.rule, rel=0.05, abs=1)
        assert pieces.time_s(max(1, round(pieces.rule))) <= pieces.time_s(pieces.best) * 1.001


def test_more_pieces_help_until_they_hurt():
    pieces = Pieces(BASE)
    times = [float(pieces.time_s(count)) for count in (1, 4, pieces.best, 512, 4096)]
    assert times[0] > times[1] > times[2] < times[3] < times[4]
    assert pieces.best == 28


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("at", SETTINGS)
def test_words_table_and_chart_agree(at, language):
    text, pieces = load_text(language), Pieces(at)
    sentence = headline(pieces, text)
    assert "{" not in sentence + formula(pieces, text)
    assert sentence.endswith((".", "。"))
    (bold,) = [row for row in table_rows(pieces) if row[0].startswith("**")]
    assert bold[0] == f"**{pieces.best}**"
    assert bold[-1].strip("*") in sentence
    rows = export_rows(pieces)
    assert min(rows, key=lambda row: row["time_s"])["time_s"] == pytest.approx(
        float(pieces.time_s(pieces.best)), rel=FLAT
    )
    spec = chart(pieces, text)
    assert len(json.dumps(spec)) < 60_000
    curves = [layer for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    assert len(curves) == (3 if at.latency_s else 1)
    total = curves[-1]["data"]["values"]
    assert [row["time_s"] for row in total] == [
        float(pieces.time_s(row["pieces"])) for row in total
    ]
    (marked,) = spec["layer"][-1]["data"]["values"]
    assert marked["pieces"] == pieces.best
    assert str(pieces.best) in marked["label"]
