"""The general solver: discrete events over links that are shared max-min fairly.

What happens at one instant happens together: a few rows as a list, many as vectors. Which flows
share a link, and when each ends, is followed in ``flows``; when a message may start is decided in
``rules``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from simcore.solvers.flows import SAME_INSTANT, Flows
from simcore.solvers.network import Network
from simcore.solvers.slots import Messages, Rows, few_or_many
from simcore.solvers.timeline import Timeline

Then = Callable[[Any, Rows], None]


class SimulationError(RuntimeError):
    """A run that cannot end, such as one over a link that is cut for good."""


class Rule(Protocol):
    """Decides when messages may start; told when their last byte has left and has arrived."""

    def done(self) -> float:
        """The part of the run that is behind, from 0 to 1."""

    def begin(self, clock: Clock) -> None:
        """Put the first events on the clock."""

    def sent(self, messages: Any, rows: Rows) -> None:
        """The last byte of these rows has left."""

    def arrived(self, messages: Any, rows: Rows, was_last: bool) -> None:
        """The last byte of these rows has arrived; ``was_last``: of all rows of ``messages``."""


class Clock:
    """The state of a run between two instants: events to come, and flows on the wire."""

    def __init__(
        self, network: Network, launch_per_message_s: float = 0.0, keep_spans: bool = False
    ) -> None:
        self.network, self.launch_s, self.keep_spans = network, launch_per_message_s, keep_spans
        self.now = 0.0
        self.timeline = Timeline.empty(network)
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._pushed = 0
        self._adder_free_s = np.zeros(network.n)  # when each rank has added all that has come
        self._issue_free_s = np.zeros(network.n)  # when each rank has issued its last message
        self._flows = Flows(network, keep_spans)

    def run(self, rule: Rule, progress: Callable[[float], None] | None = None) -> Timeline:
        """From instant to instant until nothing is left to happen."""
        self._rule = rule
        for time_s, link, capacity in self.network.changes:
            self.at(time_s, self._flows.set_capacity, link, capacity)
        rule.begin(self)
        while self._heap or self._flows.active:
            if progress:
                progress(rule.done())
            first_s = self._flows.next_s()
            next_s = min(first_s, self._heap[0][0]) if self._heap else first_s
            if math.isinf(next_s):
                raise SimulationError(self._why_stuck())
            self.now = next_s
            self._one_instant(first_s)
        return self.timeline

    def at(self, time_s: float, what: Callable[..., None], *arguments: Any) -> None:
        """Do ``what`` at ``time_s``; simultaneous events happen in the order of their making."""
        self._pushed += 1
        heapq.heappush(self._heap, (time_s, self._pushed, what, arguments))

    def made(self, messages: Messages) -> None:
        """Count the work and the bytes of new messages."""
        messages.not_arrived = len(messages.src)
        self._flows.under_way[messages.number] = messages
        timeline = self.timeline
        timeline.transfers += len(messages.src)
        if len(messages.src) == 1:  # NumPy's calls take longer than the sums
            nbytes = messages.nbytes.item()
            for link in messages.routes[0].tolist():
                timeline.link_bytes[link] += nbytes
            timeline.sent_bytes[messages.src.item()] += nbytes
            timeline.received_bytes[messages.dst.item()] += nbytes
            return
        for links in messages.routes.T:
            np.add.at(timeline.link_bytes, links, messages.nbytes)
        np.add.at(timeline.sent_bytes, messages.src, messages.nbytes)
        np.add.at(timeline.received_bytes, messages.dst, messages.nbytes)

    def when_issued(self, messages: Messages, rows: Rows, then: Then) -> None:
        """Call ``then`` when the senders have issued these rows, one after another per rank."""
        if not self.launch_s:
            then(messages, rows)
        elif isinstance(rows, list):
            self._issue_few(messages, rows, then)
        else:
            self._issue_many(messages, rows, then)

    def _issue_few(self, messages: Messages, rows: list[int], then: Then) -> None:
        issued: dict[float, list[int]] = {}
        for row in sorted(rows, key=messages.src.item):
            rank = messages.src.item(row)
            issued_s = max(self._issue_free_s.item(rank), self.now) + self.launch_s
            self._issue_free_s[rank] = issued_s
            issued.setdefault(issued_s, []).append(row)
        for time_s in sorted(issued):
            self.at(time_s, then, messages, issued[time_s])

    def _issue_many(self, messages: Messages, rows: Any, then: Then) -> None:
        order = np.argsort(messages.src[rows], kind="stable")
        src = messages.src[rows][order]
        ranks, first, count = np.unique(src, return_index=True, return_counts=True)
        begin_s = np.maximum(self._issue_free_s[ranks], self.now)
        self._issue_free_s[ranks] = begin_s + count * self.launch_s
        place = np.arange(len(src)) - np.repeat(first, count)
        issued_s = np.repeat(begin_s, count) + (place + 1) * self.launch_s
        for time_s in np.unique(issued_s):
            issued = few_or_many(rows[order][issued_s == time_s])
            self.at(float(time_s), then, messages, issued)

    def start(self, messages: Messages, rows: Rows) -> None:
        """These messages are on the wire from now."""
        if isinstance(rows, list):
            for row in rows:
                messages.start_s[row] = self.now
        else:
            messages.start_s[rows] = self.now
        if len(rows):
            self._flows.start(messages, rows, self.now)

    def _one_instant(self, first_s: float) -> None:
        soon_s = self.now * (1 + SAME_INSTANT)
        if first_s <= soon_s:
            self.timeline.events += 1
            for messages, rows in self._flows.end(self.now):
                self._have_left(messages, rows)
        heap = self._heap
        while heap and heap[0][0] <= soon_s:
            _, _, what, arguments = heapq.heappop(heap)
            what(*arguments)
            self.timeline.events += 1
        self._flows.share(self.now)

    def _have_left(self, messages: Messages, rows: Rows) -> None:
        if isinstance(rows, list):
            arriving: dict[float, list[int]] = {}
            for row in rows:
                messages.left_s[row] = self.now
                arriving.setdefault(messages.latency_s.item(row), []).append(row)
            for later_s in sorted(arriving):
                self.at(self.now + later_s, self._arrive, messages, arriving[later_s])
        else:
            messages.left_s[rows] = self.now
            latency_s = messages.latency_s[rows]
            for later_s in np.unique(latency_s).tolist():
                arrive = few_or_many(rows[latency_s == later_s])
                self.at(self.now + later_s, self._arrive, messages, arrive)
        self._rule.sent(messages, rows)

    def _arrive(self, messages: Messages, rows: Rows) -> None:
        """Arrived; what has to be added waits for its rank to have added what came before."""
        if not self.network.cluster.reduce_s_per_byte:
            self._there(messages, rows)
            return
        adds_s = messages.adds_s[rows]
        self._there(messages, few_or_many(np.asarray(rows)[adds_s == 0]))
        for row in np.asarray(rows)[adds_s > 0].tolist():
            rank = messages.dst[row]
            begin_s = max(self.now, self._adder_free_s.item(rank))
            end_s = begin_s + messages.adds_s.item(row)
            self._adder_free_s[rank] = end_s
            messages.adding_s[row] = begin_s
            self.at(end_s, self._there, messages, [row])

    def _there(self, messages: Messages, rows: Rows) -> None:
        if not len(rows):
            return
        self.timeline.time_s = self.now
        messages.not_arrived -= len(rows)
        was_last = not messages.not_arrived
        if was_last:
            del self._flows.under_way[messages.number]
            if self.keep_spans:
                self.timeline.timed.append(messages)
        self._rule.arrived(messages, rows, was_last)

    def _why_stuck(self) -> str:
        messages, row = self._flows.oldest()
        return (
            f"the run never ends: at {self.now:g} s step {messages.step[row]} waits for "
            f"{messages.src[row]}->{messages.dst[row]}, a link that is cut and does not come back"
        )
