"""What a solver returns: when each transfer started, left and arrived. Columns, no pictures."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from simcore.schedule import IntArray
from simcore.trace import FloatArray, Lane, Pieces, Spans, no_pieces, no_spans

Piece = tuple[int, float, float, float]  # row, start, end, bytes: a part at constant rate


@dataclass(slots=True, eq=False)
class Timed:
    """Transfers with their times: columns of equal length, and pieces where a rate changed.

    A receive is the send, ``latency`` later, so two times are enough.
    """

    step: IntArray
    src: IntArray
    dst: IntArray
    chunk: IntArray
    op: IntArray
    nbytes: IntArray
    start_s: FloatArray
    left_s: FloatArray
    pieces: list[Piece] = field(default_factory=list)


@dataclass(slots=True)
class Timeline:
    """A solved run: total time, batches of events, transfers, bytes per link, and the details."""

    link_bytes: IntArray
    time_s: float = 0.0
    events: int = 0
    transfers: int = 0
    timed: list[Timed] = field(default_factory=list)

    def spans(self, latency_s: float) -> tuple[Spans, Pieces]:
        """Two spans per transfer in order of steps: row ``2i`` sends, row ``2i + 1`` receives."""
        if not self.timed:
            return no_spans(), no_pieces()
        parts = sorted(self.timed, key=lambda part: int(part.step[0]))
        names = [f.name for f in fields(Timed) if f.name != "pieces"]
        of = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        lane = np.tile([Lane.SEND, Lane.RECEIVE], len(of["src"]))
        spans = Spans(
            rank=_alternate(of["src"], of["dst"]),
            lane=lane.astype(np.int64),
            step=of["step"].repeat(2),
            peer=_alternate(of["dst"], of["src"]),
            chunk=of["chunk"].repeat(2),
            op=of["op"].repeat(2),
            start_s=_alternate(of["start_s"], of["start_s"] + latency_s),
            end_s=_alternate(of["left_s"], of["left_s"] + latency_s),
            nbytes=of["nbytes"].repeat(2),
        )
        return spans, _pieces(parts, latency_s)


def _alternate(even: np.ndarray, odd: np.ndarray) -> np.ndarray:
    return np.stack([even, odd], axis=1).ravel()


def _pieces(parts: list[Timed], latency_s: float) -> Pieces:
    first_row = np.cumsum([0, *(len(part.step) for part in parts)]).tolist()
    rows = [
        (first + row, *piece)
        for first, part in zip(first_row, parts, strict=False)
        for row, *piece in sorted(part.pieces)
    ]
    if not rows:
        return no_pieces()
    transfer, start_s, end_s, nbytes = np.array(rows, np.float64).T
    return Pieces(
        np.concatenate([2 * transfer, 2 * transfer + 1]).astype(np.int64),
        np.concatenate([start_s, start_s + latency_s]),
        np.concatenate([end_s, end_s + latency_s]),
        np.concatenate([nbytes, nbytes]),
    )
