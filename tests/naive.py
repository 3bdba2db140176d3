"""A second reading of what clusters and slowdowns mean: plain loops, one message at a time.

Shares no code with ``simcore.solvers.network``; links go by the names that the contract gives them.
"""

from __future__ import annotations

import math
import re

from simcore import Cluster, Level, Slowdown


def _payload(cluster: Cluster, bytes_per_s: float) -> float:
    return bytes_per_s / cluster.wire_time_per_payload_byte


def _meets(cluster: Cluster, src: int, dst: int) -> int:
    """The innermost level with both in one group; as many as there are levels if none."""
    for number, level in enumerate(cluster.levels):
        if level.groups[src] == level.groups[dst]:
            return number
    return len(cluster.levels)


def _around(cluster: Cluster, src: int, dst: int, setting: str):
    """A setting of the level inside which the message stays, or of the nearest around it."""
    for level in cluster.levels[_meets(cluster, src, dst) :]:
        if getattr(level, setting) is not None:
            return level, getattr(level, setting)
    return None


def _nic(level: Level, rank: int) -> str:
    """``node1`` or ``node1.nic0``: ranks of a group share its NICs evenly, in order."""
    members = [r for r, group in enumerate(level.groups) if group == level.groups[rank]]
    number = math.floor(members.index(rank) * level.nics / len(members))
    return f"{level.name}{level.groups[rank]}" + (f".nic{number}" if level.nics > 1 else "")


def route(cluster: Cluster, src: int, dst: int) -> dict[str, float]:
    """The links on the way and their payload rates."""
    links: dict[str, float] = {}
    fast = _around(cluster, src, dst, "port_bytes_per_s")
    if fast:
        links[f"gpu{src}.{fast[0].name}.tx"] = links[f"gpu{dst}.{fast[0].name}.rx"] = fast[1]
    elif cluster.half_duplex:
        links[f"gpu{src}.port"] = cluster.ports[src].send_bytes_per_s
        links[f"gpu{dst}.port"] = cluster.ports[dst].send_bytes_per_s
    else:
        links[f"gpu{src}.tx"] = cluster.ports[src].send_bytes_per_s
        links[f"gpu{dst}.rx"] = cluster.ports[dst].receive_bytes_per_s
    meets = _meets(cluster, src, dst)
    for number, level in enumerate(cluster.levels[: meets + 1]):
        if number < meets and level.uplink_bytes_per_s is not None:
            for rank, way in ((src, "up"), (dst, "down")):
                way_ = "up" if level.half_duplex else way
                links[f"{_nic(level, rank)}.{way_}"] = level.uplink_bytes_per_s
        if level.bus_bytes_per_s is not None:
            for rank in (src, dst):
                links[f"{level.name}{level.groups[rank]}.bus"] = level.bus_bytes_per_s
    return {name: _payload(cluster, rate) for name, rate in links.items()}


def _latency_of(nbytes: int, points: tuple[tuple[int, float], ...]) -> float:
    """On the straight line between the two points around a size."""
    below = [point for point in points if point[0] <= nbytes]
    above = [point for point in points if point[0] > nbytes]
    if not (below and above):
        return below[-1][1] if below else above[0][1]
    (a, a_s), (b, b_s) = below[-1], above[0]
    return a_s + (b_s - a_s) * (nbytes - a) / (b - a)


def latency_s(cluster: Cluster, src: int, dst: int, nbytes: int) -> float:
    """Of one message."""
    for pair_src, pair_dst, seconds in cluster.pair_latency_s:
        if (pair_src, pair_dst) == (src, dst):
            return seconds
    own = _around(cluster, src, dst, "latency_s")
    if own is None and cluster.latency_by_size:
        return _latency_of(nbytes, cluster.latency_by_size)
    return cluster.latency_s if own is None else own[1]


def capacities(cluster: Cluster) -> dict[str, float]:
    """Every link that some message crosses, at its full rate."""
    found: dict[str, float] = {}
    for src in range(cluster.n):
        for dst in range(cluster.n):
            if src != dst:
                found |= route(cluster, src, dst)
    return found


def slowed(cluster: Cluster, slowdowns: tuple[Slowdown, ...], t_s: float) -> dict[str, float]:
    """Rates at ``t_s``, and of the pairs that have a cap of their own."""
    rates = capacities(cluster)
    full = dict(rates)
    for slow in slowdowns:
        pair = re.fullmatch(r"(\d+)->(\d+)", slow.link)
        now = slow.from_s <= t_s < slow.until_s
        if pair:
            ends = int(pair[1]), int(pair[2])
            name = f"gpu{ends[0]}->gpu{ends[1]}"
            if now:
                slowest = min(full[link] for link in route(cluster, *ends))
                rates[name] = rates.get(name, slowest) * slow.factor
            continue
        for link in full:
            if now and (link == slow.link or link.startswith(f"{slow.link}.")):
                rates[link] *= slow.factor
    return rates
