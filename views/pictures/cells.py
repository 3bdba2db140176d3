"""The chunk table of a picture: what every GPU holds at a moment, and whose it is."""

from __future__ import annotations

import numpy as np

from simcore.reference import history
from simcore.schedule import Op, chunk_bounds
from views.pictures.shapes import (
    ADD,
    BUSY,
    COPY,
    GROUND,
    INK,
    QUIET,
    RULE,
    Line,
    Rect,
    Shape,
    Words,
    shorten,
    width_of,
)
from views.pictures.state import Moves, State
from views.player import PlayerLane
from views.text import Text

HEAD, SIDE = 22, 44
DONE = "#dff3ec"  # the ground of a cell with all contributions; it says ✓ as well


class CellsPanel:
    """A row per GPU and a column per chunk; for lanes with ``inputs``, one chunk a message."""

    def __init__(
        self, lane: PlayerLane, moves: Moves, text: Text, x: float, y: float, width: float
    ) -> None:
        assert lane.inputs is not None
        self.n, self.chunks = lane.trace.n, lane.schedule.chunks
        self.moves, self.text, self.x, self.y, self.width = moves, text, x, y, width
        self.states = list(history(lane.schedule, lane.inputs))
        self.bounds = chunk_bounds(lane.inputs.shape[1], self.chunks).tolist()
        self.column = (width - SIDE) / self.chunks
        self.row = min(56.0, max(34.0, 340 / self.n))
        self.bottom = y + HEAD + self.n * self.row

    def still(self) -> list[Shape]:
        """Headings and borders."""
        shapes: list[Shape] = [Words(self.x, self.y + 10, self.text("player.gpu"), 12, QUIET)]
        for chunk in range(self.chunks):
            words = shorten(self.text("player.chunk_head", chunk=chunk), self.column, 12)
            words = words if "…" not in words else str(chunk)
            shapes.append(Words(self._left(chunk) + 4, self.y + 10, words, 12, QUIET))
        for rank in range(self.n):
            shapes.append(Words(self.x, self._top(rank) + self.row / 2, str(rank), 12, QUIET))
        return shapes

    def moving(self, t_s: float, state: State) -> list[Shape]:
        """Numbers and contributors of every cell, and how much of the next has arrived."""
        moves = self.moves
        arrived = np.flatnonzero(moves.receive_end_s <= t_s)
        last = np.zeros((self.n, self.chunks), np.int64)  # the state that a cell has come to
        np.maximum.at(last, (moves.dst[arrived], moves.chunk[arrived]), moves.step[arrived] + 1)
        shapes: list[Shape] = []
        for rank in range(self.n):
            for chunk in range(self.chunks):
                shapes += self._cell(rank, chunk, int(last[rank, chunk]))
        for i, progress in zip(state.active.tolist(), state.progress.tolist(), strict=True):
            colour = ADD if moves.op[i] == Op.ADD else COPY
            left, top = self._left(int(moves.chunk[i])), self._top(int(moves.dst[i]))
            shapes.append(Rect(left, top + self.row - 4, self.column * progress, 4, colour))
        return shapes

    def _left(self, chunk: int) -> float:
        return self.x + SIDE + chunk * self.column

    def _top(self, rank: int) -> float:
        return self.y + HEAD + rank * self.row

    def _cell(self, rank: int, chunk: int, state: int) -> list[Shape]:
        values, who = self.states[state]
        numbers = values[rank, self.bounds[chunk] : self.bounds[chunk + 1]].tolist()
        ranks = who[rank][chunk]
        done = len(ranks) == self.n
        left, top, room = self._left(chunk), self._top(rank), self.column - 8
        size = 13 if self.column > 60 else 10
        words = shorten(" ".join(map(str, numbers)) or "–", room, size)
        by = ("·" if self.n <= 10 else " ").join(map(str, ranks))
        if width_of(by, 10) > room - 12:
            by = f"{len(ranks)}/{self.n}"
        middle = top + (self.row - 4) / 2
        shapes: list[Shape] = [
            Rect(left, top, self.column, self.row, DONE if done else GROUND, edge=RULE),
            Words(left + 4, middle - 6, words, size, INK, bold=True),
            Words(left + 4, middle + 8, by, 10, QUIET),
        ]
        if done:
            shapes += _tick(left + self.column - 8, middle + 8)
        return shapes


def _tick(x: float, y: float) -> list[Shape]:
    """Drawn, because few fonts have it."""
    return [Line(x - 4, y, x - 1, y + 3, BUSY, 1.6), Line(x - 1, y + 3, x + 4, y - 4, BUSY, 1.6)]
