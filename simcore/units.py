"""Sizes, rates and times: text to SI numbers and back. The only place that knows prefixes.

Bytes, bytes per second and seconds inside; units at the edges. ``GB`` = 10⁹ bytes,
``GiB`` = 2³⁰ bytes, and ``Gbit`` is an eighth of a ``GB``.
"""

from __future__ import annotations

import re
from fractions import Fraction

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {f"{prefix}i": 1024**power for power, prefix in enumerate("KMGTP", start=1)}

_BYTES = {f"{p}B": Fraction(f) for p, f in (_DECIMAL | _BINARY | {"K": 10**3}).items()}
_BYTES_PER_S = {f"{unit}/s": factor for unit, factor in _BYTES.items()} | {
    f"{p}{bit}": Fraction(f, 8) for p, f in _DECIMAL.items() for bit in ("bit/s", "b/s", "bps")
}
_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),  # MICRO SIGN and, below, GREEK MU look alike; people type both
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
}

# Ethernet, IPv4, TCP with time stamps: 1514 bytes of frame carry 1448 of payload.
FRAME_FACTOR = 1514 / 1448

# Bytes of one item of the types that gradients come in.
ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "uint8": 1,
}

SIZE_EXAMPLES = "8MiB (2**20 bytes), 100MB (10**6 bytes), 4096B"
RATE_EXAMPLES = "200Mbit/s, 25Gbit/s, 25GB/s"
TIME_EXAMPLES = "5us, 1.5ms, 2s"

_QUANTITY = re.compile(
    r"\s*(?P<number>[-+]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:[eE][-+]?\d{1,3})?)"
    r"\s*(?P<unit>[A-Za-zµμ/]*)\s*"
)
# Numbers beyond these are typing errors, and would leave the range of floats further on.
_SMALLEST, _LARGEST = Fraction(1, 10**30), Fraction(10**30)


def parse_bytes(text: str) -> int:
    """Bytes of a size such as ``8MiB``; a whole number of them.

    >>> parse_bytes("8MiB"), parse_bytes("100MB"), parse_bytes("0")
    (8388608, 100000000, 0)
    >>> parse_bytes("8Mbit")
    Traceback (most recent call last):
    ValueError: size '8Mbit': unknown unit 'Mbit'; accepted: 8MiB (2**20 bytes), \
100MB (10**6 bytes), 4096B
    """
    number, factor = _split("size", text, _BYTES, SIZE_EXAMPLES)
    nbytes = number * (factor or 0)
    if nbytes.denominator != 1:
        raise ValueError(f"size {text!r} is {float(nbytes):g} bytes; accepted: whole bytes")
    return int(nbytes)


def parse_rate(text: str) -> float:
    """Bytes per second of a rate such as ``200Mbit/s`` or ``25GB/s``; above zero.

    >>> parse_rate("200Mbit/s"), parse_rate("25GB/s")
    (25000000.0, 25000000000.0)
    >>> parse_rate("25")
    Traceback (most recent call last):
    ValueError: rate '25' has no unit; accepted: 25Gbit/s (which is 3.125 GB/s) or 25GB/s
    """
    number, factor = _split("rate", text, _BYTES_PER_S, RATE_EXAMPLES)
    if number == 0:
        raise ValueError(f"rate {text!r} must be above zero; accepted: {RATE_EXAMPLES}")
    if factor is None:
        bits = format_rate(float(number * _BYTES_PER_S["Gbit/s"]))
        plain = text.strip()
        raise ValueError(
            f"rate {text!r} has no unit; accepted: {plain}Gbit/s (which is {bits}) or {plain}GB/s"
        )
    return float(number * factor)


def parse_time(text: str) -> float:
    """Seconds of a time such as ``5us``.

    >>> parse_time("5us"), parse_time("1.5ms"), parse_time("0")
    (5e-06, 0.0015, 0.0)
    """
    number, factor = _split("time", text, _SECONDS, TIME_EXAMPLES)
    return float(number * (factor or 0))


def _split(
    what: str, text: str, units: dict[str, Fraction], examples: str
) -> tuple[Fraction, Fraction | None]:
    """The number, not negative and in range, and the factor of its unit; None for a bare 0 or rate.

    Fractions, so that 0.3MB is a whole number of bytes and 5us the float nearest to 5e-6.
    """
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"{what} {text!r} is not a number with a unit; accepted: {examples}")
    number = Fraction(match["number"])
    if number < 0:
        raise ValueError(f"{what} {text!r} must not be negative; accepted: {examples}")
    if number and not _SMALLEST <= number <= _LARGEST:
        raise ValueError(f"{what} {text!r} is out of range (1e-30 to 1e30); accepted: {examples}")
    if not match["unit"]:
        if number and what != "rate":
            raise ValueError(f"{what} {text!r} has no unit; accepted: {examples}")
        return number, None
    if match["unit"] not in units:
        raise ValueError(f"{what} {text!r}: unknown unit {match['unit']!r}; accepted: {examples}")
    return number, units[match["unit"]]


def format_bytes(nbytes: float) -> str:
    """A size with four digits: binary when that is shorter, decimal otherwise.

    >>> format_bytes(8 * 2**20), format_bytes(100_000_000), format_bytes(1536), format_bytes(0)
    ('8 MiB', '100 MB', '1.5 KiB', '0 B')
    """
    for unit, factor in reversed(_BINARY.items()):
        if nbytes >= factor and (nbytes / factor * 4).is_integer() and nbytes / factor < 1024:
            return f"{nbytes / factor:g} {unit}B"
    return _scaled(nbytes, "B")


def format_rate(bytes_per_s: float) -> str:
    """A rate in bytes per second.

    >>> format_rate(25e6), format_rate(3.125e9)
    ('25 MB/s', '3.125 GB/s')
    """
    return _scaled(bytes_per_s, "B/s")


def format_time(seconds: float) -> str:
    """A time with four digits in the unit that reads best.

    >>> format_time(0.50331648), format_time(2.0133), format_time(5e-6), format_time(0)
    ('503.3 ms', '2.013 s', '5 µs', '0 s')
    """
    if seconds == 0:
        return "0 s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= factor * 0.99995:
            return f"{_digits(seconds / factor)} {unit}"
    return f"{_digits(seconds * 1e9)} ns"


def _scaled(value: float, unit: str) -> str:
    for prefix, factor in reversed(_DECIMAL.items()):
        if abs(value) >= factor * 0.99995:
            return f"{_digits(value / factor)} {prefix}{unit}"
    return f"{_digits(value)} {unit}"


def _digits(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:.0f}"
