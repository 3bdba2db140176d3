"""What the exposed part of a step is about: seconds by kind of communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from simcore.training.step import StepResult
from views.step.rows import Bar, busiest_rank, rank_rows, union
from views.step.tasks import task_key

WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Shares:
    """On the GPU that computes most, of all steps in the plan: seconds of its network's time.

    ``exposed_s`` by kind of task (``wait`` where its own network is idle too) adds up to what
    the steps take longer than computing; ``hidden_s`` is the part beside computing.
    """

    exposed_s: dict[str, float]
    hidden_s: float


def shares(result: StepResult) -> Shares:
    """Where the exposed time goes. Collectives at the same time share it evenly.

    >>> from views.step.runs import StepChoice, run_step
    >>> result = run_step(StepChoice("resnet18", "V100 16GB", 64, 2), "ddp")
    >>> total_s = sum(shares(result).exposed_s.values())
    >>> abs(total_s - result.exposed_communication_s) < 1e-12
    True
    """
    rows = rank_rows(result, busiest_rank(result))
    gaps = [bar for bar in rows[0].bars if bar.kind == WAIT]
    bars = [bar for row in rows[1:] for bar in row.bars]
    hidden = union((bar.start_s, bar.end_s) for bar in bars if bar.kind == "hidden")
    exposed = [bar for bar in bars if bar.kind in ("exposed", "held")]
    return Shares(_by_key(gaps, exposed), sum(b - a for a, b in hidden))


def _by_key(gaps: Iterable[Bar], bars: Iterable[Bar]) -> dict[str, float]:
    """The time of the gaps, shared among the tasks that are on in them."""
    changes: dict[float, list[tuple[str, int]]] = {}
    for bar in (*gaps, *bars):
        key = WAIT if bar.kind == WAIT else task_key(bar.label)[0]
        changes.setdefault(bar.start_s, []).append((key, 1))
        changes.setdefault(bar.end_s, []).append((key, -1))
    found: dict[str, float] = {}
    running: Counter[str] = Counter()
    for a, b in pairwise(sorted(changes)):
        for key, count in changes[a]:
            running[key] += count
        if not running[WAIT]:
            continue
        here = {key: count for key, count in running.items() if count and key != WAIT}
        for key, count in (here or {WAIT: 1}).items():
            part = count / sum(here.values()) if here else 1.0
            found[key] = found.get(key, 0.0) + part * (b - a)
    return found
