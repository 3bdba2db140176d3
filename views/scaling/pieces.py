"""A broadcast along a line of GPUs, cut into pieces that follow each other: how many are best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcore.algorithms import build_schedule
from simcore.engine import simulate
from simcore.trace import FloatArray, Source
from simcore.units import format_time
from views.race import ITEM_BYTES, Setting
from views.scaling.curves import place, setting_values
from views.text import Text

MOST = 4096  # pieces on the axis, if the buffer has as many numbers
FLAT = 1e-9  # no faster than this part is no reason for one more piece


@dataclass(frozen=True, slots=True)
class Pieces:
    """``ring-broadcast`` at a setting, against how many pieces there are.

    P pieces need n-2+P steps. Each step costs a latency; the first piece, the largest, is sent on
    n-2 times before the last GPU has it, and that GPU's port carries the buffer once. So the time
    is ``(n-2+P)·α + (S + (n-2)·⌈S/P⌉)/B``: for any P what the simulator gives.
    """

    at: Setting

    @property
    def most(self) -> int:
        """The end of the axis."""
        return min(MOST, self.at.size_bytes // ITEM_BYTES)

    @property
    def pieces(self) -> tuple[int, ...]:
        """Where the curve is drawn: two places to an octave."""
        found = {min(self.most, round(2 ** (half / 2))) for half in range(25)}
        return tuple(sorted(found))

    def waits_s(self, pieces: int | FloatArray) -> Any:
        """The part of the time that latency takes."""
        return (self.at.gpus - 2 + pieces) * self.at.latency_s

    def sends_s(self, pieces: int | FloatArray) -> Any:
        """The part that the ports take."""
        elements = self.at.size_bytes // ITEM_BYTES
        first = np.ceil(elements / pieces)
        return (elements + (self.at.gpus - 2) * first) * ITEM_BYTES / self.at.data_bytes_per_s

    def time_s(self, pieces: int | FloatArray) -> Any:
        """From the start until the last GPU has the whole buffer.

        >>> Pieces(Setting(4, 8 * 2**20, 25e6, 1e-3, frames=False)).time_s(64).round(4).item()
        0.412
        """
        return self.waits_s(pieces) + self.sends_s(pieces)

    @property
    def best(self) -> int:
        """The fewest pieces that are as fast as any number on the axis."""
        times = self.time_s(np.arange(1.0, self.most + 1))
        return int(np.flatnonzero(times <= times.min() * (1 + FLAT))[0]) + 1

    @property
    def rule(self) -> float:
        """Where sending and waiting balance: √((n-2)·S/(α·B)), were pieces of any size."""
        if not self.at.latency_s:
            return math.inf if self.at.gpus > 2 else 1.0
        port_s = self.at.size_bytes / self.at.data_bytes_per_s
        return max(1.0, math.sqrt((self.at.gpus - 2) * port_s / self.at.latency_s))

    @property
    def bound_s(self) -> float:
        """No broadcast is faster: the buffer through one port, and one latency."""
        return self.at.size_bytes / self.at.data_bytes_per_s + self.at.latency_s


def simulated_s(pieces: Pieces, count: int) -> float:
    """The simulator's time for so many pieces."""
    schedule = build_schedule("ring-broadcast", pieces.at.gpus, pieces=count)
    elements = pieces.at.size_bytes // ITEM_BYTES
    run = simulate(schedule, pieces.at.cluster(), elements, ITEM_BYTES, keep="totals")
    return run.trace.time_s


def headline(pieces: Pieces, text: Text) -> str:
    """How many pieces are best, what they gain, and what too many lose.

    >>> from views.text import load_text
    >>> print(headline(Pieces(Setting(8, 8 * 2**20, 3.125e9, 20e-6)), load_text("en")))
    With 8 GPUs, 8 MiB, 25Gbit/s and 20 µs latency per message, a broadcast along a line is \
fastest in 28 pieces: 3.94 ms, 4.8 times as fast as in one. In 4096 it takes 84.73 ms: \
every piece costs one more latency.
    """
    best, most = pieces.best, pieces.most
    once_s, best_s, most_s = (float(pieces.time_s(count)) for count in (1, best, most))
    values = setting_values(pieces.at) | {
        "best": best,
        "time": format_time(best_s),
        "factor": f"{once_s / best_s:.2g}",
        "most": most,
        "most_time": format_time(most_s),
    }
    start = text("pieces.with", **values)
    if pieces.at.gpus == 2:
        return start + text("pieces.two", **values)
    if not pieces.at.latency_s:
        return start + text("pieces.free", **values)
    if best == 1:
        return start + text("pieces.one", **values)
    ending = "pieces.too_many" if best < most else "pieces.at_the_end"
    return start + text("pieces.best", **values) + text(ending, **values)


def formula(pieces: Pieces, text: Text) -> str:
    """The time with today's numbers, and the rule for the best."""
    at, best = pieces.at, pieces.best
    values = setting_values(at) | {
        "before": at.gpus - 2,
        "best": best,
        "time": format_time(float(pieces.time_s(best))),
        "waits": format_time(float(pieces.waits_s(best))),
        "sends": format_time(float(pieces.sends_s(best))),
        "rule": f"{pieces.rule:.4g}",
        "simulated": format_time(simulated_s(pieces, best)),
    }
    words = text("pieces.formula", **values)
    if at.latency_s and at.gpus > 2:
        words += text("pieces.rule", **values)
    return words


def table_header(text: Text) -> list[str]:
    """Of ``table_rows``."""
    return [text(f"pieces.{key}") for key in ("axis", "sends", "waits", "total")]


def table_rows(pieces: Pieces) -> list[list[str]]:
    """Powers of two and the best, in bold."""
    counts = {2**power for power in range(13) if 2**power <= pieces.most} | {pieces.best}
    rows = []
    for count in sorted(counts):
        parts = [
            format_time(float(part(count)))
            for part in (pieces.sends_s, pieces.waits_s, pieces.time_s)
        ]
        best = count == pieces.best
        rows.append([f"**{cell}**" if best else cell for cell in (str(count), *parts)])
    return rows


def export_rows(pieces: Pieces) -> list[dict[str, Any]]:
    """The curve's places and the best, for files."""
    at = pieces.at
    return [
        {
            "source": Source.SIMULATED.value,
            "algorithm": "ring-broadcast",
            "pieces": count,
            "gpus": at.gpus,
            "size_bytes": at.size_bytes,
            "bytes_per_s": at.bytes_per_s,
            "latency_s": at.latency_s,
            "frame_headers": at.frames,
            "ports_s": float(pieces.sends_s(count)),
            "latencies_s": float(pieces.waits_s(count)),
            "time_s": float(pieces.time_s(count)),
        }
        for count in sorted({*pieces.pieces, pieces.best})
    ]


def size_of_one(pieces: Pieces, count: int) -> str:
    """How large the largest of so many pieces is."""
    elements = pieces.at.size_bytes // ITEM_BYTES
    return place("size", -(-elements // count) * ITEM_BYTES)
