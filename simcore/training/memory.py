"""What one GPU must hold in a training step, under each way of sharing the work out.

Sums of tensors, to compare strategies and to see what does not fit: without the framework's own
context (0.5 to 1 GB of a CUDA GPU), without what its allocator rounds up or cannot reuse, and
without the workspaces of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from simcore.names import unknown
from simcore.training.buckets import DdpOptions
from simcore.training.model import Parameter, Workload

# How many numbers an optimizer keeps for each one that it trains.
OPTIMIZER_STATES = {"sgd": 0, "momentum": 1, "adam": 2}
_MASTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one GPU, by what they are for."""

    parameters: int = 0  # and the model's own buffers
    gradients: int = 0
    buckets: int = 0  # copies of gradients, to send them
    optimizer: int = 0  # with mixed precision: the float32 copy of the parameters too
    activations: int = 0  # kept for the backward pass, of this GPU's samples
    inputs: int = 0
    outputs: int = 0

    @property
    def total(self) -> int:
        """All of it, at its worst moment."""
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Whose state is counted. ``mixed``: float32 state and a float32 copy of each parameter,
    beside parameters of a smaller type; else the state has the parameters' type.

    >>> Optimizer("adam", mixed=True).nbytes([Parameter("weight", (100,), "bfloat16")])
    1200
    """

    name: str = "adam"
    mixed: bool = False

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZER_STATES:
            raise ValueError(unknown("optimizer", self.name, OPTIMIZER_STATES))

    def nbytes(self, parameters: Sequence[Parameter]) -> int:
        """Its state for those of these parameters that are trained."""
        states = OPTIMIZER_STATES[self.name]
        trained = [p for p in parameters if p.trainable]
        if self.mixed:
            return sum(p.elements for p in trained) * _MASTER_BYTES * (1 + states)
        return sum(p.nbytes for p in trained) * states


def chunks(batch: int, n: int) -> tuple[int, ...]:
    """The samples that DataParallel gives each of ``n`` GPUs: as many as the first, then the rest.

    >>> chunks(10, 4), chunks(9, 4), chunks(2, 4)
    ((3, 3, 3, 1), (3, 3, 3, 0), (1, 1, 0, 0))
    """
    if batch < 1 or n < 1:
        raise ValueError(f"batch and GPUs must be at least 1, got {batch} and {n}")
    each = -(-batch // n)
    return tuple(min(each, max(0, batch - rank * each)) for rank in range(n))


def one_gpu(workload: Workload, optimizer: Optimizer | None = None) -> Memory:
    """A step without any communication.

    >>> model = Workload("m", (Parameter("w", (10**9,), "bfloat16"),))
    >>> one_gpu(model, Optimizer("adam", mixed=True)).total // 10**9  # the 16 bytes of each
    16
    """
    optimizer = optimizer or Optimizer()
    return Memory(
        parameters=workload.parameter_bytes + workload.buffer_bytes,
        gradients=workload.gradient_bytes,
        optimizer=optimizer.nbytes(workload.parameters),
        activations=workload.batch * workload.activation_bytes,
        inputs=workload.batch * workload.input_bytes,
        outputs=workload.batch * workload.output_bytes,
    )


def ddp(
    workload: Workload, options: DdpOptions | None = None, optimizer: Optimizer | None = None
) -> Memory:
    """DistributedDataParallel: everything on every GPU, and the gradients once more in buckets.

    Unless ``gradient_as_bucket_view``: then the gradients are the buckets. A PowerSGD hook keeps
    what it did not send, as large as the gradients again, whose type it has.
    """
    options = options or DdpOptions()
    copies = (not options.gradient_as_bucket_view) + (options.powersgd is not None)
    return replace(one_gpu(workload, optimizer), buckets=copies * workload.gradient_bytes)


def zero(
    workload: Workload,
    n: int,
    stage: Literal[1, 2, 3],
    optimizer: Optimizer | None = None,
    *,
    gathered_bytes: int = 0,
) -> Memory:
    """ZeRO: optimizer state (1), gradients (2) and parameters (3) are held a share each.

    Shares are counted as equal; FSDP2 hands out rows, so a rank may hold up to one row of each
    parameter more. Stage 3 also holds the parameters that it has just gathered,
    ``gathered_bytes``: with FSDP2 the root's and two units'.

    >>> model = Workload("m", (Parameter("w", (7_500_000_000,), "bfloat16"),))
    >>> [zero(model, 64, s, Optimizer(mixed=True)).total / 1e9 for s in (1, 2, 3)]
    [31.40625, 16.640625, 1.875]
    """
    if stage not in (1, 2, 3) or n < 1:
        raise ValueError(f"stage must be 1, 2 or 3 and n at least 1, got {stage} and {n}")
    whole = one_gpu(workload, optimizer)

    def share(nbytes: int) -> int:
        return -(-nbytes // n)

    return replace(
        whole,
        optimizer=share(whole.optimizer),
        gradients=share(whole.gradients) if stage >= 2 else whole.gradients,
        parameters=(
            share(workload.parameter_bytes) + workload.buffer_bytes + gathered_bytes
            if stage == 3
            else whole.parameters
        ),
    )


def data_parallel(
    workload: Workload, n: int, batch: int | None = None, optimizer: Optimizer | None = None
) -> tuple[Memory, ...]:
    """DataParallel, GPU by GPU; ``batch`` samples in all (None: the workload's on each GPU).

    GPU 0 alone holds the optimizer's state, all gathered outputs, and the sum of the gradients
    beside its own. The others hold a replica of the model, for the step; an idle one nothing.
    The batch stands on GPU 0, whole, as after ``.to("cuda")``; of one that stays on the host every
    GPU holds its own samples only.
    """
    optimizer = optimizer or Optimizer()
    whole = workload.batch * n if batch is None else batch
    memories = []
    for rank, samples in enumerate(chunks(whole, n)):
        first = rank == 0
        replica = workload.parameter_bytes + workload.buffer_bytes
        memories.append(
            Memory(
                parameters=replica,
                gradients=workload.gradient_bytes * (2 if first and n > 1 else 1),
                optimizer=optimizer.nbytes(workload.parameters) if first else 0,
                activations=samples * workload.activation_bytes,
                inputs=(whole if first else samples) * workload.input_bytes,
                outputs=(samples + (whole if first and n > 1 else 0)) * workload.output_bytes,
            )
            if samples
            else Memory()
        )
    return tuple(memories)
