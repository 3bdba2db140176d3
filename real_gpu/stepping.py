"""From training steps to their records: plans replayed, or the vendor's own step, on real ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any

import numpy as np

from real_gpu.job import TRAINED, Case, CaseResult, Job, RunError, parse_rate_network
from real_gpu.network.instrument import calibration, instrument
from real_gpu.processes.stage import HERE, Stage
from real_gpu.recording import counted_payload, environment
from simcore.commands.training import flag_of
from simcore.measured.step_records import VENDOR_STEPS, StepRecord, computing_s, options_of
from simcore.trace import Source, Spans, Trace, no_pieces
from simcore.training.plan import Communicate, Plan
from simcore.training.strategies import Setting, find_strategy
from simcore.training.workload import to_json

MOST_BYTES = 2**28  # what every rank holds lies in this machine
DDP_TAKES = ("bucket_cap_mb", "accumulate")  # of a setting, under the real DDP


@dataclass(frozen=True, slots=True)
class Step:
    """A strategy to replay, or a vendor's step, in a setting. ``trace`` keeps the last run's."""

    name: str
    setting: Setting
    trace: bool = False

    @property
    def plan(self) -> Plan:
        """What is replayed; of a vendor's step, what it is simulated as."""
        return find_strategy(VENDOR_STEPS.get(self.name, self.name)).plan(self.setting)


def check_step(step: Step) -> None:
    """A ``ValueError`` for what cannot be run here."""
    work = step.setting.workload
    if not computing_s(step.plan):
        raise ValueError(
            f"the compute time of {work.name!r} is not known; accepted: a model file that "
            "holds it, or --forward T --backward T"
        )
    if step.setting.gpus < 2:
        raise ValueError(f"{step.setting.gpus} ranks synchronise nothing; accepted: 2 or more")
    nbytes = _bytes_held(step)
    if nbytes > MOST_BYTES:
        raise ValueError(
            f"{work.name!r}: a rank would hold {nbytes} bytes; accepted: at most {MOST_BYTES}"
        )
    if step.name != TRAINED:
        return
    if any(p.dtype != "float32" for p in work.parameters):
        raise ValueError(f"{work.name!r}: {TRAINED} accepts float32 parameters")
    for name in options_of(step.setting):
        if name not in DDP_TAKES:
            accepted = ", ".join(map(flag_of, DDP_TAKES))
            raise ValueError(f"{TRAINED} takes no {flag_of(name)}; accepted: {accepted}")


def take_steps(
    steps: Sequence[Step],
    network: str | None,
    *,
    backend: str = "gloo",
    runs: int = 5,
    command: str = "",
    stage: Stage = HERE,
) -> list[tuple[StepRecord, Trace | None]]:
    """Run each step with and without communication, on one set of ranks; all need as many.

    Raises ``RunError`` for a run that failed, ``ValueError`` for what cannot be run.
    """
    steps = [replace(s, setting=replace(s.setting, backend=backend)) for s in steps]  # type: ignore[arg-type]
    for step in steps:
        check_step(step)
    (n,) = {step.plan.n for step in steps}
    shaped = None if network is None else parse_rate_network(network)
    if shaped and shaped.latency_s:
        raise ValueError(f"network {network!r}: accepted is a rate alone")
    checks = () if shaped is None else (calibration(shaped),)
    cases = [case for step in steps for case in cases_of(step, runs)]
    job = stage.place(Job(n, (*checks, *cases), backend, shaped))
    results = stage.measure(job)
    calibrated = results[0] if checks else None
    found = []
    for k, step in enumerate(steps):
        computed, done = results[len(checks) + 2 * k :][:2]
        record = _record(step, network, job, computed, done, calibrated, command)
        found.append((record, _trace(step, done) if step.trace else None))
    return found


def cases_of(step: Step, runs: int) -> tuple[Case, Case]:
    """The step without communication, and the whole."""
    training: dict[str, Any] = {
        "strategy": VENDOR_STEPS.get(step.name, step.name),
        "workload": to_json(step.setting.workload),
        "gpus": step.setting.gpus,
        "backend": step.setting.backend,
        "options": options_of(step.setting),
        "computing_s": computing_s(step.plan),
    }
    name = step.name if step.name in VENDOR_STEPS else f"step {step.name}"
    case = Case(name, -(-_bytes_held(step) // 4), runs=runs, training=training | {"synced": True})
    alone = replace(case, runs=min(runs, 3), training=training | {"synced": False})
    return alone, replace(case, spans=step.trace)


def _bytes_held(step: Step) -> int:
    """By one rank: a buffer for each communication, or the parameters."""
    sent = sum(task.nbytes for task in step.plan.tasks if isinstance(task, Communicate))
    return max(sent, 4 * step.setting.workload.elements if step.name == TRAINED else 0)


def _record(
    step: Step,
    network: str | None,
    job: Job,
    computed: CaseResult,
    done: CaseResult,
    calibrated: CaseResult | None,
    command: str,
) -> StepRecord:
    if network is not None and not done.counters:
        raise RunError("the network's counters are missing")
    counters = [run["sent"] for run in done.counters]
    sent, received = counted_payload(done) or (None, None)
    vendor = step.name in VENDOR_STEPS
    return StepRecord(
        name=step.name,
        source=(Source.VENDOR if vendor else Source.REPLAYED).value,
        backend=job.backend,
        network=network,
        gpus=step.setting.gpus,
        servers=step.plan.servers,
        workload=to_json(step.setting.workload),
        options=options_of(step.setting),
        runs_s=tuple(done.runs_s),
        median_s=median(done.runs_s),
        computing_s=median(computed.runs_s),
        sent_bytes=sent,
        received_bytes=received,
        counter_sent_bytes=tuple(map(int, np.median(counters, axis=0))) if counters else None,
        environment=environment(job, command),
        instrument=instrument(job, done, calibrated) if network is not None else None,
    )


def _trace(step: Step, done: CaseResult) -> Trace:
    """The tasks and messages that were kept, as ``PlanRun.trace`` has them of a simulated one."""
    columns = np.array(done.spans, float).reshape(-1, 11).T
    columns = columns[:, np.lexsort((columns[1], columns[7]))]
    whole = columns.astype(np.int64)
    of: dict[str, Any] = dict(zip((f.name for f in fields(Spans)), whole, strict=False))
    of |= {"start_s": columns[7], "end_s": columns[8]}
    sent, received = (np.array(b, np.int64) for b in counted_payload(done) or ((), ()))
    plan, names = step.plan, tuple(task.label for task in step.plan.tasks)
    totals = (done.traced_s, sent, received)
    spans, pieces = Spans(**of), no_pieces()
    return Trace(Source.REPLAYED, plan.name, plan.n, *totals, spans, pieces, names, whole[10])
