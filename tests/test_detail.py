"""What goes to the browser fits, says the same as the trace, and says where it is coarser."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_pages.race import LATENCIES, MAX_GPUS, SIZES
from simcore.algorithms import build_schedule
from simcore.cluster import uniform
from simcore.engine import simulate
from simcore.schedule import Op
from simcore.units import parse_bytes, parse_time
from views import player
from views.detail import (
    MANY_VALUES,
    Marks,
    blocks,
    fair_shares,
    fitted,
    joined,
    marks_of,
    packed,
    unpacked,
)
from views.lanes import with_phases
from views.player import PlayerLane, payload
from views.race import HUBS, LINES, Setting, race
from views.text import load_text


def marks_and_ops(name: str, n: int, elements: int, latency_s: float = 0.0):
    schedule = build_schedule(name, n)
    trace = simulate(schedule, uniform(n, 25e6, latency_s), elements).trace
    ops = np.array([step.op[0] for step in schedule.steps()])
    return marks_of(trace, schedule)[0], ops, trace


@pytest.mark.parametrize("n", [2, 16, MAX_GPUS])
@pytest.mark.parametrize("latency", LATENCIES[::3])
@pytest.mark.parametrize("size", [SIZES[0], SIZES[3], SIZES[-1]])
def test_a_race_fits_the_budget_and_keeps_its_bytes(n, size, latency):
    setting = Setting(n, parse_bytes(size), 25.1e6, parse_time(latency))
    runs = race(setting, LINES)
    lanes = [
        PlayerLane(
            *(run.name, run.schedule, setting.cluster(), run.trace, run.simulation.lower_bound_s),
            hub=HUBS.get(run.name),
        )
        for run in runs
    ]
    data = payload(lanes, with_phases(load_text("zh"), lanes), 0.0)
    assert len(json.dumps(data, allow_nan=False).encode()) <= 500_000
    for lane, run in zip(data["lanes"], runs, strict=True):
        columns = {name: unpacked(column) for name, column in lane["transfers"].items()}
        sent = np.bincount(columns["src"], columns["nbytes"], n)
        received = np.bincount(columns["dst"], columns["nbytes"], n)
        assert (sent == run.trace.sent_bytes).all()
        assert (received == run.trace.received_bytes).all()
        assert max(columns["receive_end_s"]) == pytest.approx(run.trace.time_s, rel=1e-10)
        if run.name in ("ps", "dp", "tree") or n <= 16:
            assert lane["blocks"] is None, "only what is too long is told in less detail"
        if run.name in ("ring", "pairwise") and n == MAX_GPUS:
            assert lane["blocks"] is not None
        assert columns["step"] == sorted(columns["step"])


@pytest.mark.parametrize(
    ("name", "n", "elements", "latency_s"),
    [
        ("ring", 5, 5 * 1000, 0.0),
        ("ring", 6, 4001, 1e-4),
        ("ps", 4, 1000, 1e-3),
        ("pairwise", 4, 999, 0.0),
    ],
)
@pytest.mark.parametrize("steps_per_block", [1, 2, 3, 100])
def test_joined_marks_are_exact_between_themselves(name, n, elements, latency_s, steps_per_block):
    """A link's counter is the trace's at every moment at which no mark of it is under way."""
    marks, ops, trace = marks_and_ops(name, n, elements, latency_s)
    fewer = joined(marks, blocks(ops, steps_per_block))
    compared = 0
    links = np.unique([marks.src, marks.dst, marks.op], axis=1).T.tolist()
    for src, dst, op in links:
        mine = (marks.src == src) & (marks.dst == dst) & (marks.op == op)
        few = (fewer.src == src) & (fewer.dst == dst) & (fewer.op == op)
        for end_s in [0.0, *fewer.send_end_s[few].tolist()]:
            if ((fewer.send_start_s[few] < end_s) & (end_s < fewer.send_end_s[few])).any():
                continue
            truly = marks.nbytes[mine][marks.send_end_s[mine] <= end_s].sum()
            assert fewer.nbytes[few][fewer.send_end_s[few] <= end_s].sum() == truly
            compared += 1
        assert fewer.carries[few].sum() == marks.carries[mine].sum()
    assert compared > len(fewer) // 2
    assert fewer.nbytes.sum() == trace.sent_bytes.sum()
    if steps_per_block == 100:
        assert len(fewer) == len(links)
    if steps_per_block == 1:
        assert len(fewer) == len(marks)
        assert (fewer.receive_end_s == marks.receive_end_s).all()


def test_a_joined_mark_counts_the_contributions_after_its_last_step():
    marks, ops, _ = marks_and_ops("ring", 6, 600)
    fewer = joined(marks, blocks(ops, 2))
    adding = fewer.op == Op.ADD
    assert fewer.contributions[adding].tolist() == [3] * 6 + [5] * 6 + [6] * 6
    assert fewer.carries[adding].tolist() == [2] * 12 + [1] * 6  # five steps in blocks of two
    assert (fewer.contributions[~adding] == 6).all()


def test_blocks_end_where_a_phase_ends():
    ops = np.array([1] * 7 + [0] * 5 + [1])
    for steps_per_block in range(1, 15):
        bounds = blocks(ops, steps_per_block)
        assert {0, 7, 12, 13} <= {*bounds.tolist()}
        assert (np.diff(bounds) >= 1).all()
        assert np.diff(bounds).max() == min(7, steps_per_block)
    assert blocks(np.zeros(0, int), 3).tolist() == [0]


def test_only_what_is_too_long_is_joined_and_no_more_than_needed():
    marks, ops, _ = marks_and_ops("ring", 8, 800)
    same, bounds = fitted(marks, ops, len(marks))
    assert same is marks
    assert bounds.tolist() == list(range(15))
    for most in range(16, len(marks)):
        fewer, bounds = fitted(marks, ops, most)
        assert len(fewer) <= most
        steps_per_block = np.diff(bounds).max()
        assert len(joined(marks, blocks(ops, steps_per_block - 1))) > most
    assert fitted(marks, ops, 15)[0] is marks, "16 links and phases cannot be 15 marks"


def test_rates_that_change_are_left_out_where_they_do_not_fit(monkeypatch):
    schedule, cluster = build_schedule("ps", 4), uniform(4, 25e6)
    run = simulate(schedule, cluster, 100_000, starts_s=np.arange(4) * 7e-3)
    lane = PlayerLane("ps", schedule, cluster, run.trace, run.lower_bound_s)
    rows = len(run.trace.spans) // 2 + len(run.trace.pieces)
    text = load_text("en")
    whole = payload([lane], text, 0.0)["lanes"][0]
    assert len(unpacked(whole["pieces"]["transfer"])) == len(run.trace.pieces) > 0
    assert whole["blocks"] is None
    monkeypatch.setattr(player, "MAX_MARKS", rows - 1)
    coarse = payload([lane], text, 0.0)["lanes"][0]
    assert coarse["pieces"] is None
    assert coarse["blocks"] == [0, 1, 2], "it says so: every step is a block, with mean rates"


def test_contributions_of_messages_of_several_chunks():
    marks, _, trace = marks_and_ops("halving-doubling", 8, 800)
    assert marks.carries.max() == 4
    assert marks.contributions.max() == 8
    last = marks.op == Op.COPY
    assert (marks.contributions[last] == 8).all()
    assert marks.contributions[marks.step == 0].tolist() == [2] * 8
    assert len(marks) == len(trace.spans) // 2


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=5), st.integers(0, 12_000))
def test_shares_are_fair(wanted, total):
    shares = fair_shares(wanted, total)
    assert sum(shares) <= total
    assert all(share <= want for share, want in zip(shares, wanted, strict=True))
    cut = [share for share, want in zip(shares, wanted, strict=True) if share < want]
    if cut:
        assert max(shares) - min(cut) <= 1, "nobody has more than one who wanted more"
        assert total - sum(shares) < len(wanted)


@given(st.lists(st.sampled_from([0.0, 0.1, 1e-9, 3.5, 1 / 3]) | st.floats(0, 1), max_size=80))
def test_what_is_packed_is_unpacked(values):
    column = np.array(values, np.float64)
    assert unpacked(json.loads(json.dumps(packed(column)))) == values
    ranks = (column * 10).astype(np.int64)
    assert unpacked(packed(ranks)) == ranks.tolist()


def test_only_long_columns_of_different_times_are_rounded():
    rng = np.random.default_rng(5)
    few, many = (rng.uniform(0, 1e-3, count) for count in (MANY_VALUES, MANY_VALUES + 1))
    assert unpacked(packed(few)) == few.tolist()
    rounded = np.array(unpacked(packed(many)))
    assert (rounded != many).any()
    assert np.allclose(rounded, many, rtol=5e-11, atol=0)
    assert (np.argsort(rounded, kind="stable") == np.argsort(many, kind="stable")).all()
    whole = np.arange(2 * MANY_VALUES) * 7 + 2**50
    assert unpacked(packed(whole)) == whole.tolist()


def test_a_lane_without_messages():
    nothing = np.zeros(0, np.int64)
    marks = Marks(*(nothing,) * 8, *(np.zeros(0),) * 4)
    assert fitted(marks, nothing, 10)[1].tolist() == [0]
    assert [unpacked(packed(column)) for column in marks.columns().values()] == [[]] * 12
