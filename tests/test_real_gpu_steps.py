"""Plans of training steps on real processes: every strategy's bytes, bits and order."""

from __future__ import annotations

import importlib.util
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from real_gpu.info import torch_here
from real_gpu.job import CaseResult, Job, RunError
from real_gpu.processes.measure import measure
from real_gpu.stepping import Step, _trace, cases_of
from simcore.cluster import uniform
from simcore.schedule import Op
from simcore.trace import Lane, Source, Trace
from simcore.training.buckets import DdpOptions
from simcore.training.model import Parameter, Workload
from simcore.training.perform import perform
from simcore.training.plan import Communicate, Compute, Plan
from simcore.training.strategies import STRATEGIES, Setting
from tests.support import require

pytestmark = pytest.mark.gloo


@pytest.fixture(scope="module", autouse=True)
def gloo():
    absent = [p for p in ("torch", "psutil") if importlib.util.find_spec(p) is None]
    require("gloo", f"pip install {' '.join(absent)}" if absent else None)


def tiny() -> Workload:
    """Sizes that no number of ranks divides, several units, a buffer, inputs and outputs."""
    layers = tuple(Parameter(f"h.{i}.weight", (7 + i, 11)) for i in range(4))
    buffers = (Parameter("running", (13,), trainable=False),)
    work = Workload("tiny", layers, buffers, input_bytes=40, output_bytes=12)
    return work.with_compute(1e-3, 2e-3, 1e-3)


def steps_of(ranks: int) -> list[Step]:
    """Every strategy that comes to so many ranks, and what changes how they synchronise."""
    capped = DdpOptions(bucket_cap_mb=0.0005)
    found = []
    for row in STRATEGIES:
        options = capped if "bucket_cap_mb" in row.takes else DdpOptions()
        plain = Setting(tiny(), ranks, options, "gloo")
        if row.name in ("ps-dedicated", "byteps"):
            plain = replace(plain, gpus=ranks - 1, servers=1)
        elif row.name == "hsdp":
            plain = replace(plain, gpus_per_node=2 if ranks == 4 else 1)
        elif row.name == "local-sgd":
            plain = replace(plain, period=2)
        found.append(Step(row.name, plain, trace=True))
    ddp, ps = (Step(name, Setting(tiny(), ranks, backend="gloo"), True) for name in ("ddp", "ps"))
    small = {"options": capped, "accumulate": 2, "overlap": 0.5, "algorithm": "tree"}
    changed = (
        (ddp, small | {"slower": tuple(1.0 + r for r in range(ranks))}),
        (ddp, {"options": replace(capped, find_unused_parameters=True, hook="fp16")}),
        (ps, {"servers": 2}),
        (ps, {"pipelined": False}),
    )
    return found + [replace(s, setting=replace(s.setting, **how)) for s, how in changed]


@pytest.fixture(scope="module", params=[3, 4])
def replayed(request: pytest.FixtureRequest) -> list[tuple[Step, CaseResult, Trace]]:
    """All of them on one set of processes; every rank holds every buffer to the reference."""
    steps = steps_of(request.param)
    cases = tuple(cases_of(step, 1)[1] for step in steps)
    results = measure(Job(request.param, cases))
    return [(s, r, _trace(s, r)) for s, r in zip(steps, results, strict=True)]


def test_payload_is_the_simulated_one_to_the_byte(replayed):
    for step, result, trace in replayed:
        run = perform(step.plan, uniform(step.plan.n, 1e6))
        assert [p["sent"] for p in result.payload] == run.sent_bytes.tolist(), step.name
        assert [p["received"] for p in result.payload] == run.received_bytes.tolist(), step.name
        assert trace.sent_bytes.tolist() == run.sent_bytes.tolist()


def test_a_trace_has_the_tasks_and_messages_of_the_simulated_one(replayed):
    for step, _, trace in replayed:
        simulated = perform(step.plan, uniform(step.plan.n, 1e6), transfers=True).trace()
        assert trace.source is Source.REPLAYED
        assert trace.tasks == simulated.tasks

        def spans(of: Trace) -> list[tuple[int, ...]]:
            s = of.spans
            columns = (of.task_of, s.rank, s.lane, s.step, s.peer, s.chunk, s.op, s.width, s.nbytes)
            rows = zip(*(c.tolist() for c in columns), strict=True)
            return sorted(row for row in rows if row[-1] or row[2] == Lane.COMPUTE)

        assert spans(trace) == spans(simulated), step.name
        again = Trace.from_json(trace.to_json())
        assert again.task_of.tolist() == trace.task_of.tolist()


def test_tasks_keep_the_order_of_the_plan(replayed):
    """On one rank's clock: after what they wait for, and in their turn on their stream."""
    for step, _, trace in replayed:
        plan, spans = step.plan, trace.spans
        whole = spans.peer < 0
        at = {
            (task, rank): (start, end)
            for task, rank, start, end in zip(
                *(trace.task_of[whole], spans.rank[whole]),
                *(spans.start_s[whole], spans.end_s[whole]),
                strict=True,
            )
        }
        for number, before in enumerate(plan.waits_for()):
            for earlier in before:
                for rank in range(plan.n):
                    if (number, rank) in at and (earlier, rank) in at:
                        assert at[number, rank][0] >= at[earlier, rank][1], step.name
        _check_streams(plan, at)


