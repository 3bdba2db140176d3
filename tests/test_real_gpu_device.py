"""Schedules between buffers of one device, in any order that a GPU's streams may take."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from real_gpu.info import torch_here
from real_gpu.job import ITEMSIZE, Case, Job, RunError
from real_gpu.processes.measure import measure
from real_gpu.recording import record_of
from simcore.algorithms import ALGORITHMS, build_schedule
from simcore.schedule import Op
from tests.support import require

torch = pytest.importorskip("torch", reason="pip install torch")
pytest.importorskip("ml_dtypes", reason="pip install ml_dtypes")
pytest.importorskip("psutil", reason="pip install psutil")

from real_gpu.device.device import DeviceReplay, Streams  # noqa: E402

NAMES = [a.name for a in ALGORITHMS]
CPU = torch.device("cpu")


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_every_algorithm_and_type_is_bit_equal(n):
    """``difference`` compares every rank's buffer with the reference."""
    for name in NAMES:
        for dtype in ITEMSIZE:
            for elements in (n - 1, 101):
                work = DeviceReplay(Case(name, elements, dtype), build_schedule(name, n).n, CPU)
                work.reset()
                work.run()
                assert work.difference() is None


def test_another_schedule_than_the_references_is_caught():
    rows = list(build_schedule("ring", 2))
    rows[-1] = replace(rows[-1], op=Op.ADD)
    work = DeviceReplay(Case("ring", 100, program="\n".join(map(str, rows))), 2, CPU)
    work.reset()
    work.run()
    assert re.match(r"rank \d, chunk \d", work.difference() or "")


class AnyOrder(Streams):
    """A GPU that is as late as its streams and events allow, and in any order that they allow."""

    def __init__(self, n: int, seed: int) -> None:
        super().__init__(n, CPU)
        self.queues: list[list[tuple]] = [[] for _ in range(n)]
        self.random = random.Random(seed)
        self.reached: set[object] = set()

    def do(self, rank, call, *args):
        self.queues[rank].append(("do", call, args))

    def mark(self, rank):
        event = object()
        self.queues[rank].append(("mark", event))
        return event

    def wait(self, rank, event):
        self.queues[rank].append(("wait", event))

    def drain(self) -> None:
        while waiting := [q for q in self.queues if q]:
            ready = [q for q in waiting if q[0][0] != "wait" or q[0][1] in self.reached]
            assert ready, "every stream waits for another"
            kind, what, *args = self.random.choice(ready).pop(0)
            if kind == "do":
                what(*args[0])
            elif kind == "mark":
                self.reached.add(what)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_order_that_events_give_is_enough(n):
    for name in NAMES:
        for seed in range(2):
            work = DeviceReplay(Case(name, 50), build_schedule(name, n).n, CPU)
            work.reset()
            work.streams = AnyOrder(work.n, seed)
            work.run()
            work.streams.drain()
            assert work.difference() is None


@pytest.mark.parametrize("lost", ["copied", "entered"])
def test_and_each_event_is_needed(lost):
    """Without the one, an arrival is applied to what is still being read; without the other, old
    data is sent. The test above would see it.
    """

    class Forgetful(AnyOrder):
        def wait(self, rank, event):
            self.count = getattr(self, "count", 0) + 1
            first = (self.count - 1) % (2 * moves) < moves  # of a step: entered, then copied
            if first != (lost == "entered"):
                super().wait(rank, event)

    name, moves = ("two ways", 2) if lost == "copied" else ("ring", 4)
    wrong = 0
    for seed in range(20):
        work = DeviceReplay(Case(name, 64), 4, CPU)
        work.reset()
        work.streams = Forgetful(4, seed)
        work.run()
        work.streams.drain()
        wrong += work.difference() is not None
    assert wrong


def test_a_run_is_a_record_that_says_what_it_is():
    case = Case("ring", 1000, runs=2)
    job = Job(3, (case,), backend="device")
    (result,) = measure(job)
    record = record_of(job, case, result, calibrated=None, command="none")
    assert (record.source, record.backend, len(record.runs_s)) == ("replayed", "device", 2)
    assert record.sent_bytes == (5336, 5332, 5332)
    assert "copies within one memory is not known" in record.notes[0]


def timed_by(monkeypatch, seconds):
    """Every run is done, and takes so long by the device's clock."""
    left = iter(seconds)

    def timed(self, run):
        run()
        return next(left)

    monkeypatch.setattr(Streams, "timed", timed)


def test_runs_are_added_until_the_median_is_sure_and_heard_of_as_they_come(monkeypatch):
    """The first of each case is warm; the first case is sure of itself at the sixth."""
    timed_by(monkeypatch, [9.0, *[1.0] * 6, 9.0, 2.0, 3.0])
    sure = Case("ring", 10, runs=2, confidence=0.1)
    seen = []
    measure(Job(2, (sure, Case("ps", 10, runs=2)), backend="device"), seen.append)
    assert [result.runs_s for result in seen] == [[1.0] * 6, [2.0, 3.0]]


def test_results_before_a_wrong_one_are_heard_of():
    rows = list(build_schedule("ring", 2))
    rows[-1] = replace(rows[-1], op=Op.ADD)
    mutant = Case("ring", 100, program="\n".join(map(str, rows)))
    seen = []
    with pytest.raises(RunError, match=r"ring gave a wrong result: rank \d, chunk \d"):
        measure(Job(2, (Case("ring", 100), mutant), backend="device"), seen.append)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("error", "says"), [(RuntimeError(), r"RuntimeError\(\)"), (RuntimeError("a\nb"), "a$")]
)
def test_an_error_of_the_device_is_one_line_with_or_without_a_text(error, says, monkeypatch):
    def fail(self, run):
        raise error

    monkeypatch.setattr(Streams, "timed", fail)
    with pytest.raises(RunError, match=f"the device failed: {says}"):
        measure(Job(2, (Case("ring", 10),), backend="device"))


@pytest.mark.gpu
def test_on_a_gpu_every_algorithm_is_bit_equal():
    devices = torch_here().cuda_devices
    if not devices:
        require("gpu", "needs a CUDA GPU, found none; see docs/gpu.md")
    cases = [Case(name, e, d, runs=3) for name in NAMES for d in ITEMSIZE for e in (3, 1_000_003)]
    plain = tuple(case for case in cases if case.name != "ps-dedicated")
    for result in measure(Job(4, plain, backend="device")):
        assert min(result.runs_s) > 0
