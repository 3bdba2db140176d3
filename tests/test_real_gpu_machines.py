"""The same command under torchrun and srun: every process a rank, one line whatever goes wrong."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from real_gpu.backends import Choice
from real_gpu.commands import COMMANDS, parser
from real_gpu.job import Case, CaseResult, Job, RunError
from real_gpu.network.shaped import namespace_command, package_path, why_not
from real_gpu.processes.machines import Asked, _check_memory, agree
from real_gpu.processes.meeting import Line, gather, join
from real_gpu.processes.seats import Seat, find_seat
from real_gpu.processes.stage import Here
from simcore.trace import Trace
from tests.support import read_record, require

psutil = pytest.importorskip("psutil", reason="pip install psutil")
pytest.importorskip("torch", reason="pip install torch")

from tests.launched import Processes  # noqa: E402

gloo = [
    pytest.mark.gloo,
    pytest.mark.skipif(sys.platform != "linux", reason="forks ranks: needs Linux"),
]
RING = "run ring --gpus {n} --size 64KiB --runs 2 --out record.json"
RING_2 = RING.format(n=2)
LONG = "run ring --gpus 2 --size 64KiB --runs 100000 --out record.json"

SEAT = Seat("torchrun", 1, 2, 1, "127.0.0.1", 1, agent=True, one_machine=True)
TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_ID": "0",
    "SLURM_NNODES": "2",
    "MASTER_ADDR": "node0",
}


def test_seats_of_torchrun_and_srun():
    seat = Seat("torchrun", 3, 4, 1, "node0", 29500, agent=True)
    assert find_seat(TORCHRUN) == seat
    assert find_seat(SRUN) == replace(seat, launcher="srun", agent=False, port=23456)
    assert find_seat(SRUN | TORCHRUN) == seat  # torchrun, itself started by srun
    assert find_seat(SRUN | {"MASTER_PORT": "7"}).port == 7
    alone = {k: v for k, v in SRUN.items() if k != "MASTER_ADDR"} | {"SLURM_NNODES": "1"}
    assert find_seat(alone) == replace(find_seat(SRUN), address="127.0.0.1", one_machine=True)


def test_one_rank_on_each_machine_speaks_for_a_rank_0_that_is_gone():
    places = [(rank, rank % 3) for rank in range(7)]
    seats = [Seat("torchrun", rank, 7, local, "node0", 1) for rank, local in places]
    assert [seat.rank for seat in seats if seat.first_here] == [1, 3, 6]


def test_what_srun_has_not_started_as_one_of_several_is_no_seat():
    script = {k: v for k, v in SRUN.items() if not k.startswith("SLURM_STEP")}
    assert find_seat(script) is None
    assert find_seat(SRUN | {"SLURM_STEP_NUM_TASKS": "1"}) is None
    assert find_seat({"RANK": "0"}) is None


@pytest.mark.parametrize(
    ("base", "changes", "says"),
    [
        (TORCHRUN, {"MASTER_ADDR": "", "MASTER_PORT": ""}, "MASTER_ADDR and MASTER_PORT not"),
        (TORCHRUN, {"RANK": "4"}, "RANK is '4'; accepted: 0 to 3"),
        (TORCHRUN, {"RANK": "-1"}, "RANK is '-1'"),
        (TORCHRUN, {"WORLD_SIZE": "many"}, "WORLD_SIZE is 'many'"),
        (TORCHRUN, {"MASTER_PORT": "66000"}, "MASTER_PORT is '66000'; accepted: 1 to 65535"),
        (SRUN, {"MASTER_ADDR": ""}, "export MASTER_ADDR="),
        (SRUN, {"SLURM_PROCID": "9"}, "SLURM_PROCID is '9'"),
    ],
)
def test_an_environment_that_cannot_be_is_one_line(base, changes, says):
    with pytest.raises(ValueError, match=r"accepted|export") as caught:
        find_seat(base | changes)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


class Store:
    """What the ranks use of torch's store."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.known = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.known:
            self.values[key] = value
            self.known.notify_all()

    def get(self, key: str) -> str:
        with self.known:
            assert self.known.wait_for(lambda: key in self.values, 20)
            return self.values[key]


