"""The fast solver, for schedules whose messages never compete: one vector per step, or one number.

Under the ``rank`` and ``barrier`` rules a rank is in one step at a time. So where no link is on the
way of two messages that may be under way at once, a step's times follow from the last step's by
``max`` and ``+``. Where all ranks are level, messages may even share links, as long as all of them
then take equally long. Everything else raises ``SharedLink``, for the event solver to take over.

A step that delays everyone alike, as the one like it before did, will go on to: of a ring only the
first steps are calculated, until the slowest way sets everyone's pace, however uneven the ways are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simcore.schedule import IntArray, Schedule, Step, message_sizes
from simcore.solvers.bursts import departures_s
from simcore.solvers.maxmin import max_min_rates
from simcore.solvers.network import Network
from simcore.solvers.timeline import Timed, Timeline, adding_seconds
from simcore.trace import FloatArray

_LEVEL = 1e-12  # times closer than this fraction are equal: rounding, not physics
_STEADY = 1e-14  # the same where what is found is used for thousands of steps
# With few ranks a vector costs as little as finding out that one number would do.
_VECTORS_UP_TO = 2048


class SharedLink(Exception):
    """Messages may compete for a link."""


class _Way:
    """What a step's ranks and the network imply, worked out once for steps that share them."""

    def __init__(self, step: Step, network: Network) -> None:
        self.columns = (step.src, step.dst)
        self.src, self.dst = step.src, step.dst
        self.routes = network.routes(self.src, self.dst)
        on_link = np.bincount(self.routes.ravel(), minlength=len(network.capacity))
        on_link[network.free] = 0
        sends, receives = (np.bincount(ends, minlength=network.n) for ends in self.columns)
        self.one_each = max(sends.max(initial=0), receives.max(initial=0)) <= 1
        self.competes = bool(on_link.max(initial=0) > 1) or not self.one_each
        rate = (
            max_min_rates(self.routes, network.capacity)
            if self.competes
            else network.capacity[self.routes].min(axis=1)
        )
        if not (rate > 0).all():
            raise SharedLink
        self.seconds_per_byte = 1.0 / rate
        # Links beyond the ranks' own ports, which ranks in other steps may be using still.
        self.common = self.routes[:, 2:] if self.routes.shape[1] > 2 else None
        self.common_links = None if self.common is None else np.unique(self.common)
        self.row_bytes = np.zeros(len(self.src), np.int64)  # summed over the steps it served
        self.shift = self._shift(network.n) if self.one_each else None
        self.all_alike = len(set(sends.tolist())) == len(set(receives.tolist())) == 1 and _equal(
            self.seconds_per_byte
        )

    def _shift(self, n: int) -> int | None:
        """How far on everyone sends, if all send in order of ranks, as in a ring."""
        rank = np.arange(n)
        if len(self.src) != n or not (self.src == rank).all():
            return None
        shift = int(self.dst[0])
        return shift if (self.dst == (rank + shift) % n).all() else None

    def serves(self, step: Step) -> bool:
        """Whether the step has the columns that this was made for."""
        src, dst = self.columns
        if src is step.src and dst is step.dst:
            return True
        same = np.array_equal(src, step.src) and np.array_equal(dst, step.dst)
        if same:
            self.columns = (step.src, step.dst)  # the next step may well hold the same arrays
        return same

    def book(self, timeline: Timeline) -> None:
        """Add up what has gone this way."""
        for links in self.routes.T:
            np.add.at(timeline.link_bytes, links, self.row_bytes)
        np.add.at(timeline.sent_bytes, self.src, self.row_bytes)
        np.add.at(timeline.received_bytes, self.dst, self.row_bytes)


def _equal(values: FloatArray) -> bool:
    return bool(values.max() - values.min() <= _LEVEL * values.max())


def _rolled(values: FloatArray, shift: int, out: FloatArray) -> FloatArray:
    """``out[r] = values[(r + shift) % n]``, without the cost of an index array."""
    shift %= len(values)
    out[: len(values) - shift] = values[shift:]
    out[len(values) - shift :] = values[:shift]
    return out


