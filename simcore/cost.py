"""Closed forms and lower bounds, each with where it holds. No events.

α is the latency of a message, λ what issuing one costs its sender, λ₀ what the collective costs
once, B a port's payload rate, S the buffer in bytes, n the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simcore.cluster import Cluster
from simcore.schedule import Collective, IntArray, chunk_sizes
from simcore.units import format_bytes, format_rate, format_time


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A time with its formula, in symbols and with today's numbers."""

    time_s: float
    symbols: str
    numbers: str


@dataclass(frozen=True, slots=True)
class _Case:
    """What a formula needs: ``chunk_bytes`` is the largest chunk of S cut into n."""

    n: int
    size_bytes: int
    chunk_bytes: int
    bytes_per_s: float
    latency_s: float
    launch_s: float
    sync: str

    @property
    def port_s(self) -> float:
        """The whole buffer through one port."""
        return self.size_bytes / self.bytes_per_s

    def write(self, formula: str) -> str:
        return formula.format(
            n=self.n,
            peers=self.n - 1,
            S=format_bytes(self.size_bytes),
            C=format_bytes(self.chunk_bytes),
            B=format_rate(self.bytes_per_s),
            a=format_time(self.latency_s),
            l=format_time(self.launch_s),
        )


def closed_form(
    name: str,
    cluster: Cluster,
    elements: int,
    itemsize: int = 4,
    sync: str = "rank",
    root: int = 0,
) -> ClosedForm | None:
    """The algorithm's time on equal ports without stragglers; None where no formula is known.

    ``root`` does not matter, since all ports are equal. Sources: Thakur, Rabenseifner & Gropp
    (2005), doi:10.1177/1094342005051521, for the ring; the servers' are the bytes of the one
    busy port over its rate, with one latency for each time that it must wait.

    >>> from simcore.cluster import uniform
    >>> ring = closed_form("ring", uniform(4, 25e6, latency_s=1e-3), elements=2 * 2**20)
    >>> print(f"{ring.time_s:.6f} s = {ring.symbols} = {ring.numbers}")
    0.509316 s = 2(n-1) · (α + ⌈S/n⌉/B) = 2·3 · (1 ms + 2 MiB ÷ 25 MB/s)
    """
    if len(set(cluster.ports)) > 1 or len(set(_rates(cluster))) > 1 or name not in _FORMULAS:
        return None
    case = _Case(
        cluster.n,
        elements * itemsize,
        int(chunk_sizes(elements, cluster.n)[0]) * itemsize,
        float(cluster.payload_bytes_per_s[0][0]),
        cluster.latency_s,
        cluster.launch_per_message_s,
        sync,
    )
    if case.n == 1 or not case.size_bytes:
        launch_s = cluster.launch_per_collective_s
        return ClosedForm(launch_s, *(("λ₀", format_time(launch_s)) if launch_s else ("0", "0")))
    found = _FORMULAS[name](case)
    if found is None:
        return None
    time_s, symbols, numbers = found
    if cluster.launch_per_collective_s:
        time_s += cluster.launch_per_collective_s
        symbols = f"λ₀ + {symbols}"
        numbers = f"{format_time(cluster.launch_per_collective_s)} + {numbers}"
    return ClosedForm(time_s, symbols, case.write(numbers))


def _rates(cluster: Cluster) -> list[float]:
    return [rate for p in cluster.ports for rate in (p.send_bytes_per_s, p.receive_bytes_per_s)]


_Formula = tuple[float, str, str]


def _ring_phases(phases: int) -> Callable[[_Case], _Formula | None]:
    def formula(case: _Case) -> _Formula | None:
        if case.sync == "dataflow" and (
            case.launch_s or case.n * case.chunk_bytes != case.size_bytes
        ):
            return None  # launches overlap with transfers; unequal chunks meet on a port
        hop_s = case.latency_s + case.launch_s + case.chunk_bytes / case.bytes_per_s
        times, symbols = ("2·", "2(n-1)") if phases == 2 else ("", "(n-1)")
        wait, wait_number = _with_launch(case, "α", "{a}")
        return (
            phases * (case.n - 1) * hop_s,
            f"{symbols} · ({wait} + ⌈S/n⌉/B)",
            f"{times}{{peers}} · ({wait_number} + {{C}} ÷ {{B}})",
        )

    return formula


