"""What would have been: a run drawn as an outline beside the one that takes its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simcore.trace import Lane, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Ghost:
    """The other run of a lane, from ``from_s`` on; ``label`` names it at its flag."""

    trace: Trace
    label: str
    from_s: float = 0.0

    def columns(self) -> dict[str, Any]:
        """For the player: an outline per step, and the end.

        >>> from simcore.algorithms import ring
        >>> from simcore.cluster import uniform
        >>> from simcore.engine import simulate
        >>> Ghost(simulate(ring(2), uniform(2, 1000.0), 500).trace, "before", 1.5).columns()
        {'label': 'before', 'time_s': 2.0, 'bars': [[1.5, 2.0, 0]]}
        """
        spans = self.trace.spans
        rows = np.flatnonzero(spans.lane != Lane.COMPUTE)
        rows = rows[np.argsort(spans.step[rows], kind="stable")]
        first = np.flatnonzero(np.diff(spans.step[rows], prepend=-1))
        if not len(first):
            return {"label": self.label, "time_s": self.trace.time_s, "bars": []}
        start_s = np.maximum(np.minimum.reduceat(spans.start_s[rows], first), self.from_s)
        end_s = np.maximum.reduceat(spans.end_s[rows], first)
        columns = (start_s.tolist(), end_s.tolist(), spans.op[rows][first].tolist())
        bars = [list(bar) for bar in zip(*columns, strict=True) if bar[1] > bar[0]]
        return {"label": self.label, "time_s": self.trace.time_s, "bars": bars}