class _Run:
    """The state between two steps: when each rank enters the next one.

    A rank enters when it is through with the last one, so the latest entry is also when the last
    byte so far had left.
    """

    def __init__(
        self, network: Network, starts_s: FloatArray, barrier: bool, launch_s: float
    ) -> None:
        self.network, self.barrier, self.launch_s = network, barrier, launch_s
        self.reduce_s = network.cluster.reduce_s_per_byte
        self.entered = starts_s.astype(np.float64)
        self.free_at = np.zeros(len(network.capacity))
        bursts = bool(network.cluster.burst_bytes)
        self.spent_s = np.full(len(network.capacity), -np.inf) if bursts else None
        self.scratch = np.zeros(network.n)
        # If all ranks enter at one time, that time: then `entered` is not kept up.
        may_be_level = network.n > _VECTORS_UP_TO and _equal(self.entered) and not bursts
        self.level_s = float(self.entered[0]) if may_be_level else None
        self.last: tuple[_Way, _Weights] | None = None
        self.alike = 0  # steps in a row that were alike and delayed everyone by `pace_s`
        self.pace_s = 0.0

    def repeats(self, way: _Way, of: _Weights) -> bool:
        """Take a step that only shifts all times; False where it is not known to."""
        if self.alike < 2 or self.last != (way, of):
            return False
        self.entered = self.entered + self.pace_s
        if way.common is not None:
            self.free_at[way.common_links] += self.pace_s
        return True

    def _compare(self, way: _Way, of: _Weights, before: FloatArray) -> None:
        """Whether the step was like the last one, and delayed everyone alike."""
        if self.spent_s is not None or self.last != (way, of):
            self.last, self.alike = (way, of), 0
            return
        gained_s = self.entered - before
        self.pace_s = float(gained_s.max())
        steady = self.pace_s - gained_s.min() <= _STEADY * self.entered.max()
        self.alike = self.alike + 1 if steady else 0

    @property
    def end_s(self) -> float:
        """When the last rank is through."""
        return float(self.ends_s.max())

    @property
    def ends_s(self) -> FloatArray:
        """When each rank is through."""
        return self.entered if self.level_s is None else np.full(self.network.n, self.level_s)

    def advance(self, way: _Way, of: _Weights) -> tuple[FloatArray, FloatArray]:
        """One step: start and departure of each message."""
        if self.level_s is not None:
            simple = way.one_each or not self.launch_s + self.reduce_s
            if way.all_alike and simple and of.one_latency and _equal(of.port_s):
                return self._advance_level(way, of)
            self.entered = np.full(self.network.n, self.level_s)
            self.level_s = None
        before = self.entered
        if self.barrier:
            self.entered = np.full(self.network.n, self.entered.max())
        if way.shift is not None and not way.competes:
            start = np.maximum(
                self.entered + self.launch_s if self.launch_s else self.entered,
                _rolled(self.entered, way.shift, self.scratch),
            )
        else:
            start = np.maximum(self.entered[way.src] + self.launch_s, self.entered[way.dst])
        if way.competes:
            self._check_level(way, start, of.port_s)
        left = start + of.port_s if self.spent_s is None else self._after_burst(way, start, of)
        if way.common is not None:
            self._check_common(way.common, start, left)
        self._let_through(way, left, of)
        self._compare(way, of, before)
        return start, left

    def _advance_level(self, way: _Way, of: _Weights) -> tuple[FloatArray, FloatArray]:
        assert self.level_s is not None
        start_s = self.level_s + self.launch_s
        left_s = start_s + float(of.port_s[0])
        self.level_s = left_s + float(of.latency_s[0]) + float(of.adds_s[0])
        return np.broadcast_to(start_s, len(way.src)), np.broadcast_to(left_s, len(way.src))

    def _after_burst(self, way: _Way, start: FloatArray, of: _Weights) -> FloatArray:
        if way.competes:
            raise SharedLink
        assert self.spent_s is not None
        capacity = self.network.capacity[way.routes]
        spent_s = self.spent_s[way.routes]
        full_s = self.network.burst[way.routes] / capacity
        left = departures_s(spent_s, start, of.nbytes[:, None] / capacity, full_s)
        self.spent_s[way.routes] = spent_s
        self.spent_s[self.network.free] = -np.inf
        return left

    def _check_level(self, way: _Way, start: FloatArray, port_s: FloatArray) -> None:
        """Messages that share links start together, end together, and meet no earlier ones."""
        alone = self.entered.max() <= start.min() * (1 + _LEVEL)
        simple = way.one_each or not self.launch_s + self.reduce_s
        if not (alone and simple and _equal(start) and _equal(port_s)):
            raise SharedLink

    def _check_common(self, links: IntArray, start: FloatArray, left: FloatArray) -> None:
        self.free_at[self.network.free] = 0.0
        if (self.free_at[links] > start[:, None] * (1 + _LEVEL)).any():
            raise SharedLink
        self.free_at[links] = left[:, None]

    def _let_through(self, way: _Way, left: FloatArray, of: _Weights) -> None:
        """A sender is through when the last byte has left, a receiver when it has it added."""
        done = left + of.latency_s
        if self.reduce_s:
            done += of.adds_s
        if way.shift is not None:
            self.entered = np.maximum(left, _rolled(done, -way.shift, self.scratch))
            return
        entered = self.entered.copy()
        np.maximum.at(entered, way.src, left)
        np.maximum.at(entered, way.dst, done)
        self.entered = entered


