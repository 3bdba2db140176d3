"""Two ranks that run every lesson of ``real_gpu.trainings``, and every lesson broken.

All in one set of processes; rank 0 writes down what came of it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DistributedSampler

from real_gpu.trainings import LESSONS, launching
from real_gpu.trainings import accumulation as accumulation_
from real_gpu.trainings import data_parallel as data_parallel_
from real_gpu.trainings import initial_weights as initial_weights_
from real_gpu.trainings import token_loader as token_loader_

Broken = AbstractContextManager[Any]


def in_lesson(lesson: str, **names: Any) -> Broken:
    """The lesson with other things under these names."""
    return patch.multiple(f"real_gpu.trainings.{lesson}", **names)


def first_rank(dataset: Any, ranks: int, rank: int, **options: Any) -> Any:
    return DistributedSampler(dataset, ranks, 0, **options)


PLAIN_LOADER = token_loader_.TokenLoader


def first_piece(*tokens: Any, **options: Any) -> Any:
    return PLAIN_LOADER(*tokens, **options | {"rank": 0})


def own_end(self: Any) -> Iterator[Any]:
    """Each rank judges the end by where it is itself."""
    piece = self.batch * self.length
    for at in range(piece * self.rank, len(self.tokens) - piece, piece * self.ranks):
        yield self.tokens[at : at + piece], self.tokens[at + 1 : at + piece + 1]


def no_shift(self: Any) -> Iterator[Any]:
    piece = self.batch * self.length
    for at in range(0, len(self.tokens) - piece, piece):
        yield self.tokens[at : at + piece], self.tokens[at : at + piece]


def no_sync_for(parts: int) -> Any:
    def no_sync(ddp: Any, part: int) -> Broken:
        return ddp.no_sync() if part < parts else contextlib.nullcontext()

    return no_sync


def switch_left_off(ddp: Any, part: int) -> Broken:
    ddp.require_backward_grad_sync = False
    return contextlib.nullcontext()


def whole_wrapper(file: Path, model: Any, optimizer: Any) -> None:
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    dist.barrier()


def zeros(file: Path, on: torch.device) -> Any:
    state = torch.load(file, map_location=on, weights_only=True)
    return state | {"model": {name: value * 0 for name, value in state["model"].items()}}


def nothing(*args: Any, **options: Any) -> None:
    """What is forgotten."""


def identity(value: Any, *args: Any) -> Any:
    return value


def file_alone() -> Broken:
    """Only the lesson's way over rank 0's file loads, and what it loads is thrown away."""
    broken = contextlib.ExitStack()
    broken.enter_context(in_lesson("initial_weights", loaded=initial_weights_.same_seed))
    broken.enter_context(patch.object(nn.Module, "load_state_dict", nothing))
    return broken


class OfACopy(nn.DataParallel):  # type: ignore[type-arg]
    def __init__(self, module: nn.Module) -> None:
        import copy

        super().__init__(copy.deepcopy(module))


# A lesson broken in one way, and words of the claim that must fail then.
BROKEN: dict[str, tuple[str, partial[Broken], str]] = {
    "DataParallel of a copy": (
        "data_parallel",
        partial(patch.object, data_parallel_.nn, "DataParallel", OfACopy),
        "ran one part",
    ),
    "no set_epoch": (
        "ddp",
        partial(patch.object, DistributedSampler, "set_epoch", nothing),
        "an order of its own",
    ),
    "one part for all ranks": (
        "ddp",
        partial(in_lesson, "ddp", DistributedSampler=first_rank),
        "every n-th of the whole order",
    ),
    "no DDP": ("ddp", partial(in_lesson, "ddp", DistributedDataParallel=identity), "gradients"),
    "loss of one rank": ("ddp", partial(in_lesson, "ddp", averaged=identity), "averaged loss"),
    "every rank reads the first piece": (
        "token_loader",
        partial(in_lesson, "token_loader", TokenLoader=first_piece),
        "share a token",
    ),
    "every rank judges its own end": (
        "token_loader",
        partial(patch.object, token_loader_.TokenLoader, "__iter__", own_end),
        "as many steps",
    ),
    "targets are not shifted": (
        "token_loader",
        partial(patch.object, token_loader_.TokenLoader, "__iter__", no_shift),
        "token after its input",
    ),
    "no_sync for the last part too": (
        "accumulation",
        partial(in_lesson, "accumulation", no_sync=no_sync_for(accumulation_.PARTS)),
        "no_sync: gradients",
    ),
    "no_sync for one part fewer": (
        "accumulation",
        partial(in_lesson, "accumulation", no_sync=no_sync_for(accumulation_.PARTS - 2)),
        "no_sync: 1 all-reduces",
    ),
    "the switch stays off": (
        "accumulation",
        partial(in_lesson, "accumulation", switch=switch_left_off),
        "switch_left_off: gradients",
    ),
    "a seed for each rank": (
        "initial_weights",
        partial(in_lesson, "initial_weights", same_seed=initial_weights_.different_seeds),
        "equal weights on all ranks",
    ),
    "weights loaded by nobody": (
        "initial_weights",
        partial(patch.object, nn.Module, "load_state_dict", nothing),
        "loaded: equal weights",
    ),
    "rank 0's file read by nobody": (
        "initial_weights",
        partial(file_alone),
        "rank_0_file: equal weights",
    ),
    "no broadcast": (
        "initial_weights",
        partial(in_lesson, "initial_weights", DistributedDataParallel=identity),
        "ddp_broadcast: equal weights",
    ),
    "one seed where there should be many": (
        "initial_weights",
        partial(in_lesson, "initial_weights", different_seeds=initial_weights_.same_seed),
        "no two ranks are equal",
    ),
    "padding counted": (
        "evaluation",
        partial(in_lesson, "evaluation", without_padding=identity),
        "the accuracy is one process's",
    ),
    "ranks' parts one after the other": (
        "evaluation",
        partial(in_lesson, "evaluation", interleaved=torch.cat),
        "every prediction, in order",
    ),
    "only this rank's objects": (
        "evaluation",
        partial(in_lesson, "evaluation", gathered_objects=lambda mine: [mine, mine[:-1]]),
        "unequal parts, in order",
    ),
    "the wrapper's state is saved": (
        "checkpoint",
        partial(in_lesson, "checkpoint", write=whole_wrapper),
        "Missing key",
    ),
    "nothing is saved": (
        "checkpoint",
        partial(in_lesson, "checkpoint", write=nothing),
        "finds the file",
    ),
    "other weights are loaded": (
        "checkpoint",
        partial(in_lesson, "checkpoint", read=zeros),
        "same outputs",
    ),
    "the optimizer starts anew": (
        "checkpoint",
        partial(patch.object, torch.optim.Adam, "load_state_dict", nothing),
        "ends where the unbroken one does",
    ),
    "the rate is not scaled": (
        "learning_rate",
        partial(in_lesson, "learning_rate", scaled=identity),
        "gentle: scaled",
    ),
    "the rate is scaled twice": (
        "learning_rate",
        partial(in_lesson, "learning_rate", scaled=lambda rate, ranks: rate * ranks**2),
        "gentle: scaled",
    ),
}


def outcome(lesson: str) -> tuple[str, str]:
    """What a lesson printed, and the error that ended it."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            importlib.import_module(f"real_gpu.trainings.{lesson}").lesson()
        except (AssertionError, RuntimeError) as error:
            return printed.getvalue(), str(error)
    return printed.getvalue(), ""


def threads() -> list[str]:
    """The names of this process's threads, where Linux tells them."""
    return [t.joinpath("comm").read_text().strip() for t in Path("/proc/self/task").glob("*")]


def run(folder: Path) -> None:
    """Every lesson, every broken lesson, and a claim that one rank alone finds false; where nobody
    has said which ranks are on this machine, as where the environment was set by hand.
    """
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        del os.environ[name]
    rank = dist.get_rank()
    found: dict[str, Any] = {"lessons": {lesson: outcome(lesson) for lesson in LESSONS}}
    found["broken"] = {}
    for name, (lesson, broken, _) in BROKEN.items():
        with broken():
            found["broken"][name] = outcome(lesson)[1]
    try:
        launching.prove("rank 1 sees it otherwise", rank != 1)
    except AssertionError as error:
        found["one rank"] = str(error)

    def left() -> None:  # at exit, when the group is gone
        found["threads"] = threads()
        folder.joinpath(f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")

    atexit.register(left)
