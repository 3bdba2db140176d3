"""The model of the library's trainings: its rows, its gradients in one process, and the collectives
that torch is seen to issue.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from real_gpu.vendor.plan import shape

ROWS = 2  # of a rank's micro-batch
KINDS = {
    "allreduce_": "all_reduce",
    "broadcast_": "broadcast",
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "send": "send",
    "recv_": "receive",
    "recv_any_source_": "receive",
}


class Stack(nn.Module):
    """Linear layers with ``elements`` parameters, and a running mean of what it has seen."""

    def __init__(self, elements: int, seed: int) -> None:
        super().__init__()
        width, layers, head, self.n_tail = shape(elements)
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.head = nn.Linear(width, head, bias=False) if head else None
        self.tail = nn.Linear(self.n_tail, 1, bias=False) if self.n_tail else None
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(width))
        generator = torch.Generator().manual_seed(seed)
        for weight in self.parameters():
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The loss: the squares of all outputs, a mean over rows."""
        with torch.no_grad():
            self.seen.mul_(0.5).add_(0.5 * x.mean(0))
        for layer in self.layers:
            x = torch.tanh(layer(x))
        loss = x.square().sum()
        if self.head is not None:
            loss = loss + self.head(x).square().sum()
        if self.tail is not None:
            loss = loss + self.tail(x[:, : self.n_tail]).square().sum()
        return loss / len(x)


def rows(elements: int, rank: int, number: int) -> torch.Tensor:
    """The inputs of one micro-batch of a rank."""
    generator = torch.Generator().manual_seed(1000 * rank + number)
    return torch.randn(ROWS, shape(elements)[0], generator=generator)


def gradients(elements: int, batches: list[torch.Tensor]) -> list[torch.Tensor]:
    """What one process gets that sees all of these rows."""
    model = Stack(elements, seed=0)
    model(torch.cat(batches)).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


class Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists every collective that torch issues: its kind, and the bytes of its tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = str(func).partition(".")
        name = name.partition(".")[0]
        if namespace == "c10d":
            tensors = args[1] if name == "_reduce_scatter_base_" else args[0]
            listed = [tensors] if isinstance(tensors, torch.Tensor) else tensors
            self.calls.append((KINDS.get(name, name), sum(t.nbytes for t in listed)))
        return func(*args, **(kwargs or {}))


def compare(got: list[torch.Tensor], wanted: list[torch.Tensor], allowed: float) -> str | None:
    """The first update that is further off than ``allowed`` of its largest entry."""
    for number, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if a.shape != b.shape:
            return f"update of parameter {number}: is {list(a.shape)}, wanted {list(b.shape)}"
        if not b.numel():
            continue
        error, largest = float((a - b).abs().max()), float(b.abs().max())
        if not error <= allowed * largest:
            return f"update of parameter {number}: off by {error:.3g}, its largest is {largest:.3g}"
    return None


def local(parameter: torch.Tensor) -> torch.Tensor:
    """The share of a parameter that lies here."""
    shard = getattr(parameter, "to_local", None)
    return parameter.detach() if shard is None else shard().detach()


def shard(whole: torch.Tensor, rank: int, n: int) -> torch.Tensor:
    """The rows that FSDP2 gives a rank: as many for each, as far as they last."""
    each = -(-len(whole) // n)
    return whole[rank * each : (rank + 1) * each]
