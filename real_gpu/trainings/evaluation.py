"""Evaluation over ranks: predictions gathered, and the sampler's padding taken off again.

    python -m real_gpu.trainings.evaluation

Ranks must get equally many samples, so DistributedSampler repeats the first ones at the end.
Counted twice, they bend every metric. Ranks with unequal parts have another trap: the mean of the
ranks' means is not the mean of the samples.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler, TensorDataset

from real_gpu.trainings.launching import classifier, device, main, points, prove, say

Sampler = DistributedSampler[Any]


def gathered(mine: torch.Tensor) -> list[torch.Tensor]:
    """Every rank's tensor of equal length. NCCL moves only what lies on a GPU."""
    parts = [torch.empty_like(mine, device=device()) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine.to(device()))
    return [part.cpu() for part in parts]


def gathered_unequal(mine: torch.Tensor) -> list[torch.Tensor]:
    """Tensors of any lengths: lengths first, then the tensors filled up to the longest."""
    lengths = [int(part) for part in gathered(torch.tensor([len(mine)]))]
    filled = torch.zeros(max(lengths), dtype=mine.dtype)
    filled[: len(mine)] = mine
    return [part[:length] for part, length in zip(gathered(filled), lengths, strict=True)]


def gathered_objects(mine: torch.Tensor) -> list[torch.Tensor]:
    """The same through pickle: shorter to write, slower, and for anything that pickles."""
    parts: list[torch.Tensor] = [mine] * dist.get_world_size()
    dist.all_gather_object(parts, mine)
    return parts


def interleaved(parts: list[torch.Tensor]) -> torch.Tensor:
    """Samples in the dataset's order: rank r has the samples r, r + n, r + 2n …"""
    whole = torch.empty(sum(map(len, parts)), dtype=parts[0].dtype)
    for rank, part in enumerate(parts):
        whole[rank :: len(parts)] = part
    return whole


def without_padding(values: torch.Tensor, count: int) -> torch.Tensor:
    """The padding comes last in the dataset's order: cut it there, not on each rank."""
    return values[:count]


def lesson() -> None:
    """Gathered predictions against one process that evaluates everything."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(15)
    model = classifier()  # untrained: some right, some wrong, of all classes
    count = 10 * ranks + 1  # one too many for equal parts
    x, y = points(count)
    wanted = model(x).argmax(1)

    def accuracy(predictions: torch.Tensor, labels: torch.Tensor) -> float:
        return int((predictions == labels).sum()) / len(labels)

    sampler: Sampler = DistributedSampler(TensorDataset(x, y), ranks, rank, shuffle=False)
    mine = list(sampler)
    predicted = model(x[mine]).argmax(1)
    padded = interleaved(gathered(predicted))
    labels = interleaved(gathered(y[mine]))
    naive, right = accuracy(padded, labels), accuracy(wanted, y)
    say(f"{count} samples, {len(padded)} with padding; accuracy {naive:.4f}, should be {right:.4f}")
    prove("with the padding the accuracy is off", naive != right)
    padded, labels = (without_padding(values, count) for values in (padded, labels))
    prove("without it the accuracy is one process's, exactly", accuracy(padded, labels) == right)
    prove("and so is every prediction, in order", padded.equal(wanted))

    own = range(rank, count, ranks)  # no sampler, no padding: unequal parts
    predicted = model(x[own]).argmax(1)
    for gather in (gathered_unequal, gathered_objects):
        exact = interleaved(gather(predicted)).equal(wanted)
        prove(f"{gather.__name__}: every prediction of unequal parts, in order", exact)
    hits = torch.tensor([int((predicted == y[own]).sum()), len(own)]).to(device())
    mean_of_means = (hits[0] / hits[1]).double()
    dist.all_reduce(mean_of_means)
    dist.all_reduce(hits)
    off = abs(mean_of_means.item() / ranks - right)
    prove(f"the mean of the ranks' accuracies is off by {off:.4f}", off > 1e-4)
    prove("hits and samples added up over ranks are exact", int(hits[0]) / int(hits[1]) == right)


if __name__ == "__main__":
    main(lesson)
