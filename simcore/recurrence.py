"""The fast solver, for schedules whose transfers never share a link: one vector per step.

If in every step each rank sends at most one message and receives at most one, and no rank is in
two steps at once, then no port ever carries two flows, and a step's times follow from the last
step's by ``max`` and ``+``. It raises ``SharedLink`` for everything else.
"""

from __future__ import annotations

import numpy as np

from simcore.network import Network
from simcore.schedule import IntArray, Schedule, Step
from simcore.timeline import Timed, Timeline
from simcore.trace import FloatArray


class SharedLink(Exception):
    """Two flows may meet on a link; the event solver has to take over."""


class _Way:
    """What a step's (src, dst) columns imply, worked out once for steps that share them."""

    def __init__(self, step: Step, rows: IntArray | None, network: Network) -> None:
        self.columns = (step.src, step.dst)
        self.src, self.dst = (c if rows is None else c[rows] for c in self.columns)
        for ends in (self.src, self.dst):
            if len(ends) and np.bincount(ends).max() > 1:
                raise SharedLink
        self.routes = network.routes(self.src, self.dst)
        self.seconds_per_byte = 1.0 / network.capacity[self.routes].min(axis=1)
        self.row_bytes = np.zeros(len(self.src), np.int64)  # summed over the steps it served
        everyone = np.arange(network.n)
        # A ring: row r is rank r's send, and every rank receives. Then no scattering is needed.
        self.is_shift = len(self.src) == network.n and bool((self.src == everyone).all())
        self.sender_to = np.argsort(self.dst) if self.is_shift else self.dst

    def add_bytes_to(self, link_bytes: IntArray) -> None:
        """Book what has gone this way."""
        for links in self.routes.T:
            np.add.at(link_bytes, links, self.row_bytes)

    def serves(self, step: Step) -> bool:
        """Whether the step has the very columns that this was made for."""
        return step.src is self.columns[0] and step.dst is self.columns[1]


def solve(
    schedule: Schedule,
    network: Network,
    chunk_bytes: IntArray,
    starts_s: FloatArray,
    *,
    barrier: bool = False,
    launch_per_message_s: float = 0.0,
    keep_spans: bool = False,
) -> Timeline:
    """The timeline of ``schedule`` when rank ``r`` may start at ``starts_s[r]``."""
    if network.changes:
        raise SharedLink
    entered = starts_s.astype(np.float64)  # when each rank entered the present step
    end_s = float(entered.max())
    no_empty, even = bool(chunk_bytes.all()), bool((chunk_bytes == chunk_bytes[0]).all())
    timeline = Timeline(np.zeros(len(network.capacity), np.int64))
    way: _Way | None = None
    steady: tuple[IntArray, FloatArray] | None = None  # bytes and port time, the same every step
    for number, step in enumerate(schedule.steps()):
        rows = None if no_empty else np.flatnonzero(chunk_bytes[step.chunk])
        if not len(step if rows is None else rows):
            continue
        if rows is not None or way is None or not way.serves(step):
            if way is not None:
                way.add_bytes_to(timeline.link_bytes)
            way = _Way(step, rows, network)
            steady = None
        if barrier:
            entered[:] = end_s
        if even and steady is not None:
            nbytes, port_s = steady
        else:
            nbytes = chunk_bytes[step.chunk if rows is None else step.chunk[rows]]
            port_s = nbytes * way.seconds_per_byte
            steady = nbytes, port_s
        start, left, entered, last_s = _advance(
            way, entered, port_s, network.latency_s, launch_per_message_s
        )
        end_s = max(end_s, last_s)
        timeline.events += 2
        timeline.transfers += len(way.src)
        way.row_bytes += nbytes
        if keep_spans:
            chunk, op = (c if rows is None else c[rows] for c in (step.chunk, step.op))
            timeline.timed.append(
                Timed(
                    np.full(len(nbytes), number), way.src, way.dst, chunk, op, nbytes, start, left
                )
            )
    if way is not None:
        way.add_bytes_to(timeline.link_bytes)
    timeline.time_s = end_s
    return timeline


def _advance(
    way: _Way, entered: FloatArray, port_s: FloatArray, latency_s: float, launch_s: float
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """One step: start and departure of each row, when each rank is through, and the last of all.

    Sender and receiver wait for each other; the sender is through when the last byte has left,
    the receiver when it has arrived.
    """
    if way.is_shift:
        ready = entered + launch_s if launch_s else entered
        start = np.maximum(ready, entered[way.dst])
        left = start + port_s
        arrived = left[way.sender_to] + latency_s
        through = np.maximum(left, arrived)
        return start, left, through, float(through.max())
    start = np.maximum(entered[way.src] + launch_s, entered[way.dst])
    left = start + port_s
    through = entered.copy()
    through[way.src] = left
    through[way.dst] = np.maximum(through[way.dst], left + latency_s)
    return start, left, through, float((left + latency_s).max())
