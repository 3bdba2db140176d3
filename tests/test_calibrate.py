"""Calibration: known constants are found again from simulated times; the command writes a file."""

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest

from real_gpu.__main__ import main
from real_gpu.job import CaseResult, parse_network
from real_gpu.validation.calibrate import (
    ADDING,
    COPYING,
    calibrate,
    found,
    frame_factors,
    reduction,
    table,
)
from real_gpu.validation.confidence import enough, median_interval
from real_gpu.validation.fitting import LAUNCHES, Model, Observation, fit, latency_at, predict
from real_gpu.validation.patterns import PASSES, PATTERNS, pattern, patterns
from real_gpu.validation.suite import _SIZES as usual_sizes
from real_gpu.validation.traffic import SIZES as SIZES_OF
from real_gpu.validation.traffic import Sizes, cases_for
from simcore.__main__ import main as simcore_main
from simcore.algorithms import build_schedule
from simcore.cluster import uniform
from simcore.cluster_file import cluster_from_dict, load_cluster
from simcore.engine import simulate
from tests.support import require

SIZES = (4, 2**14, 2**18, 2**20)
RATE = {"bandwidth": "200Mbit/s", "wire_time_per_payload_byte": 1.0456}
LOCAL = {
    name: Observation(name, 2**20, (seconds,) * 6)
    for name, seconds in ((ADDING, 3e-3), (COPYING, 2e-3))
}


def _cluster(n=3, rate="200Mbit/s", **more):
    return cluster_from_dict(
        RATE
        | {
            "bandwidth": rate,
            "latency_by_size": [["4B", "60us"], ["16KiB", "90us"], ["256KiB", "250us"]],
            "launch_per_collective": "300us",
            "launch_per_message": "120us",
        }
        | more,
        n,
    )


def _seen(cluster, spread=0.0, runs=9, seed=1, sizes=SIZES, change=lambda name, time_s: time_s):
    """Times as the cluster would have them, each run a little off."""
    chance = np.random.default_rng(seed)
    cells = [(name, size) for name in patterns(cluster.n) for size in sizes]
    times = predict(cluster, [Observation(*cell, (1.0,)) for cell in cells]).tolist()
    return [
        Observation(*cell, tuple(change(cell[0], t) * (1 + spread * chance.standard_normal(runs))))
        for cell, t in zip(cells, times, strict=True)
    ]


def _true(cluster):
    known = {name: getattr(cluster, name) for name in LAUNCHES}
    return known | {latency_at(nbytes): s for nbytes, s in cluster.latency_by_size}


@pytest.mark.parametrize("burst", ["0B", "32KiB"])
@pytest.mark.parametrize("n", [2, 3])
def test_constants_are_found_again_to_many_digits_without_noise(n, burst):
    cluster = _cluster(n, burst=burst)
    seen = _seen(cluster)
    calibration = found(seen, LOCAL, n, RATE | {"burst": burst}, "test")
    back = cluster_from_dict(calibration.cluster, n)
    assert predict(back, seen) == pytest.approx([one.measured_s for one in seen], rel=1e-3)
    if burst == "0B" and n == 3:
        for name, value in _true(cluster).items():
            assert calibration.constants[name]["value"] == pytest.approx(value, rel=1e-3), name


@pytest.mark.parametrize("seed", range(2))
def test_and_within_their_intervals_with_noise(seed):
    cluster = _cluster()
    seen = _seen(cluster, spread=0.01, seed=seed)
    constants = found(seen, LOCAL, 3, RATE, "test").constants
    inside = [
        constants[name]["low"] <= value <= constants[name]["high"]
        for name, value in _true(cluster).items()
    ]
    # Of five intervals of 95 %, now and then one misses; and they are not as wide as the unknown.
    assert sum(inside) >= len(inside) - 1
    width = constants["launch_per_message_s"]["high"] - constants["launch_per_message_s"]["low"]
    assert width < 120e-6


def test_a_rate_that_nobody_set_is_found_too():
    cluster = replace(_cluster(rate="8Gbit/s"), wire_time_per_payload_byte=1.0)
    seen = _seen(cluster, spread=0.002, sizes=SIZES_OF["gloo"].whole)
    calibration = found(seen, LOCAL, 3, None, "test")
    rate = calibration.constants["bandwidth"]
    assert rate["value"] == pytest.approx(1e9, rel=0.05)
    assert rate["low"] <= rate["value"] <= rate["high"]
    assert "wire_time_per_payload_byte" not in calibration.cluster
    assert cluster_from_dict(calibration.cluster, 8).ports[0].send_bytes_per_s == pytest.approx(
        rate["value"], rel=1e-5
    )


