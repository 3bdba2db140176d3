"""Links that let a burst pass after idling: token buckets, as shapers and many clouds have them.

A bucket of ``size`` bytes fills at the link's rate and is full at the start. As long as there is
something in it, the link passes ``PEAK`` times its rate; from then on its rate alone.
"""

from __future__ import annotations

import math

import numpy as np

from simcore.solvers.network import Network
from simcore.trace import FloatArray

PEAK = 100.0  # how much faster a burst goes than the rate
# Less than this part of a bucket is nothing, nor is what passes within this part of the time:
# rounding, not physics.
_EMPTY, _INSTANT = 1e-9, 1e-12


def departures_s(
    spent_s: FloatArray, start_s: FloatArray, bytes_s: FloatArray, full_s: FloatArray
) -> FloatArray:
    """When messages that have their links to themselves have left, by formula; updates ``spent_s``.

    Arrays of a row per message and a column per link on its way. ``spent_s`` is since when each
    link's bucket would have filled, had it been empty then; ``bytes_s`` is how long the message
    takes at the link's rate, ``full_s`` how long the bucket takes to fill.

    >>> spent = np.array([[-np.inf]])
    >>> def leaves(start, takes):
    ...     return departures_s(spent, np.array([start]), np.array([[takes]]), np.array([[1.0]]))
    >>> leaves(0.0, 3.0).item(), leaves(2.5, 1.0).item(), leaves(5.0, 0.5).item()
    (2.0, 3.0, 5.005)
    """
    spent_s[:] = np.maximum(spent_s, start_s[:, None] - full_s) + bytes_s
    at_once_s = start_s + bytes_s.max(axis=1) / PEAK
    left_s: FloatArray = np.maximum(spent_s.max(axis=1), at_once_s)
    return left_s


class Bursts:
    """What is in every link's bucket, as time goes on and rates change."""

    def __init__(self, network: Network) -> None:
        self.size, self.rate = network.burst, network.capacity.copy()
        self.tokens, self.used = self.size.copy(), np.zeros(len(self.size))
        self.since_s = 0.0
        self.empty_s = math.inf  # when the first of them will be empty
        self.shaped = np.flatnonzero(self.size)

    def progress(self, now_s: float, changed: dict[int, float], capacity: FloatArray) -> set[int]:
        """Up to now; sets what each link can pass from here on, and says where that is less.

        Where it is more, nobody gains: with a bucket that fills, all pass what they can.
        ``changed`` has new rates.
        """
        gained = (self.rate - self.used)[self.shaped] * (now_s - self.since_s)
        size = self.size[self.shaped]
        tokens = np.clip(self.tokens[self.shaped] + gained, 0.0, size)
        least = PEAK * self.rate[self.shaped] * now_s * _INSTANT
        tokens[tokens <= np.maximum(_EMPTY * size, least)] = 0.0
        self.tokens[self.shaped], self.since_s = tokens, now_s
        for link, bytes_per_s in changed.items():
            self.rate[link] = capacity[link] = bytes_per_s
        can = self.rate[self.shaped] * np.where(tokens > 0, PEAK, 1.0)
        less = self.shaped[can < capacity[self.shaped]]
        capacity[self.shaped] = can
        return set(less.tolist())

    def carry(self, used: FloatArray) -> None:
        """From now on the links carry so many bytes per second each."""
        self.used = used
        above = used - self.rate
        drains = np.flatnonzero((above > 1e-12 * used) & (self.size > 0))
        ends_s = self.since_s + self.tokens[drains] / above[drains]
        self.empty_s = float(ends_s.min(initial=math.inf))
