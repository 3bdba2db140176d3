"""One process, a thread per GPU: nn.DataParallel splits the batch and gathers the outputs.

    python -m real_gpu.trainings.data_parallel

One line turns a model into a data-parallel one, and its price is hidden in that line. At *every*
forward pass GPU 0 copies all parameters to the others, one Python thread for each GPU runs a
replica, and all outputs come back to GPU 0, where the loss is. In the backward pass all gradients
are added up on GPU 0, which alone runs the optimizer. Without a GPU, DataParallel just calls the
module.
"""

from __future__ import annotations

import copy
import sys

import torch
from torch import nn

from real_gpu.trainings.launching import classifier, close, points, prove, say

BATCH = 48


class Seen(nn.Module):
    """The model, and how many samples each of its replicas got."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.samples: dict[str, int] = {}  # replicas are shallow copies: they share this

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the model's."""
        self.samples[str(x.device)] = len(x)
        y: torch.Tensor = self.model(x)
        return y


def lesson() -> None:
    """A step with nn.DataParallel leaves the gradients of a step without it."""
    gpus = torch.cuda.device_count()
    device = torch.device("cuda:0" if gpus else "cpu")
    torch.manual_seed(0)
    alone = classifier().to(device)
    module = Seen(copy.deepcopy(alone))
    parallel = nn.DataParallel(module)
    x, y = (t.to(device) for t in points(BATCH))

    outputs = parallel(x)  # scatter, replicate, run, gather
    nn.functional.cross_entropy(outputs, y).backward()  # on GPU 0, for the whole batch
    nn.functional.cross_entropy(alone(x), y).backward()

    if not gpus:
        say("no GPU here: DataParallel calls the module in this thread, on the whole batch")
    say(f"samples by device: {module.samples}")
    wanted = [len(part) for part in x.chunk(max(gpus, 1))]  # ceil(batch / GPUs), the last fewer
    parts = sorted(module.samples.values()) == sorted(wanted)
    prove("each GPU (without any: the CPU) ran one part of the batch", parts)
    prove("all outputs are on one device", outputs.device == device and len(outputs) == BATCH)
    gradients = [[p.grad for p in m.parameters()] for m in (module.model, alone)]
    prove("gradients are those of one device and the whole batch", close(*gradients))
    # The optimizer, a checkpoint, evaluation: all want the module itself.
    prove("the module's own parameters were trained", parallel.module is module)


if __name__ == "__main__":
    try:
        lesson()
    except AssertionError as error:
        sys.exit(f"data_parallel: {error}")
