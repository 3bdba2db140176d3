"""Tokens without a sampler: each rank strides through one sequence, as GPT trainings do.

    python -m real_gpu.trainings.token_loader

A language model reads one long sequence of tokens. Rank r takes piece r of every n pieces. That
needs no list of indices, no padding and no message between the ranks; only the rule for the end
must be the same on all of them, or one rank would wait in an all-reduce for another that has
already begun its next epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from real_gpu.trainings.launching import main, prove, say

TOKENS = 1000


@dataclass(frozen=True)
class TokenLoader:
    """Batches of ``batch`` rows of ``length`` tokens, and what follows each token."""

    tokens: torch.Tensor
    batch: int
    length: int
    rank: int
    ranks: int

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """One pass over the sequence."""
        piece = self.batch * self.length
        step = piece * self.ranks
        # The end is judged by where all ranks together are, and leaves a token to be predicted.
        for start in range(0, len(self.tokens) - step, step):
            at = start + piece * self.rank
            window = self.tokens[at : at + piece + 1]
            yield window[:-1].view(self.batch, -1), window[1:].view(self.batch, -1)


def lesson() -> None:
    """No token is read twice, and together the ranks read the sequence."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tokens = torch.arange(TOKENS)  # a token is its own place: nothing can be mistaken
    pairs = list(TokenLoader(tokens, batch=4, length=8, rank=rank, ranks=ranks))

    prove("a target is the token after its input", all((y == x + 1).all() for x, y in pairs))
    mine = [x.flatten().tolist() for x, _ in pairs]
    by_rank: list[list[list[int]]] = [[]] * ranks
    dist.all_gather_object(by_rank, mine)
    prove("every rank makes as many steps", len({len(steps) for steps in by_rank}) == 1)
    seen = [place for steps in by_rank for step in steps for place in step]
    prove("no two batches share a token", len(set(seen)) == len(seen))
    in_turn = [place for step in zip(*by_rank, strict=True) for part in step for place in part]
    prove("taken in turn, the ranks' batches are the sequence", in_turn == list(range(len(seen))))
    left = TOKENS - len(seen)
    say(f"{len(mine)} steps of {ranks} x 4 x 8 tokens, {left} of {TOKENS} left over at the end")
    # At most one step of all ranks, and the last token, which only is a target.
    prove("less than a step is left over", 1 <= left <= ranks * 4 * 8)


if __name__ == "__main__":
    main(lesson)
