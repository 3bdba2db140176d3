"""The same ring, simulated the plain ways: an event loop on ``heapq``, and SimPy processes.

Equal ports, no sharing, the ``rank`` rule: a message starts when both its ends are in its step.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any


def heapq_ring(
    n: int, steps: int, port_s: float, latency_s: float, starts_s: list[float]
) -> tuple[float, int]:
    """Time of the last arrival, and the number of events."""
    step = [-1] * n  # the step that each rank is in
    open_ends = [0] * n
    events = [(start_s, rank, "enter") for rank, start_s in enumerate(starts_s)]
    heapq.heapify(events)
    now = done = 0
    while events:
        now, rank, what = heapq.heappop(events)
        done += 1
        if what != "enter":
            open_ends[rank] -= 1
            if open_ends[rank]:
                continue
        step[rank] += 1
        if step[rank] == steps:
            continue
        open_ends[rank] = 2
        right, left = (rank + 1) % n, (rank - 1) % n
        for src, dst in ((rank, right), (left, rank)):
            if step[src] == step[dst]:  # the later of the two has just entered
                heapq.heappush(events, (now + port_s, src, "left"))
                heapq.heappush(events, (now + port_s + latency_s, dst, "arrived"))
    return now, done


def simpy_ring(
    n: int, steps: int, port_s: float, latency_s: float, starts_s: list[float]
) -> tuple[float, int]:
    """The same with a SimPy process per rank."""
    import simpy

    env = simpy.Environment()
    entered = [[env.event() for _ in range(steps)] for _ in range(n)]
    arrived = [[env.event() for _ in range(steps)] for _ in range(n)]

    def deliver(event: Any) -> Iterator[Any]:
        yield env.timeout(latency_s)
        event.succeed()

    def rank(r: int) -> Iterator[Any]:
        yield env.timeout(starts_s[r])
        right = (r + 1) % n

        def send(s: int) -> Iterator[Any]:
            yield entered[right][s]
            yield env.timeout(port_s)
            env.process(deliver(arrived[right][s]))

        for s in range(steps):
            entered[r][s].succeed()
            yield env.process(send(s)) & arrived[r][s]

    for r in range(n):
        env.process(rank(r))
    env.run()
    return float(env.now), n * steps


if __name__ == "__main__":
    import time

    for simulate in (heapq_ring, simpy_ring):
        begin = time.perf_counter()
        print(
            simulate.__name__,
            *simulate(64, 126, 1e-3, 1e-5, [r * 7e-9 for r in range(64)]),
            time.perf_counter() - begin,
        )
