"""What the fields of a validation's file may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simcore.trace import Source
from simcore.training.model import is_whole

MOST_GPUS, MOST_RUNS = 65_536, 1000


def objects(name: str, value: Any) -> dict[str, Any]:
    """An object of objects, or a ``ValueError``."""
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
        raise ValueError(f"field {name!r}: accepted: an object with an object for each network")
    return value


def check_calibration(document: dict[str, Any], where: str) -> None:
    """What readers rely on; a calibration may say more."""
    for name, constant in objects("constants", document.get("constants", {})).items():
        if not all(_number(constant.get(key)) for key in ("value", "low", "high")):
            raise ValueError(f"{where}: constant {name!r}: accepted: numbers value, low, high")
        if not isinstance(constant.get("unit"), str):
            raise ValueError(f"{where}: constant {name!r}: accepted: a text as unit")
    residuals = document.get("residuals", [])
    numbers = ("gpus", "size_bytes", "measured_s", "fitted_s")
    if not isinstance(residuals, list | tuple) or not all(
        isinstance(row, dict)
        and isinstance(row.get("pattern"), str)
        and all(_number(row.get(name)) for name in numbers)
        for row in residuals
    ):
        raise ValueError(f"{where}: residuals: accepted: rows of pattern, {', '.join(numbers)}")


def _number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= 1e300  # refuses NaN, and integers too large for a float


def _seconds(value: Any) -> bool:
    return _number(value) and value > 0


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 1000 and value.isprintable()


def _texts(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) <= 100 and all(map(_text, value))


def _one_of(*names: str) -> tuple[Callable[[Any], bool], str]:
    return (lambda value: value in names), ", ".join(names)


CELL_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kind": _one_of("collective", "step"),
    "name": (_text, "a text"),
    "source": _one_of(Source.REPLAYED.value, Source.VENDOR.value),
    "gpus": (lambda v: is_whole(v, 1) and v <= MOST_GPUS, f"a whole number, 1 to {MOST_GPUS}"),
    "size_bytes": (lambda v: is_whole(v) and v < 2**63, "whole bytes"),
    "network": (lambda v: v is None or _text(v), "null, or a text such as '200Mbit/s'"),
    "flags": (
        lambda v: isinstance(v, dict) and all(_text(k) and is_whole(f) for k, f in v.items()),
        "an object of whole numbers",
    ),
    "runs_s": (
        lambda v: isinstance(v, tuple) and len(v) <= MOST_RUNS and all(map(_seconds, v)),
        f"a list of up to {MOST_RUNS} times in seconds, each above 0",
    ),
    "measured_s": (_seconds, "a time in seconds, above 0"),
    "simulated_s": (lambda v: v is None or _seconds(v), "null, or a time in seconds, above 0"),
    "bytes_error": (lambda v: v is None or _number(v), "null, or a number"),
    "calibrated_on": (lambda v: isinstance(v, bool), "true or false"),
    "believable": (lambda v: isinstance(v, bool), "true or false"),
    "notes": (_texts, "a list of texts"),
}
