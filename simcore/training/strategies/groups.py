"""Data parallelism inside a larger job: who averages gradients with whom, and how many bytes.

Tensor and pipeline parallelism themselves, and what they send, are not here.
"""

from __future__ import annotations

from dataclasses import replace

from simcore.training.model import Workload


def data_parallel_groups(
    world: int, tensor: int = 1, pipeline: int = 1
) -> tuple[tuple[int, ...], ...]:
    """The ranks that hold the same part of the model, group by group.

    Neighbouring ranks split tensors, the farthest ones are stages of the pipeline, as Megatron-LM
    orders them by default: ``rank = t + tensor * (d + data * p)``.

    >>> data_parallel_groups(8, tensor=2, pipeline=2)
    ((0, 2), (1, 3), (4, 6), (5, 7))
    """
    parts = _parts(tensor, pipeline)
    if world < 1 or world % parts:
        raise ValueError(
            f"{world} GPUs do not hold whole copies of a model in {tensor} x {pipeline} parts; "
            f"accepted: multiples of {parts}"
        )
    stage = world // pipeline
    return tuple(
        tuple(range(first + place, first + stage, tensor))
        for first in range(0, world, stage)
        for place in range(tensor)
    )


def share_of_model(workload: Workload, tensor: int = 1, pipeline: int = 1) -> Workload:
    """What one rank of such a job holds and computes, to be trained with DDP in its group.

    Every parameter is counted as split evenly. Real jobs keep small ones whole, and stages are
    whole layers: the volume is right to within those, the order of the buckets is not.

    >>> from simcore.training.workload import load_workload
    >>> gpt2 = load_workload("gpt2-xl")
    >>> share = share_of_model(gpt2, tensor=8, pipeline=2)
    >>> round(gpt2.gradient_bytes / share.gradient_bytes, 3)
    16.0
    """
    parts = _parts(tensor, pipeline)
    if parts == 1:
        return workload
    return replace(
        workload,
        name=f"{workload.name} / {parts}",
        parameters=tuple(
            replace(p, shape=(-(-p.elements // parts),), forward_flops=p.forward_flops / parts)
            for p in workload.parameters
        ),
        forward_s=tuple(seconds / parts for seconds in workload.forward_s),
        backward_s=tuple(seconds / parts for seconds in workload.backward_s),
        optimizer_s=workload.optimizer_s / parts,
    )


def _parts(tensor: int, pipeline: int) -> int:
    if tensor < 1 or pipeline < 1:
        raise ValueError(f"tensor and pipeline must be at least 1, got {tensor} and {pipeline}")
    return tensor * pipeline
