"""Which collectives torch 2.13 issues for a training step, in which order, with how many bytes.

What a call costs is not said here. ``nbytes`` is the tensor that torch hands over: the gathered
output of an all-gather, the input of a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from simcore.names import unknown
from simcore.training.buckets import MIB, Bucket, DdpOptions, buckets, closed_after
from simcore.training.model import Parameter, Workload
from simcore.units import ITEM_BYTES

COALESCED_BYTES = 250 * MIB  # a broadcast of several tensors is cut after this much
MIN_COMPRESSION = 2  # PowerSGD leaves alone what it would not make smaller than by this factor
_FLAG, _RANK = 4, 8  # a float32 flag, an int64 rank

Pass = Literal["train", "no_sync", "eval"]


@dataclass(frozen=True, slots=True)
class Call:
    """One collective. ``ranks`` take part in it, in every group of that size; None: all."""

    kind: Literal["all_reduce", "broadcast", "all_gather", "reduce_scatter"]
    nbytes: int
    label: str
    ranks: int | None = None


@dataclass(frozen=True, slots=True)
class DdpState:
    """What a DistributedDataParallel remembers from one forward pass to the next."""

    reduced: int = 0  # backward passes whose gradients were reduced
    rebuilt: bool = False  # its buckets follow the order of arrival
    buffers_due: bool = True  # the next forward pass starts with rank 0's buffers


def wire_bytes(calls: Iterable[Call], n: int) -> int:
    """Payload that all ranks together send, with algorithms that send no more than they must.

    >>> wire_bytes([Call("all_reduce", 100, "bucket 0"), Call("broadcast", 10, "buffers")], n=4)
    630
    """
    total = 0
    for call in calls:
        ranks = call.ranks or n
        factor = 2 if call.kind == "all_reduce" else 1
        total += factor * (ranks - 1) * call.nbytes * (n // ranks)
    return total


def construction(workload: Workload, n: int, options: DdpOptions | None = None) -> tuple[Call, ...]:
    """What wrapping a model sends: a check of the shapes, then rank 0's model to everyone.

    >>> model = Workload("m", (Parameter("weight", (1000, 1000)), Parameter("bias", (1000,))))
    >>> for call in construction(model, n=4):
    ...     print(call.kind, call.nbytes, call.label)
    all_gather 32 number of parameters
    broadcast 48 shapes
    broadcast 4004000 model float32
    """
    options = options or DdpOptions()
    dims = [len(p.shape) for p in workload.parameters if p.trainable]
    if not dims:
        raise ValueError(f"{workload.name!r} has nothing to train; torch refuses to wrap it")
    return (
        Call("all_gather", 8 * n, "number of parameters"),
        Call("broadcast", 8 * 2 * sum(dims), "shapes"),  # sizes and strides
        *_whole_model(workload, options),
    )


def _whole_model(workload: Workload, options: DdpOptions) -> list[Call]:
    buffers = workload.buffers if options.broadcast_buffers else ()
    return _coalesced((*workload.parameters, *buffers), "model")


def _coalesced(tensors: Sequence[Parameter], what: str) -> list[Call]:
    limits = (COALESCED_BYTES, COALESCED_BYTES)
    parts = closed_after(tensors, range(len(tensors)), limits)
    return [
        Call("broadcast", part.nbytes, f"{what} {part.dtype}")
        for part in sorted(parts, key=lambda part: part.indices)
    ]


def iteration(
    workload: Workload,
    n: int,
    options: DdpOptions | None = None,
    number: int = 0,
    *,
    syncing: bool = True,
    previous: Pass = "train",
) -> tuple[Call, ...]:
    """One forward and backward pass after ``number`` reduced ones; ``previous`` came before it.

    ``syncing`` False: under ``no_sync``. ``n`` changes nothing but is what others need too.

    >>> from simcore.training.workload import load_workload
    >>> [len(iteration(load_workload("resnet18"), 4, number=i)) for i in (0, 1, 2)]
    [3, 7, 5]
    """
    options = options or DdpOptions()
    if number < 0 or n < 1:
        raise ValueError(f"number must be 0 or more and n at least 1, got {number} and {n}")
    rebuild = options.rebuilt_in
    state = DdpState(
        reduced=number,
        rebuilt=rebuild is not None and number + (previous == "no_sync") > rebuild,
        buffers_due=previous == "train",
    )
    return one_pass(workload, options, state, "train" if syncing else "no_sync")[0]


def passes(
    workload: Workload, options: DdpOptions | None, kinds: Sequence[Pass]
) -> tuple[tuple[Call, ...], ...]:
    """The calls of each of these passes, the first one after construction.

    >>> model = Workload("m", (Parameter("weight", (2, 2)),), (Parameter("mean", (2,)),))
    >>> [len(c) for c in passes(model, None, ["train", "train", "no_sync", "no_sync", "train"])]
    [2, 4, 1, 0, 1]
    """
    options, state = options or DdpOptions(), DdpState()
    calls = []
    for kind in kinds:
        these, state = one_pass(workload, options, state, kind)
        calls.append(these)
    return tuple(calls)


def one_pass(
    workload: Workload, options: DdpOptions, state: DdpState, kind: Pass, *, joining: bool = False
) -> tuple[tuple[Call, ...], DdpState]:
    """The calls of one pass, and what is remembered then.

    ``train`` reduces in its backward pass, ``no_sync`` does not, ``eval`` has none: a forward
    pass under ``no_grad``. ``joining``: inside ``join``.
    """
    if kind not in ("train", "no_sync", "eval"):
        raise ValueError(unknown("pass", kind, ("train", "no_sync", "eval")))
    if kind == "no_sync" and options.static_graph and state.reduced == 0:
        raise ValueError("torch fails on a static graph whose first backward is under no_sync")
    rebuild = kind != "eval" and not state.rebuilt and state.reduced == options.rebuilt_in
    parts = buckets(workload, options, state.reduced) if kind != "eval" else ()
    calls = [Call("all_reduce", _FLAG, "join: who is left")] if joining else []
    if rebuild:
        items = sum(len(part.indices) for part in parts)
        calls.append(Call("broadcast", 4 * (items + 1), "rebuilt order"))
        calls.append(Call("broadcast", 4 * len(parts), "rebuilt sizes"))
    if state.buffers_due and options.broadcast_buffers and workload.buffers:
        if joining:
            calls.append(Call("all_reduce", _RANK, "join: whose buffers"))
        calls += _coalesced(workload.buffers, "buffers")
    if joining:
        calls.append(Call("all_reduce", _FLAG, "join: who reduces"))
    if kind == "train":
        calls += _backward(workload, options, state.reduced, parts)
    state = replace(state, rebuilt=state.rebuilt or rebuild, buffers_due=kind == "train")
    return tuple(calls), replace(state, reduced=state.reduced + (kind == "train"))


def _backward(
    workload: Workload, options: DdpOptions, number: int, parts: Sequence[Bucket]
) -> list[Call]:
    arriving = set(workload.gradients)
    finds = options.static_graph or options.find_unused_parameters
    ready = takewhile(lambda part: finds or arriving.issuperset(part.indices), parts)
    reduced = [
        call for i, part in enumerate(ready) for call in _bucket(workload, options, number, i, part)
    ]
    trainable = sum(p.trainable for p in workload.parameters)
    used = Call("all_reduce", 4 * trainable, "used parameters")
    if options.static_graph:  # it counts in its first iteration, and reduces all at the end of it
        return [used, *reduced] if number == 0 else reduced
    return [*reduced, used] if options.find_unused_parameters else reduced


def _bucket(
    workload: Workload, options: DdpOptions, number: int, index: int, bucket: Bucket
) -> list[Call]:
    item = ITEM_BYTES[bucket.dtype]
    if options.hook in ("fp16", "bf16"):
        return [Call("all_reduce", bucket.nbytes // item * 2, f"bucket {index}")]
    if options.powersgd is None or number < options.powersgd[1]:
        return [Call("all_reduce", bucket.nbytes, f"bucket {index}")]
    plain = tall = wide = 0
    for parameter in (workload.parameters[i] for i in bucket.indices):
        rows = parameter.shape[0] if parameter.shape else 1
        columns = parameter.elements // rows if rows else 0
        rank = min(rows, columns, options.powersgd[0])
        if (rows + columns) * rank * MIN_COMPRESSION < parameter.elements:
            tall, wide = tall + rows * rank, wide + columns * rank
        else:
            plain += parameter.elements
    sizes = {"uncompressed": plain, "P": tall, "Q": wide}
    return [Call("all_reduce", n * item, f"bucket {index} {part}") for part, n in sizes.items()]


def join(
    workload: Workload, options: DdpOptions | None, iterations: int
) -> tuple[tuple[Call, ...], ...]:
    """Training in a ``join`` block, and its end; ``iterations`` is what the last rank has.

    A rank that has run out of data issues the same calls, with zeros for gradients: no byte
    is saved.

    >>> model = Workload("m", (Parameter("weight", (2, 2)),))
    >>> [[call.label for call in calls] for calls in join(model, None, 1)]
    [['join: who is left', 'join: who reduces', 'bucket 0'], \
['join: who is left', 'join: whose model', 'model float32']]
    """
    options, state = options or DdpOptions(), DdpState()
    calls = []
    for _ in range(iterations):
        these, state = one_pass(workload, options, state, "train", joining=True)
        calls.append(these)
    agree = Call("all_reduce", _FLAG, "join: who is left")
    whose = Call("all_reduce", _RANK, "join: whose model")
    return (*calls, (agree, whose, *_whole_model(workload, options)))
