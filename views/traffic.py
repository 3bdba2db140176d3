"""Where the bytes go: what every rank sends and receives in each all-reduce, and in words why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from simcore.algorithms import ALGORITHMS, build_schedule
from simcore.cluster import uniform
from simcore.cost import byteps_optimum_s
from simcore.engine import simulate
from simcore.schedule import Collective, IntArray, Schedule
from simcore.trace import Source, Trace
from simcore.training.model import Parameter, Workload
from simcore.training.perform import perform
from simcore.training.strategies import Setting, plan_step
from simcore.units import format_time
from views.comparison import binary_bytes
from views.text import Text

ITEM_BYTES = 4  # float32
IN_PIECES = "ps-pipelined"
PIECES = 8  # of the double tree, which streams
SERVER_PIECES = 16  # in which extra servers take and give: a part in 16 above their optimum


@dataclass(frozen=True, slots=True)
class TrafficSetting:
    """What the reader chose. ``servers`` is how many shards, or how many extra machines."""

    gpus: int
    size_bytes: int
    bytes_per_s: float
    latency_s: float = 0.0
    servers: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """One algorithm's totals. Ranks from ``schedule.workers`` on are extra servers."""

    schedule: Schedule
    trace: Trace

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return self.schedule.name

    @property
    def total_bytes(self) -> int:
        """All that all ranks send."""
        return int(self.trace.sent_bytes.sum())

    @property
    def busiest_bytes(self) -> int:
        """What the port that carries most carries, in one direction."""
        return max(_ports(self.trace))

    @property
    def quietest_bytes(self) -> int:
        """What the port that carries least carries, in one direction."""
        return min(_ports(self.trace))


def _ports(trace: Trace) -> list[int]:
    both: list[int] = trace.sent_bytes.tolist() + trace.received_bytes.tolist()
    return both


