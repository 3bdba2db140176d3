"""Learning rate times ranks: a rule of thumb, where it helps and where it breaks.

    python -m real_gpu.trainings.learning_rate

With n ranks the global batch is n times as large, so an epoch has an n-th of the steps. The rule
makes each step n times as long. It is a heuristic, not a law. Here is one weight w, so that it can
be followed on paper: a step of rate r leaves (1 - 2r) of w's error. Then n steps leave (1 - 2r)^n,
one long step leaves 1 - 2rn, and that is nearly the same only while rn is small. In large
trainings the same holds early on, hence warm-up; and beyond some batch no rate makes up for it.
"""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from real_gpu.trainings.launching import device, main, prove, say

EPOCHS = 5
BATCH = 8  # of a rank
STEPS = 6  # in an epoch, of all ranks together
GENTLE, BOLD = 0.01, 0.6  # learning rates: beyond 1 this problem diverges


def problem(ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points about the line y = 3x, with x = 1 or -1, so that every batch is equally curved."""
    draw = torch.Generator().manual_seed(5)
    count = STEPS * BATCH * ranks
    x = torch.randint(0, 2, (count, 1), generator=draw) * 2.0 - 1
    return x.to(device()), (3 * x + 0.3 * torch.randn(count, 1, generator=draw)).to(device())


def losses(rate: float, rank: int, ranks: int) -> list[float]:
    """Over all samples, before training and after each epoch; of one process where ranks is 1."""
    x, y = problem(dist.get_world_size())
    module = nn.Linear(1, 1, bias=False).to(device())
    nn.init.zeros_(module.weight)
    model = DistributedDataParallel(module) if ranks > 1 else module
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    curve = [nn.functional.mse_loss(module(x), y).item()]
    for _ in range(EPOCHS):
        for xs, ys in zip(x.split(BATCH * ranks), y.split(BATCH * ranks), strict=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(xs[rank::ranks]), ys[rank::ranks]).backward()
            optimizer.step()
        curve.append(nn.functional.mse_loss(module(x), y).item())
    return curve


def scaled(rate: float, ranks: int) -> float:
    """The rule."""
    return rate * ranks


def apart(curve: list[float], wanted: list[float]) -> float:
    """The largest gap between two loss curves."""
    return max(abs(a - b) for a, b in zip(curve, wanted, strict=True))


def lesson() -> None:
    """Equally many epochs: one process, all ranks at its rate, all ranks at the scaled rate."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    curves = {}
    for rate in (GENTLE, BOLD):
        curves[rate] = {
            "one process": losses(rate, 0, 1),
            f"{ranks} ranks, the same rate": losses(rate, rank, ranks),
            f"{ranks} ranks, {ranks} x the rate": losses(scaled(rate, ranks), rank, ranks),
        }
        for name, curve in curves[rate].items():
            say(f"rate {rate}, {name:<22} loss " + "  ".join(f"{loss:.3g}" for loss in curve))
    one, same, times_n = curves[GENTLE].values()
    prove("gentle: at the same rate, fewer steps learn less", same[-1] > one[-1])
    nearer = apart(times_n, one) < apart(same, one) / 5
    prove("gentle: scaled, the loss follows one process's, five times as closely", nearer)
    one, same, times_n = curves[BOLD].values()
    falls = one[-1] < one[0] and same[-1] < same[0]
    prove("bold: unscaled, both learn", falls)
    grows = not math.isfinite(times_n[-1]) or times_n[-1] > 10 * times_n[0]
    prove("bold: scaled, it diverges: the rule is a heuristic", grows)


if __name__ == "__main__":
    main(lesson)
