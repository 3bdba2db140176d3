"""The past forked: until the change nothing is different, and the player is told what is then."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import parse_slow_link
from simcore.algorithms import build_schedule
from simcore.cluster import Port, uniform
from simcore.engine import simulate
from simcore.trace import Trace
from tests.support import require
from views.fork import MAX_CHANGES, describe, difference, fork, fork_data
from views.ghost import Ghost
from views.player import PlayerLane, payload, player_script
from views.race import HUBS, Setting, race
from views.text import load_text

EN = load_text("en")
NAMES = ("ps", "dp", "ring", "ps-sharded", "halving-doubling", "pairwise")


def run_of(name: str, n: int = 4, latency_s: float = 0.0):
    return simulate(build_schedule(name, n), uniform(n, 1e6, latency_s), 10_000)


def past(trace: Trace, at_s: float) -> list[tuple]:
    """All that has begun before, to the last bit; what is still under way without its end."""
    spans = trace.spans
    columns = (spans.step, spans.rank, spans.lane, spans.peer, spans.chunk, spans.op, spans.nbytes)
    times = zip(spans.start_s.tolist(), spans.end_s.tolist(), strict=True)
    rows = zip(zip(*(c.tolist() for c in columns), strict=True), times, strict=True)
    return sorted(
        (*row, start_s, end_s if end_s < at_s else None)
        for row, (start_s, end_s) in rows
        if start_s < at_s
    )


@given(
    name=st.sampled_from(NAMES),
    n=st.integers(2, 7),
    latency_s=st.sampled_from([0.0, 1e-3]),
    share=st.integers(0, 1100).map(lambda part: part / 1000),
    link=st.sampled_from(["gpu1", "gpu0.tx", "gpu0.rx", "gpu0->gpu1", "1->0"]),
    factor=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_until_the_change_nothing_is_different(name, n, latency_s, share, link, factor):
    run = run_of(name, n, latency_s)
    at_s = float(f"{share * run.trace.time_s:.6g}")
    forked = fork([run], [f"{link}:{factor}@{at_s}s..{at_s + 0.05}s"], EN)
    assert forked.notices == ()
    before, after = forked.before[0].trace, forked.after[0].trace
    assert forked.at_s == at_s
    # The solver takes instants that lie within a part in 10**12 for one.
    assert past(before, at_s * (1 - 1e-9)) == past(after, at_s * (1 - 1e-9))
    for moment_s in np.linspace(0, at_s, 7):
        for was, now in zip(before.bytes_at(moment_s), after.bytes_at(moment_s), strict=True):
            assert np.allclose(was, now, rtol=1e-9, atol=1e-6)
    assert after.time_s >= before.time_s * (1 - 1e-12)
    assert before.time_s == pytest.approx(run.trace.time_s, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_change_does_what_the_engine_says(name):
    run = run_of(name)
    spelt = "gpu1:0@5ms..25ms"
    forked = fork([run], [spelt], EN)
    direct = run.fork(0.005, [parse_slow_link(spelt)])
    assert forked.after[0].trace.to_json() == direct.trace.to_json()


def test_a_faster_port_is_faster_and_its_bound_is_none_that_it_beats():
    run = run_of("ps", 5)
    times = [
        fork([run], [f"gpu0:{factor}@0s.."], EN).after[0]
        for factor in ("0.5", "1", "2", "4", "10", "100")
    ]
    for slower, faster in pairwise(times):
        assert faster.trace.time_s <= slower.trace.time_s * (1 + 1e-12)
        assert faster.trace.time_s >= faster.lower_bound_s * (1 - 1e-9)
    # From four times on the others' ports are the limit: a buffer up, a buffer down.
    assert times[3].trace.time_s == pytest.approx(0.08)
    assert times[-1].trace.time_s == pytest.approx(0.08)


@pytest.mark.parametrize(
    "bad",
    [
        *("", "gpu1", "gpu1:", "gpu1:x@1ms..2ms", "gpu1:0@1ms", "gpu1:0@..2ms", "gpu9:0@1ms..2ms"),
        *("gpu1:-1@1ms..", "gpu1:nan@1ms..2ms", "gpu1:0@2ms..1ms", "gpu1:0@1..2", "node0.up:0.5"),
        *("gpu1->gpu1:0.5", "gpu1->gpu2:2", "free:0", "`<b>\n:0", "gpu1:0@1ms..2ms" * 20, "9->9:1"),
    ],
)
def test_what_is_no_change_is_left_out_with_a_notice(bad):
    for language in ("en", "zh"):
        forked = fork([run_of("ring")], [bad, "gpu1:0@1ms..2ms"], load_text(language))
        assert forked.spelt == ("gpu1:0@1ms..2ms",)
        (notice,) = forked.notices
        assert "LINK:FACTOR@T1..T2" in notice
        assert "\n" not in notice
        assert notice.count("`") == 10, "the value and four examples"


def test_what_would_never_end_is_left_out_and_the_rest_is_made():
    runs = [run_of("ring"), run_of("ps")]
    asked = ["gpu2:0@1ms..5ms", "gpu1:0@10ms..", "0->1:0@2ms..4ms", "gpu3.rx:0@0.5ms.."]
    forked = fork(runs, asked, EN)
    assert forked.spelt == (asked[0], asked[2])
    assert [notice.split(" ")[0] for notice in forked.notices] == [
        f"`change={asked[1]}`",
        f"`change={asked[3]}`",
    ]
    alone = fork(runs, [asked[0], asked[2]], EN)
    assert [run.trace.to_json() for run in forked.after] == [
        run.trace.to_json() for run in alone.after
    ]
    # Over for good, but nobody needs it any more.
    late = fork(runs, ["gpu2:0@10s.."], EN)
    assert not late.notices
    assert late.spelt == ("gpu2:0@10s..",)


def test_only_so_many_changes():
    asked = ["gpu1:0.9@1ms..2ms"] * (MAX_CHANGES + 1)
    forked = fork([run_of("ring")], asked, EN)
    assert len(forked.spelt) == MAX_CHANGES
    assert len(forked.notices) == 1


def test_without_changes_all_stays_as_it_is():
    run = run_of("ring")
    forked = fork([run], [], EN)
    assert forked.before[0] is forked.after[0] is run
    lane = lane_of(run)
    assert forked.lanes([lane], EN) == [lane]
    assert fork_data(forked, "s", ["Ring"], EN) | {"setting": ""} == {
        "setting": "",
        "changes": [],
        "summary": "",
        "most": MAX_CHANGES,
        "gpus": 4,
        "one_way": False,
    }


def lane_of(run) -> PlayerLane:
    case = run.case
    name = case.schedule.name
    bound_s = run.lower_bound_s
    return PlayerLane(name, case.schedule, case.cluster, run.trace, bound_s, hub=HUBS.get(name))


def test_the_payload_holds_both_futures():
    runs = [run.simulation for run in race(Setting(4, 8 * 2**20, 25e6))]
    asked = ["gpu2:0@0.2s..0.5s", "gpu1->gpu2:0.1@0.6s.."]
    forked = fork(runs, asked, EN)
    data = fork_data(forked, "s", [run.trace.name for run in runs], EN)
    lanes = forked.lanes([lane_of(run) for run in runs], EN)
    sent = json.loads(json.dumps(payload(lanes, EN, 0.0, fork=data), allow_nan=False))
    for lane, old, new in zip(sent["lanes"], forked.before, forked.after, strict=True):
        assert lane["time_s"] == new.trace.time_s
        assert lane["ghost"]["time_s"] == old.trace.time_s
        assert min(start_s for start_s, _, _ in lane["ghost"]["bars"]) == 0.2
        assert max(end_s for _, end_s, _ in lane["ghost"]["bars"]) == pytest.approx(
            old.trace.time_s
        )
    assert [change["spelt"] for change in sent["fork"]["changes"]] == asked
    assert [(c["from_s"], c["until_s"]) for c in sent["fork"]["changes"]] == [
        (0.2, 0.5),
        (0.6, None),
    ]
    for part, old, new in zip(
        sent["fork"]["summary"].split(" · "), forked.before, forked.after, strict=True
    ):
        assert part.endswith(difference(old.trace.time_s, new.trace.time_s, EN))


@pytest.mark.parametrize(
    ("before_s", "after_s", "words"),
    [
        (0.5, 0.73, "+230 ms, 46 % later"),
        (2.0, 1.0, "−1 s, 50 % earlier"),
        (1.0, 1.0003, "no change"),
        (0.1, 1.6, "+1.5 s, 1500 % later"),
    ],
)
def test_differences_in_words(before_s, after_s, words):
    assert difference(before_s, after_s, EN).replace("\u00a0", " ") == words


@pytest.mark.parametrize(
    ("spelt", "words"),
    [
        ("gpu2:0@0.2s..0.5s", "GPU 2 stands still, 200 ms to 500 ms"),
        ("gpu2.tx:0.25@0.2s..", "GPU 2 sends at 25 %, from 200 ms on"),
        ("gpu2.rx:0@0.2s..1s", "GPU 2 receives at 0 %, 200 ms to 1 s"),
        ("gpu2:4@0.2s..1s", "GPU 2's port at 400 %, 200 ms to 1 s"),
        ("1->2:0.5@0.2s..1s", "link GPU 1 → GPU 2 at 50 %, 200 ms to 1 s"),
        ("gpu1->gpu2:0@0s..1s", "link GPU 1 → GPU 2 cut, 0 s to 1 s"),
        ("node0.up:0.5", "node0.up at 50 %, from 0 s on"),
        ("gpu0.port:0.5@0s..", "GPU 0's port at 50 %, from 0 s on"),
    ],
)
def test_changes_in_words(spelt, words):
    assert describe(parse_slow_link(spelt), EN).replace("\u00a0", " ") == words


@pytest.mark.parametrize("name", NAMES)
def test_the_ghost_is_the_old_run_step_by_step(name):
    trace = run_of(name, 5, 1e-3).trace
    whole = Ghost(trace, "before").columns()
    steps = np.unique(trace.spans.step)
    assert len(whole["bars"]) == len(steps)
    for (start_s, end_s, op), step in zip(whole["bars"], steps, strict=True):
        rows = trace.spans.step == step
        assert start_s == trace.spans.start_s[rows].min()
        assert end_s == trace.spans.end_s[rows].max()
        assert op == trace.spans.op[rows][0]
    half_s = trace.time_s / 2
    rest = Ghost(trace, "before", half_s).columns()["bars"]
    assert rest == [[max(a, half_s), b, op] for a, b, op in whole["bars"] if b > half_s]


SCRIPT = """
import { readFileSync } from "node:fs";
import { durations, roundedTime, sameRun, spellChange } from "./player.mjs";
const { changes, totals } = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify({ spelt: changes.map(spellChange), durations: totals.map(durations),
  same: [sameRun(null, { setting: "a" }), sameRun({ setting: "a" }, { setting: "a" }),
    sameRun({ setting: "a" }, { setting: "b" }), sameRun({ setting: "a" }, null)],
  rounded: roundedTime(1.23456789e-7) }));
