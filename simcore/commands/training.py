"""Flags of a training step to its setting: for ``step``, ``compare --model`` and real runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

from simcore.commands import values
from simcore.training.buckets import DdpOptions
from simcore.training.memory import OPTIMIZER_STATES, Optimizer
from simcore.training.model import Workload
from simcore.training.strategies import STRATEGIES, Setting, Strategy
from simcore.training.workload import load_workload

ASYNC = "ps-async"  # has no plan: see `simcore.commands.step_async`
# Flags whose names on the command line are not those in the setting.
_NAMED = {"pipelined": "not_pipelined", "launch_per_replica_s": "launch_per_replica"}
_NAMED |= {"broadcast_buffers": "no_broadcast_buffers"}
_NEGATED = ("pipelined", "broadcast_buffers")  # whose flags say that they are not
_OF_OPTIONS = tuple(field.name for field in fields(DdpOptions))
OF_STRATEGIES = tuple(dict.fromkeys(name for row in STRATEGIES for name in row.takes))
FLAGS = (
    *("forward", "backward", "optimizer", "gpu", "batch", "bucket_cap_mb", "static_graph"),
    *("find_unused_parameters", "hook", "iteration", "accumulate", "overlap", "backend"),
    *("algorithm", "period", "slower", "not_pipelined", "servers", "gpus_per_node"),
    *("launch_per_replica", "total_batch", "gradient_as_bucket_view", "no_broadcast_buffers"),
    *("aggregation", "precision", "optimizer_state"),
)
_VALUES: tuple[tuple[str, Callable[[str], Any], str, str], ...] = (
    ("batch", values.samples, "B", "samples per GPU"),
    ("bucket-cap-mb", values.bucket_mib, "X", "DDP's, in MiB"),
    ("iteration", values.count, "I", "0 is the first; default: a late one"),
    ("accumulate", values.count, "K", "micro-batches; default 1"),
    ("period", values.count, "H", "of local SGD; default 8"),
    (
        "overlap",
        values.overlap,
        "0…1",
        "how much of the remaining backward pass a bucket may overlap (1)",
    ),
    ("launch-per-replica", values.seconds, "T", "dp: of each replica's forward pass, in turn"),
    ("servers", values.count, "K", "how many servers (ps, ps-dedicated, byteps)"),
    ("gpus-per-node", values.count, "K", "ranks in a node (hsdp, or --algorithm hierarchical)"),
)


def add_training(
    parser: argparse.ArgumentParser,
    backend: str = "nccl (default) or gloo, which for dp means copies",
) -> None:
    """What a model's step needs to know beyond its bytes. ``backend`` is what the help says of it.

    Every flag is None, or an empty list, where it is not given: ``setting_of`` reads them.
    """
    add = parser.add_argument
    for name in ("forward", "backward", "optimizer"):
        about = f"seconds of the {name} pass"
        add(f"--{name}", type=values.seconds, metavar="T", help=about)
    estimated = "estimate those from FLOPs and a named GPU, such as 'A100 80GB'"
    add("--gpu", metavar="NAME", help=estimated)
    for name in ("static-graph", "find-unused-parameters"):
        add(f"--{name}", help="DDP's", action="store_true", default=None)
    add("--hook", metavar="fp16|bf16|powersgd:R", help="DDP's communication hook")
    add("--backend", metavar="NAME", help=backend)
    add("--algorithm", metavar="NAME", help="of the all-reduce; default ring")
    pushed = "push all, then pull all (ps, ps-dedicated)"
    add("--not-pipelined", help=pushed, action="store_true", default=None)
    for flag, value, metavar, about in _VALUES:
        add(f"--{flag}", type=value, metavar=metavar, help=about)
    slower = "a GPU that computes FACTOR times as long; may be repeated"
    many: dict[str, Any] = {"action": "append", "default": []}
    add("--slower", type=values.slower, metavar="RANK:FACTOR", help=slower, **many)


def add_simulated(parser: argparse.ArgumentParser) -> None:
    """What only a simulated step can be asked for: above all, what costs memory and no time."""
    add = parser.add_argument
    view = "DDP's: gradients are no copies of what is in the buckets"
    add("--gradient-as-bucket-view", help=view, action="store_true", default=None)
    buffers = "DDP's: rank 0's buffers do not go to everyone"
    add("--no-broadcast-buffers", help=buffers, action="store_true", default=None)
    total = "dp: samples of all GPUs together; with few of them, some GPUs have none"
    add("--total-batch", type=values.samples, metavar="B", help=total)
    served = "what a server makes of gradients (ps, ps-dedicated, byteps, ps-async --bound 0)"
    add("--aggregation", metavar="mean|sum", help=served)
    stored = "parameters and gradients in it; below float32 the optimizer keeps a float32 copy"
    add("--precision", type=values.precision, metavar="bfloat16|float16|float32", help=stored)
    add("--optimizer-state", metavar="|".join(OPTIMIZER_STATES), help="what it keeps: memory")


def workload_of(args: argparse.Namespace) -> Workload:
    """The model with its compute time: its own, given, or estimated; never guessed."""
    work = load_workload(args.model)
    if precision := getattr(args, "precision", None):
        stored = tuple(replace(p, dtype=precision) for p in work.parameters)
        work = replace(work, parameters=stored)
    times = {name: getattr(args, name) for name in ("forward", "backward", "optimizer")}
    given = [name for name, seconds in times.items() if seconds is not None]
    batch = work.batch if args.batch is None else args.batch
    if args.gpu is not None:
        if given:
            raise ValueError(f"--gpu estimates what --{given[0]} gives; accepted: one of them")
        return work.estimated_on(args.gpu, batch)
    if batch != work.batch and work.forward_s and not given:
        raise ValueError(
            f"the times of {work.name!r} are for a batch of {work.batch}, not {batch}; "
            "accepted: that batch, or --forward T --backward T"
        )
    work = replace(work, batch=batch)
    if given:
        if args.forward is None or args.backward is None:
            raise ValueError(f"--{given[0]} alone; accepted: --forward with --backward")
        return work.with_compute(args.forward, args.backward, args.optimizer or 0.0)
    if not work.forward_s:
        raise ValueError(
            f"the compute time of {work.name!r} is not known; accepted: --gpu NAME, "
            "--forward T --backward T, or a model file that holds it"
        )
    return work


def setting_of(args: argparse.Namespace, work: Workload, takes: Iterable[str]) -> Setting:
    """What the flags say, as far as a strategy ``takes`` them."""
    given = given_flags(args)
    chosen = {name: given[name] for name in takes if name in given}
    options = DdpOptions(**{name: chosen.pop(name) for name in _OF_OPTIONS if name in chosen})
    slower = [1.0] * args.gpus if args.slower else []
    for rank, factor in args.slower:
        if rank >= args.gpus:
            raise ValueError(f"--slower {rank}: accepted are GPUs 0 to {args.gpus - 1}")
        slower[rank] *= factor
    accumulate, slow = 1 if args.accumulate is None else args.accumulate, tuple(slower)
    mixed = getattr(args, "precision", None) not in (None, "float32")
    state = Optimizer(getattr(args, "optimizer_state", None) or "adam", mixed)
    return Setting(
        work, args.gpus, options, accumulate=accumulate, slower=slow, state=state, **chosen
    )


def given_flags(args: argparse.Namespace) -> dict[str, Any]:
    """What the command line holds of the flags that not every strategy takes."""
    values = {name: getattr(args, _NAMED.get(name, name), None) for name in OF_STRATEGIES}
    given = {name: value for name, value in values.items() if value is not None}
    return given | {name: False for name in _NEGATED if name in given}


def flag_of(name: str) -> str:
    """What a setting's field is called on the command line."""
    return "--" + _NAMED.get(name, name).replace("_", "-")


def check_taken(args: argparse.Namespace, strategy: Strategy) -> None:
    """A flag that means nothing here is an error, not silence."""
    for name in given_flags(args):
        if name not in strategy.takes:
            accepted = [row.name for row in STRATEGIES if name in row.takes]
            raise ValueError(
                f"{strategy.name} takes no {flag_of(name)}; accepted: with {', '.join(accepted)}"
            )
    grouped = strategy.name == "hsdp" or args.algorithm == "hierarchical"
    if args.gpus_per_node is not None and not grouped:
        raise ValueError("--gpus-per-node alone; accepted: with hsdp or --algorithm hierarchical")


def ranks_of(args: argparse.Namespace, strategy: str) -> int:
    """Ports that the cluster needs: extra servers have one too."""
    extra = {
        ASYNC: args.servers or 0,
        "ps-dedicated": args.servers or 1,
        "byteps": args.gpus if args.servers is None else args.servers,
    }
    return int(args.gpus + extra.get(strategy, 0))
