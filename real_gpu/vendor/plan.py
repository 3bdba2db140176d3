"""The library's trainings as a table: options, the model, and which collectives simcore expects.

No torch: the command line and the records read this; ``training`` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from math import isqrt
from typing import Any, cast

from real_gpu.job import TRAININGS, Case
from real_gpu.vendor.collectives import Traffic, gloo_all_gather, gloo_all_reduce, gloo_broadcast
from simcore.algorithms import build_schedule
from simcore.training import calls, sharded
from simcore.training.buckets import DdpOptions
from simcore.training.calls import Call
from simcore.training.model import Parameter, Workload

LAYERS = 8
SERVED = ("torch.ps", "torch.ps-async")
WARM_STEPS = 4  # buckets are gathered anew in the second step, with a static graph in the third
ITEM = 4  # bytes: the models are of float32


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a server's."""

    kind: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Training:
    """One row of the table. ``takes`` are its options; ``expected`` the collectives of one step
    long after the first, or for the servers its messages.
    """

    title: str
    takes: tuple[str, ...]
    expected: Callable[[Workload, int, Mapping[str, Any]], tuple[Call | Message, ...]] | None


def workload(elements: int) -> Workload:
    """The model of so many parameters: eight square layers, and what is left as two outputs.

    >>> [p.shape for p in workload(2**21).parameters] == [(512, 512)] * 8
    True
    >>> [p.shape for p in workload(1000).parameters][-3:]
    [(11, 11), (2, 11), (1, 10)]
    """
    width, layers, head, tail = shape(elements)
    parameters = [Parameter(f"layers.{i}.weight", (width, width)) for i in range(layers)]
    parameters += [Parameter("head.weight", (head, width))] if head else []
    parameters += [Parameter("tail.weight", (1, tail))] if tail else []
    return Workload("a stack of linear layers", tuple(parameters), (Parameter("seen", (width,)),))


