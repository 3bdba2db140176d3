"""Closed forms and lower bounds, each with where it holds. No events.

α is the latency of a message, one for all sizes, λ what issuing one costs its sender, λ₀ what the
collective costs once, B a port's payload rate, S the buffer in bytes, n the ranks, k servers, P
pieces, G ranks in a node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simcore.algorithms import find_algorithm
from simcore.cluster import Cluster
from simcore.schedule import Collective, IntArray, check_n, chunk_sizes
from simcore.trace import FloatArray
from simcore.units import format_bytes, format_rate, format_time


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A time with its formula, in symbols and with today's numbers."""

    time_s: float
    symbols: str
    numbers: str


@dataclass(frozen=True, slots=True)
class _Case:
    """What a formula may ask for."""

    n: int
    elements: int
    itemsize: int
    bytes_per_s: float
    latency_s: float
    launch_s: float
    sync: str
    flags: dict[str, int]

    @property
    def size_bytes(self) -> int:
        return self.elements * self.itemsize

    @property
    def port_s(self) -> float:
        """The whole buffer through one port."""
        return self.size_bytes / self.bytes_per_s

    def divides(self, chunks: int) -> bool:
        return self.elements % chunks == 0

    def largest(self, chunks: int) -> int:
        """Bytes of the largest of so many chunks."""
        return int(chunk_sizes(self.elements, chunks)[0]) * self.itemsize


@dataclass(frozen=True, slots=True)
class _Form:
    """``waits`` latencies and launches, and ``port_bytes`` through the busiest port one by one."""

    waits: int
    port_bytes: int
    symbols: str  # {w} stands for what one wait costs
    numbers: str
    more_s: float = 0.0


def closed_form(
    name: str,
    cluster: Cluster,
    elements: int,
    itemsize: int = 4,
    sync: str = "rank",
    **flags: int,
) -> ClosedForm | None:
    """The algorithm's time on equal ports without stragglers; None where no formula is known.

    ``flags`` are the algorithm's own (``servers``, ``pieces`` …). Each formula in this module says
    where it holds. Sources: Thakur, Rabenseifner & Gropp (2005), doi:10.1177/1094342005051521, for
    ring, tree and halving-doubling; the servers' are the bytes of the one busy port over its rate,
    with one latency for each time that it must wait.

    >>> from simcore.cluster import uniform
    >>> ring = closed_form("ring", uniform(4, 25e6, latency_s=1e-3), elements=2 * 2**20)
    >>> print(f"{ring.time_s:.6f} s = {ring.symbols} = {ring.numbers}")
    0.509316 s = 2(n-1) · (α + ⌈S/n⌉/B) = 2·3 · (1 ms + 2 MiB ÷ 25 MB/s)
    """
    find_algorithm(name)
    if not cluster.is_plain or cluster.reduce_s_per_byte:
        return None
    workers = cluster.n - (flags.get("servers", 1) if name == "ps-dedicated" else 0)
    rate, latency_s = float(cluster.payload_bytes_per_s[0][0]), cluster.latency_s
    launch_s, once_s = cluster.launch_per_message_s, cluster.launch_per_collective_s
    case = _Case(workers, elements, itemsize, rate, latency_s, launch_s, sync, flags)
    if cluster.n == 1 or not case.size_bytes:
        return ClosedForm(once_s, *(("λ₀", format_time(once_s)) if once_s else ("0", "0")))
    form = _FORMULAS[name](case) if name in _FORMULAS else None
    if form is None and sync == "barrier":
        form = _step_by_step(name, case)
    if form is None:
        return None
    time_s = form.waits * (latency_s + launch_s) + form.port_bytes / rate + form.more_s
    wait = ("α + λ", f"{format_time(latency_s)} + {format_time(launch_s)}")
    wait = wait if launch_s else ("α", format_time(latency_s))
    symbols, numbers = form.symbols.replace("{w}", wait[0]), form.numbers.replace("{w}", wait[1])
    numbers = numbers.replace("{S}", format_bytes(case.size_bytes)).replace(
        "{B}", format_rate(rate)
    )
    if once_s:
        time_s += once_s
        symbols, numbers = f"λ₀ + {symbols}", f"{format_time(once_s)} + {numbers}"
    return ClosedForm(time_s, symbols, numbers)


