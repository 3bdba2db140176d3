"""Torch's own count of its collectives. Imports torch: import it inside a test."""

from __future__ import annotations

from typing import Any

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