NVLINK = {
    "one latency": {"latency": "10us"},
    "by size": {
        "latency_by_size": [["4B", "5us"], ["64KiB", "8us"], ["1MiB", "20us"], ["8MiB", "30us"]]
    },
}


@pytest.mark.parametrize("latency", list(NVLINK))
def test_a_fast_link_with_jitter_is_fitted_well_enough_to_predict_a_large_ring(latency):
    """370 GB/s, 20 microseconds of jitter; what is predicted was not measured: 8 × 128 MiB."""
    launches = {"launch_per_collective": "10us", "launch_per_message": "3us"}
    true = {"bandwidth": "370GB/s"} | launches | NVLINK[latency]
    chance = np.random.default_rng(1)
    cases = [c for c in cases_for(3, "nccl", None, False) if c.name not in LOCAL]
    exact = predict(
        cluster_from_dict(true, 3), [Observation(c.name, c.size_bytes, (1.0,)) for c in cases]
    )
    seen = []
    for case, seconds in zip(cases, exact.tolist(), strict=True):
        runs = []
        while not enough(runs, case.runs, case.confidence):
            runs.append(max(1e-6, seconds + 20e-6 * chance.standard_normal()))
        seen.append(Observation(case.name, case.size_bytes, tuple(runs)))
    free = {name: Observation(name, 2**27, (1e-2,) * 6) for name in LOCAL}
    calibration = found(seen, free, 3, None, "test")
    assert calibration.constants["bandwidth"]["value"] == pytest.approx(370e9, rel=0.02)
    ring_s, true_s = (
        simulate(build_schedule("ring", 8), cluster_from_dict(d, 8), 2**25, 4).trace.time_s
        for d in (calibration.cluster, true)
    )
    assert ring_s == pytest.approx(true_s, rel=0.05)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("quick", [True, False])
def test_where_no_rate_is_set_large_messages_show_it(backend, quick):
    cases = cases_for(2, backend, None, quick)
    by_size = {c.size_bytes: c for c in cases if c.name == "one way"}
    sizes = sorted(by_size)
    assert sizes[-1] >= max(usual_sizes[backend])
    assert sizes[-2] * 8 >= sizes[-1] >= {"gloo": 2**24, "nccl": 2**27}[backend]
    assert by_size[sizes[-1]].runs > by_size[sizes[0]].runs
    local = {c.size_bytes for c in cases if c.name in LOCAL}
    assert min(local) >= {"gloo": 2**22, "nccl": 2**26}[backend]
    assert not any(c.counted for c in cases)


FRAMED = RATE | {"counter_bytes_per_payload_byte": 1.0456}


@pytest.mark.parametrize(
    ("factors", "kept"),
    [([1.0460, 1.0461, 1.0459] * 3, True), ([1.09, 1.0901, 1.0899] * 3, False)],
)
def test_the_protocol_factor_is_counted_and_held_to_the_set_one(factors, kept):
    calibration = found(_seen(_cluster(), sizes=(4, 2**20)), LOCAL, 3, FRAMED, "test", factors)
    constant = calibration.constants["protocol_factor"]
    assert constant["value"] == pytest.approx(factors[0])
    assert min(factors) <= constant["low"] < constant["value"] < constant["high"] <= max(factors)
    assert constant["unit"] == "B/B"
    wanted = 1.0456 if kept else factors[0]
    for name in ("wire_time_per_payload_byte", "counter_bytes_per_payload_byte"):
        assert calibration.cluster[name] == pytest.approx(wanted, rel=1e-6)
    said = "1.0456, is kept: counted, it is 1.046" if kept else "1.0456, is not kept"
    assert said in calibration.notes[1]
    assert "protocol_factor" in table(calibration)


def test_without_counters_there_is_no_protocol_factor_and_it_says_so():
    for known in (FRAMED, None):
        calibration = found(_seen(_cluster(), sizes=(4, 2**20)), LOCAL, 3, known, "test")
        assert "protocol_factor" not in calibration.constants
        assert any("without counters" in note for note in calibration.notes)


def test_a_counted_run_has_the_frames_of_all_ranks_per_byte_of_payload():
    payload = [{"sent": 1000, "received": 0}, {"sent": 3000, "received": 1000}]
    runs = [{"sent": [1046, 3138]}, {"sent": [1050, 3150]}]
    result = CaseResult([1.0, 1.0], runs, [], payload)
    assert frame_factors(result) == pytest.approx([1.046, 1.05])
    assert frame_factors(CaseResult([1.0], [], [], payload)) == []
    counted = [c for c in cases_for(3, "gloo", parse_network("200Mbit/s"), True) if c.counted]
    assert {c.size_bytes for c in counted} == {2**20}
    assert {c.name for c in counted} > {"one way", "chain"}


