"""How much work it is to simulate what a reader's file asks for, before it is done. No clock.

A unit is about a quarter of a microsecond of this page's time, at worst.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simcore.cluster import Cluster
from simcore.fields import parse_json, short
from simcore.measured.step_records import VENDOR_STEPS, setting_from
from simcore.schedule import Schedule
from simcore.training.strategies import Setting, find_strategy
from simcore.training.workload import from_json

MOST_EFFORT = 16_000_000  # of one simulation
MOST_TOGETHER = 32_000_000  # of all that one picture, or one upload, asks for
MOST_PARAMETERS = 4096  # of a model whose plan is built to see how much work it is
_PER_MESSAGE, _PLAIN = 1000, 64  # where closed forms hold it takes so much less
_PER_TASK = 16  # and pair of ranks


class Budget:
    """What may still be spent.

    >>> budget = Budget(10)
    >>> budget.spend(8), budget.spend(8), budget.spend(2)
    (True, False, True)
    """

    def __init__(self, left: int = MOST_TOGETHER) -> None:
        self.left = left

    def spend(self, effort: int) -> bool:
        """Whether there is as much left; then it is gone."""
        if effort > min(self.left, MOST_EFFORT):
            return False
        self.left -= effort
        return True


def effort_of(schedule: Schedule, cluster: Cluster) -> int:
    """Of a schedule; whatever is beyond ``MOST_EFFORT`` is not counted to its end.

    >>> from simcore.algorithms import build_schedule
    >>> from simcore.cluster import uniform
    >>> effort_of(build_schedule("ring", 4), uniform(4, 1e9))
    376
    """
    total, cheaper = 0, _PLAIN if cluster.is_plain else 1
    for step in schedule.steps():
        total += len(step) * (_PER_MESSAGE + len(step))
        if total > cheaper * MOST_EFFORT:
            break
    return total // cheaper


def effort_of_step(document: Mapping[str, Any]) -> int:
    """Of a training step's record: tasks × ranks², as its options make them.

    What is not as it should be is nobody's work here; the record's own reader says so.
    """
    work, options = document.get("workload"), document.get("options")
    if not (isinstance(work, str) and isinstance(options, dict) and "gpus" in document):
        return 0
    parameters = parse_json(work, "field 'workload'")
    many = parameters.get("parameters", ()) if isinstance(parameters, dict) else ()
    if len(many) > MOST_PARAMETERS:
        raise ValueError(
            f"field 'workload' has {len(many)} parameters; accepted: up to {MOST_PARAMETERS}"
        )
    name = str(document.get("name"))
    name = VENDOR_STEPS.get(name, name)
    how = document["gpus"], str(document.get("backend")), options
    setting = setting_from(name, from_json(work), *how)
    # Micro-batches are alike: two plans say how many tasks each adds.
    one, two = (_tasks(name, replace(setting, accumulate=count)) for count in (1, 2))
    tasks = one[0] + (setting.accumulate - 1) * (two[0] - one[0])
    return max(tasks, len(many)) * one[1] ** 2 * _PER_TASK


def _tasks(name: str, setting: Setting) -> tuple[int, int]:
    plan = find_strategy(name).plan(setting)
    return len(plan.tasks), plan.n


def too_much(effort: int) -> ValueError:
    """What is said of a step that is not simulated."""
    asked = short(effort // _PER_TASK)
    most = MOST_EFFORT // _PER_TASK
    return ValueError(
        f"{asked} tasks × ranks² take long to simulate; accepted: up to {most} in a file, "
        f"{MOST_TOGETHER // _PER_TASK} in all files together"
    )
