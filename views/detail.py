"""How a run goes to the browser: in no more marks than can be drawn, in as few characters as it
takes. No text, no JSON: arrays in, arrays out.

A mark is a transfer, or what one link carries in several steps of a phase: then its bytes are
summed, and between the first start and the last end its rate is the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.schedule import IntArray, Op, Schedule
from simcore.trace import FloatArray, Lane, Trace

MAX_MARKS = 5_000  # of all lanes together; they are about 0.3 MB
MANY_VALUES = 1_500  # distinct numbers in a column from which on their last digits are left out
DIGITS = 11  # of those numbers: a relative error below 5e-11

Packed = list[Any] | dict[str, list[Any]]  # a column as ``packed`` makes it


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """A row per mark, in order of steps. ``carries`` counts chunks.

    ``chunk`` and ``contributions`` are those of the last transfer that the mark stands for.
    """

    step: IntArray
    src: IntArray
    dst: IntArray
    chunk: IntArray
    op: IntArray
    carries: IntArray
    contributions: IntArray
    nbytes: IntArray
    send_start_s: FloatArray
    send_end_s: FloatArray
    receive_start_s: FloatArray
    receive_end_s: FloatArray

    def __len__(self) -> int:
        return len(self.step)

    def columns(self) -> dict[str, NDArray[Any]]:
        """By their names."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def marks_of(trace: Trace, schedule: Schedule) -> tuple[Marks, IntArray]:
    """A mark per transfer, its sending and receiving span side by side; and each span's row.

    >>> from simcore.algorithms import ring
    >>> from simcore.cluster import uniform
    >>> from simcore.engine import simulate
    >>> marks, _ = marks_of(simulate(ring(2), uniform(2, 1000.0), 500).trace, ring(2))
    >>> marks.src.tolist(), marks.nbytes.tolist(), marks.receive_end_s.tolist()
    ([0, 1, 0, 1], [1000, 1000, 1000, 1000], [1.0, 1.0, 2.0, 2.0])
    """
    spans = trace.spans
    sending = spans.lane == Lane.SEND
    src = np.where(sending, spans.rank, spans.peer)
    dst = np.where(sending, spans.peer, spans.rank)
    order = np.lexsort((spans.op, spans.chunk, dst, src, spans.step))
    sends, receives = order[sending[order]], order[spans.lane[order] == Lane.RECEIVE]
    row_of_span = np.full(len(spans), -1, np.int64)
    row_of_span[sends] = row_of_span[receives] = np.arange(len(sends))
    keys = (spans.step[sends], src[sends], dst[sends], spans.chunk[sends])
    return Marks(
        *keys,
        spans.op[sends],
        spans.width[sends],
        _contributions(schedule, keys),
        spans.nbytes[sends],
        spans.start_s[sends],
        spans.end_s[sends],
        spans.start_s[receives],
        spans.end_s[receives],
    ), row_of_span


def _contributions(schedule: Schedule, keys: Sequence[IntArray]) -> IntArray:
    """How many ranks' inputs the receiver's chunk holds when a transfer has been applied."""
    counts = np.ones((schedule.n, schedule.chunks), np.int64)
    counts[schedule.workers :] = 0
    after: dict[tuple[int, ...], int] = {}
    for number, step in enumerate(schedule.steps()):
        before = counts.copy()
        rows = (step.src, step.dst, step.chunk, step.width, step.op)
        for src, dst, chunk, width, op in zip(*(row.tolist() for row in rows), strict=True):
            chunks = slice(chunk, chunk + width)
            own = counts[dst, chunks] if op == Op.ADD else 0
            counts[dst, chunks] = before[src, chunks] + own
            after[number, src, dst, chunk] = int(counts[dst, chunk])
    rows_of = zip(*(key.tolist() for key in keys), strict=True)
    return np.array([after[row] for row in rows_of], np.int64)


