"""ZeRO and FSDP: every GPU keeps one share of the optimizer's state, the gradients, the parameters.

M is the bytes of the parameters. Per GPU, and each way, stages 1 and 2 move 2(n-1)/n M like an
all-reduce, stage 3 and FSDP three halves of that, torch's ZeroRedundancyOptimizer as well: it
broadcasts the parameters after an all-reduce of the gradients.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from simcore.training import sharded as calls
from simcore.training.buckets import buckets
from simcore.training.model import Workload
from simcore.training.plan import Communicate, Compute, Plan, Task, collective
from simcore.training.sharded import padded_elements
from simcore.training.strategies.ddp import ddp
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

PREFETCHED = 2  # units whose parameters may be gathered at a time: the present and the next


def zero1(setting: Setting) -> Plan:
    """Reduce-scatter of each bucket, the optimizer on a share, then all-gather of the parameters.

    Stage 2 sends the same; it only frees the gradients of other GPUs' shares at once. Buffers are
    not broadcast: that is DDP's habit.
    """
    filled = buckets(setting.workload, setting.options, setting.number)
    groups = [bucket.indices for bucket in filled]
    tasks: list[Task] = []
    for number in range(setting.accumulate):
        tasks.append(forward(setting, number))
        tasks += backward(setting, groups if number == setting.accumulate - 1 else [], number)
    tasks += held_back(setting, groups)
    for k, bucket in enumerate(filled):
        reads, writes = [ready(setting, k)], [f"reduced {k}"]
        elements = bucket.nbytes // ITEM_BYTES[bucket.dtype]
        tasks.append(
            reduce_scatter(
                f"bucket {k}", setting, elements, ITEM_BYTES[bucket.dtype], reads, writes
            )
        )
    reduced = [f"reduced {k}" for k in range(len(filled))]
    tasks.append(optimizer(setting, reduced, 1 / setting.gpus))
    for k, bucket in enumerate(filled):
        elements, item = bucket.nbytes // ITEM_BYTES[bucket.dtype], ITEM_BYTES[bucket.dtype]
        reads, writes = ["parameters"], [f"parameters of {k}"]
        tasks.append(
            collective(
                *(f"parameters {k}", "ring-all-gather", setting.gpus, elements, item),
                reads=reads,
                writes=writes,
            )
        )
    return Plan("zero1", setting.gpus, tuple(tasks), setting.widths)


def zero2(setting: Setting) -> Plan:
    """What stage 1 sends, with less memory."""
    plan = zero1(setting)
    return Plan("zero2", plan.n, plan.tasks, plan.widths)


def zero_redundancy_optimizer(setting: Setting) -> Plan:
    """DDP with torch's ZeroRedundancyOptimizer: all-reduce, then each owner broadcasts its share.

    Owners get whole parameters, and broadcast each by itself, as torch does by default.
    """
    plan = ddp(setting)
    tasks = list(plan.tasks[:-1])
    last = plan.tasks[-1]
    tasks.append(optimizer(setting, last.reads, 1 / setting.gpus))
    n = setting.gpus
    for call in calls.zero_redundancy_optimizer(setting.workload, n):
        task = broadcast(call.label, setting, call.nbytes, ["parameters"])
        tasks.append(_from(task, int(call.label.rpartition(" ")[2]), n))
    return Plan("zero-redundancy-optimizer", n, tuple(tasks), setting.widths)


def _from(task: Communicate, root: int, n: int) -> Communicate:
    """The same broadcast with its ranks turned, so that it begins at ``root``."""
    ranks = tuple((rank + root) % n for rank in range(n))
    return Communicate(
        *(task.label, task.schedule, task.bounds, (task.key, root), task.reads, task.writes),
        ranks,
        task.stream,
    )


def reduce_scatter(
    label: str,
    setting: Setting,
    elements: int,
    itemsize: int,
    reads: Sequence[str],
    writes: Sequence[str],
    ranks: tuple[int, ...] | None = None,
) -> Communicate:
    """Gloo has none of its own: there it is an all-reduce of which most is thrown away."""
    if setting.backend == "gloo":
        return all_reduce(label, setting, elements, itemsize, reads, writes, ranks)
    n = setting.gpus if ranks is None else len(ranks)
    algorithm = (label, "ring-reduce-scatter", n, elements, itemsize)
    return collective(*algorithm, ranks=ranks, reads=reads, writes=writes)


def units(workload: Workload) -> list[tuple[str, tuple[int, ...]]]:
    """The layers that FSDP wraps one by one: a name and the parameters in it, in order.

    Parameters belong together while their names agree up to the first part that is a number
    (``h.3``, ``layer2.0``); those without one are the root's, which comes first.

    >>> from simcore.training.model import Parameter
    >>> names = ("wte.weight", "h.0.a", "h.0.b", "h.1.a", "ln.weight")
    >>> units(Workload("tiny", tuple(Parameter(name, (1,)) for name in names)))
    [('', (0, 4)), ('h.0', (1, 2)), ('h.1', (3,))]
    """
    found: dict[str, list[int]] = {"": []}
    for index, parameter in enumerate(workload.parameters):
        match = re.match(r"(?:[^.]+\.)*?\d+(?=\.)", parameter.name)
        key = match[0] if match else ""
        found.setdefault(key, []).append(index)
    if len(found) > 1 and not found[""]:
        del found[""]
    return [(name, tuple(members)) for name, members in found.items()]


def fsdp(setting: Setting, reshard: bool = True) -> Plan:
    """FSDP2: parameters of a unit are gathered before its forward and again before its backward.

    ``reshard`` False (SHARD_GRAD_OP) keeps them in between. The root keeps its own in any case.
    The next unit's are gathered while the present one computes, never more than two at once.
    """
    return _fsdp("fsdp" if reshard else "shard-grad-op", setting, reshard)


def shard_grad_op(setting: Setting) -> Plan:
    """FSDP that does not free parameters after the forward pass."""
    return fsdp(setting, reshard=False)


def zero3(setting: Setting) -> Plan:
    """DeepSpeed's stage 3 moves what FSDP moves."""
    return _fsdp("zero3", setting, reshard=True)


