"""Validation, calibration and steps on ranks that torchrun or srun has started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from real_gpu.commands import parser
from real_gpu.commands.calibrate import _calibrate
from real_gpu.commands.step import _take
from real_gpu.commands.validate import _validate
from real_gpu.job import Case, CaseResult, Job, RunError, reference_schedule
from real_gpu.validation.links import calibrate_links
from real_gpu.validation.patterns import ADDING, COPYING
from real_gpu.validation.traffic import Sizes
from simcore.cluster import Cluster
from simcore.cluster_file import cluster_from_dict
from simcore.engine import simulate
from simcore.measured.validation import Validation, validation_from_json
from tests.support import read_record

pytest.importorskip("psutil", reason="pip install psutil")
pytest.importorskip("torch", reason="pip install torch")

from real_gpu.processes.machines import Launched
from real_gpu.processes.peers import Peers
from real_gpu.processes.worker import Rank
from tests.launched import Processes

CLUSTER = '{"bandwidth": "1GB/s", "latency": "20us"}'
VALIDATE = "validate --quick --cluster cluster.json --out out"
STEP = "step ddp --model two.csv --gpus 2 --forward 1ms --backward 1ms"
FEW = {
    f"real_gpu.validation.traffic.{name}": value
    for name, value in {
        "SIZES": {"gloo": Sizes((4, 2**16), (4, 2**16), 2**16)},
        "_QUICK_PATTERNS": ("in a row",),
        "_QUICK_RUNS": 2,
        "_MORE": 1,
    }.items()
}
PERFORM = {"validate": _validate, "calibrate": _calibrate, "step": _take}


def stage(*ranks_on: int, gpus: bool = False) -> Launched:
    """So many ranks on each machine, none of which is there."""
    machines = [number for number, count in enumerate(ranks_on) for _ in range(count)]
    hellos: dict[int, dict[str, Any]] = {
        rank: {
            "machine": f"machine {number}",
            "interface": f"eth{number}",
            "flag": None,
            "no_nccl": None if gpus else "its torch has no NCCL",
            "gpu": {
                "name": f"GPU {rank}",
                "index": 0,
                "id": f"{number} {rank}",
                "nccl": "2.29",
                "several": "",
            },
        }
        for rank, number in enumerate(machines)
    }
    return Launched("torchrun", Peers(len(machines), Rank()), hellos)


@pytest.mark.parametrize(
    ("words", "ranks_on", "says"),
    [
        (VALIDATE + " --network 1Gbit/s", (1, 1), "--network: under torchrun the network is real"),
        (VALIDATE + " --gpus 3", (1, 1), "3 ranks are more than the 2 that torchrun started"),
        (VALIDATE, (1,), "1 rank has no links; accepted: 2 or more"),
        (
            "validate --out out",
            (2, 1),
            "2 machines have 2, 1 ranks; to calibrate, accepted: as man",
        ),
        ("calibrate --out c.json", (1, 2), "2 machines have 1, 2 ranks; to calibrate, accepted: a"),
        ("calibrate --network 1Gbit/s --out c.json", (1, 1), "the network is real; leave it away"),
        (
            "calibrate --gpus 2 --out c.json",
            (2, 2),
            "--gpus '2': with several ranks on each machin",
        ),
        ("calibrate --gpus 3 --out c.json", (1, 1), "3 ranks are more than the 2 that torchrun"),
        (STEP.replace("gpus 2", "gpus 5") + " --out s.json", (2, 2), "5 ranks are more than the 4"),
        (STEP + " --network 1Gbit/s --out s.json", (1, 1), "the network is real; leave it away"),
    ],
)
def test_what_does_not_go_with_the_ranks_that_are_there(
    words, ranks_on, says, tmp_path, monkeypatch
):
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    args = parser().parse_args(words.split())
    with pytest.raises(ValueError, match=r"accepted|leave|are more") as caught:
        PERFORM[args.command](args, stage(*ranks_on))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"cluster.json", "two.csv"}


def test_what_is_said_of_the_ranks_is_of_those_that_take_part():
    three = stage(1, 1, 1)
    assert three.choose("auto", 2).why == (
        "as torchrun started the ranks on 2 machines over eth0 and eth1"
    )
    assert stage(2).choose("auto", 2).why.endswith("on 1 machine over eth0")
    assert three.choose("auto", 2).backend == "gloo"
    with pytest.raises(RunError, match="rank 0 cannot use NCCL: its torch has no NCCL"):
        three.choose("nccl", 2)
    assert stage(1, 1, gpus=True).choose("auto", 2).backend == "nccl"


class Pretend(Launched):
    """Ranks whose every run takes what the simulator says of it on this cluster."""

    def __init__(self, truth: dict[str, Any], *ranks_on: int) -> None:
        real = stage(*ranks_on)
        super().__init__("torchrun", real.peers, real.hellos)
        self.truth, self.asked = truth, list[Job]()

    def measure(self, job: Job, on_result: Any = None) -> list[CaseResult]:
        self.asked.append(job)
        cluster = cluster_from_dict(self.truth, job.n)
        times = [0.0 if c.name in (ADDING, COPYING) else seconds(c, cluster) for c in job.cases]
        return [CaseResult([time_s] * 6, [], [], None) for time_s in times]


def seconds(case: Case, cluster: Cluster) -> float:
    run = simulate(reference_schedule(case, cluster.n), cluster, case.size_bytes, 1, keep="totals")
    return run.trace.time_s


@pytest.mark.parametrize(("uplink", "machines"), [("1.5GB/s", 2), ("4GB/s", 3)])
def test_both_kinds_of_links_are_found_again(uplink, machines):
    """Four ranks a machine; one of them gets 1 GB/s out of it, all together what the uplink has."""
    level = {"name": "node", "size": 4, "port": "8GB/s", "latency": "4us", "uplink": uplink}
    costs = {"launch_per_message": "3us", "launch_per_collective": "7us"}
    truth = {"bandwidth": "1GB/s", "latency": "30us", "levels": [level]} | costs
    there = Pretend(truth, *[4] * machines)
    found = calibrate_links(None, 3, "auto", True, stage=there)
    (job,) = there.asked
    n = 4 * machines
    assert job.n == n
    for name, elements in (("ring", 2**18), ("ps", 2**16), ("tree", 2**10)):
        expected, got = (
            seconds(Case(name, elements), cluster_from_dict(document, n))
            for document in (truth, found.cluster)
        )
        assert got == pytest.approx(expected, rel=0.01), name
    assert found.notes[-3:] == (
        f"between machines: measured among ranks {'0, 4 and 5' if machines == 2 else '0, 4 and 8'}",
        "out of a machine: measured with ranks 0, 1, 2 and 3 sending at once",
        "within a machine: measured among ranks 0, 1 and 2",
    )
    for row in found.residuals:
        assert row["fitted_s"] == pytest.approx(row["measured_s"], rel=0.01), row


def test_links_that_are_alike_are_measured_on_three_ranks():
    there = Pretend({"bandwidth": "1GB/s", "latency": "30us"}, 1, 1, 1, 1)
    found = calibrate_links(None, 3, "auto", True, stage=there)
    assert [job.n for job in there.asked] == [3]
    between = "3 ranks on 3 machines over eth0 and eth1 and eth2"
    assert found.notes[-1:] == (f"measured between the first {between}",)
    assert found.cluster["source"].endswith(f"(gloo, {between})")
    assert cluster_from_dict(found.cluster, 4).ports[0].send_bytes_per_s == pytest.approx(1e9)


def write_inputs(folder: Path) -> None:
    (folder / "cluster.json").write_text(CLUSTER)
    (folder / "two.csv").write_text("name,shape\na,64x8\nb,64\n")


@pytest.fixture
def launched(tmp_path):
    """Start ranks on a command; whatever a test leaves is killed."""
    write_inputs(tmp_path)
    runs: list[Processes] = []

    def launch(command: str, ranks: int, **how: Any) -> Processes:
        runs.append(Processes(tmp_path, [command] * ranks, **how))
        return runs[-1]

    yield launch
    for run in runs:
        run.kill()


def validation_in(folder: Path) -> Validation:
    return validation_from_json((folder / "validation.json").read_text(encoding="utf-8"))


@pytest.mark.gloo
@pytest.mark.skipif(sys.platform != "linux", reason="forks ranks: needs Linux")
class TestRanks:
    def test_a_validation_meets_anew_for_each_number_of_ranks(self, launched, tmp_path):
        command = "validate --quick --only ring,torch.all_reduce --sizes 64KiB --json --out out"
        ended = launched(command, 4, shifts_s=(0.0, 0.0, 5000.0, 5000.0), patches=FEW).end()
        assert ended.status == [0] * 4, ended
        assert ended.out[1:] == ended.err[1:] == [""] * 3
        assert ended.err[0].startswith("backend: gloo, as torchrun started the ranks on 2 machines")
        found = validation_in(tmp_path / "out")
        assert json.loads(ended.out[0]) == json.loads(json.dumps(found.summary()))
        assert {(c.name, c.gpus) for c in found.cells} == {
            (name, n) for name in ("ring", "torch.all_reduce") for n in (2, 4)
        }
        cluster, calibration = found.cluster(None) or {}, found.calibration(None) or {}
        assert cluster["source"].endswith("(gloo, 4 ranks on 2 machines over lo)")
        assert cluster["levels"][0]["size"] == 2
        assert len(calibration["notes"]) == 4
        assert {row["pattern"] for row in calibration["residuals"]} == {
            "in a row",
            "in a row, within",
            "one way, 2 at once",
        }
        assert found.environment["machine"]["machines"] == 2
        for cell in found.cells:
            record = read_record(tmp_path / "out" / "records" / f"{cell.stem}.json")
            machine = record.environment["machine"]
            assert (machine["launcher"], machine["machines"]) == ("torchrun", cell.gpus // 2)
            assert record.network is None
            if cell.name == "ring":
                assert sum(record.sent_bytes or ()) == 2 * (cell.gpus - 1) * 64 * 1024
                assert cell.simulated_s is not None

    def test_a_step_leaves_the_others_idle(self, launched, tmp_path):
        ended = launched(STEP + " --runs 1 --out s.json", 3, srun=True).end()
        assert ended.status == [0, 0, 0], ended
        assert ended.out[0].startswith("ddp (replayed), 2 ranks, gloo")
        document = json.loads((tmp_path / "s.json").read_text())
        assert document["environment"]["machine"]["launcher"] == "srun"
        assert document["sent_bytes"] == [4 * (64 * 8 + 64)] * 2

    @pytest.mark.parametrize("ending", ["a rank that idles is killed", "Ctrl-C"])
    def test_what_has_been_measured_stays(self, ending, launched, tmp_path):
        sizes = ",".join(f"{kib}KiB" for kib in range(4, 404, 4))
        run = launched(f"{VALIDATE} --only ring --sizes {sizes}", 3)
        kept, deadline = tmp_path / "out" / "validation.json", time.monotonic() + 100
        while not kept.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        if ending == "Ctrl-C":
            for process in run.processes:  # as a terminal does
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid or 0, signal.SIGINT)
        else:
            run.processes[2].kill()
        ended = run.end(within_s=60)
        assert ended.status == [1, 1, 1 if ending == "Ctrl-C" else -9], ended
        count = len(validation_in(tmp_path / "out").cells)
        assert 1 <= count < 200
        cells = f"the {count} cells" if count > 1 else "the one cell"
        why = "stopped by SIGINT" if ending == "Ctrl-C" else "rank 2 died, or its machine is out o"
        *_, last = ended.err[0].splitlines()
        assert last.startswith(f"python -m real_gpu: {why}")
        assert last.endswith(f"; out holds {cells} measured until then")
        assert "once more" not in ended.said
        assert ended.err[1:] == ["", ""]
        assert "".join(ended.out) == ""
        assert (tmp_path / "out" / "report.html").exists()