def _rounds(times: int, times_text: tuple[str, str], nbytes: int, nbytes_symbol: str) -> _Form:
    """``times`` steps, each one wait and one message of ``nbytes``."""
    return _Form(
        times,
        times * nbytes,
        f"{times_text[0]} · ({{w}} + {nbytes_symbol}/B)",
        f"{times_text[1]} · ({{w}} + {format_bytes(nbytes)} ÷ {{B}})",
    )


def _ring_phases(phases: int) -> Callable[[_Case], _Form | None]:
    """``rank`` or ``barrier``; under ``dataflow`` equal chunks and no launch cost."""

    def formula(case: _Case) -> _Form | None:
        if case.sync == "dataflow" and (case.launch_s or not case.divides(case.n)):
            return None  # launches overlap with transfers; unequal chunks meet on a port
        peers = case.n - 1
        text = ("2(n-1)", f"2·{peers}") if phases == 2 else ("(n-1)", f"{peers}")
        return _rounds(phases * peers, text, case.largest(case.n), "⌈S/n⌉")

    return formula


def _pairwise(case: _Case) -> _Form | None:
    """Equal chunks; ``rank`` or ``barrier``."""
    if case.sync == "dataflow" or not case.divides(case.n):
        return None
    peers = case.n - 1
    return _rounds(2 * peers, ("2(n-1)", f"2·{peers}"), case.largest(case.n), "S/n")


def _server(case: _Case) -> _Form:
    """Push: the server's receiving port carries n-1 buffers. Pull: its sending port does.

    With a launch cost the pulls are issued one by one, and hide behind the port if S/B ≥ λ.
    """
    peers = case.n - 1
    late_s = max(0.0, (peers - 1) * (case.launch_s - case.port_s))
    if not late_s:
        symbols, numbers = "2 · ({w} + (n-1)·S/B)", f"2 · ({{w}} + {peers} · {{S}} ÷ {{B}})"
    else:
        launch = format_time(case.launch_s)
        symbols = "2({w}) + n·S/B + (n-2)·λ"
        numbers = f"2 · ({{w}}) + {case.n} · {{S}} ÷ {{B}} + {peers - 1} · {launch}"
    return _Form(2, 2 * peers * case.size_bytes, symbols, numbers, late_s)


def _copy_path(case: _Case) -> _Form | None:
    """In: each of n-1 transfers is awaited. Out: the next leaves when the last byte has left."""
    if case.sync == "dataflow":
        return _server(case) if not case.launch_s else None  # nothing keeps the peers in turn
    peers = case.n - 1
    waits = case.n if case.sync == "rank" else 2 * peers
    symbol, number = ("n", f"{case.n}") if case.sync == "rank" else ("2(n-1)", f"2·{peers}")
    w = "({w})" if case.launch_s else "{w}"
    return _Form(
        waits,
        2 * peers * case.size_bytes,
        f"2(n-1)·S/B + {symbol}·{w}",
        f"2·{peers} · {{S}} ÷ {{B}} + {number} · {w}",
    )


def _sharded_server(case: _Case) -> _Form | None:
    """Equal shards, no launch cost. A server's port carries its shard n-1 times each way."""
    servers = case.flags.get("servers", case.n)
    if case.launch_s or not case.divides(servers):
        return None
    peers, shard = case.n - 1, case.size_bytes // servers
    return _Form(
        2,
        2 * peers * shard,
        "2 · ({w} + (n-1)·S/k/B)",
        f"2 · ({{w}} + {peers} · {format_bytes(shard)} ÷ {{B}})",
    )


