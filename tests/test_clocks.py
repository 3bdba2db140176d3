"""Clocks that are not ours: their offsets are found, and times come back onto one clock."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from real_gpu.job import Case, CaseResult, Job
from real_gpu.processes.clocks import Exchange, Offset, compare, offset_of
from real_gpu.processes.launch import run_cases
from real_gpu.processes.ranks import Asking
from real_gpu.recording import record_of
from real_gpu.validation.confidence import enough, median_interval

DELAYS = st.lists(st.tuples(st.floats(1e-6, 0.1), st.floats(1e-6, 0.1)), min_size=16, max_size=16)


class FakeClock:
    """Time passes here only when somebody waits; another machine's clock shows it shifted."""

    def __init__(self, shift_s: float) -> None:
        self.now_s, self.shift_s = 100.0, shift_s

    def now(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> float:
        self.now_s += seconds
        return self.now_s + self.shift_s


@given(st.floats(-1e4, 1e4), DELAYS)
def test_the_true_offset_is_within_what_is_said_of_it(shift_s, delays):
    clock, ways = FakeClock(shift_s), iter(delays)

    def ask() -> float:
        there_s, back_s = next(ways)
        shown_s = clock.wait(there_s)
        clock.wait(back_s)
        return shown_s

    found = compare(ask, clock.now)
    assert abs(found.offset_s - shift_s) <= found.uncertainty_s + 1e-9
    assert found.uncertainty_s <= min(map(sum, delays)) / 2 + 1e-9


def test_a_clock_that_is_stepped_meanwhile_is_believed_at_the_shortest_round_trip():
    long, short = Exchange(0.0, 100.5, 1.0), Exchange(2.0, 300.1, 2.2)
    assert offset_of([long, short]).offset_s == pytest.approx(298.0)
    assert offset_of([long, short]).uncertainty_s == pytest.approx(0.1)


class Shifted(Asking):
    """Ranks without processes: each begins and ends so long after the start, on its own clock."""

    def __init__(self, offsets: list[Offset], times: list[list[tuple[float, float]]]) -> None:
        super().__init__(len(offsets))
        self.offsets, self.times, self.asked = offsets, times, list[dict[str, Any]]()
        self.runs = 0

    def clocks(self) -> list[Offset]:
        return self.offsets

    def death(self, rank: int) -> str:
        raise AssertionError(f"rank {rank} is asked for its death, and lives")

    def send(self, rank: int, line: str) -> None:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        if request["do"] == "counters":
            answer = COUNTED
        if request["do"] == "run":
            self.asked.append(request)
            start_s = request["start_s"]
            begin_s, end_s = self.times[min(self.runs, len(self.times) - 1)][rank]
            row = [0, 3, 1 - rank, 2, 0, 1, start_s + begin_s, start_s + end_s, 8]
            answer = {"late_s": -0.05, "spans": [row], "changes": [], "waited_s": 0.0}
            answer["device"] = None
            answer |= {"began_s": start_s + begin_s, "end_s": start_s + end_s}
            self.runs += rank == self.n - 1
        self.answers.put((rank, json.dumps(answer)))


COUNTED = {"data": 0, "ack": 0, "drops": 0}


class Hub:
    """The instrument's side of a shaped network, as far as a run touches it: its changing links."""

    def __init__(self) -> None:
        self.changes, self.uplinks, self.did = self, [], list[str]()
        wires = [SimpleNamespace(link=f"gpu{rank}") for rank in range(2)]
        self.wiring = SimpleNamespace(sends=wires, receives=wires)

    def counters(self) -> dict[str, Any]:
        return {"port": [COUNTED] * 2, "uplink": []}

    def arm(self, start_s: float) -> None:
        self.did.append("arm")

    def finish(self) -> list[dict[str, Any]]:
        self.did.append("finish")
        return []


TIMES = [[(0.0, 9.0), (0.0, 9.0)], [(0.001, 0.2), (0.003, 0.25)], [(0.002, 0.3), (0.004, 0.21)]]
SHIFTS = [Offset(), Offset(-5000.0, 0.004)]


@pytest.fixture
def shifted() -> tuple[Shifted, CaseResult]:
    ranks = Shifted(SHIFTS, TIMES)
    (result,) = run_cases(ranks, Job(2, (Case("ring", 2, runs=2),)))
    return ranks, result


def test_ranks_are_told_the_start_on_their_own_clocks_and_answer_on_ours(shifted):
    ranks, result = shifted
    first, second = (ranks.asked[rank]["start_s"] for rank in (0, 1))
    assert second - first == pytest.approx(-5000.0)
    assert result.runs_s == pytest.approx([0.25, 0.3])  # and never the first call's 9 s
    assert result.begins_s[0] == pytest.approx([0.001, 0.003])
    assert result.ends_s[1] == pytest.approx([0.3, 0.21])
    assert result.clocks_s == [0.004, 0.004]
    assert [row[:3] for row in result.spans] == [[0, 0, 3], [1, 0, 3]]
    times = [moment for row in result.spans for moment in row[7:9]]
    assert times == pytest.approx([0.002, 0.3, 0.004, 0.21])


@pytest.mark.parametrize(("how", "times"), [({}, 4), ({"counted": False}, 0), ({"fills": {}}, 0)])
def test_a_profiled_run_is_over_the_links_of_the_timed_ones(how, times):
    """One to warm up, two that are timed, one that is profiled."""
    ranks, hub = Shifted(SHIFTS, TIMES), Hub()
    case = Case("ring", 2, runs=2, profile="p.json", **how)
    (result,) = run_cases(ranks, Job(2, (case,)), hub)  # type: ignore[arg-type]
    assert len(result.runs_s) == 2
    assert [bool(asked.get("profile")) for asked in ranks.asked[::2]] == [False] * 3 + [True]
    assert hub.did == ["arm", "finish"] * times


def test_a_record_has_skew_apart_and_says_where_clocks_are_too_unsure(shifted):
    _, result = shifted
    case = Case("ring", 2, runs=2)
    launched = {"launcher": "torchrun", "machines": 2, "interfaces": ["eth0"]}
    job = Job(2, (case,), launched=launched)

    def record(result: CaseResult) -> Any:
        return record_of(job, case, result, calibrated=None, command="none")

    found = record(result)
    assert found.skew_s["start"] == pytest.approx([0.001, 0.0025, 0.004])
    assert found.skew_s["end"] == pytest.approx([0.0, 0.025, 0.09])
    assert found.median_interval_s is None  # of two runs nothing is that sure
    assert found.environment["clock_uncertainty_s"] == 0.004
    assert found.environment["machine"]["machines"] == 2
    assert found.notes == ("not simulated: the rate of eth0 is not known",)
    result.clocks_s[1] = 0.006
    assert "known to ±6 ms of each other, more than 2% of the median" in record(result).notes[-1]


@pytest.mark.parametrize(
    ("n", "ends"), [(5, None), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (20, (6, 15))]
)
def test_the_interval_is_the_textbooks_sign_test(n, ends):
    assert median_interval(list(range(n, 0, -1))) == ends


def test_runs_are_added_until_the_median_is_sure_or_there_are_four_times_as_many():
    def runs(spread: float, case: Case) -> int:
        times = [[(0.0, 1.0 + spread * (run % 2))] for run in range(99)]
        (result,) = run_cases(Shifted([Offset()], times), Job(1, (case,)))
        return len(result.runs_s)

    sure, open_ended = Case("ring", 2, runs=3), Case("ring", 2, runs=3, confidence=0.02)
    assert runs(0.5, sure) == 3
    assert runs(0.001, open_ended) == 6
    assert runs(0.5, open_ended) == 12
    assert not enough([1.0, 1.0, 1.0, 1.0, 1.0, 1.3], 3, 0.02)
