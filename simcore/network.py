"""A cluster as the solvers see it: numbered links with capacities, and the way between two ranks.

Capacities are payload bytes per second, so that protocol overhead is accounted for once, here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simcore.cluster import Cluster
from simcore.schedule import IntArray
from simcore.trace import FloatArray


@dataclass(frozen=True, slots=True)
class SlowLink:
    """The pair's rate is capped at ``factor`` of its ports', from ``from_s`` to ``until_s``.

    ``factor`` 0 cuts it; ``until_s`` infinite means for good.
    """

    src: int
    dst: int
    factor: float
    from_s: float = 0.0
    until_s: float = math.inf

    def __post_init__(self) -> None:
        if self.src == self.dst or min(self.src, self.dst) < 0:
            raise ValueError(f"slow link {self.src}->{self.dst}: accepted are two different ranks")
        if not 0 <= self.factor <= 1:
            raise ValueError(f"slow link factor must be from 0 to 1, got {self.factor!r}")
        if not (0 <= self.from_s < self.until_s and math.isfinite(self.from_s)):
            raise ValueError(
                f"slow link times must be 0 <= T1 < T2, got {self.from_s!r} and {self.until_s!r}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Links by number; ``changes`` lists (time, link, capacity from then on) in order of time."""

    n: int
    names: tuple[str, ...]
    capacity: FloatArray
    latency_s: float
    changes: tuple[tuple[float, int, float], ...]
    pair_link: dict[tuple[int, int], int]

    def routes(self, src: IntArray, dst: IntArray) -> IntArray:
        """Links on the way from each ``src`` to its ``dst``, shape ``(len(src), links)``."""
        ports = [src, dst + self.n]
        if self.pair_link:
            free = len(self.capacity) - 1  # the last link is endless: a filler for other pairs
            pairs = zip(src.tolist(), dst.tolist(), strict=True)
            ports.append(np.array([self.pair_link.get(p, free) for p in pairs], np.int64))
        return np.stack(ports, axis=1)


def network_of(cluster: Cluster, slow_links: Sequence[SlowLink] = ()) -> Network:
    """The links of ``cluster``: ``gpuR.tx`` for each rank, ``gpuR.rx`` for each, then slow pairs.

    >>> from simcore.cluster import uniform
    >>> network_of(uniform(2, 1e9), [SlowLink(0, 1, 0.5)]).names
    ('gpu0.tx', 'gpu1.tx', 'gpu0.rx', 'gpu1.rx', 'gpu0->gpu1', 'free')
    """
    n = cluster.n
    send, receive = cluster.payload_bytes_per_s
    names = [f"gpu{r}.tx" for r in range(n)] + [f"gpu{r}.rx" for r in range(n)]
    capacity = np.concatenate([send, receive])
    pair_link: dict[tuple[int, int], int] = {}
    changes: list[tuple[float, int, float]] = []
    for slow in slow_links:
        pair = (slow.src, slow.dst)
        if max(pair) >= n:
            raise ValueError(f"slow link {slow.src}->{slow.dst}: accepted are ranks 0 to {n - 1}")
        if pair in pair_link:
            raise ValueError(f"slow link {slow.src}->{slow.dst} is given twice; accepted: once")
        pair_link[pair] = len(names)
        names.append(f"gpu{slow.src}->gpu{slow.dst}")
        cap = slow.factor * min(send[slow.src], receive[slow.dst])
        changes.append((slow.from_s, pair_link[pair], cap))
        if math.isfinite(slow.until_s):
            changes.append((slow.until_s, pair_link[pair], math.inf))
    if pair_link:
        names.append("free")
        capacity = np.concatenate([capacity, np.full(len(names) - 2 * n, np.inf)])
    changes.sort()
    return Network(n, tuple(names), capacity, cluster.latency_s, tuple(changes), pair_link)
