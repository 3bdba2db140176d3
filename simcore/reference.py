"""What a schedule does to NumPy buffers, step by step: the oracle, and what the animation shows.

No time and no bytes. Arrivals of a step are applied in row order; replays do the same, so they
agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from simcore.schedule import Op, Schedule, Step, chunk_bounds

Buffers = NDArray[Any]
Contributors = list[list[tuple[int, ...]]]


def run(schedule: Schedule, inputs: Buffers) -> Buffers:
    """The buffers after the schedule; ``inputs`` of shape ``(n, elements)`` stay as they are.

    >>> import numpy as np
    >>> from simcore.algorithms import ring
    >>> run(ring(2), np.array([[1, 2, 3], [10, 20, 30]])).tolist()
    [[11, 22, 33], [11, 22, 33]]
    """
    buffers = _checked_copy(schedule, inputs)
    bounds = chunk_bounds(buffers.shape[1], schedule.chunks).tolist()
    for step in schedule.steps():
        _apply(step, buffers, bounds)
    return buffers


def history(schedule: Schedule, inputs: Buffers) -> Iterator[tuple[Buffers, Contributors]]:
    """The state before the first step and after every step: values, and who is in each cell.

    Values have shape ``(n, elements)``; ``contributors[rank][chunk]`` names the ranks whose input
    has been added into that cell, in the order in which it was.

    >>> import numpy as np
    >>> from simcore.algorithms import ring
    >>> for values, who in history(ring(2), np.array([[1, 2], [10, 20]])):
    ...     print(values.tolist(), who)
    [[1, 2], [10, 20]] [[(0,), (0,)], [(1,), (1,)]]
    [[1, 22], [11, 20]] [[(0,), (0, 1)], [(1, 0), (1,)]]
    [[11, 22], [11, 22]] [[(1, 0), (0, 1)], [(1, 0), (0, 1)]]
    """
    buffers = _checked_copy(schedule, inputs)
    bounds = chunk_bounds(buffers.shape[1], schedule.chunks).tolist()
    inputs_of = [(rank,) if rank < schedule.workers else () for rank in range(schedule.n)]
    who: Contributors = [[ranks] * schedule.chunks for ranks in inputs_of]
    yield buffers.copy(), [list(row) for row in who]
    for step in schedule.steps():
        _apply(step, buffers, bounds)
        arriving = [(d, c, op, who[s][c]) for s, d, c, op, _ in _rows(step.one_by_one())]
        for dst, chunk, op, ranks in arriving:
            who[dst][chunk] = who[dst][chunk] + ranks if op == Op.ADD else ranks
        yield buffers.copy(), [list(row) for row in who]


def _checked_copy(schedule: Schedule, inputs: Buffers) -> Buffers:
    if inputs.ndim != 2 or inputs.shape[0] != schedule.n:
        raise ValueError(f"inputs must have shape ({schedule.n}, elements), got {inputs.shape}")
    if inputs[schedule.workers :].any():
        raise ValueError(f"inputs of the servers, ranks from {schedule.workers} on, must be zero")
    return inputs.copy()


def _rows(step: Step) -> Iterator[tuple[int, int, int, int, int]]:
    columns = (step.src, step.dst, step.chunk, step.op, step.width)
    return zip(*(column.tolist() for column in columns), strict=True)


def _apply(step: Step, buffers: Buffers, bounds: list[int]) -> None:
    """All sends read the state before the step, then the arrivals are applied in row order."""
    parts = [(slice(bounds[c], bounds[c + w]), s, d, op) for s, d, c, op, w in _rows(step)]
    messages = [buffers[src, part].copy() for part, src, _, _ in parts]
    for (part, _, dst, op), message in zip(parts, messages, strict=True):
        if op == Op.ADD:
            buffers[dst, part] += message
        else:
            buffers[dst, part] = message
