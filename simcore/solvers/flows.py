"""Messages on the wire: who shares a link with whom, at what rate, and when each one ends.

Only flows that are connected through links can change each other's rates. Where a few start or
end, these groups are followed link by link, with the next end of each on a heap; where many do,
all rates are worked out together as vectors, and the ends are queued. Which of the two it is makes
no difference but to the time it takes. Nothing here knows when a message may start.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from simcore.schedule import IntArray
from simcore.solvers.bursts import Bursts
from simcore.solvers.maxmin import few_max_min_rates, max_min_rates
from simcore.solvers.network import Network
from simcore.solvers.slots import FEW, Messages, Rows, Slots, cells, few_or_many
from simcore.trace import FloatArray

# Instants closer than this fraction of the time are one: rounding, not physics.
SAME_INSTANT = 1e-12
# A flow whose rate changes by less has not changed its rate.
_SAME_RATE = 1e-12


class Flows(Slots):
    """The messages on the wire, their rates and their ends.

    Flows that started a few at a time, or had a neighbour that did, know their ``_way``, and the
    links on it know them. Of every group of those that is connected through links the next end is
    on the heap. When the rates of all were worked out last, all were queued in order of their
    ends. An entry of heap or queue is void when it is not the slot's ``finish_s``.
    """

    def __init__(self, network: Network, keep_pieces: bool) -> None:
        super().__init__()
        self.keep_pieces, self.free = keep_pieces, network.free
        self.capacity = network.capacity.copy()
        self._capacity = cells(self.capacity)
        self.under_way: dict[int, Messages] = {}  # by their numbers
        no_rows = np.zeros(0, np.int64)
        self._hops = network.routes(no_rows, no_rows).shape[1]
        self._way: dict[int, list[int]] = {}
        self._on_link: list[set[int]] = [set() for _ in self.capacity]
        self._heap: list[tuple[float, int]] = []
        self._queue, self._queue_s, self._queued = no_rows, np.zeros(0), 0
        # What happened at this instant: rates are worked out anew when all of it has.
        self._new: list[int] = []
        self._touched: set[int] = set()
        self._many = False
        self._bursts = Bursts(network) if network.cluster.burst_bytes else None
        self._changed: dict[int, float] = {}  # links' own rates, besides their bursts

    # -- what happens --------------------------------------------------------------------------

    def start(self, messages: Messages, rows: Rows, now_s: float) -> None:
        """These are on the wire from now; ``share`` gives them their rates."""
        slots = self.fill(messages, rows, now_s)
        if isinstance(rows, list):
            for slot, row in zip(slots.tolist(), rows, strict=True):
                self._link_up(slot, messages.routes[row].tolist())
                self._new.append(slot)
        else:
            self._many = True

    def set_capacity(self, link: int, bytes_per_s: float) -> None:
        """From now on; ``share`` follows it."""
        if self._bursts is None:
            self.capacity[link] = bytes_per_s
        else:
            self._changed[link] = bytes_per_s
        self._touched.add(link)

    def next_s(self) -> float:
        """When the next one ends at its present rate, or a burst does; infinite if none does."""
        next_s = self._next_end_s()
        return next_s if self._bursts is None else min(next_s, self._bursts.empty_s)

    def _next_end_s(self) -> float:
        heap, finish_s = self._heap, self.finish_s_at
        while heap and finish_s[heap[0][1]] != heap[0][0]:
            heapq.heappop(heap)
        first_s = heap[0][0] if heap else math.inf
        while self._queued < len(self._queue):
            queued_s = self._queue_s.item(self._queued)
            if finish_s[self._queue.item(self._queued)] == queued_s:
                return min(first_s, queued_s)
            self._queued += 1
        return first_s

    def end(self, now_s: float) -> list[tuple[Messages, Rows]]:
        """Take those that end now off the wire, first come, first gone."""
        soon_s = now_s * (1 + SAME_INSTANT)
        done: list[int] = []
        while self._heap and self._heap[0][0] <= soon_s:
            finish_s, slot = heapq.heappop(self._heap)
            if self.finish_s_at[slot] == finish_s:
                self.finish_s_at[slot] = math.nan
                done.append(slot)
        queued = self._take_queued(soon_s)
        if isinstance(queued, list):
            return self._end_few(done + queued, now_s)
        return self._end_many(np.append(np.array(done, np.int64), queued), now_s)

    def _take_queued(self, soon_s: float) -> Rows:
        """The slots in the queue that end until then."""
        first, queue, queue_s = self._queued, self._queue, self._queue_s
        if first + FEW < len(queue) and queue_s[first + FEW] <= soon_s:
            self._queued = int(queue_s.searchsorted(soon_s, "right"))
            slots: IntArray = queue[first : self._queued]
            slots = slots[self.finish_s[slots] == queue_s[first : self._queued]]
            self.finish_s[slots] = math.nan
            return slots
        done: list[int] = []
        while self._queued < len(queue) and queue_s.item(self._queued) <= soon_s:
            slot = queue.item(self._queued)
            if self.finish_s_at[slot] == queue_s.item(self._queued):
                self.finish_s_at[slot] = math.nan
                done.append(slot)
            self._queued += 1
        return done

    def share(self, now_s: float) -> None:
        """Give all flows their rates, if anything has happened that may change them."""
        if self._bursts is not None:
            self._touched |= self._bursts.progress(now_s, self._changed, self.capacity)
            self._changed.clear()
        if self._many or self._new or self._touched:
            if self._many or not self._share_few(now_s):
                self._share_all(now_s)
            self._new.clear()
            self._touched.clear()
            self._many = False
        if self._bursts is not None:
            self._bursts.carry(self._used())

    def oldest(self) -> tuple[Messages, int]:
        """Whichever has been on the wire for longest."""
        slots = self.active_slots()
        slot = slots[self.born[slots].argmin()]
        return self.under_way[self.of_at[slot]], self.row_at[slot]

    # -- ways ----------------------------------------------------------------------------------

    def _routes(self, slots: IntArray) -> IntArray:
        of, row = self.of[slots], self.row[slots]
        routes = np.zeros((len(slots), self._hops), np.int64)
        for number in np.unique(of).tolist():
            routes[of == number] = self.under_way[number].routes[row[of == number]]
        return routes

    def _used(self) -> FloatArray:
        """Bytes per second that each link carries now."""
        used, slots = np.zeros(len(self.capacity)), self.active_slots()
        np.add.at(used, self._routes(slots), self.rate[slots][:, None])
        return used

    def _link_up(self, slot: int, route: list[int]) -> None:
        self._way[slot] = way = [link for link in route if link != self.free]
        for link in way:
            self._on_link[link].add(slot)

    # -- ends ----------------------------------------------------------------------------------

    def _end_few(self, done: list[int], now_s: float) -> list[tuple[Messages, Rows]]:
        if len(done) > 1:
            done.sort(key=self.born_at.__getitem__)
        gone: dict[int, list[int]] = {}
        for slot in done:
            number, row = self.of_at[slot], self.row_at[slot]
            if self.keep_pieces:
                self._keep_last_piece(self.under_way[number], row, slot, now_s)
            gone.setdefault(number, []).append(row)
            self._unlink(slot)
            self.give_back([slot])
        return [(self.under_way[number], rows) for number, rows in gone.items()]

    def _unlink(self, slot: int) -> None:
        """Off its links, whose other flows, if there are any, may get more from now."""
        way = self._way.pop(slot, None) or self._routes(np.array([slot]))[0].tolist()
        for link in way:
            others = self._on_link[link]
            others.discard(slot)
            if others or len(self._way) + 1 < self.active:
                self._touched.add(link)

    def _end_many(self, done: IntArray, now_s: float) -> list[tuple[Messages, Rows]]:
        done = done[np.argsort(self.born[done], kind="stable")]
        of, row = self.of[done], self.row[done]
        if self.keep_pieces:
            for number, r, slot in zip(of.tolist(), row.tolist(), done.tolist(), strict=True):
                self._keep_last_piece(self.under_way[number], r, slot, now_s)
        for slot in done.tolist() if self._way else ():
            for link in self._way.pop(slot, ()):
                self._on_link[link].discard(slot)
        self.give_back(done)
        self._many = self.active > 0
        numbers = np.unique(of).tolist()
        return [(self.under_way[number], few_or_many(row[of == number])) for number in numbers]

    def _keep_last_piece(self, messages: Messages, row: int, slot: int, now_s: float) -> None:
        """The last piece of those whose rate has changed; the others are of one piece."""
        since_s = self.since_s_at[slot]
        if since_s > messages.start_s[row]:
            messages.pieces.append((row, since_s, now_s, self.left_bytes_at[slot]))

    # -- rates ---------------------------------------------------------------------------------

    def _share_few(self, now_s: float) -> bool:
        """Follow what has changed from link to link; False if that leads to too many flows."""
        if len(self._way) < self.active:
            slots = self.active_slots()
            for slot, route in zip(slots.tolist(), self._routes(slots).tolist(), strict=True):
                if slot not in self._way:
                    self._link_up(slot, route)
        seen: set[int] = set()
        for link in self._touched:
            self._new += list(self._on_link[link])[:1]
        for slot in self._new:
            if slot not in seen:
                group = self._connected(slot)
                if len(group) > FEW:
                    return False
                seen.update(group)
                self._share_among(group, now_s)
        if len(self._heap) > 1000 + 4 * self.active:
            self._heap = [entry for entry in self._heap if self.finish_s_at[entry[1]] == entry[0]]
            heapq.heapify(self._heap)
        return True

    def _connected(self, slot: int) -> list[int]:
        """It and the flows that it shares links with, and those that they do, and so on."""
        group, reached, links = [slot], {slot}, set()
        for flow in group:
            for link in self._way[flow]:
                if link not in links:
                    links.add(link)
                    others = self._on_link[link]
                    if len(others) > 1:
                        group += others - reached
                        reached |= others
            if len(group) > FEW:
                break
        return group

    def _share_among(self, group: list[int], now_s: float) -> None:
        rates = few_max_min_rates([self._way[slot] for slot in group], self._capacity)
        ends = [
            (self._set_rate(slot, rate, now_s), slot)
            for slot, rate in zip(group, rates, strict=True)
        ]
        soon_s = min(ends)[0] * (1 + SAME_INSTANT)
        for end in ends:
            if end[0] <= soon_s < math.inf:
                heapq.heappush(self._heap, end)

    def _set_rate(self, slot: int, rate: float, now_s: float) -> float:
        """The time at which it ends with this rate from now on."""
        before = self.rate_at[slot]
        if abs(rate - before) <= _SAME_RATE * before:
            return float(self.finish_s_at[slot])
        left_bytes, since_s = self.left_bytes_at[slot], self.since_s_at[slot]
        if now_s > since_s:
            moved = before * (now_s - since_s)
            if self.keep_pieces:
                self._keep_piece(slot, now_s, moved)
            left_bytes = max(left_bytes - moved, 0.0)
            self.left_bytes_at[slot] = left_bytes
            self.since_s_at[slot] = now_s
        self.rate_at[slot] = rate
        finish_s = now_s + left_bytes / rate if rate else math.inf
        self.finish_s_at[slot] = finish_s
        return finish_s

    def _keep_piece(self, slot: int, now_s: float, moved: float) -> None:
        piece = (self.row_at[slot], self.since_s_at[slot], now_s, moved)
        self.under_way[self.of_at[slot]].pieces.append(piece)

    def _share_all(self, now_s: float) -> None:
        active = slots = self.active_slots()
        rate = max_min_rates(self._routes(slots), self.capacity)
        before = self.rate[slots]
        changed = np.abs(rate - before) > _SAME_RATE * before
        slots, rate, before = slots[changed], rate[changed], before[changed]
        moved = before * (now_s - self.since_s[slots])
        if self.keep_pieces:
            for i in np.flatnonzero(self.since_s[slots] < now_s).tolist():
                self._keep_piece(slots.item(i), now_s, moved.item(i))
        left_bytes = np.maximum(self.left_bytes[slots] - moved, 0.0)
        self.left_bytes[slots] = left_bytes
        self.since_s[slots] = now_s
        self.rate[slots] = rate
        with np.errstate(divide="ignore"):
            self.finish_s[slots] = np.where(rate > 0, now_s + left_bytes / rate, math.inf)
        finish_s = self.finish_s[active]
        order = np.argsort(finish_s, kind="stable")
        self._queue, self._queue_s, self._queued = active[order], finish_s[order], 0