def hsdp(setting: Setting) -> Plan:
    """FSDP inside each node (``gpus_per_node``), an all-reduce of the shards between nodes."""
    inside = setting.gpus_per_node
    if not inside or setting.gpus % inside:
        raise ValueError(
            f"hsdp shards inside a node: gpus_per_node must divide {setting.gpus}, got {inside!r}"
        )
    return _fsdp("hsdp", setting, reshard=True)


def _fsdp(name: str, setting: Setting, reshard: bool) -> Plan:
    n = setting.gpus
    inside = setting.gpus_per_node if name == "hsdp" and setting.gpus_per_node else n
    groups = [tuple(range(first, first + inside)) for first in range(0, n, inside)]
    parts = units(setting.workload)
    step = _Sharded(setting, parts, groups, reshard)
    tasks: list[Task] = []
    for number in range(setting.accumulate):
        tasks += step.forward(number)
        tasks += step.backward(number)
    tasks.append(optimizer(setting, [f"reduced {u}" for u in range(len(parts))], 1 / inside))
    return Plan(name, n, tuple(tasks), setting.widths)


class _Sharded:
    """Makes the tasks of FSDP's units, in the order in which the program issues them."""

    def __init__(
        self,
        setting: Setting,
        parts: list[tuple[str, tuple[int, ...]]],
        groups: list[tuple[int, ...]],
        reshard: bool,
    ) -> None:
        self.setting, self.parts, self.groups, self.reshard = setting, parts, groups, reshard
        self.work = setting.workload
        self.inside = len(groups[0])

    def forward(self, number: int) -> Iterator[Task]:
        """Each unit's parameters are gathered one unit ahead of its computing."""
        for u, (name, members) in enumerate(self.parts):
            yield from self._gather(u, "forward")
            seconds = sum(self.work.forward_s[i] for i in members) if self.work.forward_s else 0.0
            yield Compute(
                *(f"forward {name or 'root'}", self.setting.seconds(seconds), "forward"),
                (self._held(u), "activations"),
                ("activations",),
            )

    def backward(self, number: int) -> Iterator[Task]:
        """In reverse. The next unit's are asked for before this one's gradients are sent."""
        last = len(self.parts) - 1
        for u in range(last, -1, -1):
            name, members = self.parts[u]
            if u == last:
                yield from self._gather_again(u)
            if u:
                yield from self._gather_again(u - 1)
            seconds = sum(self.work.backward_s[i] for i in members) if self.work.backward_s else 0.0
            writes = ("activations", f"gradients {u}", *(("backward",) if u == 0 else ()))
            yield Compute(
                *(f"backward {name or 'root'}", self.setting.seconds(seconds), "backward"),
                (self._held(u),),
                writes,
            )
            yield from self._reduce(u)

    def _gather_again(self, u: int) -> Iterator[Task]:
        if not self._kept(u):
            yield from self._gather(u, "backward")

    def _kept(self, u: int) -> bool:
        """Whether parameters stay from the forward to the backward pass; the root's always do."""
        return not self.reshard or not self.parts[u][0]

    def _held(self, u: int) -> str:
        """The place where a unit's gathered parameters lie: two places, used in turn.

        What is not freed has a place of its own; so has the root.
        """
        if self._kept(u):
            return f"parameters of {u}"
        return f"place {u % PREFETCHED}"

    def _elements(self, u: int) -> dict[str, int]:
        """By type, padded so that every GPU's share is as large."""
        sums: dict[str, int] = {}
        for index in self.parts[u][1]:
            parameter = self.work.parameters[index]
            elements = padded_elements(parameter, self.inside)
            sums[parameter.dtype] = sums.get(parameter.dtype, 0) + elements
        return sums

    def _gather(self, u: int, when: str) -> Iterator[Task]:
        for dtype, elements in self._elements(u).items():
            for ranks in self.groups:
                yield collective(
                    f"gather {self.parts[u][0] or 'root'} for {when}",
                    *("ring-all-gather", self.inside, elements, ITEM_BYTES[dtype]),
                    ranks=ranks if len(self.groups) > 1 else None,
                    reads=["parameters"],
                    writes=[self._held(u)],
                )

    def _reduce(self, u: int) -> Iterator[Task]:
        for dtype, elements in self._elements(u).items():
            reads, writes = [f"gradients {u}"], [f"reduced {u}"]
            label, item = f"reduce {self.parts[u][0] or 'root'}", ITEM_BYTES[dtype]
            for ranks in self.groups:
                everyone = ranks if len(self.groups) > 1 else None
                yield reduce_scatter(label, self.setting, elements, item, reads, writes, everyone)
            if len(self.groups) > 1:
                for place in range(self.inside):
                    across = tuple(ranks[place] for ranks in self.groups)
                    share = elements // self.inside
                    label = f"all-reduce {self.parts[u][0] or 'root'} between nodes"
                    yield all_reduce(label, self.setting, share, item, writes, writes, across)
