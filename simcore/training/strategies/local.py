"""Local SGD: GPUs train alone for some steps, then average their parameters."""

from __future__ import annotations

from simcore.training.plan import Plan, Task
from simcore.training.strategies.setting import Setting, all_reduce, backward, forward, optimizer


def local_sgd(setting: Setting) -> Plan:
    """``period`` steps without a word, then one all-reduce of all parameters.

    The plan holds all of them: divide its time and bytes by ``period`` to compare with one step.
    """
    tasks: list[Task] = []
    for _ in range(setting.period):
        for micro in range(setting.accumulate):
            tasks.append(forward(setting, micro))
            tasks += backward(setting, [], micro)
        tasks.append(optimizer(setting, []))
    by_type: dict[int, int] = {}
    for parameter in setting.workload.parameters:
        item = parameter.nbytes // parameter.elements if parameter.elements else 4
        by_type[item] = by_type.get(item, 0) + parameter.elements
    for item, elements in by_type.items():
        label, reads = "average parameters", ["parameters"]
        tasks.append(all_reduce(label, setting, elements, item, reads, reads))
    return Plan("local-sgd", setting.gpus, tuple(tasks))
