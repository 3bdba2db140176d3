"""What a solver returns: when each transfer started, left and arrived. Columns, no pictures."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from simcore.schedule import IntArray, Op
from simcore.solvers.network import Network
from simcore.trace import FloatArray, Lane, Pieces, Spans, no_pieces, no_spans

Piece = tuple[int, float, float, float]  # row, start, end, bytes: a part at constant rate


@dataclass(slots=True, eq=False)
class Timed:
    """Messages with their times: columns of equal length, and pieces where a rate changed.

    A receive is the send, ``latency_s`` later; an adding takes ``adds_s`` of its receiver's time,
    from ``adding_s`` on.
    """

    step: IntArray
    src: IntArray
    dst: IntArray
    chunk: IntArray
    op: IntArray
    width: IntArray
    nbytes: IntArray
    latency_s: FloatArray
    adds_s: FloatArray
    start_s: FloatArray
    left_s: FloatArray
    adding_s: FloatArray
    pieces: list[Piece] = field(default_factory=list)


def adding_seconds(op: IntArray, nbytes: IntArray, reduce_s_per_byte: float) -> FloatArray:
    """What each message costs its receiver on arrival."""
    return np.where(op == Op.ADD, reduce_s_per_byte, 0.0) * nbytes


@dataclass(slots=True)
class Timeline:
    """A solved run: total time, batches of events, messages, bytes, and the details.

    ``rank_end_s`` is when each rank was through with all of its transfers.
    """

    link_bytes: IntArray
    sent_bytes: IntArray
    received_bytes: IntArray
    rank_end_s: FloatArray
    time_s: float = 0.0
    events: int = 0
    transfers: int = 0
    timed: list[Timed] = field(default_factory=list)

    @classmethod
    def empty(cls, network: Network) -> Timeline:
        """Nothing has happened yet."""
        links, ranks = len(network.capacity), network.n
        zeros = [np.zeros(size, np.int64) for size in (links, ranks, ranks)]
        return cls(zeros[0], zeros[1], zeros[2], np.zeros(ranks))

    def spans(self) -> tuple[Spans, Pieces]:
        """In order of steps a send and a receive per message (rows 2i and 2i + 1); then adds."""
        if not self.timed:
            return no_spans(), no_pieces()
        parts = sorted(self.timed, key=lambda part: int(part.step[0]))
        of = {
            f.name: np.concatenate([getattr(part, f.name) for part in parts])
            for f in fields(Timed)
            if f.name != "pieces"
        }
        arrive_s = of["left_s"] + of["latency_s"]
        send_receive = Spans(
            rank=_alternate(of["src"], of["dst"]),
            lane=np.tile(np.array([Lane.SEND, Lane.RECEIVE], np.int64), len(of["src"])),
            step=of["step"].repeat(2),
            peer=_alternate(of["dst"], of["src"]),
            chunk=of["chunk"].repeat(2),
            op=of["op"].repeat(2),
            width=of["width"].repeat(2),
            start_s=_alternate(of["start_s"], of["start_s"] + of["latency_s"]),
            end_s=_alternate(of["left_s"], arrive_s),
            nbytes=of["nbytes"].repeat(2),
        )
        return _with_adds(send_receive, of["adds_s"], of["adding_s"]), _pieces(parts)


def _alternate(even: np.ndarray, odd: np.ndarray) -> np.ndarray:
    return np.stack([even, odd], axis=1).ravel()


def _with_adds(spans: Spans, adds_s: FloatArray, begin_s: FloatArray) -> Spans:
    """With a compute span for every message that takes time to be added."""
    which = np.flatnonzero(adds_s > 0)
    if not len(which):
        return spans
    rows = 2 * which + 1
    columns = {f.name: getattr(spans, f.name)[rows] for f in fields(Spans)}
    columns["lane"] = np.full(len(which), Lane.COMPUTE)
    columns["start_s"] = begin_s[which]
    columns["end_s"] = begin_s[which] + adds_s[which]
    return Spans(**{name: np.append(getattr(spans, name), columns[name]) for name in columns})


def _pieces(parts: list[Timed]) -> Pieces:
    first_row = np.cumsum([0, *(len(part.step) for part in parts)]).tolist()
    rows = [
        (first + row, float(part.latency_s[row]), *piece)
        for first, part in zip(first_row, parts, strict=False)
        for row, *piece in sorted(part.pieces)
    ]
    if not rows:
        return no_pieces()
    transfer, latency_s, start_s, end_s, nbytes = np.array(rows, np.float64).T
    return Pieces(
        np.concatenate([2 * transfer, 2 * transfer + 1]).astype(np.int64),
        np.concatenate([start_s, start_s + latency_s]),
        np.concatenate([end_s, end_s + latency_s]),
        np.concatenate([nbytes, nbytes]),
    )
