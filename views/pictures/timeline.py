"""The time axis of a picture: a row per lane, and for a single lane a row per GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from simcore.schedule import Op
from simcore.units import format_time
from views.pictures.counters import MANY
from views.pictures.shapes import (
    ADD,
    BUSY,
    COPY,
    GROUND,
    INK,
    MEASURED,
    QUIET,
    Line,
    Polygon,
    Rect,
    Shape,
    Words,
    shorten_apart,
    width_of,
)
from views.pictures.state import Moves
from views.player import Mark, PlayerLane
from views.text import Text

LEFT, RIGHT, TOP = 128, 76, 34  # least room for names, for times, and for the bound's label
PITCH, BAR, THIN = 32, 20, 9
GPU_PITCH = 2 * THIN + 6
TIME_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def steady_time(t_s: float, largest_s: float, digits: int = 5) -> str:
    """With the unit and the digits that ``largest_s`` asks for: nothing jumps while it runs.

    >>> steady_time(0.0131, 0.526), steady_time(0.0, 2.0)
    ('13.10 ms', '0.0000 s')
    """
    unit, factor = next((u, f) for u, f in TIME_UNITS if largest_s >= f * 0.99995 or u == "ns")
    whole = max(1, math.floor(math.log10(largest_s / factor or 1)) + 1)
    return f"{t_s / factor:.{max(2, digits - whole)}f} {unit}"


class Timeline:
    """The common time axis of ``lanes``, as wide as ``width``, with its top at ``y``."""

    def __init__(
        self,
        lanes: Sequence[PlayerLane],
        moves: Sequence[Moves],
        text: Text,
        width: float,
        y: float,
    ) -> None:
        self.lanes, self.moves, self.text, self.width, self.y = lanes, moves, text, width, y
        measured = [mark.high_s for lane in lanes for mark in lane.marks]
        self.end_s = max(*(lane.trace.time_s for lane in lanes), *measured, 0.0) * 1.01 or 1.0
        alone = len(lanes) == 1 and lanes[0].trace.n <= MANY
        self.gpus = lanes[0].trace.n if alone else 0
        self.rows_end = y + TOP + PITCH * len(lanes)
        self.axis_y = self.rows_end + GPU_PITCH * self.gpus + (6 if self.gpus else 0)
        self.bottom = self.axis_y + 22
        titles = [lane.title for lane in lanes]
        widest = max(width_of(title, 13) for title in titles) + 12
        self.left = min(max(LEFT, widest), width / 3)
        self.titles = shorten_apart(titles, self.left - 10, 13)

    def x(self, t_s: float) -> float:
        """Where on the axis a time is."""
        return self.left + t_s / self.end_s * (self.width - self.left - RIGHT)

    def still(self) -> list[Shape]:
        """All but the clock."""
        shapes: list[Shape] = [*self._axis(), *self._bound()]
        for row, (lane, moves) in enumerate(zip(self.lanes, self.moves, strict=True)):
            y = self.y + TOP + PITCH * row + 6
            middle = y + BAR / 2
            shapes.append(Words(0, middle, self.titles[row], 13))
            time = format_time(lane.trace.time_s)
            shapes.append(Words(self.width, middle, time, 13, INK, "end", bold=True))
            shapes += self._bars(moves, y)
            shapes += self._phases(lane, moves, y)
            shapes += self._flag(lane.trace.time_s, y)
            for mark in lane.marks:
                shapes += self._mark(mark, y)
        for rank in range(self.gpus):
            shapes += self._gpu(rank, self.rows_end + 6 + GPU_PITCH * rank)
        return shapes

    def moving(self, t_s: float) -> list[Shape]:
        """The clock and the playhead."""
        x, top = self.x(t_s), self.y + TOP - 4
        head = ((x - 5, top - 7), (x + 5, top - 7), (x, top))
        total_s = max(lane.trace.time_s for lane in self.lanes)
        clock = Words(0, self.y + 12, f"t = {steady_time(t_s, total_s)}", 15, INK, bold=True)
        return [clock, Line(x, top, x, self.axis_y, INK, 1.5), Polygon(head, INK)]

    def _bars(self, moves: Moves, y: float) -> Iterator[Shape]:
        columns = (moves.step_start_s, moves.step_end_s, moves.step_op)
        for start, end, op in zip(*(column.tolist() for column in columns), strict=True):
            if end > start:
                yield self._bar(start, end, y, BAR, op == Op.ADD)

    def _bar(self, start_s: float, end_s: float, y: float, height: float, adds: bool) -> Rect:
        left, right = self.x(start_s), self.x(end_s)
        gap = 1 if right - left > 4 else 0
        return Rect(left, y, max(0.5, right - left - gap), height, ADD if adds else COPY, not adds)

    def _phases(self, lane: PlayerLane, moves: Moves, y: float) -> Iterator[Shape]:
        """The names of runs of steps that do the same, where there is room."""
        ops = moves.step_op
        cuts = [0, *(np.flatnonzero(np.diff(ops)) + 1).tolist(), len(ops)]
        for first, after in pairwise(cuts):
            if first == after:
                continue
            adds = ops[first] == Op.ADD
            words = self.text(f"phase.{lane.schedule.name}.{Op(int(ops[first]))}")
            left = self.x(float(moves.step_start_s[first:after].min()))
            right = self.x(float(moves.step_end_s[first:after].max()))
            wide, middle = width_of(words, 12) + 12, (left + right) / 2
            if wide <= right - left:
                yield Rect(middle - wide / 2, y, wide, BAR, ADD if adds else COPY)
                yield Words(middle, y + BAR / 2, words, 12, GROUND, "middle", bold=True)

    def _flag(self, t_s: float, y: float) -> list[Shape]:
        x = self.x(t_s)
        cloth = ((x, y - 3), (x + 9, y + 1), (x, y + 5))
        return [Line(x, y - 3, x, y + BAR + 2, INK, 1.4), Polygon(cloth, INK)]

    def _mark(self, mark: Mark, y: float) -> list[Shape]:
        """A measured time: a full diamond for a replay, a hollow one for the vendor's own."""
        vendor = mark.source == "vendor"
        x, at = self.x(mark.time_s), y + BAR * (0.8 if vendor else 0.3)
        diamond = ((x - 5, at), (x, at - 5), (x + 5, at), (x, at + 5))
        spread = Line(self.x(mark.low_s), at, self.x(mark.high_s), at, MEASURED, 2)
        return [spread, Polygon(diamond, GROUND if vendor else MEASURED, MEASURED)]

    def _gpu(self, rank: int, y: float) -> list[Shape]:
        """What a GPU sends, above what it receives."""
        moves = self.moves[0]
        name = self.text("player.gpu_number", rank=rank)
        shapes: list[Shape] = [Words(self.left - 8, y + THIN, name, 12, INK, "end")]
        for ends, starts_s, ends_s, top in (
            (moves.src, moves.send_start_s, moves.send_end_s, y),
            (moves.dst, moves.receive_start_s, moves.receive_end_s, y + THIN + 1),
        ):
            for i in np.flatnonzero(ends == rank).tolist():
                adds = bool(moves.op[i] == Op.ADD)
                shapes.append(self._bar(float(starts_s[i]), float(ends_s[i]), top, THIN, adds))
        return shapes

    def _bound(self) -> list[Shape]:
        bound_s = self.lanes[0].lower_bound_s
        x, words = self.x(bound_s), self.text("player.bound", time=format_time(bound_s))
        late = x > self.width * 0.6
        label = Words(x + (-6 if late else 6), self.y + TOP - 18, words, 11, QUIET)
        if late:
            label = Words(label.x, label.y, words, 11, QUIET, "end")
        return [Line(x, self.y + TOP - 24, x, self.axis_y, INK, 1.2, dashed=True), label]

    def _axis(self) -> Iterator[Shape]:
        y = self.axis_y
        yield Line(self.left, y, self.x(self.end_s), y, BUSY)
        for t_s in ticks(self.end_s, 6):
            x = self.x(t_s)
            yield Line(x, y, x, y + 4, BUSY)
            yield Words(x, y + 14, format_time(t_s) if t_s else "0", 11, QUIET, "middle")


def ticks(end: float, count: int) -> list[float]:
    """Round steps of 1, 2 or 5, at most ``count`` of them.

    >>> ticks(2.1, 6)
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """
    rough = end / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-12))
    return [step * i for i in range(int(end / step + 1e-9) + 1)]
