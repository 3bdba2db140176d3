"""How algorithms state their traffic, apart from how they make it.

``check.check_traffic`` compares the two, so what is stated is written from the definitions, not
from the generators: pairs (sent, received) of arrays of shape ``(n,)``.
"""

from __future__ import annotations

import numpy as np

from simcore.schedule import IntArray

Pair = tuple[IntArray, IntArray]


def one_each(n: int, step: int, **flags: int) -> Pair:
    """Every rank sends one chunk and receives one."""
    return np.ones(n, np.int64), np.ones(n, np.int64)