def _with_launch(case: _Case, symbol: str, number: str) -> tuple[str, str]:
    return (f"{symbol} + λ", f"{number} + {{l}}") if case.launch_s else (symbol, number)


def _server(case: _Case) -> _Formula:
    """Push: the server's receiving port carries n-1 buffers. Pull: its sending port does.

    With a launch cost the pulls are issued one by one, and hide behind the port if S/B ≥ λ.
    """
    n, launch_s = case.n, case.launch_s
    push_s = launch_s + (n - 1) * case.port_s
    pull_s = launch_s + max((n - 1) * case.port_s, (n - 2) * launch_s + case.port_s)
    wait, wait_number = _with_launch(case, "α", "{a}")
    symbols, numbers = (
        f"2 · ({wait} + (n-1)·S/B)",
        f"2 · ({wait_number} + {{peers}} · {{S}} ÷ {{B}})",
    )
    if launch_s > case.port_s:
        symbols = "2(α + λ) + (n-1)·S/B + (n-2)·λ + S/B"
        numbers = "2 · ({a} + {l}) + {peers} · {S} ÷ {B} + ({n} - 2) · {l} + {S} ÷ {B}"
    return push_s + pull_s + 2 * case.latency_s, symbols, numbers


def _copy_path(case: _Case) -> _Formula | None:
    """In: each of n-1 transfers is awaited. Out: the next leaves when the last byte has left."""
    if case.sync == "dataflow":
        return _server(case) if not case.launch_s else None  # nothing keeps the peers in turn
    waits = case.n if case.sync == "rank" else 2 * (case.n - 1)
    symbol, number = ("n", "{n}") if case.sync == "rank" else ("2(n-1)", "2·{peers}")
    wait, wait_number = _with_launch(case, "α", "{a}")
    bracket = (f"({wait})", f"({wait_number})") if case.launch_s else (wait, wait_number)
    return (
        2 * (case.n - 1) * case.port_s + waits * (case.latency_s + case.launch_s),
        f"2(n-1)·S/B + {symbol}·{bracket[0]}",
        f"2·{{peers}} · {{S}} ÷ {{B}} + {number} · {bracket[1]}",
    )


_FORMULAS: dict[str, Callable[[_Case], _Formula | None]] = {
    "ring": _ring_phases(2),
    "ring-reduce-scatter": _ring_phases(1),
    "ring-all-gather": _ring_phases(1),
    "ps": _server,
    "dp": _copy_path,
}


def lower_bound_s(
    collective: Collective, cluster: Cluster, size_bytes: int, owned_bytes: IntArray | None = None
) -> float:
    """No schedule without extra servers is faster, whatever its algorithm.

    Each element has to move ``n-1`` times to be summed and ``n-1`` times to be known everywhere
    (once either way for reduce-scatter and all-gather), over all ports together; each rank has to
    send what is only its own and to receive what it lacks. Patarasuk & Yuan (2009).
    ``owned_bytes``, shape ``(n,)``, is what each rank owns in a reduce-scatter or all-gather.

    >>> from simcore.cluster import uniform
    >>> lower_bound_s(Collective.ALL_REDUCE, uniform(4, 25e6), 8 * 2**20)
    0.50331648
    """
    n = cluster.n
    if n == 1 or not size_bytes:
        return cluster.launch_per_collective_s
    send, receive = cluster.payload_bytes_per_s
    owned = np.full(n, 0) if owned_bytes is None else owned_bytes
    rest = size_bytes - owned
    to_send, to_receive, passes = {
        Collective.ALL_REDUCE: (np.full(n, size_bytes), np.full(n, size_bytes), 2),
        Collective.REDUCE_SCATTER: (rest, owned, 1),
        Collective.ALL_GATHER: (owned, rest, 1),
    }[collective]
    moved = passes * (n - 1) * size_bytes
    port_s = max(
        *(moved / send.sum(), moved / receive.sum()),
        *(float((to_send / send).max()), float((to_receive / receive).max())),
    )
    wait_s = cluster.latency_s + cluster.launch_per_collective_s + cluster.launch_per_message_s
    return float(port_s + wait_s)
