"""Replays on real processes are the reference, bit for bit; and the check of that can fail."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from real_gpu.info import torch_here
from real_gpu.job import COLLECTIVES, ITEMSIZE, Case, Job, RunError, replayed_schedule
from real_gpu.processes.measure import check_bearable, measure
from real_gpu.processes.ranks import Ranks
from real_gpu.processes.worker import Rank
from real_gpu.recording import record_of, trace_of
from real_gpu.work import data
from simcore import reference
from simcore.algorithms import ALGORITHMS, build_schedule
from simcore.measured.records import record_from_json
from simcore.schedule import Op
from simcore.trace import Source, Trace
from tests.support import require

NAMES = [a.name for a in ALGORITHMS]


@pytest.fixture
def gloo():
    absent = [p for p in ("torch", "ml_dtypes", "psutil") if importlib.util.find_spec(p) is None]
    require("gloo", f"pip install {' '.join(absent)}" if absent else None)


@pytest.mark.parametrize("dtype", ITEMSIZE)
@pytest.mark.parametrize("name", NAMES)
def test_expected_is_the_reference_whatever_the_blocks(name, dtype, monkeypatch):
    monkeypatch.setattr(data, "_BLOCK_ELEMENTS", 7)
    for n, elements in ((1, 5), (3, 0), (3, 2), (4, 50)):
        schedule = build_schedule(name, n)
        ranks = range(schedule.n)
        whole = np.stack([data.inputs(rank, 0, elements, dtype) for rank in ranks])
        whole[schedule.workers :] = 0
        wanted = reference.run(schedule, whole)
        for rank in ranks:
            got = data.expected(schedule, rank, elements, dtype)
            assert data.first_difference(got, wanted[rank], schedule) is None


def test_inputs_tell_ranks_places_and_orders_apart():
    values = [data.inputs(rank, 0, 1000, "float32") for rank in range(3)]
    assert len(np.unique(values)) > 2990
    forth, back = values[0] + values[1] + values[2], values[2] + values[1] + values[0]
    assert np.any(forth != back)
    assert np.array_equal(data.inputs(1, 10, 20, "float32"), values[1][10:20])


def test_a_single_wrong_bit_is_found_and_named():
    schedule = build_schedule("ring", 2)
    wanted = data.expected(schedule, 0, 10, "float32")
    got = wanted.copy()
    got.view(np.uint32)[7] ^= 1
    found = data.first_difference(got, wanted, schedule)
    assert found is not None
    assert found.startswith("chunk 1, element 2 of it: got ")
    assert str(wanted[7]) in found


@pytest.mark.gloo
@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_algorithm_and_type_is_bit_equal(n, gloo):
    """Each rank compares every run with the reference; a difference would raise.

    Here an algorithm meets two of the four types, at the next number of ranks the next two.
    """
    dtypes = list(ITEMSIZE)
    cases = []
    for at, name in enumerate(NAMES, start=2 * n):
        cases.append(Case(name, 40_003, dtypes[at % 4], runs=1))
        cases.append(Case(name, n - 1, dtypes[(at + 1) % 4], runs=1))
    cases += [Case("ring", 0, runs=1), Case("ps", 11, runs=1, flags={"root": n - 1})]
    cases += [
        Case(name, 1001, "bfloat16", runs=1, flags=flags)
        for name, flags in (
            ("double-tree", {"pieces": 3}),
            ("ring-broadcast", {"pieces": 4}),
            ("chain-reduce", {"pieces": 4}),
            ("ps-sharded", {"servers": 2}),
            ("ps-dedicated", {"servers": n - 1}),
            ("hierarchical", {"gpus_per_node": n // 2 if n % 2 == 0 else n}),
        )
    ]
    cases += [Case(c, 40_008, dtype, runs=1) for c in COLLECTIVES for dtype in ITEMSIZE]
    spans = replace(cases[0], spans=True)
    job = Job(n, (*cases, spans))
    results = measure(job)
    for case, result in zip(job.cases, results, strict=True):
        assert len(result.runs_s) == 1
        assert result.runs_s[0] > 0
        if result.payload is None:
            assert case.name in COLLECTIVES
            continue
        moved = _payload(case, n)
        assert [p["sent"] for p in result.payload] == moved[0]
        assert [p["received"] for p in result.payload] == moved[1]
    _check_trace(trace_of(job, spans, results[-1]), n)
    _check_record(job, cases[0], results[0])


def _payload(case: Case, n: int) -> tuple[list[int], list[int]]:
    schedule = replayed_schedule(case, n)
    sizes = np.array_split(np.arange(case.elements), schedule.chunks)
    sent, received = [0] * n, [0] * n
    for t in schedule:
        sent[t.src] += len(sizes[t.chunk]) * ITEMSIZE[case.dtype]
        received[t.dst] += len(sizes[t.chunk]) * ITEMSIZE[case.dtype]
    return sent, received


def _check_trace(trace: Trace, n: int) -> None:
    again = Trace.from_json(trace.to_json())
    assert again.source is Source.REPLAYED
    rows = {again.spans.label(row) for row in range(len(again.spans))}
    assert rows == {str(t) for t in build_schedule("ring", n)}
    assert len(again.spans) == 2 * len(rows)
    assert np.all(again.spans.start_s >= 0)
    assert np.all(again.spans.end_s >= again.spans.start_s)
    assert np.all(again.spans.end_s <= again.time_s)


def _check_record(job, case, result) -> None:
    record = record_of(job, case, result, calibrated=None, command="none")
    assert record_from_json(record.to_json()) == record
    assert record.simulated is None
    assert "not known" in record.notes[0]


@pytest.mark.gpu
def test_replays_over_nccl_are_bit_equal_and_name_their_gpus():
    """The same check on two GPUs; each rank compares every run with the reference."""
    devices = torch_here().cuda_devices
    if len(devices) < 2:
        require("gpu", f"needs two or more CUDA GPUs, found {len(devices)}; see docs/gpu.md")
    cases = tuple(Case(name, 40_003, dtype, runs=1) for name in NAMES for dtype in ITEMSIZE)
    library = [Case(name, 40_008, runs=1) for name in COLLECTIVES]
    job = Job(2, (*cases, *library), backend="nccl")
    results = measure(job)
    assert all(result.runs_s[0] > 0 for result in results)
    record = record_of(job, cases[0], results[0], calibrated=None, command="none")
    assert record.environment["machine"]["gpus"] == list(devices[:2])


@pytest.mark.gloo
def test_a_replay_of_other_rows_is_caught(gloo):
    """The check itself is checked: replay a mutant, hold it to the true reference."""
    rows = list(build_schedule("ring", 2))
    rows[-1] = replace(rows[-1], op=Op.ADD)
    mutant = Case("ring", 1001, program="\n".join(map(str, rows)))
    with pytest.raises(RunError, match=r"ring gave a wrong result: rank \d, chunk \d, .*wanted"):
        measure(Job(2, (Case("ring", 1001, runs=1), mutant)))


def test_more_than_the_machine_bears_is_refused():
    pytest.importorskip("psutil", reason="pip install psutil")
    with pytest.raises(RunError, match="65 ranks are more"):
        check_bearable(Job(65, ()))
    with pytest.raises(RunError, match="GB of memory"):
        check_bearable(Job(64, (Case("ring", 10**12),)))


GB = 250_000_000  # float32


@pytest.mark.parametrize(
    ("job", "here", "needs_GB"),
    [
        (Job(4, (Case("ring", GB),)), None, 4 * 5.25),
        (Job(4, (Case("ring", GB),)), [0, 2], 2 * 5.25),
        (Job(4, (Case("ps", GB),)), None, 4 * 5.25 + 3),
        (Job(4, (Case("ps", GB, flags={"root": 1}),)), [0, 2], 2 * 5.25),
        (Job(4, (Case("ps", GB, flags={"root": 1}),)), [1], 5.25 + 3),  # from all, wherever
        (Job(4, (Case("torch.ps", GB),)), [0], 10.25 + 3),
        (Job(5, (Case("ps-dedicated", GB),)), None, 5 * 5.25 + 4),
        (Job(5, (Case("ps-dedicated", GB),)), [0, 1], 2 * 5.25),
        (Job(6, (Case("ps-dedicated", GB, flags={"servers": 2}),)), [5], 5.25 + 2),
        (Job(100, (Case("ring", GB // 100),), backend="device"), None, 0.25 + 100 * 0.05),
        (Job(100, (Case("ring", GB // 100),)), [0, 1], 2 * 0.3),
    ],
)
def test_memory_is_that_of_the_ranks_here_and_of_what_arrives_at_a_root(job, here, needs_GB):
    enough = needs_GB * 1e9 / 0.9
    check_bearable(job, enough * 1.001, here)
    with pytest.raises(RunError, match="GB of memory"):
        check_bearable(job, enough * 0.999, here)


def test_the_devices_clock_is_made_before_the_agreed_start(monkeypatch):
    """To open the driver's library takes longer than there is between the request and the start."""
    torch = pytest.importorskip("torch", reason="pip install torch")
    work = SimpleNamespace(reset=lambda: None, run=list, difference=lambda: None)
    rank = Rank()
    rank.work, rank.case, rank.device = work, Case("ring", 1), torch.device("cpu")
    made: list[object] = []

    class Clock:
        def __init__(self, device: object) -> None:
            made.append(device)

        begin = end = seen = lambda self: None

    monkeypatch.setattr("real_gpu.device.clock.DeviceClock", Clock)
    for run in (1, 2):
        rank.reset()
        assert len(made) == run
        rank.run(0.0)
        assert len(made) == run


def test_a_process_that_cannot_be_waited_for_leaves_no_pipe_open(monkeypatch):
    monkeypatch.setattr(os, "killpg", lambda group, number: None, raising=False)

    def wait(within_s):
        raise subprocess.TimeoutExpired("rank", within_s)

    with Ranks(2) as ranks:
        for _ in range(2):
            pipes = {name: io.StringIO() for name in ("stdin", "stdout", "stderr")}
            process = SimpleNamespace(pid=0, kill=lambda: None, wait=wait, **pipes)
            ranks.processes.append(process)
    for process in ranks.processes:
        assert process.stdin.closed
        assert process.stdout.closed
        assert process.stderr.closed
