"""Time along one axis: lines of algorithms, and where the fastest changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from simcore.units import format_time
from views.comparison import binary_bytes
from views.race import Setting
from views.scaling.lines import NODE_GPUS, bound_s, time_s
from views.text import Text

GPUS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
NODES = tuple(range(NODE_GPUS, 65, NODE_GPUS))
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
    """What the reader chose; of ``base``, what stands on the axis does not matter.

    ``grid`` is where the lines are computed, in SI units, where not at the axis's usual places.
    """

    axis: str
    lines: tuple[str, ...]
    base: Setting
    network: str = "flat"
    grid: tuple[float, ...] = ()

    @property
    def xs(self) -> tuple[float, ...]:
        """Where the lines are computed, in SI units."""
        if self.grid:
            return self.grid
        return NODES if (self.axis, self.network) == ("gpus", "nodes") else AXES[self.axis]

    @property
    def whole(self) -> int:
        """The least step of the axis, if it has one: a GPU, or a node of them."""
        if self.axis != "gpus":
            return 0
        return NODE_GPUS if self.network == "nodes" else 1

    def at(self, x: float) -> Setting:
        """The setting at a place of the axis."""
        return placed(self.base, self.axis, x)

    def time_s(self, name: str, x: float) -> float:
        """An algorithm's time at a place of the axis."""
        return time_s(name, self.at(x), self.network)

    def bound_s(self, x: float) -> float:
        """The lower bound there, for algorithms without extra servers."""
        return bound_s(self.at(x), self.network)


def placed(base: Setting, axis: str, x: float) -> Setting:
    """``base``, but at a place of an axis.

    >>> placed(Setting(8, 1024, 1e9), "gpus", 4.0).gpus
    4
    """
    value = round(x) if axis in ("gpus", "size") else x
    changes: dict[str, Any] = {_FIELDS[axis]: value}
    return replace(base, **changes)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the axis on which these algorithms are the fastest; ``end`` is its last place."""

    names: tuple[str, ...]
    end: float
    time_s: float


def stretches(scaling: Scaling, finest: float = 1.001) -> list[Stretch]:
    """The axis from left to right, cut where the fastest changes, within a factor ``finest``.

    >>> base = Setting(8, 0, 3.125e9, 20e-6, frames=False)
    >>> for part in stretches(Scaling("size", ("ring", "ps"), base)):
    ...     print(part.names, binary_bytes(part.end))
    ('ps',) 59.85 KiB
    ('ring',) 512 MiB
    """
    xs, found = scaling.xs, []
    left, best = xs[0], fastest(scaling, xs[0])
    for right in xs[1:]:
        while not best & fastest(scaling, right):
            left = _last(scaling, best, left, right, finest)
            found.append(_stretch(scaling, best, left))
            left = min(right, left + scaling.whole if scaling.whole else left * finest)
            best = fastest(scaling, left)
        left, best = right, best & fastest(scaling, right)
    return [*found, _stretch(scaling, best, xs[-1])]


def fastest(scaling: Scaling, x: float) -> set[str]:
    """The lines that nothing shown beats there, by more than could be measured."""
    times = {name: scaling.time_s(name, x) for name in scaling.lines}
    least = min(times.values())
    return {name for name, time in times.items() if time <= least * (1 + TIE)}


def _last(scaling: Scaling, names: set[str], low: float, high: float, finest: float) -> float:
    """The last place where one of ``names`` is fastest: one is at ``low``, none at ``high``."""
    whole = scaling.whole
    scaling = scaling if whole else replace(scaling, lines=_within(scaling, low, high))
    while high > (low + whole if whole else low * finest):
        middle = low + (high - low) // (2 * whole) * whole if whole else math.sqrt(low * high)
        if names & fastest(scaling, middle):
            low = middle
        else:
            high = middle
    return low


def _within(scaling: Scaling, low: float, high: float) -> tuple[str, ...]:
    """Lines that may be the fastest in between: a time only grows or only shrinks along an axis."""
    ends = {
        name: sorted((scaling.time_s(name, low), scaling.time_s(name, high)))
        for name in scaling.lines
    }
    surely = min(slowest for _, slowest in ends.values())
    return tuple(name for name, (least, _) in ends.items() if least <= surely * (1 + TIE))


def _stretch(scaling: Scaling, names: set[str], end: float) -> Stretch:
    ordered = tuple(name for name in scaling.lines if name in names)
    return Stretch(ordered, end, scaling.time_s(ordered[0], end))


def headline(scaling: Scaling, found: Sequence[Stretch], text: Text) -> str:
    """Which algorithm is fastest where.

    >>> from views.text import load_text
    >>> base = Setting(8, 0, 3.125e9, 20e-6, frames=False)
    >>> scaling = Scaling("size", ("ring", "ps"), base)
    >>> print(headline(scaling, stretches(scaling), load_text("en")))
    With 8 GPUs, 25Gbit/s and 20 µs latency per message, the fastest: the central server up to \
59.85 KiB, then the ring.
    """
    start = in_nodes(scaling.network, text)
    start += text(f"scaling.along_{scaling.axis}", **setting_values(scaling.base))
    if len(scaling.lines) == 1:
        return start + text("scaling.alone", name=names_inline(scaling.lines, text))
    if len(found) == 1:
        return start + text("scaling.everywhere", name=names_inline(found[0].names, text))
    shown = found if len(found) <= 4 else found[:3]
    parts = [
        text("scaling.up_to", name=names_inline(part.names, text), x=place(scaling.axis, part.end))
        for part in shown[:-1]
    ]
    if shown is found:
        parts.append(text("scaling.then", name=names_inline(found[-1].names, text)))
        ending = text("scaling.stop")
    else:
        last, end = shown[-1], place(scaling.axis, shown[-1].end)
        parts.append(text("scaling.up_to", name=names_inline(last.names, text), x=end))
        ending = text("scaling.more", count=len(found) - 1)
    return start + text("scaling.lead") + text("scaling.comma").join(parts) + ending


def in_nodes(network: str, text: Text) -> str:
    """What a sentence says first where the GPUs are in nodes."""
    return text("scaling.in_nodes") if network == "nodes" else ""


def setting_values(base: Setting) -> dict[str, object]:
    """What the sentences that begin with the setting ask for."""
    return {
        "gpus": base.gpus,
        "size": binary_bytes(base.size_bytes),
        "rate": place("bandwidth", base.bytes_per_s),
        "latency": format_time(base.latency_s),
    }


def names_inline(names: Sequence[str], text: Text) -> str:
    """Algorithms inside a sentence."""
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
