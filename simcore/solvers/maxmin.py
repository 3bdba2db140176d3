"""How flows share links: max-min fairness by progressive filling. No time, no schedules."""

from __future__ import annotations

from collections.abc import Sequence

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
    if on_link[np.isfinite(capacity)].max(initial=0) <= 1:
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


def few_max_min_rates(ways: Sequence[Sequence[int]], capacity: Sequence[float]) -> list[float]:
    """The same for a handful of flows, whose sums take less time than NumPy's calls.

    >>> few_max_min_rates([[0, 1], [0, 2]], [10.0, 10.0, 2.0])
    [8.0, 2.0]
    """
    if len(ways) == 1:
        return [min([capacity[link] for link in ways[0]])]
    on_link: dict[int, list[int]] = {}
    for flow, way in enumerate(ways):
        for link in way:
            on_link.setdefault(link, []).append(flow)
    left = {link: capacity[link] for link in on_link}
    users = {link: len(flows) for link, flows in on_link.items()}
    rates = [-1.0] * len(ways)
    while users:
        share, full = min([(left[link] / count, link) for link, count in users.items()])
        if users[full] == len(ways):  # often one link is the tightest for all
            return [share] * len(ways)
        for flow in on_link[full]:
            if rates[flow] >= 0:
                continue
            rates[flow] = share
            for link in ways[flow]:
                left[link] = max(left[link] - share, 0.0)
                users[link] -= 1
                if not users[link]:
                    del users[link]
    return rates
