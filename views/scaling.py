"""Time along one axis: lines of algorithms, where the fastest changes, and the measured points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from simcore.algorithms import build_schedule
from simcore.cluster import uniform
from simcore.cost import lower_bound_s
from simcore.engine import simulate
from simcore.records import Record
from simcore.schedule import Collective
from simcore.trace import Source
from simcore.units import format_time
from views.comparison import VENDOR_NAMES, binary_bytes, same_setting
from views.race import FRAME_FACTOR, ITEM_BYTES, Setting
from views.text import Text
from views.traffic import PIECES

# Algorithms that make sense on equal ports of one switch.
LINES = (
    *("ring", "ps", "ps-sharded", "ps-dedicated", "dp"),
    *("tree", "double-tree", "halving-doubling", "pairwise"),
)
GPUS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
SIZES = tuple(2**power for power in range(11, 31, 2))  # 2 KiB, 8 KiB … 512 MiB
RATES = tuple(1e9 / 8 * gbit for gbit in (0.1, 0.2, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 200, 400))
LATENCIES = (1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
AXES: dict[str, tuple[float, ...]] = {
    "gpus": GPUS,
    "size": SIZES,
    "bandwidth": RATES,
    "latency": LATENCIES,
}
_FIELDS = {
    "gpus": "gpus",
    "size": "size_bytes",
    "bandwidth": "bytes_per_s",
    "latency": "latency_s",
}
TIE = 1e-3  # times closer than this part are one: nobody could measure the difference


@dataclass(frozen=True, slots=True)
class Scaling:
    """What the reader chose; of ``base``, what stands on the axis does not matter."""

    axis: str
    lines: tuple[str, ...]
    base: Setting

    @property
    def xs(self) -> tuple[float, ...]:
        """Where the lines are computed, in SI units."""
        return AXES[self.axis]

    def at(self, x: float) -> Setting:
        """The setting at a place of the axis."""
        value = round(x) if self.axis in ("gpus", "size") else x
        changes: dict[str, Any] = {_FIELDS[self.axis]: value}
        return replace(self.base, **changes)

    def time_s(self, name: str, x: float) -> float:
        """An algorithm's time at a place of the axis."""
        return time_s(name, self.at(x))

    def bound_s(self, x: float) -> float:
        """The lower bound there, for algorithms without extra servers."""
        at = self.at(x)
        return lower_bound_s(Collective.ALL_REDUCE, at.cluster(), at.size_bytes)


def flags_for(name: str, gpus: int) -> dict[str, int]:
    """How an algorithm is built here: as many extra servers as GPUs.

    >>> flags_for("ps-dedicated", 4), flags_for("ring", 4)
    ({'servers': 4}, {})
    """
    return {"ps-dedicated": {"servers": gpus}, "double-tree": {"pieces": PIECES}}.get(name, {})


