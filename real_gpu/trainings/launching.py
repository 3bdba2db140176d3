"""How the processes of a training start, meet, prove something together, and end.

A rank learns who it is from its environment, whoever sets it: ``torchrun``, or ``spawn`` below
with torch's ``mp.spawn``. So the training itself is the same code under both.

    RANK, WORLD_SIZE                 which process this is, of how many
    LOCAL_RANK, LOCAL_WORLD_SIZE     the same on this machine; LOCAL_RANK numbers its GPU
    MASTER_ADDR, MASTER_PORT         where the ranks find one another

Whoever sets them by hand may leave those of the machine away: then all ranks are taken to be on
this one, so that no two use one GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist
import torch.distributed.nn  # before a group is there: its functions keep the one that they find
from torch import nn
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException
from torch.multiprocessing.spawn import spawn as start

from real_gpu.network.interfaces import LOOPBACK, VARIABLE
from real_gpu.processes.meeting import listening_store
from real_gpu.processes.seats import find_seat

Values = Sequence[torch.Tensor | None]
CPU = torch.device("cpu")
ENDED = (ProcessExitedException, ProcessRaisedException)  # a rank, and spawn all others


def device() -> torch.device:
    """This rank's own GPU; the CPU for all where the machine has fewer GPUs than ranks."""
    ranks_here = os.environ.get("LOCAL_WORLD_SIZE") or os.environ["WORLD_SIZE"]
    if torch.cuda.device_count() < int(ranks_here):
        return CPU
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK") or os.environ["RANK"]))


@contextlib.contextmanager
def process_group() -> Iterator[None]:
    """All ranks joined: by NCCL where each has a GPU, else by Gloo. Left on every path."""
    on = device()
    if on.type == "cuda":
        torch.cuda.set_device(on)  # NCCL talks from the current GPU
    dist.init_process_group(
        "nccl" if on.type == "cuda" else "gloo",
        timeout=timedelta(seconds=60),
        device_id=on if on.type == "cuda" else None,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def spawn(lesson: Callable[[], None], ranks: int) -> None:
    """``lesson`` in new processes of this machine that reach one another over loopback.

    As torchrun's agent does, the parent keeps the store where they meet: its port is surely free.
    It listens on loopback only; a store of torch's own would on every interface.
    """
    store = listening_store("127.0.0.1", "127.0.0.1", 0, "")
    start(_rank, (lesson, ranks, store.port), nprocs=ranks, daemon=True)  # none outlives this one


def _rank(rank: int, lesson: Callable[[], None], ranks: int, port: int) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # rank 0 opens no store of its own
    }
    if LOOPBACK:
        os.environ.setdefault(VARIABLE, LOOPBACK)
    torch.set_num_threads(1)  # the ranks share the cores; torchrun sees to it too
    with process_group():
        lesson()


def _world(parser: argparse.ArgumentParser) -> int:
    """How many ranks the environment speaks of; it ends here where that cannot be."""
    if not os.environ.get("WORLD_SIZE"):
        parser.error("RANK is set, WORLD_SIZE not; accepted: both, as torchrun sets them, or none")
    try:
        seat = find_seat(os.environ)
    except ValueError as error:
        parser.error(str(error))
    assert seat is not None
    return seat.ranks


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:  # in one line
        self.exit(2, f"{self.prog}: {message}\n")


def main(lesson: Callable[[], None]) -> None:
    """The command line of a lesson: exit status 1, and one line, for a claim that does not hold."""
    parser = _Parser(description=lesson.__doc__)
    help_text = "processes to start, 2 or more (default 2); not under torchrun"
    parser.add_argument("--spawn", type=int, default=2, metavar="N", help=help_text)
    ranks = parser.parse_args().spawn
    started = "RANK" in os.environ  # by torchrun, or by hand
    if started:
        ranks = _world(parser)
    if ranks < 2:
        parser.error(f"nothing to show with {ranks} ranks: 2 or more")
    try:
        if not started:
            return spawn(lesson, ranks)
        with process_group():
            lesson()
    except (AssertionError, RuntimeError, *ENDED) as error:
        sys.exit(f"{parser.prog}: {(str(error).strip() or repr(error)).splitlines()[-1]}")
    except KeyboardInterrupt:
        sys.exit(f"{parser.prog}: stopped")


def say(text: str) -> None:
    """Print once, not once a rank."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(text, flush=True)


def prove(claim: str, holds: bool) -> None:
    """Print the claim if it holds on every rank; else every rank fails, so that none waits."""
    holds_everywhere = torch.tensor(int(holds))
    if dist.is_initialized():
        holds_everywhere = holds_everywhere.to(device())
        dist.all_reduce(holds_everywhere, dist.ReduceOp.MIN)
    if not holds_everywhere:
        raise AssertionError(f"does not hold: {claim}")
    say(f"  proved: {claim}")


def close(a: Values, b: Values) -> bool:
    """The same up to rounding: other sums in another order."""
    pairs = zip(a, b, strict=True)
    return all(
        x is not None and y is not None and torch.allclose(x.cpu(), y.cpu(), rtol=1e-4, atol=1e-5)
        for x, y in pairs
    )


def checksums(module: nn.Module) -> list[str]:
    """A checksum of every rank's parameters and buffers, to the last bit, by rank."""
    digest = hashlib.sha256()
    for value in module.state_dict().values():
        digest.update(value.detach().cpu().numpy().tobytes())
    by_rank: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(by_rank, digest.hexdigest()[:8])
    return by_rank


def classifier() -> nn.Sequential:
    """A model small enough to wait for: points of the plane into three classes."""
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))


def points(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of the plane and their classes, the same in every process."""
    places = torch.randn(count, 2, generator=torch.Generator().manual_seed(7))
    return places, (places.norm(dim=1) * 1.5).long().clamp(max=2)
