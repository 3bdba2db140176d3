"""What is true of a lane at a moment: the numbers of a frame. ``player_core.js`` has them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simcore.cluster import Cluster
from simcore.schedule import IntArray
from simcore.solvers.network import Slowdown
from simcore.trace import FloatArray, Lane, Pieces, Trace
from views.links import Links, Loads

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """At one moment: bytes and load per port, and the transfers under way, by their number.

    ``progress`` belongs to ``active``. ``sending`` and ``receiving`` are shares of a port's rate,
    and ``links`` says it of all links.
    """

    t_s: float
    sent_bytes: FloatArray
    received_bytes: FloatArray
    sending: FloatArray
    receiving: FloatArray
    active: IntArray
    links: Loads
    progress: FloatArray
    step: int
    finished: bool

    @property
    def in_use(self) -> float:
        """The mean load of all ports."""
        return float(np.concatenate([self.sending, self.receiving]).mean())


class Moves:
    """A trace's transfers, a row each with both its ends, and its steps."""

    def __init__(self, trace: Trace, cluster: Cluster, slowdowns: Sequence[Slowdown] = ()) -> None:
        self.trace = trace
        self._rows: Pieces = trace.constant_rate_rows()
        spans = trace.spans

        def in_order(which: Lane, src: IntArray, dst: IntArray) -> IntArray:
            rows = np.flatnonzero(spans.lane == which)
            keys = (spans.op, spans.chunk, dst, src, spans.step)
            return rows[np.lexsort([key[rows] for key in keys])]

        sends = in_order(Lane.SEND, spans.rank, spans.peer)
        receives = in_order(Lane.RECEIVE, spans.peer, spans.rank)
        self._sends, self._receives = sends, receives
        self.step, self.src, self.dst = spans.step[sends], spans.rank[sends], spans.peer[sends]
        self.chunk, self.op, self.width = spans.chunk[sends], spans.op[sends], spans.width[sends]
        self.send_start_s, self.send_end_s = spans.start_s[sends], spans.end_s[sends]
        self.receive_start_s, self.receive_end_s = spans.start_s[receives], spans.end_s[receives]
        self.links = Links(cluster, slowdowns, self.src, self.dst)
        self._time_the_steps()

    def _time_the_steps(self) -> None:
        """When each step starts and ends, and what it does with what arrives; empty ones never."""
        steps = int(self.step.max()) + 1 if len(self.step) else 0
        self.step_start_s, self.step_end_s = np.full(steps, np.inf), np.full(steps, -np.inf)
        self.step_op = np.zeros(steps, np.int64)
        np.minimum.at(self.step_start_s, self.step, self.send_start_s)
        np.maximum.at(self.step_end_s, self.step, self.receive_end_s)
        self.step_op[self.step] = self.op

    def __len__(self) -> int:
        return len(self.step)

    def at(self, t_s: float) -> State:
        """Everything that a picture shows at ``t_s``.

        >>> from simcore import build_schedule, simulate, uniform
        >>> cluster = uniform(3, 100.0)
        >>> run = simulate(build_schedule("ps", 3), cluster, elements=100)
        >>> state = Moves(run.trace, cluster).at(1.0)
        >>> state.receiving.tolist(), state.received_bytes.tolist(), state.progress.tolist()
        ([1.0, 0.0, 0.0], [100.0, 0.0, 0.0], [0.125, 0.125])
        """
        trace, rate = self.trace, self._rates(t_s)
        active = np.flatnonzero((self.send_start_s <= t_s) & (t_s < self.receive_end_s))
        out, into = rate[self._sends[active]], rate[self._receives[active]]
        start, end = self.send_start_s[active], self.receive_end_s[active]
        loads = self.links.at(t_s, active, out, into)
        started = int((self.step_start_s <= t_s).sum()) - 1
        return State(
            t_s,
            *trace.bytes_at(t_s),
            self._ports(active, loads.load, 0),
            self._ports(active, loads.load, 1),
            active,
            loads,
            progress=(t_s - start) / (end - start),
            step=int(self.step[active].min()) if len(active) else started,
            finished=t_s >= trace.time_s,
        )

    def _ports(self, active: IntArray, load: FloatArray, column: int) -> FloatArray:
        """The load of every rank's sending (0) or receiving port: of several the fullest; of one
        for both ways all that it carries."""
        if self.links.half_duplex:
            return load[: self.trace.n]
        loads = np.zeros(self.trace.n)
        rank = self.dst if column else self.src
        np.maximum.at(loads, rank[active], load[self.links.ways[active, column]])
        return loads

    def _rates(self, t_s: float) -> FloatArray:
        """Bytes per second of every span."""
        rows = self._rows
        now = (rows.start_s <= t_s) & (t_s < rows.end_s)
        rate = np.zeros(len(self.trace.spans))
        rate[rows.span[now]] = rows.nbytes[now] / (rows.end_s[now] - rows.start_s[now])
        return rate
