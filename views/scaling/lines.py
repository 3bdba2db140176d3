"""What *Scaling* compares: one algorithm, on one network, at one setting. No axes, no charts."""

from __future__ import annotations

from functools import cache, lru_cache

from simcore.algorithms import build_schedule
from simcore.cluster import Cluster, Level, even_groups, uniform
from simcore.cost import closed_form, lower_bound_s
from simcore.engine import simulate
from simcore.schedule import Collective, Schedule
from views.race import FRAME_FACTOR, ITEM_BYTES, Setting, gpus_per_node
from views.traffic import PIECES

NODE_GPUS = 8
# Inside a node beside the network: NVLink 3 beside a 200 Gb/s card, as in the preset dgx-a100.
INSIDE_RATE = 10
INSIDE_LATENCY = 0.25

# Equal ports on one switch; or nodes of eight, each behind one uplink. There only algorithms whose
# simulation is quick, and that say something about nodes.
LINES: dict[str, tuple[str, ...]] = {
    "flat": (
        *("ring", "ps", "ps-sharded", "ps-dedicated", "dp"),
        *("tree", "double-tree", "halving-doubling", "pairwise", "hierarchical"),
    ),
    "nodes": ("ring", "hierarchical", "ps", "ps-sharded", "dp", "tree", "halving-doubling"),
}


def flags_for(name: str, gpus: int, network: str = "flat") -> dict[str, int]:
    """How an algorithm is built here: as many extra servers as GPUs, rings in nodes of up to eight.

    On one switch a node of the hierarchical ring is the largest part of the GPUs up to eight.

    >>> flags_for("ps-dedicated", 4), flags_for("ring", 4), flags_for("hierarchical", 12)
    ({'servers': 4}, {}, {'gpus_per_node': 6})
    """
    if name == "hierarchical":
        of_one = NODE_GPUS if network == "nodes" else gpus_per_node(gpus, NODE_GPUS)
        return {"gpus_per_node": of_one}
    return {"ps-dedicated": {"servers": gpus}, "double-tree": {"pieces": PIECES}}.get(name, {})


@cache
def _schedule(name: str, gpus: int, network: str) -> Schedule:
    return build_schedule(name, gpus, **flags_for(name, gpus, network))


@lru_cache(maxsize=20_000)
def cluster_for(
    ranks: int, bytes_per_s: float, latency_s: float, frames: bool, network: str
) -> Cluster:
    """``ranks`` ports on one switch, or in nodes whose one uplink has that rate and latency.

    >>> cluster_for(16, 1e9, 1e-5, False, "nodes").levels[0].uplink_bytes_per_s
    1000000000.0
    """
    factor = FRAME_FACTOR if frames else 1.0
    if network == "flat":
        return uniform(ranks, bytes_per_s, latency_s, wire_time_per_payload_byte=factor)
    node = Level(
        "node",
        even_groups(ranks, NODE_GPUS),
        latency_s=latency_s * INSIDE_LATENCY,
        uplink_bytes_per_s=bytes_per_s,
    )
    return uniform(
        ranks,
        bytes_per_s * INSIDE_RATE,
        latency_s,
        wire_time_per_payload_byte=factor,
        levels=(node,),
    )


@lru_cache(maxsize=200_000)
def time_s(name: str, at: Setting, network: str = "flat") -> float:
    """The simulator's time: by its closed form where that is exact, else simulated.

    >>> round(time_s("ring", Setting(4, 8 * 2**20, 25e6, frames=False)), 6)
    0.503316
    """
    schedule, flags = _schedule(name, at.gpus, network), flags_for(name, at.gpus, network)
    elements = at.size_bytes // ITEM_BYTES
    cluster = cluster_for(schedule.n, at.bytes_per_s, at.latency_s, at.frames, network)
    if form := closed_form(name, cluster, elements, ITEM_BYTES, "rank", **flags):
        return form.time_s
    if elements and elements % schedule.chunks == 0:
        port_s = at.size_bytes / at.bytes_per_s
        return port_s * _buffers_s(name, at.gpus, network, at.latency_s / port_s, at.frames)
    return simulate(schedule, cluster, elements, ITEM_BYTES, keep="totals").trace.time_s


@lru_cache(maxsize=50_000)
def _buffers_s(name: str, gpus: int, network: str, latency_s: float, frames: bool) -> float:
    """The time if a port carried the buffer in one second.

    Times scale: twice the buffer, or half the rate, with twice the latency takes twice as long. So
    where chunks are equal this answers for a whole diagonal of a map.
    """
    schedule = _schedule(name, gpus, network)
    rate = float(schedule.chunks * ITEM_BYTES)
    cluster = cluster_for(schedule.n, rate, latency_s, frames, network)
    return simulate(schedule, cluster, schedule.chunks, ITEM_BYTES, keep="totals").trace.time_s


def bound_s(at: Setting, network: str = "flat") -> float:
    """No algorithm without extra servers is faster. A node counts as one rank with its uplink.

    >>> setting = Setting(16, 8 * 2**20, 25e6, frames=False)
    >>> round(bound_s(setting), 4), round(bound_s(setting, "nodes"), 4)
    (0.6291, 0.3355)
    """
    cluster = cluster_for(at.gpus, at.bytes_per_s, at.latency_s, at.frames, network)
    bounds = [lower_bound_s(Collective.ALL_REDUCE, cluster, at.size_bytes)]
    if network == "nodes" and at.gpus > NODE_GPUS:
        nodes = -(-at.gpus // NODE_GPUS)
        uplinks = cluster_for(nodes, at.bytes_per_s, at.latency_s, at.frames, "flat")
        bounds.append(lower_bound_s(Collective.ALL_REDUCE, uplinks, at.size_bytes))
    return max(bounds)
