"""torch.nn.DataParallel's step: one process, GPU 0 sends the model out and takes gradients in."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simcore.training import memory
from simcore.training.buckets import closed_after
from simcore.training.model import Parameter
from simcore.training.plan import Compute, Plan, Task, collective, copies
from simcore.training.strategies.setting import Setting, pieces

COALESCED_BYTES = 10 * 2**20  # DataParallel sends tensors together up to about this size


def broadcast_chunks(*lists: Sequence[Parameter]) -> list[int]:
    """Bytes of what goes out together, of each list by itself: tensors of one type, until one of
    them reaches 10 MiB, which still belongs to it.

    >>> mib, small = Parameter("a", (2**18,)), Parameter("b", (1,))
    >>> [nbytes / 2**20 for nbytes in broadcast_chunks([mib] * 12, [small])]
    [10.0, 2.0, 3.814697265625e-06]
    """
    limits = (COALESCED_BYTES, COALESCED_BYTES)
    return [
        chunk.nbytes
        for tensors in lists
        for chunk in closed_after(tensors, range(len(tensors)), limits)
    ]


def reduced_chunks(tensors: Sequence[Parameter]) -> list[int]:
    """Bytes of what comes in together: tensors of one type, closed *before* one that would make
    more than 10 MiB. Torch's two halves of the same thing do differ.
    """
    closed: list[int] = []
    opened: dict[str, int] = {}
    for tensor in tensors:
        nbytes = opened.get(tensor.dtype, 0)
        if nbytes and nbytes + tensor.nbytes > COALESCED_BYTES:
            closed.append(nbytes)
            nbytes = 0
        opened[tensor.dtype] = nbytes + tensor.nbytes
    return closed + list(opened.values())


def dp(setting: Setting, batch: int | None = None) -> Plan:
    """One step of DataParallel over a whole ``batch`` (the workload's per GPU times GPUs).

    Its chunks are ``ceil(batch / gpus)`` samples, so a small batch leaves GPUs without any. The
    batch stands on GPU 0, which sends the others theirs. With the ``gloo`` setting the copy path
    (no NCCL: GPU 0 sends the model once per peer), with ``nccl`` its broadcast and reduce.

    Nothing overlaps: every parameter is an output of one operation, so gradients are only reduced
    when the last one is there; for the same reason frozen and unused parameters are reduced too,
    as zeros. Each of ``accumulate`` micro-batches sends the model out and takes gradients in:
    there is no ``no_sync`` here.

    >>> from simcore.training.model import Parameter, Workload
    >>> work = Workload("one", (Parameter("w", (1000,)),), input_bytes=8, output_bytes=4)
    >>> [task.label for task in dp(Setting(work, 2, backend="gloo")).tasks]
    ['scatter inputs', 'send parameters', 'launch', 'forward', 'gather outputs', 'loss', \
'scatter output gradients', 'backward', 'reduce gradients', 'optimizer']
    """
    work, n = setting.workload, setting.gpus
    total = setting.samples if batch is None else batch
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
    model = broadcast_chunks(work.parameters, work.buffers)
    gradients = reduced_chunks(work.parameters)
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
        for number, nbytes in enumerate(sizes)
        for place, rank in enumerate(busy)
    ]
    return copies(label, n, rows, reads=reads, writes=writes, add=not out)
