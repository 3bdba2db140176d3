"""Which gradients DistributedDataParallel reduces together, and in which order it launches them.

The rules of torch 2.13's reducer, for dense gradients on one device. No time, no network: what a
bucket costs is the business of others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simcore.names import unknown
from simcore.training.model import Parameter, Workload

MIB = 2**20
DEFAULT_CAP_MB = 25
DEFAULT_FIRST_BUCKET_MB = 1
POWERSGD_START = 1000  # torch's: the iterations before it reduce plainly


@dataclass(frozen=True, slots=True)
class DdpOptions:
    """DistributedDataParallel's arguments that decide what it sends.

    ``first_bucket_mb`` None is torch 2.13's rule: 1 MiB, unless ``bucket_cap_mb`` is given, which
    then is the first bucket's too. Older versions kept 1 MiB: say ``first_bucket_mb=1``.

    >>> DdpOptions().limits, DdpOptions(bucket_cap_mb=25).limits
    ((1048576, 26214400), (26214400, 26214400))
    >>> DdpOptions(hook="fp32")
    Traceback (most recent call last):
    ValueError: unknown hook 'fp32'; accepted: fp16, bf16, powersgd:RANK, powersgd:RANK:START
    """

    bucket_cap_mb: float | None = None
    static_graph: bool = False
    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = False
    broadcast_buffers: bool = True
    hook: str | None = None  # fp16, bf16, powersgd:RANK or powersgd:RANK:START
    first_bucket_mb: float | None = None

    def __post_init__(self) -> None:
        for name in ("bucket_cap_mb", "first_bucket_mb"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be 0 or more, got {value!r}; accepted: MiB or None")
        if self.hook not in (None, "fp16", "bf16") and self.powersgd is None:
            accepted = ("fp16", "bf16", "powersgd:RANK", "powersgd:RANK:START")
            raise ValueError(unknown("hook", str(self.hook), accepted))

    @property
    def powersgd(self) -> tuple[int, int] | None:
        """A PowerSGD hook's rank, and the iteration from which it compresses; None without it.

        >>> DdpOptions(hook="powersgd:4").powersgd, DdpOptions(hook="powersgd:4:10").powersgd
        ((4, 1000), (4, 10))
        """
        match = re.fullmatch(r"powersgd:([1-9]\d{0,8})(?::([1-9]\d{0,8}))?", self.hook or "")
        return (int(match[1]), int(match[2] or POWERSGD_START)) if match else None

    @property
    def limits(self) -> tuple[int, int]:
        """The size at which the first bucket closes, and every other one."""
        cap = DEFAULT_CAP_MB if self.bucket_cap_mb is None else self.bucket_cap_mb
        first = DEFAULT_FIRST_BUCKET_MB if self.bucket_cap_mb is None else cap
        if self.first_bucket_mb is not None:
            first = self.first_bucket_mb
        return int(first * MIB), int(cap * MIB)

    @property
    def rebuilt_in(self) -> int | None:
        """The first iteration whose buckets follow the order of arrival; None: no iteration's.

        A static graph only counts in iteration 0 and records the order in iteration 1; it
        also makes ``find_unused_parameters`` void.
        """
        if self.static_graph:
            return 2
        return None if self.find_unused_parameters else 1


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that one all-reduce carries: which, in the order of the bucket, and their bytes."""

    indices: tuple[int, ...]
    dtype: str
    nbytes: int


def buckets(
    workload: Workload, options: DdpOptions | None = None, iteration: int = 1
) -> tuple[Bucket, ...]:
    """The buckets of one synchronised iteration (0 is the first), in the order of their launch.

    Iteration 0 has one bucket per type, so nothing overlaps; then they follow the order in which
    gradients arrived. With ``find_unused_parameters`` that order is never looked at.

    >>> layers = tuple(Parameter(f"{i}.weight", (1024, 1024)) for i in range(16))
    >>> model = Workload("16 x Linear(1024, bias=False)", layers)
    >>> [b.nbytes // MIB for b in buckets(model, iteration=0)]
    [64]
    >>> [b.nbytes // MIB for b in buckets(model)], buckets(model)[0].indices
    ([4, 28, 28, 4], (15,))
    >>> unordered = DdpOptions(find_unused_parameters=True)
    >>> [b.nbytes // MIB for b in buckets(model, unordered)], buckets(model, unordered)[-1].indices
    ([4, 28, 28, 4], (0,))
    """
    if iteration < 0:
        raise ValueError(f"iteration must be 0 or more, got {iteration}")
    options = options or DdpOptions()
    reducing = [i for i, p in enumerate(workload.parameters) if p.trainable]
    if options.rebuilt_in is None or iteration < options.rebuilt_in:
        none = (math.inf, math.inf)
        limits = options.limits if options.rebuilt_in is None else none
        by_first = closed_after(workload.parameters, reducing, limits)
        return tuple(sorted(by_first, key=lambda bucket: bucket.indices, reverse=True))
    unused = sorted(set(reducing) - set(workload.gradients))
    if unused and not options.static_graph:
        name = workload.parameters[unused[0]].name
        raise ValueError(
            f"{name!r} never gets a gradient: torch stops at iteration 1; "
            "accepted: find_unused_parameters or static_graph"
        )
    # A static graph knows the unused ones by then, and counts them as the last to arrive.
    order = (*workload.gradients, *unused)
    return tuple(closed_after(workload.parameters, order, options.limits))


def closed_after(
    parameters: Sequence[Parameter], order: Iterable[int], limits: tuple[float, float]
) -> list[Bucket]:
    """Fill buckets in that order, one open per type; each closes after the tensor that reaches
    the limit, so it may exceed it and no tensor is split. A type's first limit is ``limits[0]``.
    """
    closed: list[Bucket] = []
    opened: dict[str, tuple[list[int], int]] = {}
    limit_of: dict[str, float] = {}
    for index in order:
        dtype = parameters[index].dtype
        indices, nbytes = opened.get(dtype, ([], 0))
        indices.append(index)
        nbytes += parameters[index].nbytes
        opened[dtype] = (indices, nbytes)
        if nbytes >= limit_of.get(dtype, limits[0]):
            closed.append(Bucket(tuple(indices), dtype, nbytes))
            opened[dtype] = ([], 0)
            limit_of[dtype] = limits[1]
    # What stays open follows, the type met last first: so GNU's hash table happens to list them.
    left = [Bucket(tuple(i), dtype, nbytes) for dtype, (i, nbytes) in opened.items() if i]
    return closed + left[::-1]
