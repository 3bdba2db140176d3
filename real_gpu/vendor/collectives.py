"""The library's own collectives: what ``size`` means in each, what must come out, and what Gloo
puts on the wire for it. Torch is imported when a collective runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from real_gpu.job import COLLECTIVES, Case
from real_gpu.work import data

if TYPE_CHECKING:
    import torch

SEGMENT_BYTES = 2**20  # Gloo's rings cut a buffer into segments of at most this much
Traffic = tuple[tuple[int, ...], tuple[int, ...]]  # sent and received, per rank
Wanted = tuple[data.Array, data.Array] | None  # the exact result, and the error allowed in it


@dataclass(frozen=True, slots=True)
class Collective:
    """One row of the table. ``size`` says what S is; ``call`` gets the whole buffer and the rank's
    own part of it, and returns the tensor that holds the result. ``gloo`` is the traffic for
    (bytes, bytes of an item, ranks).
    """

    size: str
    call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    wanted: Callable[[int, int, int, str], Wanted]
    gloo: Callable[[int, int, int], Traffic]
    equal_parts: bool = False


def gloo_all_reduce(nbytes: int, item: int, n: int) -> Traffic:
    """Two rounds of a ring, each segment passed on n-1 times in each (gloo/allreduce.cc).

    >>> gloo_all_reduce(8 * 2**20, 4, 4)[0] == (12 * 2**20,) * 4
    True
    >>> gloo_all_reduce(20, 4, 3)  # five items in six segments, the last one empty
    ((28, 24, 28), (24, 28, 28))
    """
    count = _up(max(-(-nbytes // SEGMENT_BYTES), 2 * n), n)
    lengths = _lengths(nbytes, count, _up(-(-nbytes // count), item))
    kept = count // n
    first, second = (_passed(lengths, n, start, count - kept) for start in (1, 0))
    return _from_next([a + b for a, b in zip(first, second, strict=True)])


def gloo_reduce(nbytes: int, item: int, n: int) -> Traffic:
    """A ring that sends all but two segments, where all but 1/n would do; then rank 0 gathers
    (gloo/reduce.cc).

    >>> [b / 2**20 for b in gloo_reduce(32 * 2**20, 4, 4)[0]]
    [30.0, 38.0, 38.0, 38.0]
    """
    segment = _up(min(-(-nbytes // (2 * n)), SEGMENT_BYTES // item * item), item)
    count = _up(max(-(-nbytes // max(segment, 1)), 2 * n), n)
    lengths = _lengths(nbytes, count, segment)
    sent, received = map(list, _from_next(_passed(lengths, n, 1, count - 2)))
    for rank in range(1, n):
        part = sum(lengths[rank * count // n : (rank + 1) * count // n])
        sent[rank] += part
        received[0] += part
    return tuple(sent), tuple(received)


def gloo_broadcast(nbytes: int, item: int, n: int) -> Traffic:
    """A binomial tree from rank 0, the buffer whole (gloo/broadcast.cc).

    >>> gloo_broadcast(100, 4, 4)
    ((200, 100, 0, 0), (0, 100, 100, 100))
    """
    children = [0] * n
    for rank in range(1, n):
        children[rank - (1 << (rank.bit_length() - 1))] += 1
    return tuple(nbytes * c for c in children), (0, *[nbytes] * (n - 1))


def gloo_all_gather(nbytes: int, item: int, n: int) -> Traffic:
    """A ring, every part passed on n-1 times (gloo/allgather.cc).

    >>> gloo_all_gather(400, 4, 4)
    ((300, 300, 300, 300), (300, 300, 300, 300))
    """
    return ((n - 1) * (nbytes // n),) * n, ((n - 1) * (nbytes // n),) * n


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _lengths(nbytes: int, count: int, segment: int) -> list[int]:
    return [min(segment, max(0, nbytes - k * segment)) for k in range(count)]


def _passed(lengths: list[int], n: int, first: int, many: int) -> list[int]:
    """What each rank hands on: ``many`` segments, from the part of rank r + ``first`` onwards."""
    count = len(lengths)
    return [
        sum(lengths[((rank + first) * (count // n) + k) % count] for k in range(many))
        for rank in range(n)
    ]


def _from_next(sent: list[int]) -> Traffic:
    """Gloo's reducing rings hand down: what rank r receives, rank r+1 has sent."""
    return tuple(sent), (*sent[1:], sent[0])


