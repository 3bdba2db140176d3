"""Text on the command line to values; what is not accepted is said in one line."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar, get_args

from simcore import units
from simcore.engine import Sync
from simcore.names import unknown
from simcore.solvers import network

MAX_GPUS = 65_536
T = TypeVar("T")


def _value(parse: Callable[[str], T]) -> Callable[[str], T]:
    """For argparse, which would otherwise replace a ValueError's text by its own."""

    @wraps(parse)
    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


seconds = _value(units.parse_time)
nbytes = _value(units.parse_bytes)
bytes_per_s = _value(units.parse_rate)
slow_link = _value(network.parse_slow_link)


@_value
def gpus(text: str) -> int:
    """How many GPUs."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= MAX_GPUS:
        raise ValueError(f"{text!r} is not a number of GPUs; accepted: 1 to {MAX_GPUS}")
    return int(text)


@_value
def count(text: str) -> int:
    """A whole number, also none."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > MAX_GPUS:
        raise ValueError(f"{text!r} is not a whole number; accepted: 0, 1, 2, … {MAX_GPUS}")
    return int(text)


@_value
def order(text: str) -> str | list[int]:
    """Which rank takes which place."""
    if text in ("natural", "auto"):
        return text
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise ValueError(f"order {text!r}; accepted: natural, auto, or all ranks, such as 0,2,1,3")
    return [int(rank) for rank in text.split(",")]


@_value
def dtype(text: str) -> str:
    """The type of the numbers."""
    if text not in units.ITEM_BYTES:
        raise ValueError(unknown("dtype", text, units.ITEM_BYTES))
    return text


@_value
def sync(text: str) -> str:
    """When a transfer may start."""
    if text not in get_args(Sync):
        raise ValueError(unknown("sync", text, get_args(Sync)))
    return text


@_value
def straggler(text: str) -> tuple[int, float]:
    """A rank and how many seconds late it starts."""
    match = re.fullmatch(r"(\d{1,9}):(.+)", text)
    if not match:
        raise ValueError(f"straggler {text!r}; accepted: RANK:TIME, such as 3:2ms")
    return int(match[1]), units.parse_time(match[2])


@_value
def slower(text: str) -> tuple[int, float]:
    """A rank and by which factor it computes longer."""
    match = re.fullmatch(r"(\d{1,9}):(\d+(?:\.\d+)?)", text)
    if not match or not float(match[2]):
        raise ValueError(f"slower {text!r}; accepted: RANK:FACTOR, such as 3:1.5")
    return int(match[1]), float(match[2])


@_value
def trace_file(text: str) -> Path:
    """A file to be written, whose ending is its format."""
    path = Path(text)
    if path.suffix not in (".json", ".csv"):
        raise ValueError(f"trace file {text!r}; accepted: a name that ends in .json or .csv")
    if not os.path.isdir(path.parent):  # unlike Path's, takes a name of any length
        raise ValueError(f"trace file {text!r}: {str(path.parent)!r} is not a directory")
    return path


@_value
def samples(text: str) -> int:
    """A batch."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise ValueError(f"{text!r} is no batch; accepted: samples per GPU, at least 1")
    return int(text)


@_value
def precision(text: str) -> str:
    """A type that parameters are trained in."""
    accepted = ("float32", "bfloat16", "float16")
    if text not in accepted:
        raise ValueError(unknown("precision", text, accepted))
    return text


@_value
def bucket_mib(text: str) -> float:
    """A bucket's size in MiB."""
    return _number_up_to(
        1e6, text, f"{text!r} is no bucket size; accepted: MiB from 0 to 1000000, such as 25"
    )


@_value
def overlap(text: str) -> float:
    """A share."""
    return _number_up_to(1, text, f"overlap {text!r}; accepted: from 0 (none) to 1 (all that can)")


def _number_up_to(most: float, text: str, otherwise: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise ValueError(otherwise)
    return value
