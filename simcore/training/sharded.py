"""Which collectives torch 2.13 issues where ranks share a model out: FSDP2 and its ZeRO optimizer.

Textbook ZeRO is not here: what torch really sends differs from it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from simcore.names import unknown
from simcore.training.calls import Call
from simcore.training.model import Parameter, Workload
from simcore.units import ITEM_BYTES


def padded_elements(parameter: Parameter, shards: int) -> int:
    """Its elements once its first dimension is filled up to a multiple of the shards.

    >>> padded_elements(Parameter("weight", (1000, 10)), shards=64)
    10240
    """
    if not parameter.shape:
        raise ValueError(f"{parameter.name!r} is a scalar, which FSDP2 refuses; accepted: [1]")
    rows, row = parameter.shape[0], math.prod(parameter.shape[1:])
    return -(-rows // shards) * shards * row


def fsdp(
    units: Sequence[Sequence[Parameter]],
    n: int,
    *,
    root: Sequence[Parameter] = (),
    reshard: bool | int = True,
    reshard_root: bool = False,
    replicas: int = 1,
    gather_dtype: str | None = None,
    reduce_dtype: str | None = None,
    syncing: bool = True,
    whole: bool = False,
    unused: Collection[str] = (),
) -> tuple[Call, ...]:
    """One forward and backward pass of FSDP2, its units in the order of the forward pass.

    ``root`` holds the parameters in no unit. ``reshard`` is ``reshard_after_forward``: drop the
    gathered parameters after the forward pass, keep them, or drop all but what that many ranks
    hold between them. ``replicas`` > 1 is HSDP: ``n / replicas`` shards. ``syncing`` False:
    gradients are accumulated whole, unreduced, and every pass gathers again; unless ``whole``,
    the pass before left its parameters in place (``set_reshard_after_backward(False)``).

    ``unused`` names trainable parameters that get no gradient: they are not reduced, like frozen
    ones. The root is counted as the first in use. What lies before the first trained parameter has
    no backward pass, but one unit of it is gathered for nothing.

    >>> layer = [Parameter("weight", (16, 16))]
    >>> for call in fsdp([layer, layer], n=4, root=[Parameter("embedding", (8, 16))]):
    ...     print(call.kind, call.nbytes, call.label)
    all_gather 512 root
    all_gather 1024 unit 0
    all_gather 1024 unit 1
    all_gather 1024 unit 1
    all_gather 1024 unit 0
    reduce_scatter 1024 unit 1
    reduce_scatter 1024 unit 0
    reduce_scatter 512 root
    """
    shards = _shards(n, replicas, reshard)
    again = shards if reshard is True else reshard if reshard > 1 else 0  # ranks it asks then
    reduce_dtype = reduce_dtype or gather_dtype

    def gather(label: str, parameters: Sequence[Parameter], ranks: int) -> list[Call]:
        if not parameters or ranks < 2:
            return []
        nbytes = _gathered_bytes(parameters, shards, gather_dtype)
        return [Call("all_gather", nbytes, label, ranks)]

    named = [("root", root), *((f"unit {i}", unit) for i, unit in enumerate(units))]
    trained = [_trained(label, parameters, unused) for label, parameters in named]
    calls: list[Call] = []
    for label, parameters in named:
        if not whole:
            calls += gather(label, parameters, shards)
    if reshard_root:
        calls += gather("root", root, shards)
    first = next((place for place, of in enumerate(trained) if of), len(named))
    for place in range(len(named) - 1, max(first, 1) - 1, -1):
        if again and place == len(named) - 1:
            calls += gather(*named[place], again)
        if again and place > 1:  # asked for before this one's gradients leave
            calls += gather(*named[place - 1], again)
        if syncing:
            calls += _reduced(named[place][0], trained[place], shards, replicas, reduce_dtype)
    if syncing:
        calls += _reduced("root", trained[0], shards, replicas, reduce_dtype)
    return tuple(calls)


def _shards(n: int, replicas: int, reshard: bool | int) -> int:
    if replicas < 1 or n % replicas:
        raise ValueError(f"{n} GPUs cannot hold {replicas} equal replicas")
    shards = n // replicas
    if not isinstance(reshard, bool) and (reshard < 1 or shards % reshard):
        raise ValueError(f"reshard must be true, false or a factor of {shards}, got {reshard}")
    return shards


def _trained(
    label: str, parameters: Sequence[Parameter], unused: Collection[str]
) -> list[Parameter]:
    """Those whose gradients are reduced; torch insists on one type for the trainable ones."""
    trainable = [p for p in parameters if p.trainable]
    dtypes = sorted({p.dtype for p in trainable})
    if len(dtypes) > 1:
        raise ValueError(
            f"{label} trains parameters of {' and '.join(dtypes)} ({trainable[0].name} …), "
            "which FSDP2 refuses; accepted: one type in each unit"
        )
    return [p for p in trainable if p.name not in unused]


def _gathered_bytes(parameters: Iterable[Parameter], shards: int, dtype: str | None) -> int:
    return sum(padded_elements(p, shards) * _item_bytes(dtype or p.dtype) for p in parameters)


def _item_bytes(dtype: str) -> int:
    if dtype not in ITEM_BYTES:
        raise ValueError(unknown("dtype", dtype, ITEM_BYTES))
    return ITEM_BYTES[dtype]


def _reduced(
    label: str, trained: Sequence[Parameter], shards: int, replicas: int, dtype: str | None
) -> list[Call]:
    """Groups of one rank have nothing to say to each other."""
    nbytes = _gathered_bytes(trained, shards, dtype)
    calls = []
    if trained and shards > 1:
        calls.append(Call("reduce_scatter", nbytes, label, shards))
    if trained and replicas > 1:
        calls.append(Call("all_reduce", nbytes // shards, f"{label} across replicas", replicas))
    return calls


def owned(parameters: Iterable[Parameter], n: int) -> tuple[tuple[Parameter, ...], ...]:
    """The parameters that each of ``n`` ranks of a ``ZeroRedundancyOptimizer`` updates.

    Whole ones: largest first, each to the rank that has least. Shares are as uneven as the
    largest parameter makes them.

    >>> sizes = {"a": 3, "b": 9, "c": 2}
    >>> shares = owned([Parameter(name, (size,)) for name, size in sizes.items()], n=2)
    >>> [[parameter.name for parameter in share] for share in shares]
    [['b'], ['a', 'c']]
    """
    shares: list[list[Parameter]] = [[] for _ in range(n)]
    elements = [0] * n
    for parameter in sorted(parameters, key=lambda p: -p.elements):
        rank = elements.index(min(elements))
        shares[rank].append(parameter)
        elements[rank] += parameter.elements
    return tuple(map(tuple, shares))


def zero_redundancy_optimizer(
    workload: Workload, n: int, *, bucket_view: bool = False
) -> tuple[Call, ...]:
    """The step of torch's ``ZeroRedundancyOptimizer``: each rank broadcasts what it updated.

    ``owned`` says who has what. ``bucket_view``: ``parameters_as_bucket_view``, one broadcast per
    rank. With DDP, which all-reduces the gradients, that makes 3(n-1)M on the wire, where ZeRO-1
    needs 2(n-1)M.

    >>> model = Workload("m", (Parameter("a", (3,)), Parameter("b", (5,)), Parameter("c", (2,))))
    >>> [call.nbytes for call in zero_redundancy_optimizer(model, n=2)]
    [20, 12, 8]
    """
    shares = owned(workload.parameters, n)
    if bucket_view:  # a rank without any sends one number all the same
        sizes = [sum(p.nbytes for p in share if p.trainable) or 4 for share in shares]
        return tuple(Call("broadcast", b, f"parameters of rank {r}") for r, b in enumerate(sizes))
    return tuple(
        Call("broadcast", parameter.nbytes, f"{parameter.name} of rank {rank}")
        for rank, share in enumerate(shares)
        for parameter in share
    )