@pytest.mark.parametrize(
    ("rate", "kept"),
    [("200.2Mbit/s", True), ("205Mbit/s", True), ("190Mbit/s", False), ("210Mbit/s", False)],
)
def test_a_rate_that_was_set_is_kept_within_three_percent(rate, kept):
    calibration = found(_seen(_cluster(rate=rate), spread=1e-4), LOCAL, 3, RATE, "test")
    constant = calibration.constants["bandwidth"]
    assert constant["low"] <= constant["value"] <= constant["high"]
    assert (calibration.cluster["bandwidth"] == "200Mbit/s") == kept
    said = "the rate that was set is kept" if kept else "the rate that was set is not kept"
    assert calibration.notes[0].startswith(said)
    if not kept:
        real = cluster_from_dict({"bandwidth": rate}, 2).ports[0].send_bytes_per_s
        found_rate = cluster_from_dict(calibration.cluster, 2).ports[0].send_bytes_per_s
        assert found_rate == pytest.approx(real, rel=0.005)


def test_what_the_model_lacks_shows_in_the_residuals():
    """A chain whose forwarding rank pays a millisecond that no constant stands for."""

    def slow_chain(name, time_s):
        return time_s + 1e-3 * (name == "chain")

    calibration = found(_seen(_cluster(), change=slow_chain), LOCAL, 3, RATE, "test")
    assert calibration.worst["pattern"] == "chain"
    assert calibration.worst["fitted_s"] < 0.8 * calibration.worst["measured_s"]
    assert "worst -" in table(calibration)
    assert "(chain, 4 B)" in table(calibration)


def test_bursts_that_are_not_modelled_show_in_the_residuals():
    seen = _seen(_cluster(burst="32KiB"))
    known = RATE | {"burst": "32KiB"}
    worst = [found(seen, LOCAL, 3, setting, "test").worst for setting in (RATE, known)]
    off = [abs(row["fitted_s"] / row["measured_s"] - 1) for row in worst]
    assert off[0] > 0.2
    assert off[1] < 0.01


def test_reduction_is_what_adding_costs_beyond_copying():
    of = reduction(LOCAL)
    assert of["value"] == pytest.approx(1e-3 * 1e9 / (PASSES * 2**20))
    none = reduction({ADDING: LOCAL[COPYING], COPYING: LOCAL[ADDING]})
    assert (none["value"], none["low"], none["high"]) == (0.0, 0.0, 0.0)


def test_the_file_serves_any_number_of_ranks_and_the_report_has_everything(tmp_path):
    calibration = found(_seen(_cluster(), spread=0.01), LOCAL, 3, RATE, "here")
    path = tmp_path / "c.json"
    path.write_text(json.dumps(calibration.cluster), encoding="utf-8")
    for n in (1, 2, 16):
        cluster = load_cluster(str(path), n)
        assert cluster.wire_time_per_payload_byte == 1.0456
        assert cluster.source == "fitted to point-to-point patterns (here)"
    report = json.loads(calibration.to_json())
    assert set(report) == {"cluster", "constants", "residuals", "notes"}
    assert set(report["constants"]["bandwidth"]) == {"value", "low", "high", "unit"}
    keys = {"pattern", "gpus", "size_bytes", "measured_s", "fitted_s"}
    assert {frozenset(row) for row in report["residuals"]} == {frozenset(keys)}
    assert len(report["residuals"]) == len(PATTERNS) * len(SIZES)


def test_the_search_gets_over_the_corners_of_bursts():
    """From a start that is off by far."""
    cluster = _cluster(burst="32KiB")
    far = replace(cluster, launch_per_message_s=5e-3, launch_per_collective_s=0.0)
    seen = _seen(cluster)
    names = (*LAUNCHES, *(latency_at(size) for size in SIZES[:-1]))
    fitted = fit(Model(far, names), seen)
    assert fitted.fitted_s == pytest.approx([one.measured_s for one in seen], rel=1e-3)


def test_patterns_keep_to_the_ranks_that_there_are():
    assert patterns(2) == ["one way", "two ways", "there and back", "in a row"]
    assert patterns(3) == list(PATTERNS)
    assert str(pattern("fan-in", 3)).splitlines() == ["0: 1->0 c0 copy", "0: 2->0 c0 copy"]


