"""The synchronous parameter server's step: push gradients, update there, pull parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from simcore.schedule import Collective, Op, Schedule, Step
from simcore.training.plan import Communicate, Compute, Plan, Task
from simcore.training.strategies.setting import Setting, backward, forward, held_back, ready

# Of the gradients, and the ranks that serve them; one that comes twice gets two messages.
Shares = tuple[tuple[int, float], ...]
MOST_MESSAGES = 16  # of a worker to one server at a time


def ps(setting: Setting) -> Plan:
    """A central server on rank 0; ``servers`` equal shards on the first ranks if it is given."""
    count = 1 if setting.servers is None else setting.servers
    if not 1 <= count <= setting.gpus:
        raise ValueError(f"servers must be from 1 to {setting.gpus}, got {count!r}")
    return _served("ps", setting, tuple((rank, 1 / count) for rank in range(count)))


def ps_dedicated(setting: Setting) -> Plan:
    """``servers`` machines more than GPUs (one, if not given), which only serve."""
    extra = 1 if setting.servers is None else setting.servers
    if extra < 1:
        raise ValueError(f"servers must be at least 1, got {extra!r}")
    shares = tuple((setting.gpus + place, 1 / extra) for place in range(extra))
    return _served("ps-dedicated", setting, shares, extra)


def byteps(setting: Setting) -> Plan:
    """Every GPU serves a share and ``servers`` extra machines a larger one, so that all ports end
    together (as many machines as GPUs, if not given).

    The split is the theorem's. Ports share their rate fairly among messages, so a machine's share,
    which is larger than a GPU's, travels as so many more messages, up to ``MOST_MESSAGES``. The
    time is then ``cost.byteps_optimum_s`` and one part's more, for which no pull can be under way;
    where a machine's share is above ``MOST_MESSAGES`` GPUs', up to 3 % beyond that.
    """
    extra = setting.gpus if setting.servers is None else setting.servers
    gpu, cpu = byteps_split(setting.gpus, extra)
    messages = max(1, min(MOST_MESSAGES, math.ceil(cpu / gpu - 1e-9))) if gpu else 1
    shares = [(rank, gpu) for rank in range(setting.gpus) if gpu]
    for rank in range(setting.gpus, setting.gpus + extra):
        shares += [(rank, cpu / messages)] * messages
    return _served("byteps", setting, tuple(shares), extra)


def byteps_split(n: int, k: int) -> tuple[float, float]:
    """Shares of the gradients that a GPU machine and a CPU machine serve, for the least time.

    ``n`` GPU machines and ``k`` CPU machines with equal links. Jiang et al. (OSDI 2020), theorem 1.

    >>> byteps_split(4, 0), byteps_split(4, 4)
    ((0.25, 0.0), (0.0, 0.25))
    """
    if n < 1 or not 0 <= k <= n:
        raise ValueError(f"servers must be from 0 to the {n} GPUs' number, got {k!r}")
    below = n * n + k * n - 2 * k
    if n == 1:
        return (0.0, 1.0) if k else (1.0, 0.0)
    return (n - k) / below, 2 * (n - 1) / below if k else 0.0


def partitions(setting: Setting) -> list[tuple[int, ...]]:
    """Gradients in the order of their arrival, in groups of at least ``partition_bytes``.

    Without pipelining one group of all.
    """
    arriving = setting.workload.gradients
    if not setting.pipelined:
        return [tuple(arriving)]
    groups: list[list[int]] = [[]]
    nbytes = 0
    for index in arriving:
        groups[-1].append(index)
        nbytes += setting.workload.parameters[index].nbytes
        if nbytes >= setting.partition_bytes and index != arriving[-1]:
            groups.append([])
            nbytes = 0
    return [tuple(group) for group in groups]


def _served(name: str, setting: Setting, shares: Shares, extra: int = 0) -> Plan:
    """Each group is pushed when it is complete, updated where it is served, and pulled.

    Pushes queue behind pushes and pulls behind pulls; the two go opposite ways and share the wire
    only where a rank is worker and server at once.
    """
    n = setting.gpus + extra
    workers = tuple(range(setting.gpus))
    groups = partitions(setting)
    tasks: list[Task] = []
    for number in range(setting.accumulate):
        complete = groups if number == setting.accumulate - 1 else []
        tasks.append(forward(setting, number))
        tasks += backward(setting, complete, number, "part")
    tasks += held_back(setting, groups)
    tasks = [_of_workers(task, workers, n) for task in tasks]
    tasks += _pushes_and_pulls(setting, groups, shares, n)
    return Plan(name, n, tuple(tasks), servers=extra)


def _of_workers(task: Task, workers: tuple[int, ...], n: int) -> Task:
    if len(workers) == n or not isinstance(task, Compute):
        return task
    return Compute(
        *(task.label, task.seconds, task.kind, task.reads, task.writes), workers, task.stream
    )


def _pushes_and_pulls(
    setting: Setting, groups: list[tuple[int, ...]], shares: Shares, n: int
) -> Iterator[Task]:
    work, pulls = setting.workload, list[Task]()
    served: dict[int, float] = {}
    for rank, share in shares:
        served[rank] = served.get(rank, 0.0) + share
    for k, part, nbytes in _parts(setting, groups):
        name = f"{k}" if part is None else f"{k}.{part}"
        reads, writes = (ready(setting, k),), (f"pushed {name}",)
        yield exchange(f"push {name}", setting.gpus, n, shares, nbytes, reads=reads, writes=writes)
        of_all = nbytes / max(work.gradient_bytes, 1)
        seconds = tuple(work.optimizer_s * of_all * share for share in served.values())
        reads, writes = writes, (f"updated {name}",)
        who = tuple(served)
        yield Compute(f"update {name}", seconds, "optimizer", reads, writes, who, "server")
        stream = "pull" if setting.pipelined else "push"
        pulls.append(
            exchange(
                *(f"pull {name}", setting.gpus, n, shares, nbytes),
                reads=writes,
                writes=(f"parameters {name}",),
                stream=stream,
            )
        )
    yield from pulls


def _parts(
    setting: Setting, groups: list[tuple[int, ...]]
) -> Iterator[tuple[int, int | None, int]]:
    """What travels together: a group, or ``partition_bytes`` at a time of a larger one."""
    for k, group in enumerate(groups):
        nbytes = sum(setting.workload.parameters[index].nbytes for index in group)
        count = -(-nbytes // setting.partition_bytes) if setting.pipelined else 1
        for part in range(max(count, 1)):
            first, end = (nbytes * place // max(count, 1) for place in (part, part + 1))
            yield k, part if count > 1 else None, end - first


@lru_cache(maxsize=16)
def _everyone(workers: int, servers: tuple[int, ...], pulls: bool) -> Step:
    """A message between each worker and each server, by server; the same for every part."""
    chunk, worker = (a.ravel() for a in np.divmod(np.arange(len(servers) * workers), workers))
    server = np.array(servers, np.int64)[chunk]
    apart = worker != server
    worker, server, chunk = worker[apart], server[apart], chunk[apart]
    if pulls:
        return Step.of(server, worker, chunk, Op.COPY)
    return Step.of(worker, server, chunk, Op.ADD)


def exchange(
    label: str,
    workers: int,
    n: int,
    shares: Shares,
    nbytes: int,
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    stream: str = "push",
) -> Communicate:
    """All of ``workers`` push to every server its share of the bytes, or pull it (``pull …``).

    >>> print(exchange("push", 2, 3, ((0, 0.25), (2, 0.75)), 100).schedule)
    0: 1->0 c0 add
    0: 0->2 c1 add
    0: 1->2 c1 add
    """
    pulls = label.startswith("pull")
    servers = tuple(rank for rank, _ in shares)
    step = _everyone(workers, servers, pulls)
    bounds = np.rint(np.cumsum([0.0, *(part for _, part in shares)]) * nbytes).astype(np.int64)
    schedule = Schedule(
        *("exchange", n, len(shares), 1, Collective.POINT_TO_POINT),
        lambda: iter([step] if len(step) else []),
        owner=servers,
    )
    key = ("exchange", pulls, workers, n, shares, nbytes)
    return Communicate(label, schedule, bounds, key, reads, writes, None, stream)
