"""The general solver: discrete events over links that are shared max-min fairly.

Everything that happens at one instant is one batch of NumPy operations. When a transfer may start
is not decided here but in ``rules``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simcore.maxmin import max_min_rates
from simcore.network import Network
from simcore.schedule import IntArray
from simcore.timeline import Timed, Timeline
from simcore.trace import FloatArray

Mask = NDArray[np.bool_]

# Instants closer than this fraction of the time are one: rounding, not physics.
_SAME_INSTANT = 1e-12
# A transfer whose rate changes by less has not changed its rate.
_SAME_RATE = 1e-12


class SimulationError(RuntimeError):
    """A run that cannot end, such as one over a link that is cut for good."""


class Rule(Protocol):
    """Decides when transfers may start; told when their last byte has left and has arrived."""

    def begin(self, clock: Clock) -> None:
        """Put the first events on the clock."""

    def sent(self, timed: Any, rows: IntArray) -> None:
        """The last byte of these rows has left."""

    def arrived(self, timed: Any, rows: IntArray, was_last: bool) -> None:
        """The last byte of these rows has arrived; ``was_last``: of all rows of ``timed``."""


class Clock:
    """The state of a run between two instants: events to come, and flows on the wire."""

    def __init__(
        self, network: Network, launch_per_message_s: float = 0.0, keep_spans: bool = False
    ) -> None:
        self.network, self.launch_s, self.keep_spans = network, launch_per_message_s, keep_spans
        self.now = 0.0
        self.timeline = Timeline(np.zeros(len(network.capacity), np.int64))
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._pushed = 0
        self._issue_free_s = np.zeros(network.n)  # when each rank has issued its last message
        self._capacity = network.capacity.copy()
        self._stale = False  # flows or capacities changed: rates must be shared anew
        self._not_arrived: dict[int, int] = {}  # rows on the way, by id of their Timed
        self._flows = _Flows.none(network)

    def run(self, rule: Rule) -> Timeline:
        """From instant to instant until nothing is left to happen."""
        self._rule = rule
        for time_s, link, capacity in self.network.changes:
            self.at(time_s, self._set_capacity, link, capacity)
        rule.begin(self)
        while self._heap or len(self._flows):
            finish_s = self._flows.finish_s(self.now)
            first_s = float(finish_s.min(initial=math.inf))
            next_s = min(first_s, self._heap[0][0] if self._heap else math.inf)
            if math.isinf(next_s):
                raise SimulationError(self._why_stuck())
            self._flows.left_bytes -= self._flows.rate * (next_s - self.now)
            self.now = next_s
            self._one_instant(finish_s)
        return self.timeline

    def at(self, time_s: float, what: Callable[..., None], *arguments: Any) -> None:
        """Do ``what`` at ``time_s``; simultaneous events happen in the order of their making."""
        self._pushed += 1
        heapq.heappush(self._heap, (time_s, self._pushed, what, arguments))

    def made(self, timed: Timed) -> None:
        """Count the work and the bytes of new transfers."""
        self.timeline.transfers += len(timed.src)
        self._not_arrived[id(timed)] = len(timed.src)
        for links in self.network.routes(timed.src, timed.dst).T:
            np.add.at(self.timeline.link_bytes, links, timed.nbytes)

    def when_issued(
        self, timed: Timed, rows: IntArray, then: Callable[[Any, IntArray], None]
    ) -> None:
        """Call ``then`` when the senders have issued these rows, one after another per rank."""
        if not self.launch_s or not len(rows):
            then(timed, rows)
            return
        order = np.argsort(timed.src[rows], kind="stable")
        src = timed.src[rows][order]
        ranks, first, count = np.unique(src, return_index=True, return_counts=True)
        begin_s = np.maximum(self._issue_free_s[ranks], self.now)
        self._issue_free_s[ranks] = begin_s + count * self.launch_s
        place = np.arange(len(src)) - np.repeat(first, count)
        issued_s = np.repeat(begin_s, count) + (place + 1) * self.launch_s
        for time_s in np.unique(issued_s):
            self.at(float(time_s), then, timed, rows[order][issued_s == time_s])

    def start(self, timed: Timed, rows: IntArray) -> None:
        """These transfers are on the wire from now."""
        if len(rows):
            timed.start_s[rows] = self.now
            self._flows.add(timed, rows, self.network, self.now)
            self._stale = True

    def _one_instant(self, finish_s: FloatArray) -> None:
        soon = self.now * (1 + _SAME_INSTANT)
        done = finish_s <= soon
        if done.any():
            self._finish(done)
        while self._heap and self._heap[0][0] <= soon:
            _, _, what, arguments = heapq.heappop(self._heap)
            what(*arguments)
            self.timeline.events += 1
        if self._stale:
            self._share_links()

    def _finish(self, done: Mask) -> None:
        flows = self._flows
        if self.keep_spans:
            flows.left_bytes[done] = 0.0
            self._cut_pieces(done & flows.in_pieces)
        for timed, rows in flows.remove(done):
            timed.left_s[rows] = self.now
            self.at(self.now + self.network.latency_s, self._arrive, timed, rows)
            self._rule.sent(timed, rows)
        self._stale = True
        self.timeline.events += 1

    def _arrive(self, timed: Timed, rows: IntArray) -> None:
        self.timeline.time_s = self.now
        self._not_arrived[id(timed)] -= len(rows)
        was_last = not self._not_arrived[id(timed)]
        if was_last:
            del self._not_arrived[id(timed)]
            if self.keep_spans:
                self.timeline.timed.append(timed)
        self._rule.arrived(timed, rows, was_last)

    def _set_capacity(self, link: int, bytes_per_s: float) -> None:
        self._capacity[link] = bytes_per_s
        self._stale = True

    def _share_links(self) -> None:
        self._stale = False
        flows = self._flows
        rate = max_min_rates(flows.routes, self._capacity)
        if self.keep_spans:
            moving = ~np.isnan(flows.rate)
            self._cut_pieces(moving & ~np.isclose(rate, flows.rate, rtol=_SAME_RATE, atol=0.0))
        flows.rate = rate

    def _cut_pieces(self, which: Mask) -> None:
        """The rate of these flows ends here: keep the piece that it lasted for."""
        flows = self._flows
        for i in np.flatnonzero(which).tolist():
            start_s, moved = (
                float(flows.piece_start_s[i]),
                flows.piece_left[i] - flows.left_bytes[i],
            )
            if self.now > start_s:
                timed, row = flows.timed[flows.of[i]], int(flows.row[i])
                timed.pieces.append((row, start_s, self.now, float(moved)))
        flows.piece_start_s[which] = self.now
        flows.piece_left[which] = flows.left_bytes[which]
        flows.in_pieces |= which

    def _why_stuck(self) -> str:
        timed, row = self._flows.timed[self._flows.of[0]], self._flows.row[0]
        return (
            f"the run never ends: at {self.now:g} s step {timed.step[row]} waits for "
            f"{timed.src[row]}->{timed.dst[row]}, a link that is cut and does not come back"
        )


@dataclass(slots=True)
class _Flows:
    """Transfers on the wire, as columns: row ``i`` is row ``row[i]`` of ``timed[of[i]]``.

    ``rate`` is NaN until the links have been shared. A piece is a time of constant rate; flows
    that never change theirs are ``in_pieces`` never.
    """

    timed: list[Timed]
    of: IntArray
    row: IntArray
    routes: IntArray
    left_bytes: FloatArray
    rate: FloatArray
    piece_start_s: FloatArray
    piece_left: FloatArray
    in_pieces: Mask

    @classmethod
    def none(cls, network: Network) -> _Flows:
        rows, zeros = np.zeros(0, np.int64), np.zeros(0)
        routes = network.routes(rows, rows)
        return cls([], rows, rows, routes, zeros, zeros, zeros, zeros, np.zeros(0, bool))

    def __len__(self) -> int:
        return len(self.row)

    def finish_s(self, now_s: float) -> FloatArray:
        """When each would finish at its present rate."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return now_s + self.left_bytes / self.rate

    def add(self, timed: Timed, rows: IntArray, network: Network, now_s: float) -> None:
        m = len(rows)
        nbytes = timed.nbytes[rows].astype(np.float64)
        if not self.timed or self.timed[-1] is not timed:
            self.timed.append(timed)
        self.of = np.append(self.of, np.full(m, len(self.timed) - 1))
        self.row = np.append(self.row, rows)
        routes = network.routes(timed.src[rows], timed.dst[rows])
        self.routes = np.concatenate([self.routes, routes])
        self.left_bytes = np.append(self.left_bytes, nbytes)
        self.rate = np.append(self.rate, np.full(m, np.nan))
        self.piece_start_s = np.append(self.piece_start_s, np.full(m, now_s))
        self.piece_left = np.append(self.piece_left, nbytes)
        self.in_pieces = np.append(self.in_pieces, np.zeros(m, bool))

    def remove(self, done: Mask) -> list[tuple[Timed, IntArray]]:
        """Take these flows off the wire; whose they were, and which rows."""
        of, row = self.of[done], self.row[done]
        gone = [(self.timed[number], row[of == number]) for number in np.unique(of).tolist()]
        kept = np.flatnonzero(~done)
        numbers, self.of = np.unique(self.of[kept], return_inverse=True)
        self.timed = [self.timed[number] for number in numbers.tolist()]
        for name in ("row", "routes", "left_bytes", "rate"):
            setattr(self, name, getattr(self, name)[kept])
        for name in ("piece_start_s", "piece_left", "in_pieces"):
            setattr(self, name, getattr(self, name)[kept])
        return gone
