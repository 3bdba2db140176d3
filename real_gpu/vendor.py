"""The library's own collectives, held to the exact result within a stated tolerance."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

from real_gpu import data, replay
from real_gpu.job import Case


class VendorCollective:
    """``torch.distributed.all_reduce``; the library chooses algorithm and segments."""

    def __init__(self, case: Case, rank: int, n: int, device: torch.device) -> None:
        values = data.inputs(rank, 0, case.elements, case.dtype)
        self.dtype, self.input = case.dtype, replay.to_torch(values, case.dtype, device)
        self.buffer = torch.empty_like(self.input)
        self.total, self.allowed = data.exact_sum(n, case.elements, case.dtype)
        self.payload: dict[str, int] = {}

    def reset(self) -> None:
        """Put the input back."""
        self.buffer.copy_(self.input)

    def run(self) -> list[list[float]]:
        """The call."""
        dist.all_reduce(self.buffer)
        return []

    def difference(self) -> str | None:
        """The first element that is further off than rounding allows."""
        got = replay.to_numpy(self.buffer, data.numpy_dtype(self.dtype))
        wide = got if self.dtype == "int64" else got.astype(np.float64)
        wrong = np.flatnonzero(~(np.abs(wide - self.total) <= self.allowed))
        if not len(wrong):
            return None
        at = int(wrong[0])
        return f"element {at}: got {got[at]!s}, wanted {self.total[at]!s} ± {self.allowed[at]:.3g}"
