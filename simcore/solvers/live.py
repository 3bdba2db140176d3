"""Steps in flight, as the event solver has them. When they start is decided in ``rules``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from simcore.schedule import IntArray, Step, message_sizes
from simcore.solvers.network import Network
from simcore.solvers.slots import Messages, Rows, cells, few_or_many
from simcore.solvers.timeline import adding_seconds


class Ends:
    """Who sends to whom in a step, and what follows from it: the same for steps of equal ends."""

    def __init__(self, src: IntArray, dst: IntArray, network: Network) -> None:
        self.src, self.dst = src, dst
        self.routes = network.routes(src, dst)
        # Without bytes, None: where latencies depend on them.
        nothing = np.zeros(len(src), np.int64)
        self.latency_s = (
            None if network.cluster.latency_by_size else network.latencies_s(src, dst, nothing)
        )
        takes_part = np.zeros(network.n, bool)
        takes_part[src] = takes_part[dst] = True
        self.ranks = np.flatnonzero(takes_part)

    def serve(self, step: Step) -> bool:
        """Whether the step's messages go between the same ranks."""
        return all(
            made is now or np.array_equal(made, now)
            for made, now in ((self.src, step.src), (self.dst, step.dst))
        )

    def rows_with(self, ranks: Rows, n: int) -> tuple[Rows, Rows]:
        """The rows that these ranks receive and those that they send, in order."""
        if isinstance(ranks, list):
            return _joined(self.sent_to, ranks), _joined(self.sent_by, ranks)
        which = np.zeros(n, bool)
        which[ranks] = True
        received, sent = which[self.dst], which[self.src]
        return few_or_many(np.flatnonzero(received)), few_or_many(np.flatnonzero(sent))

    @cached_property
    def sent_by(self) -> dict[int, IntArray]:
        """The rows that each rank sends."""
        return _rows_of(self.src)

    @cached_property
    def sent_to(self) -> dict[int, IntArray]:
        """The rows that each rank receives."""
        return _rows_of(self.dst)


def _rows_of(ends: IntArray) -> dict[int, IntArray]:
    order = np.argsort(ends, kind="stable")
    ranks, first = np.unique(ends[order], return_index=True)
    return dict(zip(ranks.tolist(), np.split(order, first[1:]), strict=True))


def _joined(rows_of: dict[int, IntArray], ranks: list[int]) -> Rows:
    rows = [row for rank in ranks if rank in rows_of for row in rows_of[rank].tolist()]
    return few_or_many(sorted(rows) if len(ranks) > 1 else rows)


class LiveStep(Messages):
    """One step in flight: its messages, and for how many of its two ends each still waits."""

    def __init__(
        self, number: int, step: Step, nbytes: IntArray, ends: Ends, network: Network
    ) -> None:
        zeros = [np.zeros(len(step)) for _ in range(3)]
        latency_s = ends.latency_s
        if latency_s is None:
            latency_s = network.latencies_s(ends.src, ends.dst, nbytes)
        super().__init__(
            step=np.full(len(step), number),
            src=ends.src,
            dst=ends.dst,
            chunk=step.chunk,
            op=step.op,
            width=step.width,
            nbytes=nbytes,
            latency_s=latency_s,
            adds_s=adding_seconds(step.op, nbytes, network.cluster.reduce_s_per_byte),
            start_s=zeros[0],
            left_s=zeros[1],
            adding_s=zeros[2],
        )
        self.number, self.routes, self.ends = number, ends.routes, ends
        self.waiting = np.full(len(step), 2)
        self.waiting_at = cells(self.waiting)


def live_steps(
    steps: Iterable[Step], byte_bounds: IntArray, network: Network, first: int = 0
) -> Iterator[LiveStep]:
    """The steps of a schedule, each made when it is asked for, without what is empty."""
    ends: Ends | None = None
    for number, step in enumerate(steps, start=first):
        nbytes = message_sizes(step, byte_bounds)
        if not nbytes.all():  # empty chunks are not sent
            step, nbytes = step.take(np.flatnonzero(nbytes)), nbytes[nbytes > 0]  # noqa: PLW2901
        if ends is None or not ends.serve(step):
            ends = Ends(step.src, step.dst, network)
        yield LiveStep(number, step, nbytes, ends, network)
