"""Which patterns a calibration measures, with messages of which sizes, and how often. No torch.

A size is worth measuring where something else begins to decide: below, what a message costs; from
some size on, the rate alone. Where that is depends on the links.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from real_gpu.job import Case, Network
from real_gpu.validation.patterns import ADDING, COPYING, patterns

BEYOND = 2  # sizes that have the rate in common where nothing was set
_QUICK_PATTERNS = ("one way", "there and back", "in a row", "chain", "fan-out in turn", "fan-in")
_LONGEST_S = 0.25  # of a message, at the rate that was set
_RUNS, _CONFIDENCE = 8, 0.02
_QUICK_RUNS = 6  # the least of which an interval is known
_MORE = 2  # times as many runs of the messages that the rate is found from
KiB, MiB = 2**10, 2**20


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of messages, in a whole and in a quick calibration; and of what a rank adds or copies."""

    whole: tuple[int, ...]
    quick: tuple[int, ...]
    local: int


# At 370 GB/s a message of 2 MiB takes 6 us, less than a launch: there the rate shows in 64 MiB and
# more, and a sum in what no cache holds.
SIZES = {
    "shaped": Sizes(
        (4, 4 * KiB, 32 * KiB, 128 * KiB, 512 * KiB, 2 * MiB),
        (4, 64 * KiB, 256 * KiB, MiB),
        MiB,
    ),
    "gloo": Sizes(
        (4, 4 * KiB, 32 * KiB, 128 * KiB, 512 * KiB, 2 * MiB, 8 * MiB, 16 * MiB),
        (4, 64 * KiB, 256 * KiB, MiB, 4 * MiB, 16 * MiB),
        4 * MiB,
    ),
    "nccl": Sizes(
        (4, 8 * KiB, 64 * KiB, 256 * KiB, MiB, 4 * MiB, 16 * MiB, 64 * MiB, 128 * MiB),
        (4, 64 * KiB, MiB, 4 * MiB, 16 * MiB, 64 * MiB, 128 * MiB),
        128 * MiB,
    ),
}


def cases_for(n: int, backend: str, shaped: Network | None, quick: bool) -> tuple[Case, ...]:
    """All that is measured on ``n`` ranks; on a shaped network the largest messages are counted.

    >>> cases = cases_for(2, "nccl", None, quick=True)
    >>> max(case.size_bytes for case in cases), any(case.counted for case in cases)
    (134217728, False)
    """
    of = SIZES["shaped" if shaped else backend]
    longest = np.inf if shaped is None else _LONGEST_S * shaped.bytes_per_s
    sizes = [size for size in (of.quick if quick else of.whole) if size <= max(longest, 4096)]
    names = [name for name in patterns(n) if not quick or name in _QUICK_PATTERNS]
    runs, confidence = (_QUICK_RUNS, None) if quick else (_RUNS, _CONFIDENCE)

    def case(name: str, size: int) -> Case:
        large = name in names and size in sizes[-BEYOND - 1 :]
        how: dict[str, Any] = {"confidence": confidence}
        how["runs"] = runs * (_MORE if large and shaped is None else 1)
        how["counted"] = shaped is not None and large and size == sizes[-1]
        return Case(name, size // 4, **how)

    both = [case(name, size) for name in names for size in sizes]
    return (*both, *(case(name, of.local) for name in (ADDING, COPYING)))