def _all_reduce(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    import torch.distributed as dist

    dist.all_reduce(whole)
    return whole


def _reduce_scatter(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    import torch.distributed as dist

    dist.reduce_scatter_tensor(part, whole)
    return part


def _all_gather(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    import torch.distributed as dist

    dist.all_gather_into_tensor(whole, part)
    return whole


def _broadcast(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    import torch.distributed as dist

    dist.broadcast(whole, src=0)
    return whole


def _reduce(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    import torch.distributed as dist

    dist.reduce(whole, dst=0)
    return whole


def _sum(rank: int, n: int, elements: int, dtype: str) -> Wanted:
    return data.exact_sum(n, elements, dtype)


def _part_of_sum(rank: int, n: int, elements: int, dtype: str) -> Wanted:
    mine = own_part(rank, n, elements)
    total, allowed = data.exact_sum(n, elements, dtype)
    return total[mine], allowed[mine]


def _parts(rank: int, n: int, elements: int, dtype: str) -> Wanted:
    places = (own_part(r, n, elements) for r in range(n))
    parts = [data.inputs(r, at.start, at.stop, dtype) for r, at in enumerate(places)]
    return _exactly(np.concatenate(parts))


def _of_rank_0(rank: int, n: int, elements: int, dtype: str) -> Wanted:
    return _exactly(data.inputs(0, 0, elements, dtype))


def _sum_at_rank_0(rank: int, n: int, elements: int, dtype: str) -> Wanted:
    return None if rank else data.exact_sum(n, elements, dtype)


def _exactly(values: data.Array) -> Wanted:
    wide = values if values.dtype == np.int64 else values.astype(np.float64)
    return wide, np.zeros(len(values))


def own_part(rank: int, n: int, elements: int) -> slice:
    """Where a rank's part of the buffer lies."""
    return slice(rank * (elements // n), (rank + 1) * (elements // n))


TABLE: dict[str, Collective] = dict(
    zip(
        COLLECTIVES,
        (
            Collective("every rank's buffer", _all_reduce, _sum, gloo_all_reduce),
            # Gloo's reduce-scatter is its all-reduce, of which each rank keeps its part.
            Collective("every rank's input", _reduce_scatter, _part_of_sum, gloo_all_reduce, True),
            Collective("every rank's output", _all_gather, _parts, gloo_all_gather, True),
            Collective("rank 0's buffer", _broadcast, _of_rank_0, gloo_broadcast),
            Collective("every rank's buffer", _reduce, _sum_at_rank_0, gloo_reduce),
        ),
        strict=True,
    )
)


def check_parts(name: str, elements: int, n: int) -> None:
    """A ``ValueError`` where the buffer cannot be cut as the collective needs it."""
    if TABLE[name].equal_parts and elements % n:
        raise ValueError(
            f"{name} cuts its buffer into {n} equal parts; {elements} elements are no multiple; "
            f"accepted: a size of a multiple of {n} elements"
        )


def payload(case: Case, backend: str, n: int) -> Traffic | None:
    """Bytes that each rank sends and receives; None where the library decides."""
    if n == 1 or not case.size_bytes:
        return (0,) * n, (0,) * n
    if backend != "gloo":
        return None
    return TABLE[case.name].gloo(case.size_bytes, case.size_bytes // case.elements, n)


def notes(case: Case, n: int, known: bool) -> list[str]:
    """What a record says of a collective of the library."""
    row = TABLE[case.name]
    summed = row.wanted in (_sum, _part_of_sum, _sum_at_rank_0)
    allowed = data.tolerance(n, case.dtype) if summed else 0.0
    checked = f"to within {allowed:.3g} × the sum of absolute values" if allowed else "exactly"
    where = "each element at rank 0" if row.wanted is _sum_at_rank_0 else "each element"
    return [
        "not simulated: the library chooses its own algorithm and segments",
        f"the size is {row.size}; {where} checked {checked}",
        "payload derived from the library's source, not counted by it"
        if known
        else "payload not known: the library chooses",
    ]


class VendorCollective:
    """One rank's part in a collective of the library."""

    def __init__(self, case: Case, rank: int, n: int, device: torch.device) -> None:
        from real_gpu.work import replay

        self.row, self.dtype = TABLE[case.name], case.dtype
        check_parts(case.name, case.elements, n)
        values = data.inputs(rank, 0, case.elements, case.dtype)
        self.input = replay.to_torch(values, case.dtype, device)
        self.buffer = self.input.clone()
        self.part = self.input[own_part(rank, n, case.elements)].clone()
        self.start = self.part.clone()
        self.wanted = self.row.wanted(rank, n, case.elements, case.dtype)
        self.payload: dict[str, Any] = {}
        self.result = self.buffer
        self.progress = ""

    def reset(self) -> None:
        """Put the input back."""
        self.buffer.copy_(self.input)
        self.part.copy_(self.start)

    def run(self) -> list[list[float]]:
        """The call."""
        self.result = self.row.call(self.buffer, self.part)
        return []

    def difference(self) -> str | None:
        """The first element that is further off than rounding allows."""
        from real_gpu.work import replay

        if self.wanted is None:
            return None
        total, allowed = self.wanted
        got = replay.to_numpy(self.result, data.numpy_dtype(self.dtype))
        wide = got if self.dtype == "int64" else got.astype(np.float64)
        wrong = np.flatnonzero(~(np.abs(wide - total) <= allowed))
        if not len(wrong):
            return None
        at = int(wrong[0])
        return f"element {at}: got {got[at]!s}, wanted {total[at]!s} ± {allowed[at]:.3g}"
