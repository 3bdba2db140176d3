"""Moments of a GPU's stream on the host's clock; the GPU is made up, as late as it may be."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from real_gpu.processes.clocks import Offset
from real_gpu.stepping import cases_of
from simcore.algorithms import build_schedule
from simcore.trace import Lane
from simcore.training.plan import Communicate

torch = pytest.importorskip("torch", reason="pip install torch")
pytest.importorskip("psutil", reason="pip install psutil")

from real_gpu.device import clock  # noqa: E402
from real_gpu.work import performing, replay  # noqa: E402
from tests.test_real_gpu_steps import steps_of  # noqa: E402

CPU, CUDA = torch.device("cpu"), SimpleNamespace(type="cuda")


class Gpu:
    """What is queued takes time; only a look at the clock, or a wait, makes the host's pass."""

    wakes_s = 20e-6

    def __init__(self) -> None:
        self.host_s, self.busy_until_s = 1000.0, 0.0

    def monotonic(self) -> float:
        self.host_s += 1e-6
        return self.host_s

    def queue(self, seconds: float) -> None:
        self.busy_until_s = self.reached_s() + seconds

    def reached_s(self) -> float:
        return max(self.host_s, self.busy_until_s)

    def wait(self, until_s: float) -> None:
        self.host_s = max(self.host_s, until_s) + self.wakes_s

    def synchronize(self) -> None:
        self.wait(self.busy_until_s)

    def event(self, enable_timing: bool) -> Event:
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.at_s = gpu, 0.0

    def record(self) -> None:
        self.at_s = self.gpu.reached_s()

    def synchronize(self) -> None:
        self.gpu.wait(self.at_s)

    def elapsed_time(self, other: Event) -> float:
        for event in (self, other):
            if event.at_s > self.gpu.host_s:
                raise RuntimeError("device not ready")
        return (other.at_s - self.at_s) * 1e3


class Handle:
    """One for a batch, as NCCL gives; its wait returns at once. ``fails``: asking it raises."""

    def __init__(self, gpu: Gpu) -> None:
        gpu.queue(1.0)
        self.gpu, self.ends_s, self.fails = gpu, gpu.reached_s(), False

    def wait(self) -> None:
        pass

    def is_completed(self) -> bool:
        if self.fails:
            raise RuntimeError("NCCL communicator was aborted")
        return self.ends_s <= self.gpu.host_s


@pytest.fixture
def gpu(monkeypatch):
    """It takes a second for each step of a replay."""
    fake = Gpu()
    monkeypatch.setattr(clock, "time", fake)
    monkeypatch.setattr(torch.cuda, "Event", fake.event)
    monkeypatch.setattr(torch.cuda, "synchronize", fake.synchronize)
    dist = SimpleNamespace(
        isend=None,
        irecv=None,
        P2POp=lambda *about: about,
        batch_isend_irecv=lambda operations: [Handle(fake)],
    )
    monkeypatch.setattr(replay, "dist", dist)
    return fake


def ring_step(gpu: Gpu) -> tuple[list[list[replay.Message]], replay.Progress]:
    schedule = build_schedule("ring", 3)
    return replay.plan(schedule, 0, torch.zeros(9)), replay.progress_on(CUDA)


def test_moments_of_a_device_are_on_the_hosts_clock(gpu):
    stamps = clock.Stamps(CUDA)
    assert stamps.offset.uncertainty_s <= gpu.wakes_s
    for _ in range(3):
        gpu.queue(0.5)
        at_s = gpu.reached_s()
        stamp = stamps.stamp()
        gpu.host_s += 0.1  # the host goes on, then waits
        stamps.settle()
        assert stamps.seconds(stamp) == pytest.approx(at_s, abs=gpu.wakes_s)
        assert stamps.seconds(stamp) <= gpu.host_s


def test_a_moment_is_between_its_request_and_now(gpu):
    stamps = clock.Stamps(CUDA)
    known = stamps.offset.offset_s
    stamp = stamps.stamp()
    asked_s = gpu.host_s
    for drift_s in (-1.0, 1.0):  # a clock that went its own way meanwhile
        stamps.offset = Offset(known + drift_s)
        assert stamps.seconds(stamp) == (gpu.host_s if drift_s < 0 else asked_s)