def fair_shares(wanted: Sequence[int], total: int) -> list[int]:
    """``total`` dealt out so that who wants little gets it, and the others the same.

    >>> fair_shares([126, 8064, 126], 5000), fair_shares([9000, 100, 9000], 5000)
    ([126, 4748, 126], [2450, 100, 2450])
    """
    shares = [0] * len(wanted)
    left = total
    for done, lane in enumerate(sorted(range(len(wanted)), key=lambda lane: wanted[lane])):
        shares[lane] = min(wanted[lane], left // (len(wanted) - done))
        left -= shares[lane]
    return shares


def blocks(step_op: IntArray, steps_per_block: int) -> IntArray:
    """Where blocks of steps begin, and the end: none reaches over a change of what is done.

    >>> blocks(np.array([1, 1, 1, 0, 0, 0]), 2).tolist()
    [0, 2, 3, 5, 6]
    """
    steps = np.arange(len(step_op))
    turns = np.r_[True, step_op[1:] != step_op[:-1]] if len(steps) else np.zeros(0, bool)
    since = steps - np.maximum.accumulate(np.where(turns, steps, 0))
    bounds: IntArray = np.r_[steps[since % steps_per_block == 0], len(steps)]
    return bounds


def joined(marks: Marks, bounds: IntArray) -> Marks:
    """What each link carries in each block of steps as one mark; ``step`` becomes the block."""
    block = np.searchsorted(bounds, marks.step, side="right") - 1
    order = np.lexsort((marks.step, marks.op, marks.dst, marks.src, block))
    rows = Marks(**{name: column[order] for name, column in marks.columns().items()})
    keys = np.stack([block[order], rows.src, rows.dst, rows.op])
    first = np.flatnonzero(np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    last = np.r_[first[1:], len(rows)] - 1
    at_last = Marks(**{name: column[last] for name, column in rows.columns().items()})
    return replace(
        at_last,
        step=keys[0, first],
        carries=np.add.reduceat(rows.carries, first),
        nbytes=np.add.reduceat(rows.nbytes, first),
        send_start_s=np.minimum.reduceat(rows.send_start_s, first),
        send_end_s=np.maximum.reduceat(rows.send_end_s, first),
        receive_start_s=np.minimum.reduceat(rows.receive_start_s, first),
        receive_end_s=np.maximum.reduceat(rows.receive_end_s, first),
    )


def fitted(marks: Marks, step_op: IntArray, most: int) -> tuple[Marks, IntArray]:
    """At most ``most`` marks, with the fewest steps in a block, and where the blocks begin.

    Where whole phases would still be too many (links, not steps, are), nothing is joined.
    """
    every_step = np.arange(len(step_op) + 1)
    if len(marks) <= most or len(joined(marks, blocks(step_op, len(step_op)))) > most:
        return marks, every_step
    steps_per_block = len(marks) // most
    while len(fewer := joined(marks, bounds := blocks(step_op, steps_per_block))) > most:
        steps_per_block += 1
    return fewer, bounds


def packed(column: NDArray[Any]) -> Packed:
    """The column in the shortest of three forms: as a list; its distinct values and their places;
    or values and how often each comes in a row.

    >>> packed(np.array([3, 1, 3])), packed(np.full(64, 1))
    ([3, 1, 3], {'of': [1], 'runs': [64]})
    >>> packed(np.array([0.00390625, 0.001953125] * 3))
    {'of': [0.001953125, 0.00390625], 'at': [1, 0, 1, 0, 1, 0]}
    """
    values, places = np.unique(column, return_inverse=True)
    if len(values) > MANY_VALUES and column.dtype == np.float64:
        return [float(f"{value:.{DIGITS - 1}e}") for value in column.tolist()]
    turns = np.flatnonzero(np.r_[True, column[1:] != column[:-1]][: len(column)])
    runs = np.diff(np.r_[turns, len(column)])
    forms: tuple[Packed, ...] = (
        column.tolist(),
        {"of": values.tolist(), "at": places.tolist()},
        {"of": column[turns].tolist(), "runs": runs.tolist()},
    )
    return min(forms, key=lambda form: len(str(form)))


def unpacked(column: Packed) -> list[Any]:
    """The inverse of ``packed``, as the player has it too.

    >>> unpacked({"of": [0.125, 0.25], "at": [0, 1, 0]}), unpacked({"of": [7], "runs": [2]})
    ([0.125, 0.25, 0.125], [7, 7])
    """
    if isinstance(column, list):
        return column
    if "at" in column:
        return [column["of"][place] for place in column["at"]]
    pairs = zip(column["of"], column["runs"], strict=True)
    return [value for value, times in pairs for _ in range(times)]
