"""What a training step is asked for, and the pieces that every strategy's plan is made of."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from simcore.algorithms import ALGORITHMS, build_schedule
from simcore.names import unknown
from simcore.schedule import Collective
from simcore.training.buckets import DdpOptions
from simcore.training.memory import Optimizer
from simcore.training.model import Workload
from simcore.training.plan import Communicate, Compute, Task, collective

Backend = Literal["nccl", "gloo"]
BACKENDS = ("nccl", "gloo")
Aggregation = Literal["mean", "sum"]  # of the workers' gradients, by a parameter server
NCCL_BROADCAST_PIECE = 512 * 2**10  # NCCL cuts a broadcast into steps of this size
MOST_PIECES = 64  # more change the time by less than one part in 64


@dataclass(frozen=True, slots=True)
class Setting:
    """A workload on so many GPUs, and the choices that strategies read.

    ``slower`` holds a factor on the compute time of each GPU (1 for all, if empty). ``overlap`` is
    how much of the remaining backward pass a finished gradient need not wait for: 1 sends it at
    once, 0 after the whole pass, which is what a model whose hooks cannot run ahead does.
    ``iteration`` counts from 0: the first ones have other buckets. None is one of many to come.
    ``state`` is what the optimizer keeps, which costs memory alone, as its time is the workload's;
    ``aggregation`` what a server makes of gradients, which costs neither.
    """

    workload: Workload
    gpus: int
    options: DdpOptions = field(default_factory=DdpOptions)
    backend: Backend = "nccl"
    algorithm: str = "ring"
    accumulate: int = 1
    overlap: float = 1.0
    iteration: int | None = None
    slower: tuple[float, ...] = ()
    servers: int | None = None
    pipelined: bool = True
    partition_bytes: int = 4 * 2**20
    gpus_per_node: int | None = None
    period: int = 8
    launch_per_replica_s: float = 0.0
    total_batch: int | None = None  # DataParallel's; None: the workload's for each GPU
    aggregation: Aggregation = "mean"
    state: Optimizer = field(default_factory=Optimizer)

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(unknown("backend", self.backend, BACKENDS))
        self._check_algorithm()
        if self.aggregation not in get_args(Aggregation):
            raise ValueError(unknown("aggregation", self.aggregation, get_args(Aggregation)))
        for name in ("gpus", "accumulate", "period", "partition_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if self.gpus_per_node is not None and self.gpus_per_node < 1:
            raise ValueError(f"gpus_per_node must be at least 1, got {self.gpus_per_node!r}")
        if not 0 <= self.overlap <= 1:
            raise ValueError(f"overlap must be from 0 to 1, got {self.overlap!r}")
        if self.slower and len(self.slower) != self.gpus:
            raise ValueError(f"slower must hold {self.gpus} factors, got {len(self.slower)}")
        if not self.workload.gradients:
            raise ValueError(
                f"no gradient arrives in {self.workload.name!r}, so there is no training step; "
                "accepted: at least one trainable parameter that is used"
            )

    def _check_algorithm(self) -> None:
        """Of the all-reduce; one that is made of nodes must know them."""
        if self.algorithm not in all_reduces():
            raise ValueError(unknown("all-reduce", self.algorithm, all_reduces()))
        if self.algorithm == "hierarchical" and not self.gpus_per_node:
            raise ValueError("the algorithm hierarchical needs gpus_per_node")

    @property
    def samples(self) -> int:
        """Of one micro-batch, on all GPUs together."""
        return self.workload.batch * self.gpus if self.total_batch is None else self.total_batch

    @property
    def number(self) -> int:
        """Of the iteration; if none is named, the first in which nothing changes any more."""
        if self.iteration is not None:
            return self.iteration
        powersgd = self.options.powersgd
        return max(3, powersgd[1] if powersgd else 0)

    def seconds(self, alone_s: float) -> float | tuple[float, ...]:
        """Of work that takes ``alone_s`` on a GPU as fast as the workload says."""
        return tuple(alone_s * factor for factor in self.slower) if self.slower else alone_s

    @property
    def widths(self) -> dict[str, int]:
        """Gloo's process group has two threads, so two collectives at a time; NCCL one stream."""
        return {"network": 2 if self.backend == "gloo" else 1}


@functools.cache
def all_reduces() -> tuple[str, ...]:
    """The algorithms of the table that reduce among the GPUs alone."""
    found = [(a.name, build_schedule(a.name, 2)) for a in ALGORITHMS]
    return tuple(n for n, s in found if s.collective is Collective.ALL_REDUCE and not s.servers)


def forward(setting: Setting, number: int = 0, reads: Sequence[str] = ()) -> Compute:
    """The whole forward pass of one micro-batch."""
    label = f"forward {number + 1}" if setting.accumulate > 1 else "forward"
    seconds = setting.seconds(math.fsum(setting.workload.forward_s))
    return Compute(label, seconds, "forward", ("parameters", *reads), ("activations",))