def test_strangers_are_not_taken_for_ranks():
    """Whoever connects without the secret, or says what makes no sense, is hung up on."""
    store, seat = Store(), Seat("torchrun", 0, 3, 0, "127.0.0.1", 1, one_machine=True)
    met: list[tuple[int, Line, dict[str, Any]]] = []
    meeting = threading.Thread(target=lambda: met.extend(gather(seat, store)))
    meeting.start()
    at = json.loads(store.get("line"))
    guess = json.dumps({"rank": 1, "ranks": 3, "secret": "0" * 32})
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\xff\xfe\n", b"[]\n", b"\n", guess.encode() + b"\n"):
        with socket.create_connection((at["address"], at["port"])) as stranger:
            stranger.sendall(words)
            stranger.settimeout(20)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    lines = [join(replace(seat, rank=r), store, {"rank": r, "ranks": 3}) for r in (2, 1)]
    meeting.join(20)
    assert [rank for rank, _, _ in met] == [2, 1]
    for line in lines + [line for _, line, _ in met]:
        line.close()


def test_a_rank_of_another_world_is_named():
    hello = {"words": {}, "ranks": 4}
    with pytest.raises(
        ValueError, match="rank 2 was started as one of 3 ranks, rank 0 as one of 4"
    ):
        agree({0: hello, 2: hello | {"ranks": 3}})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("ring --backend device", "one process; accepted under torchrun: auto, nccl, gloo"),
        ("torch.dp", "torch.dp is one process; accepted: without torchrun"),
    ],
)
def test_what_is_one_process_is_not_for_many(words, says, monkeypatch):
    asked: list[Asked] = []
    monkeypatch.setattr("real_gpu.commands.run.find_seat", lambda _: SEAT)
    monkeypatch.setattr("real_gpu.processes.machines.attend", lambda seat, what: asked.append(what))
    flags = f"run {words} --gpus 2 --size 64KiB --out record.json"
    COMMANDS["run"].command(parser().parse_args(flags.split()))
    with pytest.raises(ValueError, match=says):
        asked[0].job()


class Ready(Here):
    """Ranks with this backend, on which nothing is measured."""

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def choose(self, asked: str, gpus: int, shaped: bool = False) -> Choice:
        return Choice(self.backend, "all have it")

    def measure(self, job: Job, on_result: Any = None) -> list[CaseResult]:
        raise RunError("would be measured")


@pytest.mark.parametrize(
    ("words", "ranks", "backend", "says"),
    [
        ("torch.ddp --hook bf16", 2, "gloo", "bf16 hook needs NCCL"),
        ("torch.ddp --hook bf16", 2, "nccl", None),
        ("torch.ddp --hook powersgd:2 --bucket-cap-mb 0.01", 2, "gloo", "several buckets"),
        ("torch.fsdp", 1, "gloo", "accepted: --gpus 2 or more"),
        ("torch.all_gather", 3, "gloo", "a multiple of 3 elements"),
    ],
)
def test_what_the_decided_backend_cannot_run_is_refused(words, ranks, backend, says, monkeypatch):
    asked: list[Asked] = []
    seat = replace(SEAT, ranks=ranks)
    monkeypatch.setattr("real_gpu.commands.run.find_seat", lambda _: seat)
    monkeypatch.setattr("real_gpu.processes.machines.attend", lambda seat, what: asked.append(what))
    flags = f"run {words} --gpus {ranks} --size 64KiB --out record.json"
    COMMANDS["run"].command(parser().parse_args(flags.split()))
    stage = Ready(backend)
    with pytest.raises(RunError if says is None else ValueError, match=says or "measured"):
        asked[0].lead(stage, asked[0].job())