def flags_for(name: str, gpus: int, servers: int) -> dict[str, int]:
    """How an algorithm is built here: nodes are as few as the GPUs can be divided into.

    >>> flags_for("hierarchical", gpus=6, servers=1)
    {'gpus_per_node': 3}
    """
    if name == "ps-sharded":
        return {"servers": min(servers, gpus)}
    if name == "ps-dedicated":
        return {"servers": servers}
    if name == "double-tree":
        return {"pieces": PIECES}
    if name == "hierarchical":
        return {"gpus_per_node": gpus // next(k for k in range(2, gpus + 1) if gpus % k == 0)}
    return {}


def all_traffic(setting: TrafficSetting) -> tuple[Traffic, ...]:
    """Every all-reduce of the table, in its order; behind extra servers the same in pieces.

    >>> found = all_traffic(TrafficSetting(4, 8 * 2**20, 25e6, servers=4))
    >>> {t.name: t.total_bytes // 2**20 for t in found if t.name in ("ring", "ps", "ps-dedicated")}
    {'ring': 48, 'ps': 48, 'ps-dedicated': 64}
    """
    found = []
    for algorithm in ALGORITHMS:
        flags = flags_for(algorithm.name, setting.gpus, setting.servers)
        schedule = build_schedule(algorithm.name, setting.gpus, **flags)
        if schedule.collective is not Collective.ALL_REDUCE:
            continue
        cluster = uniform(schedule.n, setting.bytes_per_s, setting.latency_s)
        elements = setting.size_bytes // ITEM_BYTES
        run = simulate(schedule, cluster, elements, ITEM_BYTES, keep="totals")
        found.append(Traffic(schedule, run.trace))
        if algorithm.name == "ps-dedicated":
            found.append(_in_pieces(schedule, setting))
    return tuple(found)


def _in_pieces(schedule: Schedule, setting: TrafficSetting) -> Traffic:
    """Extra servers that give a piece back while they take the next: a training step's
    communication, with nothing to compute.
    """
    buffer = Parameter("buffer", (setting.size_bytes // ITEM_BYTES,))
    work = Workload("buffer", (buffer,)).with_compute(0.0, 0.0)
    piece_bytes = -(-setting.size_bytes // SERVER_PIECES)
    asked = Setting(work, setting.gpus, servers=setting.servers, partition_bytes=piece_bytes)
    plan = plan_step("ps-dedicated", asked)
    run = perform(plan, uniform(plan.n, setting.bytes_per_s, setting.latency_s))
    flags = {"servers": setting.servers, "pieces": SERVER_PIECES}
    # A push and a pull of each piece, the pull beside the next push.
    steps = SERVER_PIECES + 1
    return Traffic(replace(schedule, name=IN_PIECES, n_steps=steps, flags=flags), run.trace())


def title(traffic: Traffic, text: Text) -> str:
    """The algorithm's name with what it was built with."""
    name = text(f"strategy.{traffic.name}")
    for flag, value in traffic.schedule.flags.items():
        name += text(f"traffic.flag_{flag}", value=value)
    return name


def headline(found: Sequence[Traffic], setting: TrafficSetting, text: Text) -> str:
    """The total is the same for a server among the ranks and a ring; the balance is not.

    >>> from views.text import load_text
    >>> setting = TrafficSetting(4, 8 * 2**20, 25e6, servers=4)
    >>> print(headline(all_traffic(setting), setting, load_text("en")))
    A server among the 4 GPUs and a ring move the same 48 MiB in all, 2(n-1) times the buffer; but \
the server's port carries 24 MiB each way, a ring's 12 MiB. 4 extra servers move more, 64 MiB, 2n \
times the buffer, and are still faster than the ring's 503.3 ms: 356.5 ms when they give one of 16 \
pieces back while they take the next, 671.1 ms when all is pushed before anything is pulled. \
BytePS's optimum, the best that these GPUs and servers can do together without latency, is 335.5 ms.
    """
    by_name = {traffic.name: traffic for traffic in found}
    ring, server, extra = (by_name[name] for name in ("ring", "ps", IN_PIECES))
    ring_s, extra_s = ring.trace.time_s, extra.trace.time_s
    whole_s = by_name["ps-dedicated"].trace.time_s
    values = {
        "n": setting.gpus,
        "total": binary_bytes(ring.total_bytes),
        "server": binary_bytes(server.busiest_bytes),
        "ring": binary_bytes(ring.busiest_bytes),
        "extra": binary_bytes(extra.total_bytes),
        "pieces": SERVER_PIECES,
        "ring_time": format_time(ring_s),
        "time": format_time(extra_s),
        "whole_time": format_time(whole_s),
        "optimum": format_time(optimum_s(setting)),
        "k": setting.servers,
    }
    first = "traffic.balance" if setting.gpus > 2 else "traffic.balance_two"
    machines = "one" if setting.servers == 1 else "many"
    order = "faster" if min(extra_s, whole_s) < 0.995 * ring_s else "not"
    keys = (first, f"traffic.extra_{order}_{machines}", "traffic.optimum")
    return text.joined(text(key, **values).strip() for key in keys)


def optimum_s(setting: TrafficSetting) -> float:
    """What no split over the GPUs' own shards and the extra servers falls below; no latency.

    >>> round(optimum_s(TrafficSetting(4, 8 * 2**20, 25e6, servers=4)), 4)
    0.3355
    """
    useful = min(setting.servers, setting.gpus)  # more machines than GPUs do not help
    return byteps_optimum_s(setting.gpus, useful, setting.size_bytes, setting.bytes_per_s)


def table_header(text: Text) -> list[str]:
    """Of ``table_rows``."""
    keys = ("algorithm", "steps", "total", "busiest", "quietest", "time")
    return [text(f"traffic.{key}") for key in keys]


def table_rows(found: Sequence[Traffic], setting: TrafficSetting, text: Text) -> list[list[str]]:
    """One row per algorithm: steps, all bytes, the busiest and the least busy port, time."""

    def share(nbytes: int) -> str:
        return f"{binary_bytes(nbytes)} ({nbytes / setting.size_bytes:.3g}\u00a0S)"

    return [
        [
            title(traffic, text),
            str(traffic.schedule.n_steps),
            share(traffic.total_bytes),
            share(traffic.busiest_bytes),
            share(traffic.quietest_bytes),
            format_time(traffic.trace.time_s),
        ]
        for traffic in found
    ]


def bars_html(found: Sequence[Traffic], text: Text) -> str:
    """A small table of bars per algorithm, all on one scale: received to the left, sent right."""
    largest = max(traffic.busiest_bytes for traffic in found)
    return f'<div class="traffic">{"".join(_panel(t, largest, text) for t in found)}</div>'


def _panel(traffic: Traffic, largest: int, text: Text) -> str:
    trace, workers = traffic.trace, traffic.schedule.workers
    head = "".join(
        f'<th scope="col" class="{way}">{escape(text(f"traffic.{way}"))}</th>'
        for way in ("in", "rank", "out")
    )
    rows = []
    columns = zip(trace.received_bytes.tolist(), trace.sent_bytes.tolist(), strict=True)
    for rank, (received, sent) in enumerate(columns):
        kind, number = ("gpu", rank) if rank < workers else ("server", rank - workers)
        name = escape(text(f"traffic.{kind}", rank=number))
        cells = [_bar(n, largest, traffic, way) for way, n in (("in", received), ("out", sent))]
        rows.append(f'<tr>{cells[0]}<th scope="row">{name}</th>{cells[1]}</tr>')
    total = escape(text("traffic.panel", total=binary_bytes(traffic.total_bytes)))
    return (
        f'<section data-algorithm="{traffic.name}"><h2>{escape(title(traffic, text))}</h2>'
        f"<p>{total}</p><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        "</section>"
    )


def _bar(nbytes: int, largest: int, traffic: Traffic, way: str) -> str:
    one_of_the_busiest = nbytes > 0.999 * traffic.busiest_bytes  # shards may differ by a number
    hot = " hot" if one_of_the_busiest and nbytes > 1.02 * _median(traffic.trace) else ""
    width = 100 * nbytes / largest if largest else 0
    return (
        f'<td class="{way}{hot}"><span><i style="width:{width:.4g}%"></i></span>'
        f"<b>{binary_bytes(nbytes)}</b></td>"
    )


def _median(trace: Trace) -> int:
    ports = sorted(_ports(trace))
    return ports[len(ports) // 2]


def export_rows(found: Sequence[Traffic], setting: TrafficSetting) -> list[dict[str, Any]]:
    """One row per algorithm and rank, for files."""
    rows = []
    for traffic in found:
        trace, schedule = traffic.trace, traffic.schedule
        sent: IntArray = trace.sent_bytes
        for rank in range(schedule.n):
            rows.append(
                {
                    "source": Source.SIMULATED.value,
                    "algorithm": traffic.name,
                    "flags": " ".join(f"{k}={v}" for k, v in schedule.flags.items()),
                    "gpus": setting.gpus,
                    "size_bytes": setting.size_bytes,
                    "rank": rank,
                    "role": "worker" if rank < schedule.workers else "server",
                    "sent_bytes": int(sent[rank]),
                    "received_bytes": int(trace.received_bytes[rank]),
                    "time_s": trace.time_s,
                }
            )
    return rows