def backward(
    setting: Setting, groups: Sequence[Sequence[int]], number: int = 0, what: str = "bucket"
) -> Iterator[Task]:
    """The backward pass, cut where one of ``groups`` of gradients is complete.

    Writes ``gradients K`` for group ``K``; the last piece writes ``backward`` too. Members that
    never get a gradient are not waited for.
    """
    workload = setting.workload
    complete: dict[int, list[int]] = {}
    for k, index in enumerate(_completing(workload, groups)):
        complete.setdefault(index, []).append(k)
    micro = f" {number + 1}" if setting.accumulate > 1 else ""
    passed_s = 0.0
    arriving = workload.gradients
    for index in arriving:
        passed_s += workload.backward_s[index] if workload.backward_s else 0.0
        done, last = complete.get(index, []), index == arriving[-1]
        if done or last:
            to = f" to {what} {', '.join(map(str, done))}" if done else ""
            writes = (*(f"gradients {k}" for k in done), *(("backward",) if last else ()))
            seconds = setting.seconds(passed_s)
            yield Compute(f"backward{micro}{to}", seconds, "backward", ("activations",), writes)
            passed_s = 0.0


def _completing(workload: Workload, groups: Sequence[Sequence[int]]) -> list[int]:
    """For each group the gradient that completes it: the last of its own to arrive.

    A group whose parameters are all unused is complete with the first gradient of all: that is
    when torch's reducer marks whatever will not arrive as ready.
    """
    place = {index: k for k, index in enumerate(workload.gradients)}
    first = workload.gradients[0]
    return [
        max((i for i in group if i in place), key=place.__getitem__, default=first)
        for group in groups
    ]


def held_back(setting: Setting, groups: Sequence[Sequence[int]]) -> Iterator[Task]:
    """For each group what ``overlap`` below 1 lets it wait for: part of the rest of the pass.

    Writes ``ready K``. With full overlap nothing is needed: a collective reads the gradients.
    """
    if setting.overlap == 1:
        return
    workload = setting.workload
    rest_s, rest_after_s = 0.0, {}
    for index in reversed(workload.gradients):
        rest_after_s[index] = rest_s
        rest_s += workload.backward_s[index] if workload.backward_s else 0.0
    for k, index in enumerate(_completing(workload, groups)):
        label = f"hold {k}"
        seconds = setting.seconds((1 - setting.overlap) * rest_after_s[index])
        reads, writes = (f"gradients {k}",), (f"ready {k}",)
        yield Compute(label, seconds, "hold", reads, writes, stream=label)


def ready(setting: Setting, k: int) -> str:
    """What the communication of group ``k`` reads."""
    return f"gradients {k}" if setting.overlap == 1 else f"ready {k}"


def optimizer(setting: Setting, reads: Sequence[str], share: float = 1.0) -> Compute:
    """The optimizer's step over a share of the parameters, on every GPU."""
    seconds = setting.seconds(setting.workload.optimizer_s * share)
    return Compute("optimizer", seconds, "optimizer", (*reads, "backward"), ("parameters",))


def broadcast(
    label: str,
    setting: Setting,
    nbytes: int,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
) -> Communicate:
    """From rank 0 as the backend does it: NCCL along a ring in pieces, Gloo down a tree."""
    n = setting.gpus
    if setting.backend == "gloo":
        rounds = (n - 1).bit_length()
        part = (rounds, 2 * rounds)
        return collective(label, "tree", n, nbytes, 1, reads=reads, writes=writes, part=part)
    flags = {"pieces": pieces(nbytes)}
    return collective(
        label, "ring-broadcast", n, nbytes, 1, reads=reads, writes=writes, flags=flags
    )


def pieces(nbytes: int) -> int:
    """How many pieces NCCL's pipeline cuts a broadcast or a reduce into, as far as it matters."""
    return max(1, min(MOST_PIECES, math.ceil(nbytes / NCCL_BROADCAST_PIECE)))


def all_reduce(
    label: str,
    setting: Setting,
    elements: int,
    itemsize: int,
    reads: Sequence[str],
    writes: Sequence[str],
    ranks: tuple[int, ...] | None = None,
) -> Communicate:
    """With the algorithm that the setting names."""
    flags = {}
    if setting.algorithm == "hierarchical":
        assert setting.gpus_per_node is not None
        flags["gpus_per_node"] = setting.gpus_per_node
    elif setting.algorithm == "double-tree":
        flags["pieces"] = max(2, min(64, math.ceil(elements * itemsize / 2**20)))
    n = setting.gpus if ranks is None else len(ranks)
    return collective(
        *(label, setting.algorithm, n, elements, itemsize),
        ranks=ranks,
        reads=reads,
        writes=writes,
        flags=flags,
    )
