"""Looks at one pass of a module: FLOPs of each parameter, memory kept, and time on its device."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count


class FlopsByParameter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds each operation's FLOPs to the parameter it uses, found by its memory.

    An operation that uses none (attention), or one that has been used already (an output
    projection that shares the token table), is counted on the parameter used last: its part of the
    backward pass lies before that one's gradient.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = [0.0] * len(parameters)
        self._index = {_memory(p): index for index, p in enumerate(parameters)}
        self._elements = [p.numel() for p in parameters]
        self._used: set[int] = set()
        self._last: int | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        # A transposed weight is not yet a used one, nor one whose device was asked for.
        if func.is_view or next(tensors_in(result), None) is None:
            return result
        own = [self._index[_memory(t)] for t in tensors_in(args) if _memory(t) in self._index]
        fresh = [index for index in dict.fromkeys(own) if index not in self._used]
        if fresh:
            self._last = max(fresh, key=lambda index: self._elements[index])
            self._used.update(fresh)
        if self._last is not None:
            self.flops[self._last] += _flops(func._overloadpacket, args, kwargs or {}, result)
        return result


def _flops(operation: Any, args: Any, kwargs: Any, result: Any) -> float:
    """Two for each multiply-add of a product, a convolution or attention; else 0."""
    if operation in flop_registry:
        return float(flop_registry[operation](*args, **kwargs, out_val=result))
    if operation == torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        query, key, value = (tensor.shape for tensor in args[:3])
        return float(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]
    return 0.0


class KeptBytes:
    """Counts the memory that autograd keeps for the backward pass, parameters and buffers apart."""

    def __init__(self, apart: Sequence[torch.Tensor]) -> None:
        self.nbytes = 0
        self._seen = {_memory(tensor) for tensor in apart}
        self._alive: list[torch.Tensor] = []  # so that no memory is freed and counted as another

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Called by autograd for every tensor it keeps."""
        if _memory(tensor) not in self._seen:
            self._seen.add(_memory(tensor))
            self._alive.append(tensor.detach())
            self.nbytes += tensor.untyped_storage().nbytes()
        return tensor


class Clock:
    """Host time, or on a GPU events in its stream, which measure the GPU and not its launches."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"

    def stamp(self) -> Any:
        """Now."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def settle(self) -> None:
        """Wait until every stamp has happened."""
        if self.cuda:
            torch.cuda.synchronize()

    def seconds(self, earlier: Any, later: Any) -> float:
        """From one stamp to another."""
        return float(earlier.elapsed_time(later) / 1e3 if self.cuda else later - earlier)


def tensor_bytes(value: Any) -> int:
    """Bytes of the tensors in it."""
    return sum(tensor.nbytes for tensor in tensors_in(value))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)


def _memory(tensor: torch.Tensor) -> int:
    """Which memory a tensor is a view of; on the meta device too."""
    return int(tensor.untyped_storage()._cdata)
