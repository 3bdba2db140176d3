"""What runs over NCCL need of us, without a GPU: whose device is whose, true times, time limits."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from real_gpu.backends import MULTI_RANK, Torch
from real_gpu.job import Case, CaseResult, Job, RunError, joining_s
from real_gpu.network.interfaces import LOOPBACK
from real_gpu.processes import launch as launching
from real_gpu.processes import machines, measure
from real_gpu.processes.clocks import Offset
from real_gpu.processes.seats import Seat
from real_gpu.recording import record_of, trace_of
from real_gpu.stepping import Step, _trace
from real_gpu.validation.calibrate import calibrate
from real_gpu.validation.folder import Folder
from real_gpu.validation.progress import Progress
from real_gpu.validation.suite import make_suite
from real_gpu.validation.validate import validate
from simcore.measured.cells import cell_of_record
from simcore.trace import Lane

torch = pytest.importorskip("torch", reason="pip install torch")
pytest.importorskip("psutil", reason="pip install psutil")

from real_gpu.processes.worker import Rank  # noqa: E402
from tests import hardware  # noqa: E402
from tests.test_real_gpu_steps import steps_of  # noqa: E402

CPU, CUDA = torch.device("cpu"), SimpleNamespace(type="cuda")
SEAT = Seat("torchrun", 0, 2, 0, "127.0.0.1", 1)


# Whose device is whose.

A, B, C = "uuid-a", "uuid-b", "uuid-c"


def l4(*ids: str, nccl: str | None = "2.30.7", name: str = "NVIDIA L4") -> Torch:
    return Torch("2.13", (name,) * len(ids), nccl, True, cuda_ids=ids)


def started(monkeypatch: Any, seen: Sequence[Torch], local: Sequence[int] | None = None) -> Any:
    """The hellos of ranks that see these devices; on one machine, unless ``local`` says."""
    hellos = {}
    for rank, here in enumerate(seen):
        monkeypatch.setattr(machines, "torch_here", lambda here=here: here)
        place = rank if local is None else local[rank]
        gpu, no_nccl = machines._gpu(replace(SEAT, rank=rank, local_rank=place), "auto")
        hellos[rank] = {"gpu": gpu, "no_nccl": no_nccl}
    return hellos


MIG = {"name": "NVIDIA A100 MIG 1g.10gb"}
SHARED = [l4(A), l4(A)]  # torchrun with two ranks on a machine with one GPU


@pytest.mark.parametrize(
    ("seen", "local", "told", "auto", "nccl"),
    [
        (SHARED, None, {}, "gloo", "2 ranks over NCCL need as many CUDA devices; 1 CUDA device"),
        (SHARED, None, {MULTI_RANK: "0"}, "gloo", "need as many CUDA devices"),
        (SHARED, None, {MULTI_RANK: "1"}, "gloo", None),
        ([l4(A, nccl="2.29.7")] * 2, None, {MULTI_RANK: "1"}, "gloo", "needs NCCL 2.30, this is 2"),
        ([l4(A), l4(A, nccl="2.29.7")], None, {MULTI_RANK: "1"}, "gloo", "this is 2.29.7"),
        ([l4(A, B)] * 2, None, {}, "nccl", None),
        ([l4(A), l4(B)], None, {}, "nccl", None),  # srun shows each task its own
        ([l4(A, B)] * 4, None, {}, "gloo", "4 ranks over NCCL need as many CUDA devices; 2 CUDA"),
        ([l4(A, B)] * 4, None, {MULTI_RANK: "1"}, "gloo", None),
        ([l4(A), l4(B), l4(B)], [0, 0, 1], {}, "gloo", "3 ranks .* 2 CUDA devices"),
        ([l4(A, **MIG), l4(B, **MIG)], None, {MULTI_RANK: "1"}, "gloo", "joins no MIG slices"),
        ([l4(""), l4("")], [0, 0], {}, "gloo", "1 CUDA device here"),  # a torch that knows no ids
        ([l4("", "")] * 2, None, {}, "nccl", None),
        ([l4(A), l4()], None, {}, "gloo", "rank 1 cannot use NCCL: it sees no CUDA device"),
        ([l4(A), l4(B, nccl=None)], None, {}, "gloo", "rank 1 cannot use NCCL: its torch has no"),
    ],
)
def test_two_ranks_on_one_device_are_not_given_to_nccl(monkeypatch, seen, local, told, auto, nccl):
    monkeypatch.delenv(MULTI_RANK, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    hellos = started(monkeypatch, seen, local)
    assert machines._backend("auto", hellos).backend == auto
    assert machines._backend("gloo", hellos).backend == "gloo"
    if nccl is None:
        assert machines._backend("nccl", hellos).backend == "nccl"
        return
    with pytest.raises(RunError, match=nccl) as refused:
        machines._backend("nccl", hellos)
    assert "\n" not in str(refused.value)
    assert "--backend device" not in str(refused.value)  # which is one process


def test_consent_is_that_of_every_rank(monkeypatch):
    monkeypatch.setenv(MULTI_RANK, "1")
    hellos = started(monkeypatch, SHARED)
    hellos[1]["gpu"]["several"] = ""
    with pytest.raises(RunError, match="need as many CUDA devices"):
        machines._backend("nccl", hellos)


def test_ranks_take_the_devices_in_turn(monkeypatch):
    hellos = started(monkeypatch, [l4(A, B)] * 4)
    assert [h["gpu"]["index"] for h in hellos.values()] == [0, 1, 0, 1]
    assert [h["gpu"]["id"] for h in hellos.values()] == [A, B, A, B]
    hellos = started(monkeypatch, [l4(A), l4(B)])
    assert [h["gpu"]["index"] for h in hellos.values()] == [0, 0]


# How ranks are driven.


class Ranks:
    """Ranks that answer at once; on GPUs unless told otherwise. What was asked is in ``asked``."""

    def __init__(self, n: int, on_gpu: bool = True) -> None:
        self.n, self.on_gpu, self.asked = n, on_gpu, list[tuple[dict[str, Any], float]]()
        self.watched, self.runs = False, itertools.count(1)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def start(self) -> None:
        pass

    def clocks(self) -> list[Offset]:
        return [Offset()] * self.n

    def all(self, within_s: float, **request: Any) -> list[Any]:
        return self.ask([request] * self.n, within_s)

    def ask(self, requests: Any, within_s: float, ranks: Any = None) -> list[Any]:
        self.asked.append((requests[0], within_s))
        doing = requests[0]["do"]
        if doing == "run":
            run = next(self.runs)
            return [self._ran(r, rank, run) for rank, r in enumerate(requests)]
        if doing == "reset":
            self.watched = requests[0].get("watched", False)
        answer: dict[str, Any] = {"port": 1} if doing == "listen" else {}
        if doing == "prepare":
            answer = {"sent": 8, "received": 8}
        return [answer] * len(requests)

    def _ran(self, request: Any, rank: int, run: int) -> dict[str, Any]:
        start_s = request["start_s"]
        spans = [[0, 0, 1 - rank, 0, 0, 1, start_s, start_s + run, 8]]
        seen = {"device_s": run / 2 + rank / 8, "nvlink_sent_bytes": None}
        return {
            "began_s": start_s,
            "end_s": start_s + run,
            "late_s": -0.05,
            "waited_s": 0.0,
            "changes": [],
            "spans": spans if self.watched or not self.on_gpu else [],
            "device": seen | {"nvlink_received_bytes": None} if self.on_gpu else None,
        }

    def limit_s(self, doing: str) -> float:
        return next(within_s for request, within_s in self.asked if request["do"] == doing)


def driven(monkeypatch: Any, job: Job) -> tuple[list[CaseResult], Ranks]:
    ranks = Ranks(job.n, on_gpu=job.backend == "nccl")
    monkeypatch.setattr(launching, "Ranks", lambda n: ranks)
    return launching.launch(job), ranks


def test_spans_over_nccl_are_of_a_run_that_is_not_timed(monkeypatch):
    case = Case("ring", 2, runs=2, spans=True)
    job = Job(2, (case,), backend="nccl")
    (result,), ranks = driven(monkeypatch, job)
    asked = [request for request, _ in ranks.asked]
    resets = [request.get("watched", False) for request in asked if request["do"] == "reset"]
    assert resets == [False, False, False, True]  # to warm up, two that are timed, and that one
    assert result.runs_s == pytest.approx([2, 3])
    assert (result.watched_s, result.traced_s) == pytest.approx((4, 4))
    assert [row[8] for row in result.spans] == pytest.approx([4, 4])
    assert trace_of(job, case, result).time_s == pytest.approx(4)


def test_over_gloo_spans_are_the_last_timed_runs(monkeypatch):
    (result,), ranks = driven(monkeypatch, Job(2, (Case("ring", 2, runs=2, spans=True),)))
    assert sum(request["do"] == "run" for request, _ in ranks.asked) == 3
    assert result.watched_s is None
    assert result.traced_s == result.runs_s[-1] == pytest.approx(3)
    assert [row[8] for row in result.spans] == pytest.approx([3, 3])


def test_nothing_is_watched_that_nobody_asked_for(monkeypatch):
    (result,), ranks = driven(monkeypatch, Job(2, (Case("ring", 2, runs=1),), backend="nccl"))
    assert not any(request.get("watched") for request, _ in ranks.asked)
    assert result.watched_s is None


def test_a_steps_trace_is_as_long_as_the_run_that_was_watched():
    step = Step("ddp", steps_of(2)[0].setting, trace=True)
    row = [0, Lane.COLLECTIVE, -1, -1, -1, 0, 1, 0.5, 4.5, 8, 0]
    payload = [{"sent": 1, "received": 1}] * 2
    result = CaseResult([2.0], [], [row], payload, watched_s=5.0)
    assert _trace(step, result).time_s == 5.0


def test_a_watched_reset_has_the_work_watch():
    did: list[str] = []
    rank = Rank()
    rank.device = CPU
    rank.work = SimpleNamespace(
        reset=lambda: did.append("reset"), watch=lambda: did.append("watch")
    )
    rank.reset()
    assert did == ["reset"]
    rank.reset(watched=True)
    assert did == ["reset", "reset", "watch"]


def test_joining_over_nccl_has_more_time_the_more_ranks_there_are(monkeypatch):
    limits = {}
    for backend, n in (("gloo", 8), ("nccl", 2), ("nccl", 8)):
        _, ranks = driven(monkeypatch, Job(n, (Case("ring", 8, runs=1),), backend))
        limits[backend, n] = ranks.limit_s("join")
        assert limits[backend, n] == joining_s(n, backend)
    assert limits["gloo", 8] < limits["nccl", 2] < limits["nccl", 8]
    assert limits["nccl", 8] >= 100


MiB = 2**20


def test_a_hung_run_between_gpus_is_not_waited_for_as_one_over_ethernet():
    case = Case("ring", 256 * MiB // 4)
    here = Job(8, (case,), "nccl")
    patience_s = launching._patience_s(case, here)
    assert patience_s < 60
    # All messages one after another, over one lane of PCIe 3 at half its rate, still end in time.
    assert patience_s > 2 * 16 * case.size_bytes / 985e6
    assert launching._patience_s(case, replace(here, backend="gloo")) > 300
    apart = replace(here, launched={"machines": 2})
    assert launching._patience_s(case, apart) > 300  # sockets may lie between them
    served = Case("torch.ps", case.elements)  # over Gloo, whatever the backend
    assert launching._patience_s(served, here) > 300
    assert launching._patience_s(Case("ring", 1), here) >= 30  # channels are opened in the first


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("machines", [1, 2])
def test_no_rank_gives_up_before_its_driver_does(backend, machines):
    """Ranks are told how long to wait when it is not yet known where all of them are."""
    case = Case("ring", 256 * MiB // 4)
    job = Job(4, (case,), backend)
    known = replace(job, launched={"machines": machines})
    assert launching.longest_s(job) >= launching._patience_s(case, known)


# The interface.


@pytest.mark.parametrize("theirs", [None, "", "eth0,eth1"])
def test_a_users_interface_for_nccl_stays_and_what_is_used_is_recorded(monkeypatch, theirs):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "later")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    if theirs is not None:
        monkeypatch.setenv("NCCL_SOCKET_IFNAME", theirs)
    seen: list[str | None] = []

    def launch(job: Job, on_result: Any = None) -> list[CaseResult]:
        seen.append(os.environ.get("NCCL_SOCKET_IFNAME"))  # which the ranks inherit
        return [CaseResult([1.0], [], [], [{"sent": 8, "received": 8}] * 2)]

    monkeypatch.setattr(measure, "launch", launch)
    case = Case("ring", 2)
    job = Job(2, (case,), backend="nccl")
    (result,) = measure.measure(job)
    wanted = theirs or LOOPBACK
    assert seen == [wanted]
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")  # as before a first run
    if theirs is not None:
        monkeypatch.setenv("NCCL_SOCKET_IFNAME", theirs)
    record = record_of(job, case, result, calibrated=None, command="none")
    assert record.environment["machine"]["nccl_variables"]["NCCL_SOCKET_IFNAME"] == wanted


def test_joining_leaves_nccls_interface_alone(monkeypatch):
    import torch.distributed as dist

    monkeypatch.setattr(dist, "init_process_group", lambda *a, **k: None)
    monkeypatch.setattr(dist, "PrefixStore", lambda prefix, store: store)
    for name in ("GLOO", "NCCL"):
        monkeypatch.setenv(f"{name}_SOCKET_IFNAME", "theirs")
    rank = Rank()
    waits: list[float] = []
    rank.store = SimpleNamespace(set_timeout=lambda wait: waits.append(wait.total_seconds()))
    rank.rank, rank.n, rank.backend, rank.device = 0, 8, "nccl", None
    rank.join("", 0, "lo", 1.0)
    assert os.environ["NCCL_SOCKET_IFNAME"] == "theirs"
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    assert waits == [joining_s(8, "nccl")]


def test_the_flag_of_a_launched_rank_goes_before_its_variable(monkeypatch):
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "theirs")
    job = Job(2, (Case("ring", 2),), "gloo")
    for flag, used in ((None, "theirs"), (LOOPBACK, LOOPBACK)):
        asked = SimpleNamespace(words={}, job=lambda: job, interface=flag)
        hello, _ = machines._hello(SEAT, asked)
        assert "error" not in hello
        assert os.environ["NCCL_SOCKET_IFNAME"] == used


# Measured by the device.


def by_gpus(*runs: tuple[float, float]) -> CaseResult:
    nothing = {"nvlink_sent_bytes": None, "nvlink_received_bytes": None}
    devices = [[{"device_s": seconds} | nothing for seconds in run] for run in runs]
    payload = [{"sent": 8, "received": 8}] * 2
    return CaseResult([9.0 + k for k in range(len(runs))], [], [], payload, devices=devices)


def test_a_validation_takes_the_devices_time_of_the_slowest_rank():
    case = Case("ring", 2)
    job = Job(2, (case,), backend="nccl")
    plain = by_gpus((1.0, 2.0), (4.0, 3.0), (3.0, 2.5))
    result = plain.by_device()
    assert (result.runs_s, result.host_s) == ([2.0, 4.0, 3.0], [9.0, 10.0, 11.0])
    assert result.by_device() == result
    record = record_of(job, case, result, calibrated=None, command="none")
    assert cell_of_record(record).measured_s == 3.0
    assert record.notes[1] == "timed by the GPUs: between CUDA events, of the slowest rank"
    about = record.environment["devices"]
    assert (about["device_s"], about["host_s"]) == (result.runs_s, result.host_s)
    record = record_of(job, case, plain, calibrated=None, command="none")
    assert record.median_s == 10.0  # what `run` records is from the agreed start to the last end
    assert "host_s" not in record.environment["devices"]
    assert not any("timed by" in note for note in record.notes)


def test_without_a_devices_time_of_every_run_the_hosts_stays():
    assert CaseResult([1.0], [], [], None).by_device().runs_s == [1.0]
    partly = by_gpus((1.0, 2.0), (4.0, 3.0))
    del partly.devices[0]
    assert partly.by_device().runs_s == [9.0, 10.0]


def device_s(case: Case, rank: int) -> float:
    return 1e-5 * (1 + rank) + case.size_bytes / 1e9


@pytest.fixture
def timed_gpus(monkeypatch):
    """Two GPUs, whose runs the host sees take a second whatever they are."""
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    monkeypatch.setattr("real_gpu.info._may_have_gpu", lambda: True)
    monkeypatch.setattr("real_gpu.info.torch_here", lambda: l4(A, B))

    def launch(job: Job, on_result: Any = None) -> list[CaseResult]:
        assert job.backend == "nccl"
        results = []
        for case in job.cases:
            run = [device_s(case, rank) for rank in range(job.n)]
            runs = by_gpus(*[(run[0], run[1])] * case.runs)
            results.append(replace(runs, runs_s=[1.0] * case.runs))
            if on_result:
                on_result(results[-1])
        return results

    monkeypatch.setattr(measure, "launch", launch)


def test_cells_and_what_they_are_predicted_from_are_timed_alike(timed_gpus, tmp_path):
    """Both by the GPUs: neither sees the second that the host does."""
    found = calibrate(None, 2, "nccl", True)
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(found.cluster), encoding="utf-8")
    hardware.check_calibration(found.findings, file)
    for row in found.residuals:
        assert row["measured_s"] == device_s(Case("", row["size_bytes"] // 4), 1)
    asked = make_suite(
        backend="nccl", network=None, gpus=2, quick=True, names=("ring",), sizes=(4096,)
    )
    about = {"versions": {}, "machine": {}, "command": "c", "date": "2026-11-30"}
    folder = Folder(str(tmp_path / "out"), about)
    validate(asked, folder, Progress(1.0), {"bandwidth": "1GB/s"}, "c")
    (cell,) = folder.validation.cells
    assert cell.measured_s == device_s(Case("ring", 1024), 1)
    assert any("timed by the GPUs" in note for note in cell.notes)
