"""How flows share links: max-min fairness by progressive filling. No time, no schedules."""

from __future__ import annotations

import numpy as np

from simcore.schedule import IntArray
from simcore.trace import FloatArray


def max_min_rates(routes: IntArray, capacity: FloatArray) -> FloatArray:
    """Rate of each flow; ``routes`` of shape ``(flows, links on its way)`` names links.

    All rates grow together until a link is full; its flows keep what they have and the others go
    on (Bertsekas & Gallager, *Data Networks*, 6.5.2). Every link that is the tightest for all of
    its flows is settled in the same round: filling the others can only raise a link's share.

    Two flows share link 0; one of them also crosses the narrow link 2, and leaves the rest:

    >>> max_min_rates(np.array([[0, 1], [0, 2]]), np.array([10.0, 10.0, 2.0])).tolist()
    [8.0, 2.0]
    """
    flows = len(routes)
    on_link = np.bincount(routes.ravel(), minlength=len(capacity))
    if on_link.max(initial=0) <= 1:
        return np.asarray(capacity[routes].min(axis=1), np.float64)
    rates = np.zeros(flows)
    left = capacity.astype(np.float64, copy=True)
    open_flows = np.arange(flows)
    while len(open_flows):
        open_routes = routes[open_flows]
        on_link = np.bincount(open_routes.ravel(), minlength=len(capacity))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(on_link > 0, left / on_link, np.inf)
        tightest = share[open_routes].min(axis=1)
        tightest_on_link = np.full(len(capacity), np.inf)
        np.minimum.at(tightest_on_link, open_routes.ravel(), np.repeat(tightest, routes.shape[1]))
        full = (on_link > 0) & (tightest_on_link >= share)
        settled = full[open_routes].any(axis=1)
        rates[open_flows[settled]] = tightest[settled]
        used = np.repeat(tightest[settled], routes.shape[1])
        left -= np.bincount(open_routes[settled].ravel(), used, minlength=len(capacity))
        np.maximum(left, 0.0, out=left)
        open_flows = open_flows[~settled]
    return rates
