"""``step`` inside a larger job: tensor and pipeline parallelism around a data-parallel step."""

from __future__ import annotations

import argparse
from typing import Any

from simcore.training.model import Workload
from simcore.training.step import StepResult
from simcore.training.strategies import data_parallel_groups, share_of_model
from simcore.units import format_bytes

_SHOWN = 4  # groups in the text; JSON has all


def share_of(args: argparse.Namespace, work: Workload) -> Workload:
    """What one rank of the job holds; ``args.gpus`` becomes the size of its data-parallel group.

    The groups take their steps side by side. On equal ports they do not notice each other, so one
    is simulated; where they would share a cluster's links, that is refused.
    """
    args.world, parts = args.gpus, args.tensor_parallel * args.pipeline_parallel
    if parts == 1:
        return work
    if args.strategy == "dp":
        raise ValueError(
            "nn.DataParallel refuses a model in several parts: torch wants all parameters and "
            "buffers on device_ids[0]; accepted: ddp and others with one process per GPU"
        )
    if args.cluster is not None:
        raise ValueError(
            "groups of a job share a cluster's links, which is not simulated; "
            "accepted: --bandwidth with --tensor-parallel and --pipeline-parallel"
        )
    groups = data_parallel_groups(args.gpus, args.tensor_parallel, args.pipeline_parallel)
    args.gpus = len(groups[0])
    return share_of_model(work, args.tensor_parallel, args.pipeline_parallel)


def told(args: argparse.Namespace, result: StepResult) -> tuple[dict[str, Any], list[str]]:
    """The groups, for JSON and for people; nothing where the job is one group."""
    tensor, pipeline = args.tensor_parallel, args.pipeline_parallel
    if tensor * pipeline == 1:
        return {}, []
    groups = data_parallel_groups(args.world, tensor, pipeline)
    sent = int(result.run.sent_bytes.sum()) / result.steps
    shown = " ".join(str(group).replace(" ", "") for group in groups[:_SHOWN])
    more = " …" * (len(groups) > _SHOWN)
    line = f"groups         {len(groups)} of {len(groups[0])} GPUs: {shown}{more}"
    line += f"; {format_bytes(round(sent))} sent in each"
    return {"data_parallel_groups": groups, "sent_bytes_of_a_group": sent}, [line]