@lru_cache(maxsize=50_000)
def time_s(name: str, at: Setting) -> float:
    """Simulated time, totals only.

    >>> round(time_s("ring", Setting(4, 8 * 2**20, 25e6, frames=False)), 6)
    0.503316
    """
    schedule = build_schedule(name, at.gpus, **flags_for(name, at.gpus))
    factor = FRAME_FACTOR if at.frames else 1.0
    cluster = uniform(schedule.n, at.bytes_per_s, at.latency_s, wire_time_per_payload_byte=factor)
    run = simulate(schedule, cluster, at.size_bytes // ITEM_BYTES, ITEM_BYTES, keep="totals")
    return run.trace.time_s


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the axis on which these algorithms are the fastest; ``end`` is its last place."""

    names: tuple[str, ...]
    end: float
    time_s: float


def stretches(scaling: Scaling) -> list[Stretch]:
    """The axis from left to right, cut where the fastest changes.

    >>> base = Setting(8, 0, 3.125e9, 20e-6, frames=False)
    >>> for part in stretches(Scaling("size", ("ring", "ps"), base)):
    ...     print(part.names, binary_bytes(part.end))
    ('ps',) 59.85 KiB
    ('ring',) 512 MiB
    """
    xs, found = scaling.xs, []
    left, best = xs[0], _fastest(scaling, xs[0])
    for right in xs[1:]:
        while not best & _fastest(scaling, right):
            left = _last(scaling, best, left, right)
            found.append(_stretch(scaling, best, left))
            left = _step(left, right, scaling)
            best = _fastest(scaling, left)
        left, best = right, best & _fastest(scaling, right)
    return [*found, _stretch(scaling, best, xs[-1])]


def _fastest(scaling: Scaling, x: float) -> set[str]:
    times = {name: scaling.time_s(name, x) for name in scaling.lines}
    least = min(times.values())
    return {name for name, time in times.items() if time <= least * (1 + TIE)}


def _last(scaling: Scaling, names: set[str], low: float, high: float) -> float:
    """The last place where one of ``names`` is fastest: one is at ``low``, none at ``high``."""
    whole = scaling.axis == "gpus"
    while high > (low + 1 if whole else low * 1.001):
        middle = (low + high) // 2 if whole else (low * high) ** 0.5
        if names & _fastest(scaling, middle):
            low = middle
        else:
            high = middle
    return low


def _step(x: float, limit: float, scaling: Scaling) -> float:
    """The next place that is told apart from ``x``."""
    return min(limit, x + 1 if scaling.axis == "gpus" else x * 1.001)


def _stretch(scaling: Scaling, names: set[str], end: float) -> Stretch:
    ordered = tuple(name for name in scaling.lines if name in names)
    return Stretch(ordered, end, scaling.time_s(ordered[0], end))


def headline(scaling: Scaling, found: Sequence[Stretch], text: Text) -> str:
    """Which algorithm is fastest where.

    >>> from views.text import load_text
    >>> base = Setting(8, 0, 3.125e9, 20e-6, frames=False)
    >>> scaling = Scaling("size", ("ring", "ps"), base)
    >>> print(headline(scaling, stretches(scaling), load_text("en")))
    With 8 GPUs, 25Gbit/s and 20 µs latency per message the fastest is: the central server up to \
59.85 KiB, then the ring.
    """
    base = scaling.base
    values = {
        "gpus": base.gpus,
        "size": binary_bytes(base.size_bytes),
        "rate": place("bandwidth", base.bytes_per_s),
        "latency": format_time(base.latency_s),
    }
    start = text(f"scaling.along_{scaling.axis}", **values)
    if len(scaling.lines) == 1:
        return start + text("scaling.alone", name=_names(scaling.lines, text))
    if len(found) == 1:
        return start + text("scaling.everywhere", name=_names(found[0].names, text))
    shown = found if len(found) <= 4 else found[:3]
    parts = [
        text("scaling.up_to", name=_names(part.names, text), x=place(scaling.axis, part.end))
        for part in shown[:-1]
    ]
    if shown is found:
        parts.append(text("scaling.then", name=_names(found[-1].names, text)))
        ending = text("scaling.stop")
    else:
        last, end = shown[-1], place(scaling.axis, shown[-1].end)
        parts.append(text("scaling.up_to", name=_names(last.names, text), x=end))
        ending = text("scaling.more", count=len(found) - 1)
    return start + text("scaling.lead") + text("scaling.comma").join(parts) + ending


def _names(names: Sequence[str], text: Text) -> str:
    return text("scaling.and").join(text(f"strategy.{name}.inline") for name in names)


def place(axis: str, x: float) -> str:
    """A place of the axis, for people.

    >>> place("size", 2048), place("bandwidth", 25e6), place("latency", 3e-6), place("gpus", 4)
    ('2 KiB', '200Mbit/s', '3 µs', '4')
    """
    if axis == "gpus":
        return f"{x:.0f}"
    if axis == "size":
        return binary_bytes(x)
    if axis == "latency":
        return format_time(float(f"{x:.3g}"))
    bits = x * 8
    return f"{bits / 1e9:.3g}Gbit/s" if bits >= 0.9995e9 else f"{bits / 1e6:.3g}Mbit/s"


@dataclass(frozen=True, slots=True)
class Point:
    """A measured run that lies on the lines' configuration: at ``x``, of the line ``name``."""

    name: str
    x: float
    record: Record


def measured_points(scaling: Scaling, records: Iterable[Record]) -> list[Point]:
    """The believable records on these lines."""
    own_name = {VENDOR_NAMES.get(name, name): name for name in scaling.lines}
    own_name |= {name: name for name in scaling.lines}
    found = []
    for record in records:
        name = own_name.get(record.name)
        if name is None or not record.believable or record.network_bytes_per_s is None:
            continue
        if record.flags != flags_for(name, record.gpus):
            continue
        x = {
            "gpus": float(record.gpus),
            "size": float(record.size_bytes),
            "bandwidth": record.network_bytes_per_s,
            "latency": 0.0,  # no place on a logarithmic axis
        }[scaling.axis]
        if x and scaling.base.frames and same_setting(record, scaling.at(x)):
            found.append(Point(name, x, record))
    return found


def table_header(scaling: Scaling, text: Text) -> list[str]:
    """Of ``table_rows``."""
    lines = [text(f"strategy.{name}") for name in scaling.lines]
    return [text(f"scaling.axis_{scaling.axis}"), *lines, text("scaling.bound")]


def table_rows(scaling: Scaling, points: Sequence[Point], text: Text) -> list[list[str]]:
    """One row per place: times, the fastest in bold, measured ones behind their sign."""
    rows = []
    for x in scaling.xs:
        best = _fastest(scaling, x)
        cells = []
        for name in scaling.lines:
            cell = format_time(scaling.time_s(name, x))
            cell = f"**{cell}**" if name in best and len(scaling.lines) > 1 else cell
            for point in points:
                if point.name == name and point.x == x:
                    cell += f" {sign(point.record)}\u00a0{format_time(point.record.median_s)}"
            cells.append(cell)
        rows.append([place(scaling.axis, x), *cells, format_time(scaling.bound_s(x))])
    return rows


def sign(record: Record) -> str:
    """As on the race's time axis: full for a replay, hollow for the vendor's own run."""
    return "◆" if record.source == Source.REPLAYED.value else "◇"


def export_rows(scaling: Scaling, points: Sequence[Point]) -> list[dict[str, Any]]:
    """Simulated and measured times with their configuration, for files."""

    def row(source: str, name: str, at: Setting, time: float) -> dict[str, Any]:
        flags = " ".join(f"{k}={v}" for k, v in flags_for(name, at.gpus).items())
        return {
            "source": source,
            "algorithm": name,
            "flags": flags,
            "gpus": at.gpus,
            "size_bytes": at.size_bytes,
            "bytes_per_s": at.bytes_per_s,
            "latency_s": at.latency_s,
            "frame_headers": at.frames,
            "time_s": time,
        }

    simulated = Source.SIMULATED.value
    rows = [
        row(simulated, name, scaling.at(x), scaling.time_s(name, x))
        for name in scaling.lines
        for x in scaling.xs
    ]
    rows += [row("lower bound", "", scaling.at(x), scaling.bound_s(x)) for x in scaling.xs]
    rows += [
        row(p.record.source, p.record.name, scaling.at(p.x), p.record.median_s) for p in points
    ]
    return rows
