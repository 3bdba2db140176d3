"""Torch's own count of its collectives. Imports torch: import it inside a test."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

KINDS = {
    "allreduce_": "all_reduce",
    "broadcast_": "broadcast",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
}


class Calls(TorchDispatchMode):
    """Lists every collective that torch issues: its kind, and the bytes of its tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        namespace, _, name = str(func).partition(".")
        if namespace == "c10d":
            name = name.partition(".")[0]
            tensors = args[1] if name == "_reduce_scatter_base_" else args[0]
            self.seen.append((KINDS[name], _nbytes(tensors)))
        return func(*args, **(kwargs or {}))

    def take(self) -> list[tuple[str, int]]:
        seen, self.seen = self.seen, []
        return seen


def _nbytes(tensors: Any) -> int:
    if isinstance(tensors, torch.Tensor):
        return tensors.nbytes
    return sum(_nbytes(tensor) for tensor in tensors)


def replicated(module: torch.nn.Module) -> dict[str, list[list[torch.Tensor]]]:
    """What DataParallel hands over to be sent out, and after a backward pass to be summed.

    Torch's own ``replicate``, on the meta device with two GPUs that are not there; ``module``'s
    replicas are called without arguments, and what they return is their loss.
    """
    seen: dict[str, list[list[torch.Tensor]]] = {"out": [], "home": []}

    def broadcast(tensors: Any, devices: Any, buffer_size: int = 0) -> Any:
        seen["out"].append(list(tensors))
        return [tuple(t.clone() for t in tensors) for _ in devices]

    def reduce(inputs: Any, destination: Any = None, buffer_size: int = 0) -> Any:
        seen["home"].append(list(inputs[0]))
        return tuple(t.clone() for t in inputs[0])

    comm = torch.nn.parallel.comm
    with (
        patch.object(comm, "broadcast_coalesced", broadcast),
        patch.object(comm, "reduce_add_coalesced", reduce),
    ):
        replicas = torch.nn.parallel.replicate(module.to("meta"), [0, 1])
        sum(replica() for replica in replicas).backward()
    return seen


class _Vector(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("end", ctypes.c_void_p), ("room", ctypes.c_void_p))


class _Group(ctypes.Structure):
    _fields_ = (("tensors", _Vector), ("size", ctypes.c_size_t))


def broadcast_chunks_of(tensors: list[torch.Tensor], limit: int) -> list[list[int]] | None:
    """How torch's C++ cuts what ``broadcast_coalesced`` is given: indices of each chunk.

    No Python function of a torch for CPUs leads there, so this calls it as the library of torch
    2.13 for 64-bit Linux has it; elsewhere None.
    """
    library = Path(torch.__file__).parent / "lib/libtorch_cpu.so"
    if not (torch.__version__.startswith("2.13.") and library.exists()):
        return None
    name = "_ZN5torch5utils12take_tensorsEN3c108ArrayRefIN2at6TensorEEEmb"
    take = getattr(ctypes.CDLL(str(library)), name)
    take.restype = _Vector
    take.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_bool)
    pointers = (ctypes.c_void_p * len(tensors))(*(t._cdata for t in tensors))
    index = {t._cdata: i for i, t in enumerate(tensors)}
    taken = take(ctypes.addressof(pointers), len(tensors), limit, False)
    groups = ((taken.end or 0) - (taken.begin or 0)) // ctypes.sizeof(_Group)
    found = []
    for group in (_Group * groups).from_address(taken.begin) if groups else ():
        count = (group.tensors.end - group.tensors.begin) // ctypes.sizeof(ctypes.c_void_p)
        members = (ctypes.c_void_p * count).from_address(group.tensors.begin)
        found.append([index[member] for member in members])
    return found
