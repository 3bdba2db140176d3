"""What the ranks put in, and what must come out: bit for bit for a replay, within a stated
tolerance for a library. No torch, no processes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore import reference
from simcore.schedule import IntArray as Bounds
from simcore.schedule import Schedule, chunk_bounds, schedule_of
from simcore.schedule import Transfer as Row

Array = NDArray[Any]

# The reference is computed in blocks, so that a rank never holds all ranks' buffers.
_BLOCK_ELEMENTS = 1 << 18


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of that name; bfloat16 comes from ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise ValueError("dtype bfloat16 needs ml_dtypes: pip install ml_dtypes") from None
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def inputs(rank: int, start: int, stop: int, dtype: str) -> Array:
    """Elements ``start:stop`` of a rank's input: different for each rank and place, of mixed
    sign and magnitude, so that a wrong chunk shows and the order of additions matters.

    >>> inputs(0, 0, 2, "int64").tolist() != inputs(1, 0, 2, "int64").tolist()
    True
    """
    if dtype == "uint8":  # eight of them are the bytes of one word
        words = _words(rank, start // 8, -(-stop // 8))
        return words.view(np.uint8)[start % 8 : start % 8 + stop - start]
    whole = (_words(rank, start, stop) >> np.uint64(20)).astype(np.int64) - (1 << 43)
    if dtype == "int64":
        return whole
    return (whole / float(1 << 43)).astype(numpy_dtype(dtype))


def _words(rank: int, start: int, stop: int) -> NDArray[np.uint64]:
    x = np.arange(start, stop, dtype=np.uint64) + np.uint64((rank + 1) << 40)
    # splitmix64: https://prng.di.unimi.it/splitmix64.c
    x = x * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return words


def expected(
    schedule: Schedule,
    rank: int,
    elements: int,
    dtype: str,
    bounds: Bounds | None = None,
    first: int = 0,
) -> Array:
    """Rank ``rank``'s buffer after ``simcore.reference`` ran the schedule on ``inputs``.

    The buffer holds the elements from ``first`` on, and is cut at ``bounds`` if they are given.
    """
    result = np.empty(elements, numpy_dtype(dtype))
    for part, block in _blocks(schedule, _cuts(schedule, elements, bounds)):
        values = _all_inputs(schedule.n, slice(first + part.start, first + part.stop), dtype)
        values[schedule.workers :] = 0
        result[part] = reference.run(block, values)[rank]
    return result


def exact_sum(n: int, elements: int, dtype: str) -> tuple[Array, Array]:
    """The sum over all ranks and the error a library may make in it, element by element.

    The bound of any order of n-1 rounded additions: (n-1) u sum|x|, with u half a step of the
    type, doubled for a sum that is itself rounded. Whole numbers have none.
    """
    total = np.empty(elements, np.float64 if dtype != "int64" else np.int64)
    allowed = np.zeros(elements)
    for start in range(0, elements, _BLOCK_ELEMENTS):
        part = slice(start, min(start + _BLOCK_ELEMENTS, elements))
        values = _all_inputs(n, part, dtype)
        wide = values if dtype == "int64" else values.astype(np.float64)
        total[part] = wide.sum(axis=0)
        allowed[part] = np.abs(wide).sum(axis=0) * tolerance(n, dtype)
    return total, allowed


def tolerance(n: int, dtype: str) -> float:
    """Allowed error of a library's sum, relative to the sum of absolute values.

    >>> tolerance(4, "int64"), tolerance(3, "float64") == 2 * 2.0**-52
    (0.0, True)
    """
    step = {"float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-7, "int64": 0.0}[dtype]
    return (n - 1) * step


def first_difference(
    got: Array, wanted: Array, schedule: Schedule, bounds: Bounds | None = None
) -> str | None:
    """Where two buffers differ in any bit, as text; None when they do not."""
    bits = np.dtype(f"u{wanted.dtype.itemsize}")
    wrong = np.flatnonzero(got.view(bits) != wanted.view(bits))
    if not len(wrong):
        return None
    at = int(wrong[0])
    cuts = _cuts(schedule, len(wanted), bounds)
    chunk = int(np.searchsorted(cuts, at, side="right")) - 1
    return (
        f"chunk {chunk}, element {at - cuts[chunk]} of it: got {got[at]!s}, "
        f"wanted {wanted[at]!s} ({len(wrong)} of {len(wanted)} elements differ)"
    )


def _all_inputs(n: int, part: slice, dtype: str) -> Array:
    return np.stack([inputs(rank, part.start, part.stop, dtype) for rank in range(n)])


def _cuts(schedule: Schedule, elements: int, bounds: Bounds | None) -> list[int]:
    cuts: list[int] = (
        chunk_bounds(elements, schedule.chunks) if bounds is None else bounds
    ).tolist()
    return cuts


def _blocks(schedule: Schedule, bounds: list[int]) -> list[tuple[slice, Schedule]]:
    """The buffer in blocks that lie within one chunk, each with that chunk's rows alone."""
    rows: list[list[Row]] = [[] for _ in range(schedule.chunks)]
    for t in schedule:
        rows[t.chunk].append(Row(t.step, t.src, t.dst, 0, t.op))
    blocks = []
    for chunk, (start, stop) in enumerate(pairwise(bounds)):
        servers = schedule.servers
        alone = schedule_of(
            rows[chunk], name=schedule.name, n=schedule.n, chunks=1, servers=servers
        )
        for at in range(start, stop, _BLOCK_ELEMENTS):
            blocks.append((slice(at, min(at + _BLOCK_ELEMENTS, stop)), alone))
    return blocks
