"""The training steps of a validation: measured, and simulated on the calibrated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from real_gpu.job import RunError
from real_gpu.processes.stage import HERE, Stage
from real_gpu.stepping import Step, take_steps
from real_gpu.validation.progress import Progress
from real_gpu.validation.suite import Suite
from simcore.cluster_file import cluster_from_dict
from simcore.measured.cells import Cell, cell_of_step
from simcore.measured.step_records import StepRecord
from simcore.training.buckets import DdpOptions
from simcore.training.model import Parameter, Workload
from simcore.training.strategies import Setting

RUNS = 3


def step_cells(
    suite: Suite,
    n: int,
    network: str | None,
    cluster: dict[str, Any],
    command: str,
    progress: Progress,
    stage: Stage = HERE,
) -> Iterator[tuple[Cell, StepRecord]]:
    """The training steps on one set of ``n`` ranks, each simulated on the calibrated cluster.

    What was not quiet, or failed, is measured once more.
    """
    left = [
        Step(name, Setting(stack(), n, DdpOptions(bucket_cap_mb=cap)))
        for name, cap in suite.steps(n, network)
    ]
    for last in (False, True):
        if not left:
            return
        progress.now(f"{n} ranks: {len(left)} training steps")
        try:
            how: dict[str, Any] = {"backend": suite.backend, "runs": RUNS, "command": command}
            taken = take_steps(left, network, stage=stage, **how)
        except RunError as error:
            if last or stage.ranks is not None:  # ranks that a launcher started are gone with it
                raise
            progress.say(f"{error}; the training steps are tried once more")
            continue
        again = []
        for step, (record, _) in zip(left, taken, strict=True):
            if last or record.instrument is None or record.instrument["ok"]:
                on = cluster_from_dict(cluster, record.ranks)
                yield cell_of_step(record, on), record
            else:
                again.append(step)
        left = again


def stack() -> Workload:
    """Twelve layers, 3.9 MB of gradients, 250 ms of computing by sleeping."""
    layers = (Parameter(f"layer{i}.weight", (256, 256 + 64 * (i % 3))) for i in range(12))
    return Workload("stack-12", tuple(layers)).with_compute(0.06, 0.18, 0.01)