def test_spans_of_a_device_are_when_it_did_it(gpu):
    """Enqueued in an instant, each step takes a second."""
    steps, progress = ring_step(gpu)
    stamps = clock.Stamps(CUDA)
    begin_s = gpu.host_s
    rows = replay.replay(steps, progress, stamps=stamps)
    assert gpu.host_s - begin_s < 0.01
    stamps.settle()
    seen = replay.seconds(rows, stamps)
    assert len(seen) == 2 * len(steps) == 8
    for row in seen:
        assert row[6] - begin_s == pytest.approx(row[1], abs=0.001)
        assert row[7] - begin_s == pytest.approx(row[1] + 1, abs=0.001)


def test_a_timed_run_records_no_event_and_waits_for_nothing(gpu, monkeypatch):
    steps, progress = ring_step(gpu)
    monkeypatch.setattr(torch.cuda, "Event", None)
    monkeypatch.setattr(torch.cuda, "synchronize", None)
    assert replay.free_stamps(CUDA) is None
    begin_s = gpu.host_s
    assert replay.replay(steps, progress, stamps=None) == []
    assert gpu.host_s == begin_s


def test_progress_is_at_the_step_that_the_device_has_not_passed(gpu):
    steps, progress = ring_step(gpu)
    replay.replay(steps, progress)
    for step in range(4):
        assert re.fullmatch(
            rf"step {step}, receiving chunk \d from rank 2 and sending chunk \d to rank 1",
            str(progress),
        )
        gpu.host_s += 1.0
    assert str(progress) == ""
    replay.replay(steps, progress)  # and a second run begins anew
    assert str(progress).startswith("step 0, ")
    assert len(progress.queued) == 4  # of this run alone
    gpu.host_s += 1.5
    progress.queued[1][1].fails = True  # it was aborted: there it stopped
    assert str(progress).startswith("step 1, ")


def test_on_the_cpu_progress_is_where_the_waits_are():
    progress = replay.progress_on(CPU)
    assert not progress.on_device
    steps = replay.plan(build_schedule("ring", 2), 0, torch.zeros(4))
    progress.messages, progress.done = steps[0], 1
    assert str(progress) == "step 0, sending chunk 0 to rank 1"
    assert isinstance(replay.free_stamps(CPU), clock.Stamps)


class Channel:
    """As ``performing`` has it on a GPU: left when the device has done it all."""

    group = None

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    @contextlib.contextmanager
    def finished(self) -> Iterator[None]:
        yield
        self.gpu.synchronize()


def test_messages_of_a_training_step_are_when_the_device_did_them(gpu):
    step = next(s for s in steps_of(2) if s.name == "ddp")
    work = performing.PerformedStep(cases_of(step, 1)[1], 0, 2, CPU)
    number = next(k for k in work.exchanges if isinstance(work.plan.tasks[k], Communicate))
    work.stamps = None  # as a timed run on a GPU has it
    channels = [Channel(gpu)] * work.channels
    assert [row[0] for row in work.do(number, channels)] == [Lane.COLLECTIVE]
    work.device = CUDA
    work.watch()
    begin_s = gpu.host_s
    _, *messages = work.do(number, channels)
    assert len(messages) == sum(map(len, work.exchanges[number].steps))
    for row in messages:
        assert row[6] - begin_s == pytest.approx(row[1], abs=0.001)
        assert row[7] - begin_s == pytest.approx(row[1] + 1, abs=0.001)
        assert row[9] == number


@pytest.mark.parametrize(
    ("before", "after", "sent", "received"),
    [
        ({"sent": 0, "received": 0}, {"sent": 0, "received": 0}, None, None),
        ({"sent": 0, "received": 0}, {"sent": 512, "received": 0}, 512, None),
        ({"sent": 7, "received": 7}, {"sent": 7, "received": 9}, 0, 2),
        (None, None, None, None),
    ],
)
def test_a_link_counter_that_never_counted_measures_nothing(
    gpu, monkeypatch, before, after, sent, received
):
    read = iter([before, after])
    monkeypatch.setattr(clock, "nvlink_bytes", lambda uuid: next(read))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
    device = clock.DeviceClock(CUDA)
    device.begin()
    gpu.queue(0.25)
    device.end()
    gpu.synchronize()
    seen = device.seen()
    assert seen == {
        "device_s": pytest.approx(0.25),
        "nvlink_sent_bytes": sent,
        "nvlink_received_bytes": received,
    }
