"""torch.nn.DataParallel's step: one process, GPU 0 sends the model out and takes gradients in."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simcore.training import memory
from simcore.training.plan import Compute, Plan, Task, collective, copies
from simcore.training.strategies.setting import Setting, pieces

COALESCED_BYTES = 10 * 2**20  # DataParallel sends tensors together up to this size


def coalesced(sizes: Sequence[int], cap: int = COALESCED_BYTES) -> list[int]:
    """Bytes of the chunks that tensors travel in: one closes before a tensor that would exceed it.

    >>> coalesced([6, 3, 8, 30, 1], cap=10)
    [9, 8, 30, 1]
    """
    chunks: list[int] = []
    for nbytes in sizes:
        if chunks and chunks[-1] + nbytes <= cap:
            chunks[-1] += nbytes
        else:
            chunks.append(nbytes)
    return chunks


def dp(setting: Setting, batch: int | None = None) -> Plan:
    """One step of DataParallel over a whole ``batch`` (the workload's per GPU times GPUs).

    Its chunks are ``ceil(batch / gpus)`` samples, so a small batch leaves GPUs without any.
    With the ``gloo`` setting the copy path (no NCCL: GPU 0 sends the model once per peer), with
    ``nccl`` its broadcast and reduce. Nothing overlaps: every parameter is an output of one
    operation, so gradients are only reduced when the last one is there. Each of ``accumulate``
    micro-batches sends the model out and takes gradients in: there is no ``no_sync`` here.

    >>> from simcore.training.model import Parameter, Workload
    >>> work = Workload("one", (Parameter("w", (1000,)),), input_bytes=8, output_bytes=4)
    >>> [task.label for task in dp(Setting(work, 2, backend="gloo")).tasks]
    ['scatter inputs', 'send parameters', 'launch', 'forward', 'gather outputs', 'loss', \
'scatter output gradients', 'backward', 'reduce gradients', 'optimizer']
    """
    work, n = setting.workload, setting.gpus
    total = work.batch * n if batch is None else batch
    chunks = memory.chunks(total, n)
    share = tuple(chunk / work.batch for chunk in chunks)
    factor = setting.slower or (1.0,) * n
    busy = [rank for rank in range(1, n) if chunks[rank]]

    def spread(label: str, per_sample: int, reads: list[str], writes: list[str], out: bool) -> Task:
        ends = [(0, rank) if out else (rank, 0) for rank in busy]
        rows = [(0, *end, chunks[rank] * per_sample) for end, rank in zip(ends, busy, strict=True)]
        return copies(label, n, rows, reads=reads, writes=writes)

    def computed(alone_s: float) -> tuple[float, ...]:
        return tuple(alone_s * s * f for s, f in zip(share, factor, strict=True))

    launch = tuple(setting.launch_per_replica_s * rank * (rank in busy) for rank in range(n))
    model = [tensor.nbytes for tensor in (*work.parameters, *work.buffers)]
    gradients = [work.parameters[i].nbytes for i in work.gradients]
    forward_s, backward_s = math.fsum(work.forward_s), math.fsum(work.backward_s)
    one_pass: tuple[Task, ...] = (
        spread("scatter inputs", work.input_bytes, [], ["inputs"], True),
        _with_gpu0(setting, model, busy, out=True),
        Compute("launch", launch, "copy", ("replicas",), ("launched",)),
        Compute("forward", computed(forward_s), "forward", ("inputs", "launched"), ("outputs",)),
        spread("gather outputs", work.output_bytes, ["outputs"], ["gathered"], False),
        Compute("loss", 0.0, "forward", ("gathered",), ("loss",), ranks=(0,)),
        spread("scatter output gradients", work.output_bytes, ["loss"], ["dy"], True),
        Compute("backward", computed(backward_s), "backward", ("dy",), ("gradients",)),
        _with_gpu0(setting, gradients, busy, out=False),
    )
    update = Compute(
        *("optimizer", work.optimizer_s * factor[0], "optimizer"),
        ("reduced",),
        ("parameters",),
        ranks=(0,),
    )
    return Plan("dp", n, (*one_pass * setting.accumulate, update))


def _with_gpu0(setting: Setting, sizes: Sequence[int], busy: Sequence[int], out: bool) -> Task:
    """The model from GPU 0 in every forward pass, or gradients to it, peer by peer."""
    n, peers = setting.gpus, (0, *busy)
    label, reads, writes = (
        ("send parameters", ["parameters"], ["replicas"])
        if out
        else ("reduce gradients", ["gradients"], ["reduced"])
    )
    if setting.backend == "nccl":
        algorithm = "ring-broadcast" if out else "chain-reduce"
        return collective(
            *(label, algorithm, len(peers), sum(sizes), 1),
            ranks=peers if len(peers) < n else None,
            reads=reads,
            writes=writes,
            flags={"pieces": pieces(sum(sizes))},
        )
    rows = [
        (number * len(busy) + place, *((0, rank) if out else (rank, 0)), nbytes)
        for number, nbytes in enumerate(coalesced(sizes))
        for place, rank in enumerate(busy)
    ]
    return copies(label, n, rows, reads=reads, writes=writes, add=not out)
