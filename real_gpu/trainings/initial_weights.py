"""Equal at the start: four usual ways to give every rank the same weights, by checksum.

    python -m real_gpu.trainings.initial_weights

Averaged gradients keep equal models equal. They do not make unequal models equal: ranks that start
apart stay apart, each with gradients of another model, and no error says so.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from real_gpu.trainings.launching import checksums, classifier, device, main, prove, say


def seeded(seed: int) -> nn.Module:
    """A new model whose weights follow from the seed."""
    torch.manual_seed(seed)
    return classifier().to(device())


def same_seed() -> nn.Module:
    """Every rank draws the same numbers. Nothing else may draw between seed and model."""
    return seeded(0)


def loaded() -> nn.Module:
    """Every rank loads the same trained weights, as after a download."""
    downloaded = io.BytesIO()  # stands for a file that every machine has
    torch.save(
        {k: torch.full_like(v, 0.5) for k, v in classifier().state_dict().items()}, downloaded
    )
    downloaded.seek(0)
    model = seeded(dist.get_rank())
    model.load_state_dict(torch.load(downloaded, map_location=device(), weights_only=True))
    return model


def rank_0_file() -> nn.Module:
    """Rank 0 writes a file that all read: for ranks that share a disk."""
    model = seeded(dist.get_rank())
    with tempfile.TemporaryDirectory() as folder:  # each rank makes one; rank 0's is told to all
        told = [folder]
        dist.broadcast_object_list(told, src=0)
        file = Path(told[0]) / "initial.pt"
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), file)
        dist.barrier()  # nobody reads before it is written …
        model.load_state_dict(torch.load(file, map_location=device(), weights_only=True))
        dist.barrier()  # … and rank 0 removes it after all have read
    return model


def ddp_broadcast() -> nn.Module:
    """DDP sends rank 0's weights and buffers to all when it is made. Nothing else is needed."""
    model = seeded(dist.get_rank())
    DistributedDataParallel(model)
    return model


def different_seeds() -> nn.Module:
    """No way at all: what happens when gradients are averaged by hand and this is forgotten."""
    return seeded(dist.get_rank())


def lesson() -> None:
    """Each way, and none, judged by checksums over the ranks."""
    for way in (same_seed, loaded, rank_0_file, ddp_broadcast):
        sums = checksums(way())
        say(f"{way.__name__}: {' '.join(sums)}")
        prove(f"{way.__name__}: equal weights on all ranks", len(set(sums)) == 1)
    sums = checksums(different_seeds())
    say(f"different_seeds: {' '.join(sums)}")
    prove("different seeds without DDP: no two ranks are equal", len(set(sums)) == len(sums))


if __name__ == "__main__":
    main(lesson)
