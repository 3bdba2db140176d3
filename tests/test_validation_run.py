"""Running a validation: what it measures, that results stay as they come, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from real_gpu.backends import Choice, Torch, choose
from real_gpu.backends import Machine as BackendMachine
from real_gpu.commands import COMMANDS, parser
from real_gpu.job import (
    Case,
    CaseResult,
    Job,
    RunError,
    parse_network,
)
from real_gpu.network.probes import CALIBRATION
from real_gpu.network.shaped import why_not
from real_gpu.processes.measure import measure
from real_gpu.processes.stage import Here
from real_gpu.validation import suite as validate_suite
from real_gpu.validation.folder import Folder
from real_gpu.validation.progress import Progress
from real_gpu.validation.suite import NAMES, STEPS, MiB, make_suite
from simcore.measured.step_records import load_step_records
from simcore.measured.validation import Validation, validation_from_json
from simcore.schedule import Op
from simcore.trace import Lane, Source, Trace
from simcore.units import FRAME_FACTOR
from tests.support import read_record, require
from views.report.blocks import markdown
from views.report.contents import report

REPOSITORY = Path(__file__).resolve().parent.parent
FRAMES = {
    "wire_time_per_payload_byte": FRAME_FACTOR,
    "counter_bytes_per_payload_byte": FRAME_FACTOR,
}
BARE = {"bandwidth": "200Mbit/s", "latency": "40us"}  # as cluster files are: without frames
CLUSTER = BARE | FRAMES
ABOUT = {"versions": {}, "machine": {}, "command": "c", "date": "2026-11-30"}
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="pip install torch"
)


@pytest.fixture
def anywhere(monkeypatch):
    """A machine with Gloo and the shaped network, without looking for them."""
    monkeypatch.setattr(validate_suite, "why_not", lambda: None)
    with_gpus(monkeypatch, 0)


def with_gpus(monkeypatch, count: int) -> None:
    """Torch sees so many."""
    torch = Torch("2.13", ("NVIDIA L4",) * count, "2.29.3" if count else None, True)

    def chosen(asked: str, n: int, **how: Any) -> Choice:
        return choose(BackendMachine(torch), asked, n, **how)

    monkeypatch.setattr(validate_suite, "choose_backend", chosen)
    monkeypatch.setattr(validate_suite, "torch_here", lambda: torch)


def suite(**asked: Any) -> validate_suite.Suite:
    return make_suite(**{"backend": "auto", "network": None, "gpus": None, "quick": False} | asked)


def test_the_whole_suite_covers_what_it_promises(anywhere):
    found = suite()
    assert found.networks == ("100Mbit/s", "200Mbit/s")
    cells = {
        (case.name, n, case.size_bytes, network)
        for network in found.networks
        for n in found.ranks
        for case in found.cases(n, network)
    }
    for name in NAMES:
        ranks = {n for called, n, *_ in cells if called == name}
        wanted = {"hierarchical": {4, 6}, STEPS: set()}.get(name, {2, 3, 4, 5, 6})
        assert ranks == wanted, name
    assert {size for *_, size, _ in cells} == {MiB, 2 * MiB, 4 * MiB}
    assert len(cells) >= 60
    assert all(c.runs >= 3 for n in found.ranks for c in found.cases(n, "200Mbit/s"))
    assert found.steps(4, "200Mbit/s")
    assert found.seconds() < 30 * 60
    assert suite(quick=True).seconds() < 110
    assert suite(quick=True).ranks == (2, 4)


def test_steps_are_validated_on_every_backend_or_it_is_said_why_not(anywhere, monkeypatch):
    shaped, unshaped = suite(), suite(network="none")
    assert unshaped.steps(2, None) == unshaped.steps(4, None) == shaped.steps(2, "100Mbit/s")
    assert unshaped.without_steps is shaped.without_steps is None
    assert suite(network="none", quick=True, names=("steps",)).steps(2, None)
    with_gpus(monkeypatch, 8)
    assert suite().backend == "nccl"
    assert suite().steps(4, None)
    assert "were not asked for" in suite(quick=True).without_steps
    with_gpus(monkeypatch, 0)
    late = suite(network="100Mbit/s,1ms,50Mbit/s")
    assert late.steps(2, "50Mbit/s")
    assert not late.steps(2, "100Mbit/s,1ms")
    assert "100Mbit/s,1ms" in late.without_steps
    assert "they take 2 to 4 ranks" in str(replace(unshaped, ranks=(6,)).without_steps)


def test_steps_without_a_shaped_network_are_predicted_on_the_calibrated_cluster(
    anywhere, tmp_path, monkeypatch
):
    pytest.importorskip("torch", reason="pip install torch")
    from real_gpu.validation import steps, validate

    asked = []

    def take_steps(left: Any, network: Any, **how: Any) -> list[Any]:
        asked.append((network, how["backend"], [step.name for step in left]))
        record = load_step_records()[0]
        return [
            (
                replace(
                    record,
                    name="ddp",
                    source="replayed",
                    backend=how["backend"],
                    network=None,
                    instrument=None,
                    counter_sent_bytes=None,
                ),
                None,
            )
            for _ in left
        ]

    monkeypatch.setattr(steps, "take_steps", take_steps)
    folder = Folder(str(tmp_path / "out"), ABOUT)
    found = suite(network="none", gpus=2, names=("steps",))
    validate.validate(found, folder, Progress(1.0), {"bandwidth": "5GB/s"}, "c")
    assert asked == [(None, "gloo", ["torch.ddp", "torch.ddp", "ddp", "dp", "ps"])]
    assert folder.validation.cells[0].kind == "step"
    assert all(cell.simulated_s and cell.counted for cell in folder.validation.cells)


def test_what_is_left_out_is_said_in_the_report(anywhere):
    left_out = str(suite(quick=True).without_steps)
    about = ABOUT | {"left_out": left_out}
    text = markdown(report(Validation((), {}, {}, about), {}, None))
    assert f"Left out: {left_out}." in text


def test_long_cells_have_fewer_runs(anywhere):
    runs = {case.size_bytes: case.runs for case in suite().cases(2, "100Mbit/s")[:3]}
    assert runs[MiB] > runs[4 * MiB]


def test_where_it_measures_and_why(anywhere, monkeypatch):
    assert "asked for" in suite(backend="gloo").why
    assert suite(network="none").networks == (None,)
    assert suite(network="100Mbit/s,1ms,50Mbit/s").networks == ("100Mbit/s,1ms", "50Mbit/s")
    monkeypatch.setattr(validate_suite, "why_not", lambda: "this is no Linux")
    assert suite().networks == (None,)
    assert suite().why == "gloo over the loopback interface, because this is no Linux"
    with pytest.raises(RunError, match="this is no Linux"):
        suite(network="100Mbit/s")
    with_gpus(monkeypatch, 8)
    assert suite(gpus=8).ranks == suite().ranks == (2, 3, 4, 6, 8)
    assert suite(gpus=8).backend == "nccl"


def test_more_ranks_than_gpus_are_not_given_to_nccl(anywhere, monkeypatch):
    with_gpus(monkeypatch, 2)
    assert suite().backend == suite(network="none").backend == "nccl"
    assert suite(gpus=8).backend == suite(gpus=8, network="none").backend == "gloo"
    assert "8 ranks are more than 2 CUDA devices" in suite(gpus=8).why
    with pytest.raises(RunError, match="8 ranks over NCCL need as many CUDA devices"):
        suite(gpus=8, backend="nccl")
    with_gpus(monkeypatch, 1)
    assert suite(network="none").backend == "gloo"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--gpus", "1"], "--gpus '1'"),
        (["--gpus", "two"], "--gpus 'two'"),
        (["--backend", "mpi"], "'mpi'"),
        (["--network", "200"], "'200' has no unit"),
        (["--network", "200Mbit/s,0.2Gbit/s"], "there already"),
        (["--network", "two-nodes.json"], "'two-nodes.json': accepted is RATE[,LATENCY]"),
        (["--network", "shaped-200mbit"], "'shaped-200mbit': accepted is RATE[,LATENCY]"),
        (["--network", "200Mbit/s", "--backend", "nccl"], "--backend gloo"),
        (["--only", "rnig"], "did you mean 'ring'"),
        (["--only", ""], "unknown name ''"),
        (["--only", ","], "unknown name ''"),
        (["--sizes", ""], "size ''"),
        (["--gpus", "65"], "--gpus '65': accepted is a whole number, 2 to 64"),
        (["--network", "200Mbit/s,none"], "accepted is none alone, or rates"),
        (["--only", "steps", "--network", "1Gbit/s,50us"], "or with a rate alone"),
        (["--only", "hierarchical", "--gpus", "3"], "accepted for hierarchical: --gpus 4"),
        (["--sizes", "6B"], "6 B is not accepted"),
        (["--sizes", "8"], "'8' has no unit"),
        (["--cluster", "nowhere.json"], "nowhere.json"),
        (["--out", "full"], "'full' is not empty"),
        (["--out", "file"], "'file'"),
        (["--out", "no/such"], "'no/such'"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(anywhere, tmp_path, monkeypatch, flags, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    args = parser().parse_args(
        ["validate", *(["--out", "new"] if "--out" not in flags else []), *flags]
    )
    with pytest.raises(ValueError, match=r".") as caught:
        COMMANDS["validate"].command(args)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {p.name for p in tmp_path.rglob("*")} == {"full", "mine", "file"}


class Machine(Here):
    """Measures nothing: answers each case with the next of ``spreads``, or fails at None."""

    def __init__(self, *spreads: float | None) -> None:
        self.spreads = iter(spreads)
        self.asked: list[list[str]] = []

    def measure(self, job: Job, on_result: Any = None) -> list[CaseResult]:
        self.asked.append([c.name for c in job.cases if c.name != CALIBRATION])
        for case in job.cases:
            if case.name == CALIBRATION:
                assert job.network is not None
                end_s = case.size_bytes * FRAME_FACTOR / job.network.bytes_per_s
                rows = [
                    [rank, lane, 0, 1 - rank, 0, Op.COPY, 1, 0.0, end_s, case.size_bytes]
                    for rank in (0, 1)
                    for lane in (Lane.SEND, Lane.RECEIVE)
                ]
                on_result(CaseResult([end_s], [], rows, None))
                continue
            spread = next(self.spreads)
            if spread is None:
                raise RunError("rank 1 was killed by SIGKILL during 'run'")
            payload = [{"sent": case.size_bytes, "received": case.size_bytes}] * job.n
            wire = [round(case.size_bytes * FRAME_FACTOR)] * job.n
            counters = dict.fromkeys(("sent", "received", "ack_sent", "ack_received"), wire)
            quiet = {"dropped": {}, "uplinks": {}, "waited_s": [], "changes": [], "settled": True}
            runs = [counters | quiet] * 3
            on_result(CaseResult([1.0, 1.0, 1.0 + spread], runs, [], payload))
        return []


def run(tmp_path: Path, *spreads: float | None) -> tuple[Folder, Machine]:
    pytest.importorskip("torch", reason="pip install torch")
    from real_gpu.validation import validate

    machine = Machine(*spreads)
    folder = Folder(str(tmp_path / "out"), ABOUT)
    asked = suite(network="200Mbit/s", gpus=2, names=("ring", "ps"), sizes=(MiB,))
    fails = pytest.raises(RunError, match="SIGKILL") if spreads.count(None) > 1 else nullcontext()
    with fails:
        validate.validate(asked, folder, Progress(1.0), BARE, "c", machine)
    return folder, machine


def test_what_is_not_quiet_is_measured_once_more(anywhere, tmp_path, monkeypatch):
    folder, machine = run(tmp_path, 0.5, 0.01, 0.02)
    assert machine.asked == [["ring", "ps"], ["ring"]]
    ring, ps = folder.validation.cells
    assert (ring.name, ring.believable, round(ring.spread or 0, 3)) == ("ring", True, 0.02)
    assert ps.believable
    assert ring.bytes_error == pytest.approx(0, abs=1e-6)
    assert folder.validation.cluster("200Mbit/s") == CLUSTER
    assert len(folder.validation.held_out) == 2


def test_what_is_never_quiet_is_kept_and_not_counted(anywhere, tmp_path, monkeypatch):
    done: list[float] = []
    said: list[str] = []
    monkeypatch.setattr(Progress, "did", lambda _, seconds: done.append(seconds))
    monkeypatch.setattr(Progress, "now", lambda _, what: said.append(what))
    folder, machine = run(tmp_path, 0.5, 0.01, 0.25)
    assert len(done) == 3  # the network and two cells, each once
    assert sum("once more" in what for what in said) == 1
    assert machine.asked == [["ring", "ps"], ["ring"]]
    ring, ps = folder.validation.cells
    assert not ring.believable
    assert "spread by 25.0%" in ring.notes[-1]
    assert folder.validation.held_out == (ps,)
    saved = (folder.path / "validation.json").read_text(encoding="utf-8")
    assert validation_from_json(saved) == folder.validation


def test_a_run_that_fails_is_taken_up_once_and_then_ends(anywhere, tmp_path, monkeypatch, capsys):
    folder, machine = run(tmp_path, 0.01, None, 0.01)
    assert machine.asked == [["ring", "ps"], ["ps"]]
    assert [c.name for c in folder.validation.held_out] == ["ring", "ps"]
    assert "tried once more" in capsys.readouterr().err


def test_a_run_that_fails_again_keeps_what_it_has(anywhere, tmp_path, monkeypatch):
    folder, machine = run(tmp_path, 0.01, None, None)
    assert machine.asked == [["ring", "ps"], ["ps"]]
    assert [c.name for c in folder.validation.cells] == ["ring"]


def test_a_calibration_is_kept_beside_the_cluster_it_gave(anywhere, tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="pip install torch")
    from real_gpu.validation import validate
    from real_gpu.validation.calibrate import Calibration

    asked: list[tuple[Any, ...]] = []

    def calibrate(network: str, gpus: int, backend: str, quick: bool, *_: Any) -> Calibration:
        asked.append((network, gpus, backend, quick))
        row = {"pattern": "one way", "gpus": 2, "size_bytes": 4, "measured_s": 1.0, "fitted_s": 1.1}
        latency = {"value": 1e-4, "low": 0.0, "high": 2e-4, "unit": "s"}
        cluster = CLUSTER | {"bandwidth": network}
        return Calibration(cluster, {"latency": latency}, (row, row), ("as set",))

    monkeypatch.setattr(validate, "calibrate_links", calibrate)
    folder = Folder(str(tmp_path / "out"), ABOUT)
    networks = "200Mbit/s,400Mbit/s"
    found = suite(network=networks, gpus=2, names=("ring", "ps"), sizes=(MiB,), quick=True)
    validate.validate(found, folder, Progress(1.0), None, "c", Machine(*[0.01] * 4))
    assert asked == [(name, 2, "gloo", True) for name in networks.split(",")]
    validation = folder.validation
    slow, fast = (c.simulated_s or 0 for c in validation.cells if c.name == "ring")
    assert slow == pytest.approx(2 * fast, rel=0.01)
    assert validation.summary()["calibrated_on"] == 4
    assert (validation.calibration("400Mbit/s") or {})["notes"] == ["as set"]
    files = {path.name for path in folder.path.iterdir()}
    assert {"cluster-200Mbit.json", "cluster-400Mbit.json", "validation.json"} <= files
    assert "cluster.json" not in files


def test_the_time_left_never_grows_past_what_was_expected(capsys):
    progress = Progress(100.0)
    progress.begin("2 ranks")
    progress.did(130.0)
    progress.begin("4 ranks")
    assert capsys.readouterr().err.splitlines() == [
        "2 ranks; about 2 min left",
        "4 ranks; about 1 s left",
    ]


def cli(folder: Path, *flags: str) -> subprocess.Popen[str]:
    (folder / "cluster.json").write_text(json.dumps(CLUSTER))
    words = ["validate", "--gpus", "2", "--cluster", "cluster.json", "--out", "out", *flags]
    return subprocess.Popen(
        [sys.executable, "-m", "real_gpu", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.shaped
@needs_torch
def test_end_to_end_on_the_shaped_network(tmp_path):
    require("shaped", why_not())
    flags = (
        "--network",
        "200Mbit/s",
        "--only",
        "ring,torch.all_reduce",
        "--sizes",
        "1MiB",
        "--quick",
    )
    out, said = cli(tmp_path, *flags, "--json").communicate(timeout=300)
    folder = tmp_path / "out"
    summary = json.loads((folder / "summary.json").read_text())
    assert json.loads(out) == summary, said
    assert said.splitlines()[0].startswith("backend: gloo over networks shaped to 200Mbit/s")
    assert summary["measured_cells"] == 2
    assert summary["calibrated_on"] == 0
    validation = validation_from_json((folder / "validation.json").read_text())
    assert json.loads(json.dumps(validation.summary())) == summary
    ring, library = validation.cells
    assert (ring.name, library.name) == ("ring", "torch.all_reduce")
    assert ring.bytes_error is not None
    assert abs(ring.bytes_error) < 0.02
    assert library.simulated_s is None
    for cell in validation.cells:
        record = read_record(folder / "records" / f"{cell.stem}.json")
        assert (record.median_s, record.source) == (cell.measured_s, cell.source)
        assert "/" not in record.environment["command"].replace("Mbit/s", "")
    simulated = read_record(folder / "records" / f"{ring.stem}.json").simulated
    assert simulated is not None
    assert (simulated["time_s"], simulated["cluster"]) == (ring.simulated_s, CLUSTER)
    for source in (Source.SIMULATED, Source.REPLAYED):
        text = (folder / "traces" / f"{ring.stem}-{source.value}.json").read_text()
        assert Trace.from_json(text).source == source
    assert json.loads((folder / "cluster.json").read_text()) == CLUSTER
    for file in ("report.md", "report.html"):
        text = (folder / file).read_text(encoding="utf-8")
        assert "ring" in text
        assert "torch.all_reduce" in text
    assert len((folder / "cells.csv").read_text().splitlines()) == 3


@pytest.mark.gloo
@needs_torch
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to one process")
def test_ctrl_c_keeps_what_has_been_measured(tmp_path):
    sizes = ",".join(f"{kib}KiB" for kib in range(4, 204, 4))
    process = cli(tmp_path, "--network", "none", "--sizes", sizes)
    kept = tmp_path / "out" / "validation.json"
    deadline = time.monotonic() + 200
    while not kept.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert out == ""
    validation = validation_from_json(kept.read_text(encoding="utf-8"))
    count = len(validation.cells)
    assert 1 <= count < 50 * 7
    cells = f"the {count} cells" if count > 1 else "the one cell"
    assert said.splitlines()[-1] == (
        f"python -m real_gpu: stopped by SIGINT; out holds {cells} measured until then"
    )
    assert "Traceback" not in said
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == validation.summary()
    lines = (tmp_path / "out" / "cells.csv").read_text().splitlines()
    assert len(lines) == 1 + count
    assert (tmp_path / "out" / "report.html").exists()
    assert not list((tmp_path / "out").rglob(".*"))


@pytest.mark.shaped
@needs_torch
def test_results_arrive_as_they_are_measured():
    """The second case fails, yet the first one's result is there."""
    require("shaped", why_not())
    mutant = Case("ring", 1001, runs=1, program="0: 0->1 c0 copy")
    seen: list[CaseResult] = []
    with pytest.raises(RunError, match="wrong result"):
        measure(
            Job(2, (Case("ring", 1001, runs=1), mutant), network=parse_network("200Mbit/s")),
            seen.append,
        )
    assert len(seen) == 1
    assert seen[0].payload is not None
