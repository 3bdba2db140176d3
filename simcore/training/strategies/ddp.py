"""DistributedDataParallel's step: buckets, reduced in order while the backward pass goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from simcore.training import calls
from simcore.training.buckets import buckets
from simcore.training.calls import Call, DdpState
from simcore.training.plan import Plan, Task, collective
from simcore.training.strategies.setting import (
    Setting,
    all_reduce,
    backward,
    broadcast,
    forward,
    held_back,
    optimizer,
    ready,
)
from simcore.units import ITEM_BYTES


def ddp(setting: Setting) -> Plan:
    """One step of DDP, in the iteration that the setting names.

    What is sent is ``calls.one_pass``'s, which is held to torch. With ``accumulate`` the earlier
    micro-batches run under ``no_sync``. Buckets are launched strictly in the order of their index:
    a ready one waits for those before it. The reducer divides while it copies into the bucket, so
    no time is counted for that.

    >>> from simcore.training.model import Parameter, Workload
    >>> layers = tuple(Parameter(str(i), (1024, 1024)) for i in range(16))
    >>> plan = ddp(Setting(Workload("16 layers", layers), gpus=4))
    >>> [task.label for task in plan.tasks if task.stream == "network"]
    ['bucket 0', 'bucket 1', 'bucket 2', 'bucket 3']
    """
    work, options, number = setting.workload, setting.options, setting.number
    parts = buckets(work, options, number)
    groups = [part.indices for part in parts]
    rebuilt = options.rebuilt_in is not None and number > options.rebuilt_in
    state = DdpState(reduced=number, rebuilt=rebuilt)
    tasks: list[Task] = []
    reduced: list[Task] = []
    for micro in range(setting.accumulate):
        last = micro == setting.accumulate - 1
        issued, state = calls.one_pass(work, options, state, "train" if last else "no_sync")
        before = [call for call in issued if call.kind == "broadcast"]
        tasks += [
            broadcast(call.label, setting, call.nbytes, writes=["buffers"]) for call in before
        ]
        tasks.append(forward(setting, micro, ("buffers",)))
        tasks += backward(setting, groups if last else [], micro)
        dtypes = [part.dtype for part in parts]
        reduced += _reduced(setting, [call for call in issued if call not in before], dtypes)
    tasks += held_back(setting, groups)
    everything = sorted({name for task in reduced for name in task.writes})
    return Plan(
        "ddp",
        setting.gpus,
        (*tasks, *reduced, optimizer(setting, everything)),
        setting.widths,
    )


def _reduced(setting: Setting, issued: list[Call], dtypes: list[str]) -> Iterator[Task]:
    """The all-reduces of a backward pass. A hook's next part waits for the one before."""
    for call in issued:
        match = re.match(r"bucket (\d+)", call.label)
        if not match:  # which parameters were used
            yield all_reduce(call.label, setting, call.nbytes // 4, 4, ["backward"], [call.label])
            continue
        k = int(match[1])
        item = 2 if setting.options.hook in ("fp16", "bf16") else ITEM_BYTES[dtypes[k]]
        writes = [f"reduced {k}"]
        reads = [ready(setting, k), *writes]
        yield all_reduce(call.label, setting, call.nbytes // item, item, reads, writes)


def construction(setting: Setting) -> Plan:
    """What wrapping the model costs once: rank 0's parameters and buffers go to everyone.

    Two broadcasts at a time, as torch's reducer allows; NCCL does one after the other.
    """
    n, tasks = setting.gpus, []
    for call in calls.construction(setting.workload, n, setting.options):
        if call.kind == "all_gather":
            tasks.append(
                collective(call.label, "ring-all-gather", n, call.nbytes, 1, writes=["checked"])
            )
        else:
            tasks.append(broadcast(call.label, setting, call.nbytes, ["checked"]))
    return Plan("ddp construction", n, tuple(tasks), setting.widths)
