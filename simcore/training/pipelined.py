"""When each rank leaves a ring or a chain on a plain cluster, by formula instead of step by step.

Exact for the rule ``rank`` where every port carries one message at a time; a ring's chunks may
differ by an item, which then costs up to an item's time per step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simcore.cluster import Cluster
from simcore.schedule import IntArray
from simcore.trace import FloatArray
from simcore.training.plan import Communicate

# Collectives that all ranks leave at once: in every step a rank waits for both its neighbours, so
# whoever enters last has held up everyone by the end.
RINGS = ("ring", "ring-reduce-scatter", "ring-all-gather")


def ends_s(task: Communicate, cluster: Cluster, starts_s: FloatArray) -> FloatArray | None:
    """For ranks that enter at ``starts_s``, on a cluster that ``is_plain``; None: no formula.

    >>> from simcore.cluster import uniform
    >>> from simcore.training.plan import collective
    >>> ring = collective("ring", "ring", 4, 100)
    >>> ends_s(ring, uniform(4, 100.0), np.array([0.0, 0.0, 5.0, 0.0])).tolist()
    [11.0, 11.0, 11.0, 11.0]
    """
    sizes = np.diff(task.bounds)
    rate = cluster.ports[0].send_bytes_per_s / cluster.wire_time_per_payload_byte
    latency_s, launch_s = cluster.latency_s, cluster.launch_per_message_s
    if task.schedule.name in RINGS:
        # With both, a late rank delays its neighbour by less than itself: a receiver that is late
        # waits for no launch, a sender for no latency. And a chunk of nothing is no message.
        late = np.ptp(starts_s) > 1e-12 * starts_s.max()
        if late and ((latency_s and launch_s) or not sizes.min()):
            return None
        in_ring_s = task.schedule.n_steps * (latency_s + launch_s + int(sizes.max()) / rate)
        return np.full(len(starts_s), starts_s.max() + in_ring_s)
    if task.schedule.name == "ring-broadcast" and sizes.min():
        return chain_ends_s(starts_s, (sizes / rate).tolist(), latency_s, launch_s)
    return None


def even_bounds(task: Communicate) -> IntArray:
    """Where a ring's buffer is cut, with all chunks as large as the largest: by an item, at most.

    Its steps are then alike, and need not be calculated one by one.

    >>> from simcore.training.plan import collective
    >>> even_bounds(collective("ring", "ring", 3, 10)).tolist()
    [0, 16, 32, 48]
    """
    sizes = np.diff(task.bounds)
    if task.schedule.name not in RINGS or not sizes.min():
        return task.bounds
    even: IntArray = np.arange(len(task.bounds)) * sizes.max()
    return even


def chain_ends_s(
    starts_s: FloatArray, pieces_s: Sequence[float], latency_s: float, launch_s: float
) -> FloatArray:
    """A broadcast of pieces from rank 0 along the chain; ``pieces_s`` is how long a port needs.

    Rank ``r`` passes piece ``p`` on in step ``r + p``, while it receives the next one. It begins
    when the sender has entered that step and launched, and the receiver has entered it; both enter
    when their messages of the step before have ended.

    >>> chain_ends_s(np.zeros(3), [2.0, 2.0], latency_s=1.0, launch_s=0.0).tolist()
    [5.0, 8.0, 9.0]
    """
    slope = np.arange(len(starts_s) - 1)
    last = np.full(len(slope), -np.inf)  # when rank r began to send the piece before
    last_but_one, sent_s, before_s = last, 0.0, 0.0
    entered = starts_s[1:].copy()
    entered[0] = max(entered[0], starts_s[0] + launch_s)
    for piece_s in pieces_s:
        hop_s = piece_s + latency_s + launch_s
        earliest = np.maximum(entered, last + max(sent_s + launch_s, sent_s + latency_s))
        earliest[:-1] = np.maximum(earliest[:-1], last_but_one[1:] + before_s)
        begins = np.maximum.accumulate(earliest - slope * hop_s) + slope * hop_s
        last, last_but_one, sent_s, before_s = begins, last, piece_s, sent_s
    return np.append(last + sent_s, last[-1] + sent_s + latency_s)