def test_a_machine_bears_what_arrives_at_its_root_from_all_machines():
    """Two machines of two ranks; the root, rank 0, gets from three ranks."""
    hellos = {r: {"clock": f"machine {r // 2}", "available": 0.0} for r in range(4)}
    job = Job(4, (Case("ps", 250_000_000),))  # of 1 GB: 5.25 GB a rank
    for available, bears in (((15.1, 11.8), True), ((14.9, 11.8), False), ((15.1, 11.6), False)):
        for rank, hello in hellos.items():
            hello["available"] = available[rank // 2] * 1e9
        with contextlib.nullcontext() if bears else pytest.raises(RunError, match="2 ranks with"):
            _check_memory(job, hellos)


@pytest.fixture
def launched(tmp_path):
    """Start ranks; whatever a test leaves is killed."""
    runs: list[Processes] = []

    def launch(*commands: str, **how: Any) -> Processes:
        runs.append(Processes(tmp_path, list(commands), **how))
        return runs[-1]

    yield launch
    for run in runs:
        run.kill()
    assert [p.name for p in tmp_path.iterdir() if p.name not in ("record.json", "t.json")] == []


def check_one_line(run: Processes, status: int, says: str) -> None:
    """All ranks end in time with this status, and one of them says why in one line."""
    ended = run.end()
    assert ended.status == [status] * len(ended.status), ended
    assert says in ended.said, ended
    assert len(ended.said.splitlines()) == 1, ended
    assert "".join(ended.out) == ""
    assert not (run.folder / "record.json").exists()


class TestRuns:
    pytestmark = gloo

    def test_under_torchrun_on_machines_with_clocks_of_their_own(self, launched, tmp_path):
        """Rank 0 alone speaks and writes. Times come onto its clock, whatever the others show."""
        command = RING.format(n=3) + " --trace t.json"
        ended = launched(*[command] * 3, shifts_s=(0.0, 5000.0, -9000.0)).end()
        assert ended.status == [0, 0, 0], ended
        assert "ring (replayed), 3 ranks" in ended.out[0]
        assert ended.out[1:] == ["", ""]
        assert ended.said == ""
        record = read_record(tmp_path / "record.json")
        assert record.sent_bytes == (87384, 87380, 87380)
        assert record.environment["machine"]["launcher"] == "torchrun"
        assert record.environment["machine"]["machines"] == 3
        sure_s = record.environment["clock_uncertainty_s"]
        assert 0 < sure_s < 5
        assert record.skew_s is not None
        assert all(0 <= value < 60 for end in record.skew_s.values() for value in end)
        trace = Trace.from_json((tmp_path / "t.json").read_text())
        rows = list(csv.DictReader(trace.to_csv().splitlines()))
        starts, ends = ([float(row[what]) for row in rows] for what in ("start_s", "end_s"))
        assert min(starts) > -sure_s
        assert max(ends) <= record.runs_s[-1] + 1e-6
        check_causes(rows, 2 * sure_s)

    def test_under_srun_with_a_server(self, launched, tmp_path):
        command = "run ps-dedicated --gpus 2 --size 64KiB --runs 1 --out record.json"
        ended = launched(*[command] * 3, srun=True).end()
        assert ended.status == [0, 0, 0], ended
        record = read_record(tmp_path / "record.json")
        assert record.sent_bytes == (65536, 65536, 131072)
        assert record.environment["machine"]["launcher"] == "srun"
        assert record.environment["clock_uncertainty_s"] == 0


def check_causes(rows: list[dict[str, str]], unsure_s: float) -> None:
    """Nothing has arrived before its sender had begun to send it."""
    sends = {(r["rank"], r["peer"], r["step"]): r for r in rows if r["lane"] == "send"}
    received = [r for r in rows if r["lane"] == "receive"]
    assert len(received) == len(sends) == 12
    for row in received:
        sent = sends[row["peer"], row["rank"], row["step"]]
        assert float(row["end_s"]) >= float(sent["start_s"]) - unsure_s


class TestRefusals:
    pytestmark = gloo

    @pytest.mark.parametrize(
        ("changed", "says"),
        [
            ({0: ("--gpus 2", "--gpus 3"), 1: ("--gpus 2", "--gpus 3")}, "torchrun started 2"),
            ({1: ("64KiB", "32KiB")}, "rank 1 was given --size 32KiB, rank 0 --size 64KiB"),
            ({1: ("--runs", "--dtype float64 --runs")}, "rank 1 was given --dtype float64, rank 0"),
            ({1: ("64KiB", "6B")}, "rank 1: size '6B' is 6 bytes"),
            ({1: ("--out", "--oot")}, "rank 1: the following arguments are required: --out"),
            ({0: ("--out", "--network 1Gbit/s --out")}, "--network: under torchrun the network is"),
            (dict.fromkeys((0, 1), ("ring", "torch.ddp --hook bf16")), "bf16 hook needs NCCL"),
            ({1: ("--out", "--interface eth7 --out")}, "rank 1: --interface 'eth7' is not here; a"),
        ],
    )
    def test_bad_input_is_one_line_of_rank_0_and_status_2(self, launched, changed, says):
        commands = [RING_2.replace(*changed.get(rank, ("", ""))) for rank in (0, 1)]
        check_one_line(launched(*commands), 2, says)

    def test_a_port_in_use(self, launched):
        with socket.socket() as other:
            other.bind(("", 0))
            other.listen()
            port = str(other.getsockname()[1])
            check_one_line(launched(RING_2, MASTER_PORT=port, WORLD_SIZE="2"), 1, f"port {port} on")

    def test_a_restart_by_torchrun(self, launched):
        run = launched(RING_2, RING_2, TORCHELASTIC_RESTART_COUNT="1")
        check_one_line(run, 1, "a measurement is not restarted")


ENDINGS: dict[str, tuple[Callable[[Processes], None], list[int], str]] = {
    "rank 1 is killed": (
        lambda run: run.processes[1].kill(),
        [1, -9],
        "rank 1 died, or its machine is out of reach, during '",
    ),
    "rank 0 is killed": (
        lambda run: run.processes[0].kill(),
        [-9, 1],
        "rank 1: rank 0, which drives the run, is gone",
    ),
    "rank 0 is asked to end": (
        lambda run: run.processes[0].terminate(),
        [1, 1],
        "stopped by SIGTERM; every rank of the run has been ended",
    ),
}


@pytest.mark.parametrize("ending", list(ENDINGS))
@pytest.mark.gloo
@pytest.mark.skipif(sys.platform != "linux", reason="forks ranks: needs Linux")
def test_a_run_that_is_ended(launched, ending):
    end, status, says = ENDINGS[ending]
    run = launched(LONG, LONG)
    run.wait_for_traffic()
    end(run)
    ended = run.end(within_s=15)
    assert ended.status == status, ended
    assert says in ended.said, ended
    assert len(ended.said.splitlines()) == 1, ended
    assert "".join(ended.out) == ""


@pytest.mark.shaped
def test_two_machines_with_a_torchrun_each(tmp_path):
    """Two networks joined by one wire: the rings' bytes cross it, rank 0 writes the validation."""
    require("shaped", why_not())
    (tmp_path / "cluster.json").write_text('{"bandwidth": "1GB/s"}')
    words = "validate --quick --only ring --sizes 1MiB --cluster cluster.json --out out"
    done = subprocess.run(
        [*namespace_command(), sys.executable, "-m", "tests.two_machines", "1", *words.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": package_path()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *said, sent = done.stdout.splitlines()
    assert said[0] == "1 cells measured, 1 of them predicted"
    record = read_record(tmp_path / "out" / "records" / "ring-2x1MiB.json")
    assert record.sent_bytes == record.received_bytes == (2**20, 2**20)
    machine = record.environment["machine"]
    assert (machine["machines"], machine["interfaces"]) == (2, ["wire0", "wire1"])
    assert record.network is None
    # One run to warm up and three that are timed, at least: a start may have been missed.
    assert min(json.loads(sent)) >= 4 * 2**20
