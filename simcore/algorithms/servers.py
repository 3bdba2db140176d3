"""Parameter servers, central and sharded, and DataParallel's copies. No bytes, no time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simcore.algorithms.stated import Pair
from simcore.schedule import Collective, IntArray, Op, Schedule, Step, check_n


def parameter_server(n: int, root: int = 0) -> Schedule:
    """Central server on rank ``root``, itself a worker: all push, it adds, all pull.

    The server's port carries ``n-1`` buffers each way; every other port one.

    >>> print(parameter_server(3))
    0: 1->0 c0 add
    0: 2->0 c0 add
    1: 0->1 c0 copy
    1: 0->2 c0 copy
    """
    workers = _others(n, root)

    def steps() -> Iterator[Step]:
        if n > 1:
            yield Step.of(workers, root, 0, Op.ADD)
            yield Step.of(root, workers, 0, Op.COPY)

    return Schedule("ps", n, 1, 2 if n > 1 else 0, Collective.ALL_REDUCE, steps)


def data_parallel(n: int) -> Schedule:
    """The copy path of ``torch.nn.DataParallel``: one peer after another, to rank 0 and back.

    Gradients are added on rank 0 in turn; then the parameters go out in turn. The bytes of the
    central server, but never two transfers at once, so each one's latency counts on the way in.

    >>> print(data_parallel(3))
    0: 1->0 c0 add
    1: 2->0 c0 add
    2: 0->1 c0 copy
    3: 0->2 c0 copy
    """
    workers = _others(n, 0).tolist()

    def steps() -> Iterator[Step]:
        for worker in workers:
            yield Step.of(worker, 0, 0, Op.ADD)
        for worker in workers:
            yield Step.of(0, worker, 0, Op.COPY)

    return Schedule("dp", n, 1, 2 * (n - 1), Collective.ALL_REDUCE, steps)


def _others(n: int, root: int) -> IntArray:
    check_n(n)
    if not 0 <= root < n:
        raise ValueError(f"root must be a rank from 0 to {n - 1}, got {root!r}")
    return np.delete(np.arange(n), root)


def server_loads(n: int, step: int, root: int = 0) -> Pair:
    """Push: one chunk from each worker, all of them into the server. Pull: the reverse."""
    worker, server = np.ones(n, np.int64), np.zeros(n, np.int64)
    worker[root], server[root] = 0, n - 1
    return (worker, server) if step == 0 else (server, worker)


def server_bytes(n: int, sizes: IntArray, root: int = 0) -> Pair:
    """The buffer once per worker."""
    each = np.full(n, sizes.sum())
    each[root] *= n - 1
    return each, each


def copy_path_loads(n: int, step: int) -> Pair:
    """One worker and rank 0 at a time, in, then out."""
    root, worker = np.zeros(n, np.int64), np.zeros(n, np.int64)
    root[0] = 1
    worker[1 + step % (n - 1)] = 1
    return (worker, root) if step < n - 1 else (root, worker)


def sharded_server(n: int, servers: int | None = None) -> Schedule:
    """``servers`` of the ranks (all, if not given) each serve one shard of the buffer.

    Every rank pushes each shard to its server, which adds; then it pulls them all. With as many
    servers as ranks each port carries what a ring's does, in two steps instead of 2(n-1).

    >>> print(sharded_server(3, servers=2))
    0: 1->0 c0 add
    0: 2->0 c0 add
    0: 0->1 c1 add
    0: 2->1 c1 add
    1: 0->1 c0 copy
    1: 0->2 c0 copy
    1: 1->0 c1 copy
    1: 1->2 c1 copy
    """
    shards = _server_count(n, servers)
    server, worker = _pairs(n, shards)

    def steps() -> Iterator[Step]:
        if n > 1:
            yield Step.of(worker, server, server, Op.ADD)
            yield Step.of(server, worker, server, Op.COPY)

    return Schedule("ps-sharded", n, shards, 2 if n > 1 else 0, Collective.ALL_REDUCE, steps)


def _server_count(n: int, servers: int | None) -> int:
    check_n(n)
    count = n if servers is None else servers
    if not 1 <= count <= n:
        raise ValueError(f"servers must be from 1 to {n}, got {servers!r}")
    return count


# All pushes are one step: more messages than this take gigabytes.
MOST_MESSAGES = 2**22


def _check_messages(n: int, servers: int) -> None:
    if n * servers > MOST_MESSAGES:
        raise ValueError(
            f"{n} ranks times {servers} servers are {n * servers} messages in one step; "
            f"accepted: up to {MOST_MESSAGES}"
        )


def _pairs(n: int, servers: int) -> tuple[IntArray, IntArray]:
    """All (server, other rank), by server."""
    _check_messages(n, servers)
    server, worker = (a.ravel() for a in np.divmod(np.arange(servers * n), n))
    apart = server != worker
    return server[apart], worker[apart]


def dedicated_server(n: int, servers: int = 1) -> Schedule:
    """``n`` workers and ``servers`` more ranks that only serve, one shard each.

    No port of a worker carries more than the buffer once each way, less than in a ring; the
    price is the servers' machines, and their ports carry ``n/servers`` buffers each way.

    >>> schedule = dedicated_server(2)
    >>> print(schedule)
    0: 0->2 c0 add
    0: 1->2 c0 add
    1: 2->0 c0 copy
    1: 2->1 c0 copy
    >>> schedule.n, schedule.workers
    (3, 2)
    """
    check_n(n)
    if servers < 1:
        raise ValueError(f"servers must be at least 1, got {servers!r}")
    _check_messages(n, servers)
    shard, worker = (a.ravel() for a in np.divmod(np.arange(servers * n), n))

    def steps() -> Iterator[Step]:
        yield Step.of(worker, n + shard, shard, Op.ADD)
        yield Step.of(n + shard, worker, shard, Op.COPY)

    return Schedule(
        "ps-dedicated", n + servers, servers, 2, Collective.ALL_REDUCE, steps, servers=servers
    )


def sharded_loads(n: int, step: int, servers: int | None = None) -> Pair:
    """A rank pushes every shard but its own; a server is pushed to by all others."""
    shards = _server_count(n, servers)
    serves = (np.arange(n) < shards).astype(np.int64)
    worker, server = shards - serves, (n - 1) * serves
    return (worker, server) if step == 0 else (server, worker)


def sharded_bytes(n: int, sizes: IntArray, servers: int | None = None) -> Pair:
    """All but the own shard once as a worker, the own shard n-1 times as its server."""
    own = np.zeros(n, np.int64)
    own[: len(sizes)] = sizes
    each = sizes.sum() - own + (n - 1) * own
    return each, each


def dedicated_loads(n: int, step: int, servers: int = 1) -> Pair:
    """Workers one chunk per server, servers one per worker."""
    worker = np.repeat([servers, 0], [n - servers, servers])
    server = np.repeat([0, n - servers], [n - servers, servers])
    return (worker, server) if step == 0 else (server, worker)


def dedicated_bytes(n: int, sizes: IntArray, servers: int = 1) -> Pair:
    """Workers the buffer once, servers their shard once per worker."""
    each = np.concatenate([np.full(n - servers, sizes.sum()), (n - servers) * sizes])
    return each, each