"""


def in_node(tmp_path, given, script=SCRIPT):
    require(
        "browser", None if shutil.which("node") else "node is not installed; install Node.js 18+"
    )
    (tmp_path / "player.mjs").write_text(player_script(), encoding="utf-8")
    (tmp_path / "run.mjs").write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["node", "run.mjs"],
        cwd=tmp_path,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_the_panel_spells_is_what_python_reads(tmp_path):
    base = {"gpu": 2, "src": 1, "dst": 3, "factor": 0.25, "from_s": 0.1234567, "for_s": 0.2}
    changes = [base | {"kind": kind} for kind in ("stall", "send", "receive", "port", "link")]
    changes += [base | {"kind": "cut", "factor": 0}, base | {"kind": "port", "for_s": None}]
    changes += [base | {"kind": "send", "from_s": 1.5e-7, "for_s": 5e-8}]
    totals = [2.013, 0.5, 3.2e-6, 1200.0]
    answer = in_node(tmp_path, {"changes": changes, "totals": totals})
    read = [parse_slow_link(spelt) for spelt in answer["spelt"]]
    links = ["gpu2", "gpu2.tx", "gpu2.rx", "gpu2", "gpu1->gpu3", "gpu1->gpu3", "gpu2", "gpu2.tx"]
    assert [change.link for change in read] == links
    assert [change.factor for change in read] == [0.25] * 5 + [0, 0.25, 0.25]
    assert {change.from_s for change in read[:7]} == {0.123457}
    assert [change.until_s for change in read[4:7]] == [0.323457, 0.323457, float("inf")]
    assert read[7].from_s == pytest.approx(1.5e-7)
    assert read[7].until_s == pytest.approx(2e-7)
    for total_s, lengths in zip(totals, answer["durations"], strict=True):
        assert lengths == sorted(lengths)
        assert len(lengths) >= 5
        assert total_s / 60 < lengths[0] < total_s / 10
        assert total_s < lengths[-1] < 2.5 * total_s
    assert answer["same"] == [False, True, False, False]
    assert answer["rounded"] == 1.23457e-7


CAPTIONS = """
import { readFileSync } from "node:fs";
import { captionAt, prepareLane, stateAt } from "./player.mjs";
const { data, times } = JSON.parse(readFileSync(0, "utf8"));
const lanes = data.lanes.map(prepareLane);
const captions = lanes.map((lane, i) => captionAt(lane, stateAt(lane, times[i]), data.text));
console.log(JSON.stringify(captions));
"""


def test_captions_hold_where_ports_and_shares_are_unequal(tmp_path):
    """The share is of the full port; where it is not the same for all, none is told."""
    server = replace(uniform(5, 1e6), ports=(Port(2e6, 2e6), *(Port(1e6, 1e6),) * 4))
    runs = [
        simulate(build_schedule("ps", 5), server, 10_000),
        fork([run_of("ps", 4)], ["gpu1->gpu0:0.1@0s.."], EN).after[0],
        run_of("ps-sharded", 4),
        fork([run_of("ring", 4)], ["gpu2:0@0s..1s"], EN).after[0],
    ]
    times = [0.01, 0.01, 0.01, 0.5]
    data = payload([lane_of(run) for run in runs], EN, 0.0)
    full, uneven, spread, stalled = in_node(tmp_path, {"data": data, "times": times}, CAPTIONS)
    assert full.endswith("at once. Its receiving port is full: 25\u00a0% of it for each.")
    assert uneven == "Step 1 of 2: GPUs 1–3 push to GPU 0 at once."
    assert spread.startswith("Step 1 of 2: 4 of 4 GPUs send chunks to several others at once.")
    assert "{" not in stalled
