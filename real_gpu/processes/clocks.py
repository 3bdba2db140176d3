"""Clocks of several machines: how far another one is from ours, and how sure that is.

As in the Network Time Protocol, the other's clock is asked for its time again and again. What it
shows lies between the moments of question and answer on our clock, so each exchange bounds the
offset from both sides, the tighter the shorter its round trip; what all of them allow is left.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

EXCHANGES = 16


@dataclass(frozen=True, slots=True)
class Exchange:
    """Asked and answered at these moments of our clock; between, the other's clock showed this."""

    asked_s: float
    shown_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class Offset:
    """What another clock shows is what ours shows plus ``offset_s``, to ± ``uncertainty_s``.

    >>> ahead = Offset(100.0, 0.001)
    >>> ahead.there(5.0), ahead.here(105.0)
    (105.0, 5.0)
    """

    offset_s: float = 0.0
    uncertainty_s: float = 0.0

    def here(self, there_s: float) -> float:
        """A moment of the other clock, on ours."""
        return there_s - self.offset_s

    def there(self, here_s: float) -> float:
        """A moment of our clock, on the other."""
        return here_s + self.offset_s


def offset_of(exchanges: Sequence[Exchange]) -> Offset:
    """The middle of what the exchanges allow; at most half the least round trip away from it.

    >>> offset_of([Exchange(0.0, 100.5, 2.0), Exchange(5.0, 106.0, 6.0)])
    Offset(offset_s=100.25, uncertainty_s=0.25)
    """
    low = max(e.shown_s - e.answered_s for e in exchanges)
    high = min(e.shown_s - e.asked_s for e in exchanges)
    if low > high:  # the clocks drifted apart meanwhile: believe the shortest round trip
        best = min(exchanges, key=lambda e: e.answered_s - e.asked_s)
        low, high = best.shown_s - best.answered_s, best.shown_s - best.asked_s
    return Offset((low + high) / 2, (high - low) / 2)


def compare(ask: Callable[[], float], now: Callable[[], float] = time.monotonic) -> Offset:
    """Ask another clock for its time, ``EXCHANGES`` times."""
    exchanges = []
    for _ in range(EXCHANGES):
        asked_s = now()
        shown_s = ask()
        exchanges.append(Exchange(asked_s, shown_s, now()))
    return offset_of(exchanges)


def clock_name() -> str:
    """Two processes with the same answer share one monotonic clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return f"{uuid.getnode():x}"
