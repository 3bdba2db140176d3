"""How sure a median is, without assuming how run times are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median

MOST_TIMES_RUNS = 4
LEVEL = 0.95
OUTSIDE = (1 - LEVEL) / 2, (1 + LEVEL) / 2  # the quantiles at either end of an interval


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The narrowest pair of order statistics that holds the true median at least 95 times in 100;
    None below six values, of which not even the extremes do.

    >>> median_interval([5, 1, 2, 3, 4, 6])
    (1, 6)
    >>> median_interval([1, 2, 3, 4, 5])
    """
    n, outside, left = len(values), 0.0, 0
    # The median lies below the k-th smallest of n with the chance of under k heads in n throws.
    while 2 * (outside + comb(n, left) / 2**n) <= 1 - LEVEL:
        outside += comb(n, left) / 2**n
        left += 1
    if not left:
        return None
    ordered = sorted(values)
    return ordered[left - 1], ordered[n - left]


def enough(runs_s: Sequence[float], runs: int, confidence: float | None) -> bool:
    """Whether to stop: after ``runs`` runs, or with a ``confidence`` when the median's interval
    lies within that fraction of it, at the latest after four times as many.

    >>> enough([1.0] * 5, 5, None), enough([1.0] * 5, 5, 0.02), enough([1.0] * 6, 5, 0.02)
    (True, False, True)
    """
    if confidence is None or len(runs_s) < runs:
        return len(runs_s) >= runs
    if len(runs_s) >= MOST_TIMES_RUNS * runs:
        return True
    interval, middle = median_interval(runs_s), median(runs_s)
    return interval is not None and all(
        abs(end - middle) <= confidence * middle for end in interval
    )
