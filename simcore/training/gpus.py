"""How fast a named GPU computes: peaks from data sheets, and how much of them training reaches.

Peaks are dense; a reachable fraction ("model FLOPs utilisation") is a range, with its source.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from simcore.names import unknown
from simcore.units import parse_bytes, parse_rate

# What training runs in where the GPU has it: 16 bits on tensor cores, float32 weights beside them.
_PREFERRED = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU's data sheet; ``flops_per_s`` by precision."""

    name: str
    memory_bytes: int
    memory_bytes_per_s: float
    flops_per_s: dict[str, float]
    source: str

    def precision(self, wanted: str | None = None) -> str:
        """The precision asked for, if the GPU has a rate for it; by default what training uses.

        >>> load_gpu("V100 16GB").precision()
        'float16'
        >>> load_gpu("V100 16GB").precision("bfloat16")
        Traceback (most recent call last):
        ValueError: unknown precision of V100 16GB 'bfloat16'; did you mean 'float16'? accepted: \
float32, float16
        """
        if wanted is None:
            return next(name for name in _PREFERRED if name in self.flops_per_s)
        if wanted not in self.flops_per_s:
            raise ValueError(unknown(f"precision of {self.name}", wanted, self.flops_per_s))
        return wanted


@dataclass(frozen=True, slots=True)
class Utilisation:
    """The fraction of the peak that a forward and backward pass reaches, with its range."""

    low: float
    typical: float
    high: float
    source: str


@functools.cache
def _data() -> dict[str, list[dict[str, Any]]]:
    text = resources.files("simcore").joinpath("data/gpus.json").read_text(encoding="utf-8")
    document: dict[str, list[dict[str, Any]]] = json.loads(text)
    return document


def gpu_names() -> tuple[str, ...]:
    """The names of the known GPUs."""
    return tuple(row["name"] for row in _data()["gpus"])


def load_gpu(name: str) -> Gpu:
    """A known GPU.

    >>> load_gpu("H100 SXM").flops_per_s["bfloat16"]
    989000000000000.0
    >>> load_gpu("H100 SMX")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: unknown GPU 'H100 SMX'; did you mean 'H100 SXM'? accepted: T4, V100 16GB, ...
    """
    for row in _data()["gpus"]:
        if row["name"] == name:
            return Gpu(
                name,
                parse_bytes(row["memory"]),
                parse_rate(row["memory_bandwidth"]),
                {precision: rate * 1e12 for precision, rate in row["tflops"].items()},
                row["source"],
            )
    raise ValueError(unknown("GPU", name, gpu_names()))


def utilisation(gpu: Gpu, precision: str, *, convolution: bool) -> Utilisation:
    """What public measurements say of this GPU and precision, or of others where there are none.

    >>> utilisation(load_gpu("A100 80GB"), "bfloat16", convolution=True).typical
    0.19
    """
    family = "convolution" if convolution else "matrices"
    for row in _data()["utilisation"]:
        fits = row["family"] == family and precision in row["precisions"]
        if fits and gpu.name in row.get("gpus", (gpu.name,)):
            return Utilisation(row["low"], row["typical"], row["high"], row["source"])
    raise AssertionError(f"no utilisation for {family}, {precision}")