def solve(
    schedule: Schedule,
    network: Network,
    byte_bounds: IntArray,
    starts_s: FloatArray,
    *,
    barrier: bool = False,
    launch_per_message_s: float = 0.0,
    keep_spans: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Timeline:
    """The timeline of ``schedule`` when rank ``r`` may start at ``starts_s[r]``."""
    if network.changes:
        raise SharedLink
    sizes = _Sizes(byte_bounds, network)
    timeline = Timeline.empty(network)
    run = _Run(network, starts_s, barrier, launch_per_message_s)
    way: _Way | None = None
    for number, step in enumerate(schedule.steps()):
        if progress:
            progress(number / schedule.n_steps)
        if not sizes.no_empty:
            step = step.take(np.flatnonzero(message_sizes(step, byte_bounds)))  # noqa: PLW2901
        if not len(step):
            continue
        if way is None or not way.serves(step):
            if way is not None:
                way.book(timeline)
            way = _Way(step, network)
        of = sizes.of(step, way)
        timeline.events += 2
        timeline.transfers += len(step)
        way.row_bytes += of.nbytes
        if not keep_spans and run.repeats(way, of):
            continue
        start, left = run.advance(way, of)
        if keep_spans:
            rows = np.full(len(step), number), step.src, step.dst, step.chunk, step.op, step.width
            times = (of.latency_s, of.adds_s, start, left, left + of.latency_s)
            timeline.timed.append(Timed(*rows, of.nbytes, *times))
    if way is not None:
        way.book(timeline)
    timeline.time_s = run.end_s
    timeline.rank_end_s = run.ends_s
    return timeline


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """Bytes of each message of a step, its time on the ports, its latency, the time to add it."""

    nbytes: IntArray
    port_s: FloatArray
    latency_s: FloatArray
    adds_s: FloatArray
    one_latency: bool


class _Sizes:
    """What the messages of a step weigh; worked out once where steps weigh the same."""

    def __init__(self, byte_bounds: IntArray, network: Network) -> None:
        self.bounds, self.network = byte_bounds, network
        self.reduce_s = network.cluster.reduce_s_per_byte
        self.by_size = bool(network.cluster.latency_by_size)
        self.chunks = np.diff(byte_bounds)
        self.no_empty = bool(self.chunks.all())
        self.even = bool((self.chunks == self.chunks[0]).all())
        self.last: tuple[_Way, Step] | None = None
        self.found: _Weights
        self.ones: IntArray | None = None  # a width column that is known to be all ones

    def of(self, step: Step, way: _Way) -> _Weights:
        """Of the step's messages, which go this way."""
        if self.even and self.last and self.last[0] is way:
            before = self.last[1]
            if before.width is step.width and before.op is step.op:
                return self.found
        if step.width is not self.ones and (step.width == 1).all():
            self.ones = step.width
        single = step.width is self.ones
        nbytes = self.chunks[step.chunk] if single else message_sizes(step, self.bounds)
        same_way = self.last is not None and self.last[0] is way
        if same_way and not self.reduce_s:
            adds_s = self.found.adds_s
        else:
            adds_s = adding_seconds(step.op, nbytes, self.reduce_s)
        if same_way and not self.by_size:
            latency_s, one_latency = self.found.latency_s, self.found.one_latency
        else:
            latency_s = self.network.latencies_s(way.src, way.dst, nbytes)
            one_latency = bool((latency_s == latency_s[0]).all())
        port_s = nbytes * way.seconds_per_byte
        self.found = _Weights(nbytes, port_s, latency_s, adds_s, one_latency)
        self.last = way, step
        return self.found
