"""Why a run took as long as it did: its critical path, and who waited. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simcore.schedule import IntArray, Op
from simcore.trace import FloatArray, Lane, Trace
from simcore.units import format_time

_SAME = 1e-9  # instants closer than this fraction of the run are one


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the critical path: ``kind`` is start, launch, transfer, latency or add."""

    kind: str
    rank: int
    peer: int  # -1 where the segment is the rank's own
    label: str
    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


def critical_path(trace: Trace) -> list[Segment]:
    """The chain of segments, first to last, that nothing could have shortened but themselves.

    Every segment begins when the one before it ends, so their durations add up to ``time_s``.
    Holds for the rules ``rank`` and ``dataflow``. Two segments that end together are a tie; the
    later step is taken.

    >>> from simcore import build_schedule, simulate, uniform
    >>> run = simulate(build_schedule("dp", 3), uniform(3, 1000.0, latency_s=0.5), elements=250)
    >>> for part in critical_path(run.trace):
    ...     print(f"{part.kind:8} {part.label:14} {part.start_s:.1f} {part.end_s:.1f}")
    transfer 0: 1->0 c0 add 0.0 1.0
    latency  0: 1->0 c0 add 1.0 1.5
    transfer 1: 2->0 c0 add 1.5 2.5
    latency  1: 2->0 c0 add 2.5 3.0
    transfer 2: 0->1 c0 copy 3.0 4.0
    transfer 3: 0->2 c0 copy 4.0 5.0
    latency  3: 0->2 c0 copy 5.0 5.5
    """
    if not len(trace.spans):
        return [Segment("start", 0, -1, "", 0.0, trace.time_s)] if trace.time_s else []
    walk = _Walk(trace)
    row = int(np.lexsort((trace.spans.step, trace.spans.end_s))[-1])
    segments: list[Segment] = []
    while row >= 0:
        parts, row = walk.back_from(row)
        segments += parts
    return [s for s in reversed(segments) if s.duration_s > _SAME * trace.time_s]


class _Walk:
    """Finds, for a span, what had to end before it could begin."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.spans = trace, trace.spans
        self.slack_s = _SAME * trace.time_s
        order = np.lexsort((self.spans.step, self.spans.end_s, self.spans.rank))
        self.rows = order
        self.first = np.searchsorted(self.spans.rank[order], np.arange(trace.n + 1))
        self.ends = self.spans.end_s[order]
        adds = np.flatnonzero(self.spans.lane == Lane.COMPUTE)
        added = (self.spans.lane == Lane.RECEIVE) & (self.spans.op == Op.ADD)
        # Both stand in the order of their messages.
        self.receive_of = dict(zip(adds.tolist(), np.flatnonzero(added).tolist(), strict=False))
        in_turn = adds[np.lexsort((self.spans.start_s[adds], self.spans.rank[adds]))].tolist()
        self.add_before = dict(pairwise(reversed(in_turn)))

    def back_from(self, row: int) -> tuple[list[Segment], int]:
        """The segments of this span, last first, and the row that made it begin (-1: none)."""
        s = self.spans
        rank, peer, label = int(s.rank[row]), int(s.peer[row]), s.label(row)
        start_s, end_s = float(s.start_s[row]), float(s.end_s[row])
        parts: list[Segment] = []
        if s.lane[row] == Lane.COMPUTE:
            parts.append(Segment("add", rank, -1, label, start_s, end_s))
            arrival = self.receive_of[row]
            came = s.end_s[arrival] >= start_s - self.slack_s
            return parts, arrival if came else self.add_before[row]
        if s.lane[row] == Lane.RECEIVE:
            row -= 1  # its send stands before it
            parts.append(Segment("latency", peer, rank, label, float(s.end_s[row]), end_s))
            rank, peer = peer, rank
            start_s, end_s = float(s.start_s[row]), float(s.end_s[row])
        parts.append(Segment("transfer", rank, peer, label, start_s, end_s))
        before = self._last_ended([rank, peer], start_s, int(s.step[row]))
        since_s = float(s.end_s[before]) if before >= 0 else 0.0
        if start_s - since_s > self.slack_s:
            kind = "launch" if before >= 0 else "start"
            parts.append(Segment(kind, rank, -1, label, since_s, start_s))
        return parts, before

    def _last_ended(self, ranks: list[int], by_s: float, before_step: int) -> int:
        """The span of these ranks and an earlier step that ended last, by that time."""
        best, best_end = -1, -1.0
        for rank in ranks:
            low, high = self.first[rank], self.first[rank + 1]
            place = int(np.searchsorted(self.ends[low:high], by_s + self.slack_s, side="right"))
            for row in self.rows[low : low + place][::-1].tolist():
                if self.spans.step[row] < before_step:
                    if self.spans.end_s[row] > best_end:
                        best, best_end = row, float(self.spans.end_s[row])
                    break
        return best


def idle_s(trace: Trace) -> FloatArray:
    """Seconds of the run in which each rank neither sent, received nor added; shape ``(n,)``.

    >>> from simcore import build_schedule, simulate, uniform
    >>> run = simulate(build_schedule("dp", 3), uniform(3, 1000.0), elements=250)
    >>> idle_s(run.trace).tolist()
    [0.0, 2.0, 2.0]
    """
    spans = trace.spans
    order = np.lexsort((spans.start_s, spans.rank))
    rank: IntArray = spans.rank[order]
    busy = np.zeros(trace.n)
    for r in range(trace.n):
        rows = order[np.searchsorted(rank, r) : np.searchsorted(rank, r + 1)]
        if len(rows):
            start_s, end_s = spans.start_s[rows], np.maximum.accumulate(spans.end_s[rows])
            # What each span adds to the union of those that started before it.
            covered = np.maximum(start_s, np.concatenate([[-np.inf], end_s[:-1]]))
            busy[r] = np.maximum(end_s - covered, 0.0).sum()
    return np.maximum(trace.time_s - busy, 0.0)


SUSPECTS = (
    "input pipeline",
    "CPU of the servers (summing, threads)",
    "one TCP connection that does not fill the link",
    "launch and coordination per message",
    "a straggler",
)


def not_the_network(lost_s: float, wire_s: float) -> str | None:
    """A sentence when the lost time is more than three times what the wire can explain, else None.

    ``lost_s`` is what a step takes longer than on one GPU, ``wire_s`` what the simulator says for
    its communication if nothing of it were hidden.

    >>> not_the_network(lost_s=0.083, wire_s=0.010)
    'not explained by this link: 83 ms are lost, the wire needs 10 ms; look at: input pipeline, \
CPU of the servers (summing, threads), one TCP connection that does not fill the link, \
launch and coordination per message, a straggler'
    >>> not_the_network(lost_s=0.012, wire_s=0.010)
    """
    if lost_s <= 3 * wire_s:
        return None
    return (
        f"not explained by this link: {format_time(lost_s)} are lost, the wire needs "
        f"{format_time(wire_s)}; look at: {', '.join(SUSPECTS)}"
    )
