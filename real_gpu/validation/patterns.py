"""What a calibration measures: traffic between two or three ranks that is no collective, and what
a rank does by itself. No torch.
"""

from __future__ import annotations

from functools import cache
from itertools import groupby

from simcore.schedule import Collective, Op, Schedule, Step

Rows = tuple[tuple[int, int, int], ...]

# Each row is (step, src, dst) and carries the whole buffer.
PATTERNS: dict[str, Rows] = {
    "one way": ((0, 0, 1),),
    "two ways": ((0, 0, 1), (0, 1, 0)),
    "there and back": ((0, 0, 1), (1, 1, 0)),
    "in a row": ((0, 0, 1), (1, 0, 1), (2, 0, 1)),
    "chain": ((0, 0, 1), (1, 1, 2)),
    "fan-out": ((0, 0, 1), (0, 0, 2)),
    "fan-out in turn": ((0, 0, 1), (1, 0, 2)),
    "fan-in": ((0, 1, 0), (0, 2, 0)),
    "fan-in in turn": ((0, 1, 0), (1, 2, 0)),
}

# Rank 0 goes over its buffer so many times, while the others wait: adding to it, or copying.
ADDING, COPYING, PASSES = "adding", "copying", 50


def patterns(n: int) -> list[str]:
    """Those that ``n`` ranks can run."""
    return [name for name in PATTERNS if _width(name) <= n]


def _width(name: str) -> int:
    """How many ranks it takes."""
    return 1 + max(max(row[1:]) for row in PATTERNS[name])


@cache
def pattern(name: str, n: int, places: tuple[int, ...] = (0, 1, 2)) -> Schedule:
    """A pattern on ``n`` ranks, of which those without a part in it are idle; its own ranks are
    those in ``places``. Where these are enough for several, they run side by side.

    >>> print(pattern("chain", 9, (0, 4, 8)))
    0: 0->4 c0 copy
    1: 4->8 c0 copy
    >>> print(pattern("one way", 4, (0, 2, 1, 3)))
    0: 0->2 c0 copy
    0: 1->3 c0 copy
    """
    width = _width(name)
    sets = [places[k : k + width] for k in range(0, len(places) - width + 1, width)]
    steps = []
    for _, group in groupby(PATTERNS[name], key=lambda row: row[0]):
        rows = [(at[src], at[dst]) for _, src, dst in group for at in sets]
        steps.append(Step.of([src for src, _ in rows], [dst for _, dst in rows], 0, Op.COPY))
    owner = (0,)  # unused: nothing is known as a whole
    kind = Collective.POINT_TO_POINT
    return Schedule(name, n, 1, len(steps), kind, lambda: iter(steps), owner)
