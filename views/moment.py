"""A moment of the player's clock as words for the address, and back."""

from __future__ import annotations

from decimal import Decimal
from math import floor, log10
from typing import Any

from simcore.units import parse_time

_UNITS = (("s", 0), ("ms", -3), ("us", -6), ("ns", -9))  # as powers of ten
_DIGITS = 9  # of the clock's end


def clock_end_s(data: dict[str, Any]) -> float:
    """How far the clock of a player with this payload goes: all that is on its axis counts."""
    marks = [mark["high_s"] for lane in data["lanes"] for mark in lane["marks"]]
    ghosts = [lane["ghost"]["time_s"] for lane in data["lanes"] if lane["ghost"]]
    longest = max([lane["time_s"] for lane in data["lanes"]] + marks + ghosts)
    return float(longest * 1.01 or 1.0)  # as in player.js


def moment_words(moment_s: float, end_s: float) -> str:
    """The moment to a billionth of the clock's end, never earlier: what has happened still has.

    >>> moment_words(0.2131, 2.1), moment_words(1 / 3, 2.1), moment_words(5e-6, 1e-5)
    ('213.1ms', '333.333334ms', '5us')
    """
    power = floor(log10(end_s)) - _DIGITS
    ticks = round(moment_s / 10.0**power)
    words = _words(Decimal(ticks).scaleb(power))
    return words if parse_time(words) >= moment_s else _words(Decimal(ticks + 1).scaleb(power))


def _words(seconds: Decimal) -> str:
    if not seconds:
        return "0s"
    unit, power = next((u for u in _UNITS if seconds >= Decimal(1).scaleb(u[1])), _UNITS[-1])
    return f"{seconds.scaleb(-power).normalize():f}{unit}"


def parse_moment(words: str, end_s: float) -> float:
    """Seconds; a ``ValueError`` when the clock never shows that.

    >>> parse_moment("213.1ms", 2.1)
    0.2131
    >>> parse_moment("3s", 2.1)
    Traceback (most recent call last):
    ValueError: the clock ends at 2.1 s, before 3s
    """
    moment_s = parse_time(words)
    if moment_s > end_s * (1 + 10.0**-_DIGITS):
        raise ValueError(f"the clock ends at {end_s:g} s, before {words}")
    return min(moment_s, end_s)