def shape(elements: int) -> tuple[int, int, int, int]:
    """Width, layers, rows of the head, inputs of the tail; together so many parameters."""
    if elements < 1:
        raise ValueError("a model of 0 bytes trains nothing; accepted: a size of at least 4 B")
    width = max(1, isqrt(elements // LAYERS))
    layers = min(LAYERS, elements // width**2)
    head, tail = divmod(elements - layers * width**2, width)
    return width, layers, head, tail


_BUCKETS = ("bucket_cap_mb", "static_graph", "find_unused_parameters", "broadcast_buffers", "hook")
_DDP = {field.name for field in fields(DdpOptions)}


def _of_ddp(work: Workload, n: int, options: Mapping[str, Any]) -> tuple[Call, ...]:
    passes: list[calls.Pass] = ["train", *_passes(options) * WARM_STEPS]
    return tuple(
        call
        for these in calls.passes(work, _ddp_options(options), passes)[-options["accumulate"] :]
        for call in these
    )


def _passes(options: Mapping[str, Any]) -> list[calls.Pass]:
    return [*cast(list[calls.Pass], ["no_sync"] * (options["accumulate"] - 1)), "train"]


def _of_zero(work: Workload, n: int, options: Mapping[str, Any]) -> tuple[Call, ...]:
    view = bool(options.get("parameters_as_bucket_view"))
    step = sharded.zero_redundancy_optimizer(work, n, bucket_view=view)
    return (*_of_ddp(work, n, options), *step)


def _of_fsdp(work: Workload, n: int, options: Mapping[str, Any]) -> tuple[Call, ...]:
    layers = [[p] for p in work.parameters if p.name.startswith("layers")]
    root = [p for p in work.parameters if not p.name.startswith("layers")]
    reshard = options.get("reshard_after_forward", True)
    return tuple(
        call
        for kind in _passes(options)
        for call in sharded.fsdp(layers, n, root=root, reshard=reshard, syncing=kind == "train")
    )


def _of_server(work: Workload, n: int, options: Mapping[str, Any]) -> tuple[Message, ...]:
    """Rank 0's messages in the schedule ``ps``."""
    rows = [t for t in build_schedule("ps", n) if 0 in (t.src, t.dst)]
    nbytes = work.elements * ITEM
    return tuple(Message("send" if t.src == 0 else "receive", nbytes) for t in rows)


TABLE: dict[str, Training] = dict(
    zip(
        TRAININGS,
        (
            Training(
                "DistributedDataParallel",
                (*_BUCKETS, "gradient_as_bucket_view", "accumulate"),
                _of_ddp,
            ),
            Training("FSDP2's fully_shard", ("reshard_after_forward", "accumulate"), _of_fsdp),
            Training(
                "DistributedDataParallel with ZeroRedundancyOptimizer",
                ("bucket_cap_mb", "parameters_as_bucket_view", "accumulate"),
                _of_zero,
            ),
            Training("nn.DataParallel", (), None),
            Training("a parameter server on rank 0, synchronous", (), _of_server),
            Training("a parameter server on rank 0, first come, first served", (), _of_server),
        ),
        strict=True,
    )
)

# On the command line: --no-… where the library's default is true.
FLAGS = {
    "bucket_cap_mb": "DDP's, in MiB",
    "static_graph": "DDP's",
    "find_unused_parameters": "DDP's",
    "gradient_as_bucket_view": "DDP's",
    "broadcast_buffers": "DDP's",
    "hook": "DDP's: fp16, bf16 (over NCCL), powersgd:RANK:START",
    "parameters_as_bucket_view": "ZeroRedundancyOptimizer's",
    "reshard_after_forward": "fully_shard's",
    "accumulate": "micro-batches of one step (1), of which the last is reduced",
}
ON_BY_DEFAULT = ("broadcast_buffers", "reshard_after_forward")
WITH_VALUE = ("bucket_cap_mb", "hook", "accumulate")


def flag(option: str) -> str:
    """An option's name on the command line.

    >>> flag("static_graph"), flag("broadcast_buffers")
    ('--static-graph', '--no-broadcast-buffers')
    """
    return ("--no-" if option in ON_BY_DEFAULT else "--") + option.replace("_", "-")


def check_takes(name: str, given: Mapping[str, Any]) -> None:
    """A ``ValueError`` for options that this training does not take, or that are not one."""
    for option in given:
        if name not in TABLE or option not in TABLE[name].takes:
            takers = [other for other, training in TABLE.items() if option in training.takes]
            raise ValueError(
                f"{name} does not take {flag(option)}; accepted: with {', '.join(takers)}"
            )
    _ddp_options(given)


def check_runs(case: Case, n: int, backend: str) -> None:
    """A ``ValueError`` for what cannot run with so many ranks and this backend."""
    shape(case.elements)
    if case.name == "torch.fsdp" and n < 2:
        raise ValueError("torch.fsdp shares a model out among ranks; accepted: --gpus 2 or more")
    chosen = _ddp_options(case.options)
    if backend == "gloo" and chosen.hook == "bf16":
        raise ValueError("torch's bf16 hook needs NCCL; accepted over Gloo: fp16, powersgd:RANK")
    if backend == "gloo" and chosen.powersgd and chosen.limits[0] < case.size_bytes:
        raise ValueError(
            "PowerSGD over Gloo fails with several buckets, whose steps its threads mix up; "
            f"accepted: --bucket-cap-mb {-(-case.size_bytes // 2**20)} or more"
        )


def _ddp_options(given: Mapping[str, Any]) -> DdpOptions:
    return DdpOptions(**{name: value for name, value in given.items() if name in _DDP})


def expected(case: Case, n: int) -> list[list[Any]] | None:
    """Kind and bytes of what simcore lists for one step on rank 0; None where it lists nothing."""
    row = TABLE[case.name]
    if row.expected is None or n == 1 or _on_own_threads(case):
        return None
    listed = row.expected(workload(case.elements), n, case.options)
    return [[call.kind, call.nbytes] for call in listed]


def _on_own_threads(case: Case) -> bool:
    """PowerSGD's collectives start there, and are not all seen."""
    return str(case.options.get("hook")).startswith("powersgd")


def payload(case: Case, seen: Iterable[Any] | None, backend: str, n: int) -> Traffic | None:
    """What each rank sends and receives in one step, from the collectives that were seen."""
    if n == 1:
        return (0,), (0,)
    if case.name in SERVED:
        root, worker = (n - 1) * case.size_bytes, case.size_bytes
        return ((root, *[worker] * (n - 1)),) * 2
    if backend != "gloo" or seen is None or _on_own_threads(case):
        return None
    item = 2 if case.options.get("hook") else ITEM
    sent, received = [0] * n, [0] * n
    for kind, nbytes in seen:
        for total, part in zip((sent, received), _GLOO[kind](nbytes, item, n), strict=True):
            total[:] = [a + b for a, b in zip(total, part, strict=True)]
    return tuple(sent), tuple(received)


_GLOO: dict[str, Callable[[int, int, int], Traffic]] = {
    "all_reduce": gloo_all_reduce,
    "reduce_scatter": gloo_all_reduce,
    "all_gather": gloo_all_gather,
    "broadcast": gloo_broadcast,
}


def notes(case: Case, seen: list[Any] | None, n: int) -> list[str]:
    """What a record says of a training."""
    row, wanted = TABLE[case.name], expected(case, n)
    lines = [
        (
            f"one step of {row.title}: forward, backward, communication, optimizer; "
            "its parameters checked against one process on the whole batch"
        ),
        "not simulated: real layers compute, for a time that is only observed",
    ]
    if case.name in SERVED:
        lines.append("torch has no server of its own: this one is made of its send and recv")
    if wanted is not None and seen is not None:
        listed = [list(call) for call in seen]
        if case.name == "torch.ps-async":  # in whatever order they come
            listed, wanted = sorted(listed), sorted(wanted)
        agree = wanted == listed
        lines.append(
            f"torch issued {_count(seen)}, "
            + ("as simcore lists them" if agree else f"where simcore lists {_count(wanted)}")
        )
    return lines


def _count(listed: Iterable[Any]) -> str:
    kinds: dict[str, list[int]] = {}
    for kind, nbytes in listed:
        kinds.setdefault(kind, []).append(nbytes)
    parts = [f"{len(sizes)} {kind} of {sum(sizes)} bytes" for kind, sizes in kinds.items()]
    return ", ".join(parts) or "no collective"
