"""From a workload to a record of real training steps on the shaped network."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from real_gpu.job import TRAINED, Case, Job, RunError, parse_network
from real_gpu.measure import measure
from real_gpu.recording import calibration, environment, instrument
from simcore.model import Workload
from simcore.step_records import StepRecord
from simcore.workload import to_json

MOST_ELEMENTS = 2**26  # parameters, gradients and buckets of every rank lie in this machine


def train(
    work: Workload,
    gpus: int,
    network: str,
    *,
    bucket_cap_mb: float | None = None,
    accumulate: int = 1,
    runs: int = 5,
    command: str = "",
) -> StepRecord:
    """Run DDP's step with and without communication; only real processes and real packets.

    Raises ``RunError`` for a run that failed, ``ValueError`` for what cannot be run.
    """
    if not work.backward_s:
        raise ValueError(
            f"the compute time of {work.name!r} is not known; accepted: a model file that "
            "holds it, or --forward T --backward T"
        )
    if work.elements > MOST_ELEMENTS or any(p.dtype != "float32" for p in work.parameters):
        raise ValueError(
            f"{work.name!r}: accepted are float32 parameters, at most {MOST_ELEMENTS} elements"
        )
    if gpus < 2:
        raise ValueError(f"{gpus} ranks synchronise nothing; accepted: 2 or more")
    shaped = parse_network(network)
    if shaped.latency_s:
        raise ValueError(f"network {network!r}: accepted is a rate alone")
    computing_s = math.fsum(work.forward_s) + math.fsum(work.backward_s)
    training: dict[str, Any] = {
        "workload": to_json(work),
        "options": {} if bucket_cap_mb is None else {"bucket_cap_mb": bucket_cap_mb},
        "accumulate": accumulate,
        "computing_s": accumulate * computing_s + work.optimizer_s,
        "synced": True,
    }
    case = Case(TRAINED, work.elements, runs=runs, training=training)
    alone = replace(case, training=training | {"synced": False})
    job = Job(gpus, (calibration(shaped), alone, case), "gloo", shaped)
    calibrated, computed, trained = measure(job)
    if not trained.counters:
        raise RunError("the network's counters are missing")
    sent = np.median([run["sent"] for run in trained.counters], axis=0)
    return StepRecord(
        name=TRAINED,
        network=network,
        gpus=gpus,
        workload=training["workload"],
        bucket_cap_mb=bucket_cap_mb,
        accumulate=accumulate,
        runs_s=tuple(trained.runs_s),
        median_s=median(trained.runs_s),
        computing_s=median(computed.runs_s),
        counter_sent_bytes=tuple(int(nbytes) for nbytes in sent),
        environment=environment(job, command),
        instrument=instrument(job, trained, calibrated),
    )
