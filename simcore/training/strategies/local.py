"""Local SGD: GPUs train alone for some steps, then average their parameters."""

from __future__ import annotations

from collections.abc import Iterable

from simcore.training.plan import Plan, Task
from simcore.training.strategies.setting import Setting, all_reduce, backward, forward, optimizer
from simcore.units import ITEM_BYTES


def local_sgd(setting: Setting) -> Plan:
    """``period`` steps without a word, then one all-reduce of all parameters that are trained.

    As ``torch.distributed.algorithms.model_averaging`` does it: what gets no gradient is left
    out, the rest is concatenated, in the smallest type that holds all of them.

    The plan holds all of them: divide its time and bytes by ``period`` to compare with one step.
    """
    tasks: list[Task] = []
    for _ in range(setting.period):
        for micro in range(setting.accumulate):
            tasks.append(forward(setting, micro))
            tasks += backward(setting, [], micro)
        tasks.append(optimizer(setting, []))
    averaged = [setting.workload.parameters[index] for index in setting.workload.gradients]
    elements, item = sum(p.elements for p in averaged), _common_item(p.dtype for p in averaged)
    label, reads = "average parameters", ["parameters"]
    tasks.append(all_reduce(label, setting, elements, item, reads, reads))
    return Plan("local-sgd", setting.gpus, tuple(tasks))


def _common_item(dtypes: Iterable[str]) -> int:
    """Bytes of a number of the type that tensors of these types are concatenated to.

    >>> _common_item(["float16", "float32"]), _common_item(["float16", "bfloat16"])
    (4, 4)
    """
    found = set(dtypes)
    # Neither of the two half types holds the other's numbers.
    return 4 if found == {"float16", "bfloat16"} else max(ITEM_BYTES[dtype] for dtype in found)