def _check_streams(plan: Plan, at: dict[tuple[int, int], tuple[float, float]]) -> None:
    for rank in range(plan.n):
        for stream in {task.stream for task in plan.tasks}:
            turns = [
                at[number, rank]
                for number, task in enumerate(plan.tasks)
                if task.stream == stream and (number, rank) in at
            ]
            width = plan.widths.get(stream, 1)
            for place in range(width, len(turns)):
                ended = sum(end <= turns[place][0] for _, end in turns[:place])
                assert ended > place - width  # a place was free


@pytest.mark.gpu
def test_steps_over_nccl_are_bit_equal():
    """The same plans as NCCL does them, on two GPUs, held to the reference."""
    devices = torch_here().cuda_devices
    if len(devices) < 2:
        require("gpu", f"needs two or more CUDA GPUs, found {len(devices)}; see docs/gpu.md")
    steps = [replace(s, setting=replace(s.setting, backend="nccl")) for s in steps_of(2)]
    results = measure(Job(2, tuple(cases_of(step, 1)[1] for step in steps), backend="nccl"))
    assert all(result.runs_s[0] > 0 for result in results)


def test_a_replay_of_other_rows_is_caught():
    """The check itself is checked: replay a mutant, hold it to the true reference."""
    step = Step("ddp", Setting(tiny(), 2, backend="gloo"))
    case = cases_of(step, 1)[1]
    first = next(t for t in step.plan.tasks if isinstance(t, Communicate) and t.nbytes)
    rows = list(first.schedule)
    rows[-1] = replace(rows[-1], op=Op.ADD)
    mutant = replace(case, program="\n".join(map(str, rows)))
    wrong = rf"step ddp gave a wrong result: rank \d, {first.label}, chunk \d.*wanted"
    with pytest.raises(RunError, match=wrong):
        measure(Job(2, (case, mutant)))


# -- the order of tasks, without processes: each task begins and ends when the test says so --------


class Fake:
    """Stands for a rank: tasks that end when they are told to."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.mine = plan, list(range(len(plan.tasks)))
        self.before = {k: set(b) for k, b in enumerate(plan.waits_for())}
        self.begun = [threading.Event() for _ in plan.tasks]
        self.may_end = [threading.Event() for _ in plan.tasks]

    def do(self, number: int, channels: list[Any]) -> list[list[float]]:
        self.begun[number].set()
        assert self.may_end[number].wait(20)
        if channels == ["broken"]:
            raise RuntimeError("Connection closed by peer")
        return [[number]]


def started(fake: Fake, channels: list[Any] | None = None) -> SimpleNamespace:
    from real_gpu.work.performing import _Run

    answer = SimpleNamespace(rows=None, error=None)

    def run() -> None:
        try:
            answer.rows = _Run(fake, channels or []).rows()  # type: ignore[arg-type]
        except RuntimeError as error:
            answer.error = error

    answer.thread = threading.Thread(target=run, daemon=True)
    answer.thread.start()
    return answer


def test_a_stream_of_two_begins_in_order_and_its_third_waits_for_a_place():
    work = [Compute(str(k), 0.0, "copy", stream="network") for k in range(3)]
    fake = Fake(Plan("three", 1, tuple(work), {"network": 2}))
    answer = started(fake)
    assert fake.begun[0].wait(20)
    assert fake.begun[1].wait(20)
    assert not fake.begun[2].is_set()
    fake.may_end[1].set()
    assert fake.begun[2].wait(20)
    for may_end in fake.may_end:
        may_end.set()
    answer.thread.join(20)
    assert sorted(answer.rows) == [[0], [1], [2]]


def test_nobody_overtakes_who_waits_for_another_stream():
    gradient = Compute("gradient", 0.0, "backward", writes=("g",))
    first = Compute("first", 0.0, "copy", ("g",), stream="network")
    second = Compute("second", 0.0, "copy", stream="network")
    fake = Fake(Plan("turns", 1, (gradient, first, second), {"network": 2}))
    for may_end in fake.may_end[1:]:
        may_end.set()
    answer = started(fake)
    assert fake.begun[0].wait(20)
    assert not fake.begun[1].is_set()
    assert not fake.begun[2].is_set()  # though it waits for nothing and a place is free
    fake.may_end[0].set()
    answer.thread.join(20)
    assert answer.rows[0] == [0]
    assert len(answer.rows) == 3


def test_a_failure_in_a_stream_ends_the_run_though_others_wait():
    one = Compute("one", 0.0, "copy", writes=("x",), stream="network")
    two = Compute("two", 0.0, "copy", ("x",))
    fake = Fake(Plan("broken", 1, (one, two)))
    fake.may_end[0].set()
    answer = started(fake, ["broken"])
    answer.thread.join(20)
    assert str(answer.error) == "one: Connection closed by peer"
    assert not fake.begun[1].is_set()


def test_channels_are_the_same_on_every_rank_and_apart_where_tasks_may_meet():
    from real_gpu.work.performing import _channel_of

    for step in steps_of(4):
        channel_of, count = _channel_of(step.plan)
        tasks = step.plan.tasks
        streams = {k: tasks[k].stream for k in channel_of}
        assert set(channel_of.values()) <= set(range(count))
        for one, other in zip(channel_of, list(channel_of)[1:], strict=False):
            if streams[one] != streams[other] or step.plan.widths.get(streams[one], 1) > 1:
                assert channel_of[one] != channel_of[other]
        assert np.unique(list(channel_of.values())).size <= count