def test_a_median_is_sure_when_its_order_statistics_are():
    assert median_interval([3, 1, 2]) is None
    assert not enough([1.0] * 5 + [2.0] * 3, 8, 0.02)
    assert enough([1.0] * 12, 12, 0.02)
    assert enough([float(x) for x in range(32)], 8, 0.02)  # four times as many: no more


# The command.


@pytest.fixture
def _gloo():
    absent = [p for p in ("torch", "psutil") if importlib.util.find_spec(p) is None]
    require("gloo", f"pip install {' '.join(absent)}" if absent else None)


def _measured(job, on_result=None):
    """As if this machine were that cluster: for each case what the simulator says."""
    assert job.n == 3
    cluster = _cluster(job.n, burst="32768B", wire_time_per_payload_byte=1514 / 1448)
    results = []
    for case in job.cases:
        if case.name in LOCAL:
            runs = LOCAL[case.name].runs_s
        else:
            runs = (predict(cluster, [Observation(case.name, case.size_bytes, (1.0,))])[0],) * 6
        results.append(CaseResult([float(r) for r in runs], [], [], None))
    return results


@pytest.fixture
def _machine(monkeypatch):
    monkeypatch.setattr("real_gpu.processes.stage.measure", _measured)


@pytest.mark.usefixtures("_machine")
def test_the_command_writes_what_the_simulator_reads(tmp_path, capsys):
    out, report = tmp_path / "c.json", tmp_path / "r.json"
    words = ["calibrate", "--network", "200Mbit/s", "--quick", "--out", str(out)]
    assert main([*words, "--report", str(report)]) == 0
    text = capsys.readouterr().out
    for name in ("launch_per_message_s", "bandwidth", "reduce_per_GB", "95 % interval"):
        assert name in text
    document = json.loads(report.read_text(encoding="utf-8"))
    assert document["cluster"] == json.loads(out.read_text(encoding="utf-8"))
    case = ["simulate", "ring", "--gpus", "4", "--size", "8MiB", "--cluster", str(out), "--json"]
    assert simcore_main(case) == 0
    fluid_s = 2 * 3 * 2 * 2**20 * 1514 / 1448 / 25e6
    assert json.loads(capsys.readouterr().out)["time_s"] == pytest.approx(fluid_s, rel=0.01)


@pytest.mark.usefixtures("_machine")
def test_large_sizes_are_left_out_where_they_take_long_and_progress_is_told():
    heard = []
    calibration = calibrate("10Mbit/s", 3, "gloo", True, heard.append)
    sizes = {row["size_bytes"] for row in calibration.residuals}
    assert sizes == {4, 2**16, 2**18}
    assert heard == ["measuring 20 patterns on 3 ranks", "fitting"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus", "4"], "--gpus '4': accepted are 2 and 3"),
        (["--gpus", "1"], "--gpus '1': accepted is a whole number, at least 2"),
        (["--network", "25"], "rate '25' has no unit; accepted: 25Gbit/s"),
        (["--network", "two-nodes.json"], "'two-nodes.json': accepted is RATE[,LATENCY]"),
        (["--network", "shaped-200mbit"], "'shaped-200mbit': accepted is RATE[,LATENCY]"),
        (["--backend", "mpi"], "unknown backend 'mpi'"),
        (["--network", "1Gbit/s", "--backend", "nccl"], "accepted: --backend gloo"),
        (["--report", "/nowhere/r.json"], "file '/nowhere/r.json' cannot be written"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path, capsys):
    assert main(["calibrate", "--out", str(tmp_path / "c.json"), *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.gloo
@pytest.mark.usefixtures("_gloo")
def test_real_ranks_run_every_pattern_and_the_local_passes(tmp_path, monkeypatch, capsys):
    """Two processes on the loopback interface; what they take is nobody's business here."""
    monkeypatch.setitem(SIZES_OF, "gloo", Sizes((), (4, 2**12, 2**16), 2**16))
    monkeypatch.setattr("real_gpu.validation.traffic._QUICK_RUNS", 2)
    out = tmp_path / "c.json"
    assert (
        main(
            [
                "calibrate",
                "--gpus",
                "2",
                "--backend",
                "gloo",
                "--quick",
                "--json",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert {row["pattern"] for row in report["residuals"]} == {
        "one way",
        "there and back",
        "in a row",
    }
    assert all(row["measured_s"] > 0 for row in report["residuals"])
    assert load_cluster(str(out), 5).n == 5
    assert uniform(2, 1.0).burst_bytes == load_cluster(str(out), 2).burst_bytes == 0
