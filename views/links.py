"""The links that a lane's messages pass, and which of them hold somebody up at a moment.

A message goes as fast as the fullest link on its way lets it, its *bottleneck*: full, and nobody
there gets more. Where all links on the way are that, as in an undisturbed ring, nobody waits for
one of them. Where others could carry more, the full one is *hot*, if several messages share it or
it is narrower than most ports. ``player_links.js`` has the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcore.cluster import Cluster
from simcore.schedule import IntArray
from simcore.solvers.network import Network, Slowdown
from simcore.trace import FloatArray
from views.detail import packed

FULL = 0.999  # a link is full from here on: rates are sums of floats
ENDLESS = -1.0  # how the payload writes a capacity that JSON has no number for


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """At one moment: capacity and load of every link, and the hot ones.

    ``own`` is each transfer's load of the link between its two ends: the narrowest of both ports
    and of what was changed between them. A ``hot`` link without capacity is cut.
    """

    capacity: FloatArray
    load: FloatArray
    own: FloatArray
    hot: frozenset[int]


class Links:
    """The network of a lane, and the way of each of its transfers, from ``src`` to ``dst``."""

    def __init__(
        self, cluster: Cluster, slowdowns: Sequence[Slowdown], src: IntArray, dst: IntArray
    ) -> None:
        self.network = network = Network(cluster, slowdowns)
        self.n, self.half_duplex = cluster.n, cluster.half_duplex
        self.ports = network.free  # so many links are ports that no level brings
        self.usual = float(np.median(np.concatenate(cluster.payload_bytes_per_s)))
        self.pairs = {
            number: (int(src), int(dst))
            for number, name in enumerate(network.names)
            if "->" in name
            for src, dst in [name.replace("gpu", "").split("->")]
        }
        key = src * cluster.n + dst
        each, self.pair_of = np.unique(key, return_inverse=True)
        self.pair_ways = network.routes(each // cluster.n, each % cluster.n)
        self.ways = self.pair_ways[self.pair_of]
        self.own_columns = [0, 1, self.ways.shape[1] - 1] if self.pairs else [0, 1]

    @property
    def is_plain(self) -> bool:
        """Nothing but ports, and they stay as they are."""
        return not (
            self.network.changes or self.half_duplex or len(self.network.names) > self.ports + 1
        )

    def capacity_at(self, t_s: float) -> FloatArray:
        """Payload bytes per second of every link."""
        capacity = self.network.capacity.copy()
        for at_s, link, bytes_per_s in self.network.changes:
            if at_s <= t_s:
                capacity[link] = bytes_per_s
        return capacity

    def at(self, t_s: float, rows: IntArray, out: FloatArray, into: FloatArray) -> Loads:
        """With the transfers ``rows`` under way, at these rates out of a port and into one.

        >>> from simcore.cluster import uniform
        >>> links = Links(uniform(3, 1.0), (), np.array([1, 2]), np.array([0, 0]))
        >>> halves = np.array([0.5, 0.5])
        >>> loads = links.at(0.0, np.arange(2), halves, halves)
        >>> loads.load[:6].tolist(), [links.network.names[link] for link in loads.hot]
        ([0.0, 0.5, 0.5, 1.0, 0.0, 0.0], ['gpu0.rx'])
        """
        capacity, ways = self.capacity_at(t_s), self.ways[rows]
        rates = np.repeat(out[:, None], ways.shape[1], axis=1)
        rates[:, 1] = into
        carried = np.bincount(ways.ravel(), rates.ravel(), len(capacity))
        load = np.divide(carried, capacity, out=np.zeros(len(capacity)), where=capacity > 0)
        narrowest = capacity[ways[:, self.own_columns]].min(axis=1)
        own = np.divide(out, narrowest, out=np.zeros(len(rows)), where=narrowest > 0)
        return Loads(capacity, load, own, self._hot(capacity, load, ways, rates))

    def _hot(
        self, capacity: FloatArray, load: FloatArray, ways: IntArray, rates: FloatArray
    ) -> frozenset[int]:
        most = np.zeros(len(capacity))
        np.maximum.at(most, ways, rates)
        full = (load >= FULL) | (capacity == 0)
        moves = (rates > 0) | (capacity[ways] == 0)
        holds = moves & full[ways] & (rates >= FULL * most[ways])
        waits = (~holds & np.isfinite(capacity[ways])).any(axis=1)
        users = np.bincount(ways[moves], minlength=len(capacity))
        narrow = capacity < FULL * self.usual
        found = np.unique(ways[holds & waits[:, None]])
        hot = found[(users[found] > 1) | narrow[found]]
        sides = (hot < self.n, (hot >= self.n) & (hot < self.ports))
        for side in sides:
            if 2 * side.sum() > self.n:  # most ports of a side: none of them is special
                hot = np.where(side, -1, hot)
        return frozenset(hot[hot >= 0].tolist())

    def columns(self) -> dict[str, Any] | None:
        """For the player: what ports alone do not say, or None."""
        if self.is_plain:
            return None
        network = self.network
        changes = [[at_s, link, _finite(rate)] for at_s, link, rate in network.changes]
        capacity = np.where(np.isinf(network.capacity), ENDLESS, network.capacity)
        return {
            "half_duplex": self.half_duplex,
            "usual": self.usual,
            "capacity": packed(capacity),
            "changes": changes,
            "names": network.names[self.ports + 1 :],
            "pairs": [[link, *ends] for link, ends in self.pairs.items()],
            "ways": [packed(column) for column in self.pair_ways.T],
        }


def _finite(bytes_per_s: float) -> float:
    return bytes_per_s if np.isfinite(bytes_per_s) else ENDLESS