def _dedicated_server(case: _Case) -> _Form | None:
    """Equal shards, no launch cost. The servers' ports carry nS/k each way, the workers' S."""
    servers = case.flags.get("servers", 1)
    if case.launch_s or not case.divides(servers):
        return None
    busiest = max(case.n * case.size_bytes // servers, case.size_bytes)
    return _Form(
        2,
        2 * busiest,
        "2 · ({w} + max(n/k, 1)·S/B)",
        f"2 · ({{w}} + {format_bytes(busiest)} ÷ {{B}})",
    )


def _tree(case: _Case) -> _Form | None:
    """n a power of two, or no latency and no launch cost, or a barrier."""
    levels = (case.n - 1).bit_length()
    free = not case.latency_s + case.launch_s
    if case.sync == "dataflow" or not (case.n == 1 << levels or free or case.sync == "barrier"):
        return None
    return _rounds(2 * levels, ("2⌈log₂ n⌉", f"2·{levels}"), case.size_bytes, "S")


def _halving_doubling(case: _Case) -> _Form | None:
    """Equal chunks; for n between powers of two no launch cost, or a barrier."""
    levels = case.n.bit_length() - 1
    core = 1 << levels
    folds = case.n > core
    if case.sync == "dataflow" or not case.divides(core):
        return None
    if folds and case.launch_s and case.sync == "rank":
        return None
    once = 2 * (core - 1) * case.size_bytes // core
    symbols = "2⌊log₂ n⌋({w}) + 2(m-1)/m·S/B"
    numbers = f"2·{levels} · ({{w}}) + {format_bytes(once)} ÷ {{B}}"
    if folds:
        symbols, numbers = f"{symbols} + 2({{w}} + S/B)", f"{numbers} + 2 · ({{w}} + {{S}} ÷ {{B}})"
    more = 2 if folds else 0
    return _Form(2 * levels + more, once + more * case.size_bytes, symbols, numbers)


def _hierarchical(case: _Case) -> _Form | None:
    """Equal chunks; ``rank`` or ``barrier``. On one switch, where it gains only latencies."""
    local_n = case.flags.get("gpus_per_node", case.n)
    nodes = case.n // local_n
    if case.sync == "dataflow" or not case.divides(case.n):
        return None
    inside = _rounds(
        2 * (local_n - 1), ("2(G-1)", f"2·{local_n - 1}"), case.largest(local_n), "S/G"
    )
    across = _rounds(2 * (nodes - 1), ("2(n/G-1)", f"2·{nodes - 1}"), case.largest(case.n), "S/n")
    return _Form(
        inside.waits + across.waits,
        inside.port_bytes + across.port_bytes,
        f"{inside.symbols} + {across.symbols}",
        f"{inside.numbers} + {across.numbers}",
    )


def _pipeline(case: _Case) -> _Form | None:
    """Equal pieces; ``rank`` without launch cost, or a barrier."""
    pieces = case.flags.get("pieces", 1)
    if not case.divides(pieces) or case.sync == "dataflow":
        return None
    if case.launch_s and case.sync == "rank":
        return None  # hidden behind the latency
    steps = case.n - 2 + pieces
    return _rounds(steps, ("(n-2+P)", f"{steps}"), case.size_bytes // pieces, "S/P")


def _step_by_step(name: str, case: _Case) -> _Form | None:
    """Any algorithm with a barrier, equal chunks, no launch cost: its busiest port, step by step.

    Chunks that share a port get at least its even share each, and the busiest port works all the
    time; so the step lasts as long as that port needs.
    """
    algorithm = find_algorithm(name)
    chunks = algorithm.build(case.n, **case.flags).chunks
    if case.launch_s or not case.divides(chunks):
        return None
    steps = algorithm.stated_steps(case.n, **case.flags)
    loads = [algorithm.stated_loads(case.n, step, **case.flags) for step in range(steps)]
    busiest = sum(max(int(sent.max()), int(received.max())) for sent, received in loads)
    nbytes = busiest * (case.size_bytes // chunks)
    return _Form(
        steps,
        nbytes,
        "Σ over steps ({w} + busiest port/B)",
        f"{steps} · {{w}} + {format_bytes(nbytes)} ÷ {{B}}",
    )


_FORMULAS: dict[str, Callable[[_Case], _Form | None]] = {
    "ring": _ring_phases(2),
    "ring-reduce-scatter": _ring_phases(1),
    "ring-all-gather": _ring_phases(1),
    "ps": _server,
    "ps-sharded": _sharded_server,
    "ps-dedicated": _dedicated_server,
    "dp": _copy_path,
    "tree": _tree,
    "halving-doubling": _halving_doubling,
    "pairwise": _pairwise,
    "hierarchical": _hierarchical,
    "ring-broadcast": _pipeline,
    "chain-reduce": _pipeline,
}


def byteps_optimum_s(n: int, extra: int, size_bytes: int, bytes_per_s: float) -> float:
    """The port time of the best split over ``n`` workers' shards and ``extra`` server machines.

    Jiang et al. (OSDI 2020), theorem 1: 2n(n-1)S / ((n² + kn - 2k)B), pushes and pulls overlapping.
    Without extra machines that is the ring's; with as many as workers it is S/B.

    >>> byteps_optimum_s(4, 0, 8, 1.0), byteps_optimum_s(4, 4, 8, 1.0)
    (12.0, 8.0)
    """
    check_n(n)
    if not 0 <= extra <= n:
        raise ValueError(f"extra servers must be from 0 to {n}, got {extra!r}")
    if n == 1:
        return 0.0
    return 2 * n * (n - 1) * size_bytes / ((n * n + extra * n - 2 * extra) * bytes_per_s)


def lower_bound_s(
    collective: Collective,
    cluster: Cluster,
    size_bytes: int,
    owned_bytes: IntArray | None = None,
    servers: int = 0,
) -> float:
    """No schedule without extra servers is faster, whatever its algorithm.

    Each element has to move ``n-1`` times to be summed and ``n-1`` times to be known everywhere
    (once either way for reduce-scatter and all-gather), over all ports together; each rank has to
    send what is only its own and to receive what it lacks. Patarasuk & Yuan (2009).
    ``owned_bytes``, shape ``(n,)``, is what each rank owns in a reduce-scatter or all-gather. With
    extra ``servers`` sums can be made elsewhere, and only the second half of that holds, for the
    workers. Only the ports' own rates count, and a bus that all messages cross.

    >>> from simcore.cluster import uniform
    >>> lower_bound_s(Collective.ALL_REDUCE, uniform(4, 25e6), 8 * 2**20)
    0.50331648
    """
    n = cluster.n - servers
    if n == 1 or not size_bytes or collective is Collective.POINT_TO_POINT:
        return cluster.launch_per_collective_s
    send, receive = (rates[:n] for rates in _best_rates(cluster))
    owned = np.full(n, 0) if owned_bytes is None else owned_bytes
    rest = size_bytes - owned
    to_send, to_receive, passes = {
        Collective.ALL_REDUCE: (np.full(n, size_bytes), np.full(n, size_bytes), 2),
        Collective.REDUCE_SCATTER: (rest, owned, 1),
        Collective.ALL_GATHER: (owned, rest, 1),
    }[collective]
    port_s = max(float((to_send / send).max()), float((to_receive / receive).max()))
    if not servers:
        moved = passes * (n - 1) * size_bytes
        port_s = max(port_s, moved / send.sum(), moved / receive.sum())
        for level in cluster.levels[:1]:
            if level.bus_bytes_per_s is not None and len(set(level.groups)) == 1:
                bus = level.bus_bytes_per_s / cluster.wire_time_per_payload_byte
                port_s = max(port_s, moved / bus)  # with no level inside it, all cross it
    if cluster.half_duplex:  # both directions through the one port; those of levels are apart
        both = 2 * send - cluster.payload_bytes_per_s[0][:n]
        port_s = max(port_s, float(((to_send + to_receive) / both).max()))
        port_s = port_s if servers else max(port_s, 2 * moved / both.sum())
    port_s = max(0.0, port_s - _burst_s(cluster))
    wait_s = cluster.launch_per_collective_s + cluster.launch_per_message_s
    return float(port_s + wait_s + cluster.least_latency_s)


def _burst_s(cluster: Cluster) -> float:
    """What a burst saves at most, on the slowest link that has one."""
    rates = [rate for p in cluster.ports for rate in (p.send_bytes_per_s, p.receive_bytes_per_s)]
    for level in cluster.levels:
        rates += filter(None, (level.port_bytes_per_s, level.bus_bytes_per_s))
    return cluster.burst_bytes / min(rates)


def _best_rates(cluster: Cluster) -> tuple[FloatArray, FloatArray]:
    """Payload rates of each rank's ports, all of them together where levels add some."""
    send, receive = (rates.copy() for rates in cluster.payload_bytes_per_s)
    for level in cluster.levels:
        extra = (level.port_bytes_per_s or 0.0) / cluster.wire_time_per_payload_byte
        send, receive = send + extra, receive + extra
    return send, receive
