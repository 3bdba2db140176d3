"""ZeRO and FSDP: every GPU keeps one share of the optimizer's state, the gradients, the parameters.

M is the bytes of the parameters. Per GPU, and each way, stages 1 and 2 move 2(n-1)/n M like an
all-reduce, stage 3 and FSDP three halves of that, torch's ZeroRedundancyOptimizer as well: it
broadcasts the parameters after an all-reduce of the gradients.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from simcore.training import sharded as calls
from simcore.training.buckets import buckets
from simcore.training.calls import Call
from simcore.training.model import Workload
from simcore.training.plan import Communicate, Compute, Plan, Task, collective
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

    Micro-batches accumulate whole gradients, which leave after the last one. Buffers are not
    broadcast: that is DDP's habit.
    """
    return _zero("zero1", setting, each_pass=False)


def zero2(setting: Setting) -> Plan:
    """What stage 1 sends, but after each micro-batch: a GPU keeps its share of the gradients only,
    so it has no room to accumulate the others'.
    """
    return _zero("zero2", setting, each_pass=True)


def _zero(name: str, setting: Setting, *, each_pass: bool) -> Plan:
    filled = buckets(setting.workload, setting.options, setting.number)
    groups = [bucket.indices for bucket in filled]
    sizes = [(b.nbytes // ITEM_BYTES[b.dtype], ITEM_BYTES[b.dtype]) for b in filled]
    tasks: list[Task] = []
    for number in range(setting.accumulate):
        reducing = each_pass or number == setting.accumulate - 1
        tasks.append(forward(setting, number))
        tasks += backward(setting, groups if reducing else [], number)
        if not reducing:
            continue
        tasks += held_back(setting, groups)
        for k, size in enumerate(sizes):
            reads, writes = [ready(setting, k)], [f"reduced {k}"]
            tasks.append(reduce_scatter(f"bucket {k}", setting, *size, reads, writes))
    reduced = [f"reduced {k}" for k in range(len(filled))]
    tasks.append(optimizer(setting, reduced, 1 / setting.gpus))
    for k, size in enumerate(sizes):
        label, reads, writes = f"parameters {k}", ["parameters"], [f"parameters of {k}"]
        algorithm = (label, "ring-all-gather", setting.gpus)
        tasks.append(collective(*algorithm, *size, reads=reads, writes=writes))
    return Plan(name, setting.gpus, tuple(tasks), setting.widths)


def zero_redundancy_optimizer(setting: Setting) -> Plan:
    """DDP with torch's ZeroRedundancyOptimizer: all-reduce, then each owner broadcasts its share.

    Owners get whole parameters, and broadcast each by itself, as torch does by default.
    """
    plan = ddp(setting)
    tasks = list(plan.tasks[:-1])
    last = plan.tasks[-1]
    assert isinstance(last, Compute)
    n = setting.gpus
    tasks.append(replace(last, seconds=_owners_s(setting)))
    for call in calls.zero_redundancy_optimizer(setting.workload, n):
        task = broadcast(call.label, setting, call.nbytes, ["parameters"])
        tasks.append(_from(task, int(call.label.rpartition(" ")[2]), n))
    return Plan("zero-redundancy-optimizer", n, tuple(tasks), setting.widths)


def _owners_s(setting: Setting) -> tuple[float, ...]:
    """What each rank's optimizer needs for the parameters that are its own."""
    work, slower = setting.workload, setting.slower or (1.0,) * setting.gpus
    shares = calls.owned(work.parameters, setting.gpus)
    trained = [sum(p.elements for p in share if p.trainable) for share in shares]
    of_one_s = work.optimizer_s / max(sum(trained), 1)
    return tuple(of_one_s * own * factor for own, factor in zip(trained, slower, strict=True))


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

    Parameters belong together while their names agree up to the first part that is a number, or
    ends in one after an underscore (``h.3``, ``layer2.0``, ``layers.encoder_layer_3``); those
    without one are the root's, which comes first.

    >>> from simcore.training.model import Parameter
    >>> names = ("wte.weight", "h.0.a", "h.0.b", "h.1.a", "ln.weight")
    >>> units(Workload("tiny", tuple(Parameter(name, (1,)) for name in names)))
    [('', (0, 4)), ('h.0', (1, 2)), ('h.1', (3,))]
    """
    found: dict[str, list[int]] = {"": []}
    for index, parameter in enumerate(workload.parameters):
        match = re.match(r"(?:[^.]+\.)*?(?:[^.]*_)?\d+(?=\.)", parameter.name)
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
    return _fsdp("hsdp", setting, reshard=True, inside=inside)


def _fsdp(name: str, setting: Setting, reshard: bool, inside: int | None = None) -> Plan:
    step = _Sharded(setting, inside or setting.gpus, reshard)
    tasks = [task for _ in range(setting.accumulate) for task in step.one_pass()]
    tasks.append(optimizer(setting, step.reduced, 1 / step.inside))
    return Plan(name, setting.gpus, tuple(tasks), setting.widths)


class _Sharded:
    """Makes the tasks of FSDP's units, in the order in which the program issues them.

    What is sent is ``calls.fsdp``'s, which is held to torch.
    """

    def __init__(self, setting: Setting, inside: int, reshard: bool) -> None:
        self.setting, self.inside, self.reshard = setting, inside, reshard
        self.work, n = setting.workload, setting.gpus
        self.groups = [tuple(range(first, first + inside)) for first in range(0, n, inside)]
        self.parts = units(self.work)
        held = [[self.work.parameters[i] for i in members] for _, members in self.parts]
        self.first = 0 if self.parts[0][0] else 1  # after the root, if it has parameters
        silent = set(range(len(self.work.parameters))) - set(self.work.gradients)
        self.issued = calls.fsdp(
            held[self.first :],
            n,
            root=held[0] if self.first else (),
            reshard=reshard,
            replicas=len(self.groups),
            unused={self.work.parameters[i].name for i in silent},
        )
        sent = {self._unit(call) for call in self.issued if call.kind != "all_gather"}
        self.reduced = [f"reduced {u}" for u in sorted(sent)]

    def _unit(self, call: Call) -> int:
        """The number of its part."""
        match = re.match(r"unit (\d+)", call.label)
        return int(match[1]) + self.first if match else 0

    def one_pass(self) -> Iterator[Task]:
        """Forward: each unit's parameters are gathered one unit ahead of its computing. Backward
        in reverse: the next unit's are asked for before this one's gradients are sent.
        """
        ahead = len(self.parts) if self.inside > 1 else 0
        for u in range(len(self.parts)):
            for call in self.issued[u : min(u + 1, ahead)]:
                yield from self._tasks(call, "forward")
            yield self._forward(u)
        left = len(self.parts)  # units whose backward pass is not issued yet
        for call in self.issued[ahead:]:
            u = self._unit(call)
            while left > (u + 2 if call.kind == "all_gather" else u):
                left -= 1
                yield self._backward(left)
            yield from self._tasks(call, "backward")
        for u in range(left - 1, -1, -1):
            yield self._backward(u)

    def _forward(self, u: int) -> Compute:
        name, members = self.parts[u]
        seconds = sum(self.work.forward_s[i] for i in members) if self.work.forward_s else 0.0
        return Compute(
            *(f"forward {name or 'root'}", self.setting.seconds(seconds), "forward"),
            (self._held(u), "activations"),
            ("activations",),
        )

    def _backward(self, u: int) -> Compute:
        name, members = self.parts[u]
        seconds = sum(self.work.backward_s[i] for i in members) if self.work.backward_s else 0.0
        writes = ("activations", f"gradients {u}", *(("backward",) if u == 0 else ()))
        return Compute(
            *(f"backward {name or 'root'}", self.setting.seconds(seconds), "backward"),
            (self._held(u),),
            writes,
        )

    def _held(self, u: int) -> str:
        """The place where a unit's gathered parameters lie: two places, used in turn.

        What is not freed between the passes has a place of its own: the root, and everything
        unless ``reshard``.
        """
        if not self.reshard or not self.parts[u][0]:
            return f"parameters of {u}"
        return f"place {u % PREFETCHED}"

    def _tasks(self, call: Call, when: str) -> Iterator[Task]:
        """One call, in every group of ranks that makes it."""
        u = self._unit(call)
        name, item = self.parts[u][0] or "root", self._item(u, call)
        size = call.nbytes // item, item
        for ranks in self._ranks(call):
            if call.kind == "all_gather":
                yield collective(
                    *(f"gather {name} for {when}", "ring-all-gather", self.inside, *size),
                    ranks=ranks,
                    reads=["parameters"],
                    writes=[self._held(u)],
                )
                continue
            made, writes = [f"gradients {u}"], [f"reduced {u}"]
            if call.kind == "reduce_scatter":
                yield reduce_scatter(f"reduce {name}", self.setting, *size, made, writes, ranks)
                continue
            label, reads = f"all-reduce {name} between nodes", writes if self.inside > 1 else made
            yield all_reduce(label, self.setting, *size, reads, writes, ranks)

    def _item(self, u: int, call: Call) -> int:
        """Bytes of a number; parameters of several types are gathered as bytes."""
        parameters = [self.work.parameters[i] for i in self.parts[u][1]]
        if call.kind != "all_gather":
            parameters = [p for p in parameters if p.trainable]
        items = {ITEM_BYTES[p.dtype] for p in parameters}
        return items.pop() if len(items) == 1 else 1

    def _ranks(self, call: Call) -> list[tuple[int, ...] | None]:
        """Of each group: a node, or those at one place in their nodes; None stands for all."""
        groups = self.groups if call.kind != "all_reduce" else list(zip(*self.groups, strict=True))
        return [None] if len(groups) == 1 else [*groups]
