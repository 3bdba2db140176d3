"""How much work it is to simulate a step, told without doing so: for those who wait for it."""

from __future__ import annotations

from dataclasses import dataclass

from simcore.training.pipelined import RINGS
from simcore.training.plan import Communicate, Plan
from simcore.training.strategies import Setting, plan_step
from simcore.training.strategies.servers import MOST_MESSAGES

# What a simulation costs on one core, measured; coarse, and rather too much than too little.
_S_PER_TASK, _S_PER_STEP, _S_PER_MESSAGE, _S_PER_SHARED_MESSAGE = 1e-3, 0.3e-3, 2e-6, 80e-6
_SERVED = ("ps", "ps-dedicated", "byteps")


@dataclass(frozen=True, slots=True)
class Work:
    """How many messages a simulation has at most, and how long it takes, about."""

    messages: int
    seconds: float

    def __str__(self) -> str:
        """In words, without pretending to know better.

        >>> print(Work(12_345_678, 1234.0))
        about 12,000,000 messages, some 21 min
        """
        minutes = max(1, round(self.seconds / 60))
        lasts = f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"
        return f"about {float(f'{self.messages:.2g}'):,.0f} messages, some {lasts}"


def work_of(strategy: str, setting: Setting, plain: bool) -> Work:
    """Of one step; a ``ValueError`` where the strategy has no plan. ``plain``: on equal ports."""
    if strategy in _SERVED:  # whose plans are long themselves
        parts = -(-setting.workload.gradient_bytes // setting.partition_bytes)
        sent = 2 * parts * setting.gpus * _messages_of_a_part(strategy, setting)
        alone = plain and strategy != "byteps" and setting.servers in (None, 1)
        each_s = _S_PER_MESSAGE if alone and not setting.slower else _S_PER_SHARED_MESSAGE
        return Work(sent, 2 * _S_PER_TASK * parts + each_s * sent)
    plan = plan_step(strategy, setting)
    return Work(messages(plan), work_s(plan, setting, plain))


def _messages_of_a_part(strategy: str, setting: Setting) -> int:
    """That each worker sends, and gets back."""
    n = setting.gpus
    if strategy != "byteps":
        return setting.servers or 1
    extra = n if setting.servers is None else setting.servers
    return extra if extra == n else n + MOST_MESSAGES * extra


def messages(plan: Plan) -> int:
    """At most so many messages go between GPUs in the plan.

    >>> from simcore.training.workload import load_workload
    >>> messages(plan_step("ddp", Setting(load_workload("resnet18"), 2)))
    16
    """
    return sum(_messages(task) for task in plan.tasks if isinstance(task, Communicate))


def _messages(task: Communicate) -> int:
    schedule = task.schedule
    of_a_step = {"copies": 1, "exchange": schedule.chunks * schedule.n}
    steps = schedule.chunks if schedule.name == "copies" else schedule.n_steps
    return steps * of_a_step.get(schedule.name, schedule.n)


def work_s(plan: Plan, setting: Setting, plain: bool) -> float:
    """How long simulating it takes, about. Where collectives share links every message counts."""
    sent = [task for task in plan.tasks if isinstance(task, Communicate)]
    several = len({task.stream for task in sent}) > 1 or plan.widths.get("network", 1) > 1
    if several or plan.name == "dp":
        steps = sum(task.schedule.n_steps for task in sent)
        each_s = _S_PER_TASK * (len(sent) + steps)
        return each_s + _S_PER_SHARED_MESSAGE * messages(plan)
    if plain and not setting.slower:
        sent = [task for task in sent if task.schedule.name not in RINGS]
    # Equal collectives are simulated once, if their ranks enter them alike.
    if plan.name != "zero-redundancy-optimizer" and not setting.slower:
        sent = list({task.key: task for task in sent}.values())
    steps = sum(task.schedule.n_steps for task in sent)
    each_s = _S_PER_TASK * len(sent) + _S_PER_STEP * steps
    return each_s + _S_PER_MESSAGE * sum(map(_messages, sent))
