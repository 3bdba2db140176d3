"""The command line's grammar: flags, units and shorthands to values. Runs nothing."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, get_args

from simcore.algorithms import ALGORITHM_FLAGS
from simcore.engine import Slowdown, Sync
from simcore.names import unknown
from simcore.units import ITEM_BYTES, parse_bytes, parse_rate, parse_time

_ABOUT = "Simulate how data-parallel training synchronises gradients."
COMMANDS = {
    "algorithms": "list the algorithms",
    "simulate": "time one algorithm",
    "compare": "time all all-reduce algorithms, or strategies for a model, side by side",
    "step": "time one training step of a model",
}
MAX_GPUS = 65_536


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as a ValueError."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """For argparse, which would otherwise replace a ValueError's text by its own."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _gpus(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= MAX_GPUS:
        raise ValueError(f"{text!r} is not a number of GPUs; accepted: 1 to {MAX_GPUS}")
    return int(text)


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > MAX_GPUS:
        raise ValueError(f"{text!r} is not a whole number; accepted: 0, 1, 2, … {MAX_GPUS}")
    return int(text)


def _order(text: str) -> str | list[int]:
    if text in ("natural", "auto"):
        return text
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise ValueError(f"order {text!r}; accepted: natural, auto, or all ranks, such as 0,2,1,3")
    return [int(rank) for rank in text.split(",")]


def _dtype(text: str) -> str:
    if text not in ITEM_BYTES:
        raise ValueError(unknown("dtype", text, ITEM_BYTES))
    return text


def _sync(text: str) -> str:
    if text not in get_args(Sync):
        raise ValueError(unknown("sync", text, get_args(Sync)))
    return text


def _straggler(text: str) -> tuple[int, float]:
    match = re.fullmatch(r"(\d{1,9}):(.+)", text)
    if not match:
        raise ValueError(f"straggler {text!r}; accepted: RANK:TIME, such as 3:2ms")
    return int(match[1]), parse_time(match[2])


def parse_slow_link(text: str) -> Slowdown:
    """A change of a link, with or without its times; without the second one it stays.

    >>> parse_slow_link("gpu2:0@200ms..0.5s")
    Slowdown(link='gpu2', factor=0.0, from_s=0.2, until_s=0.5)
    >>> parse_slow_link("0->1:0.1@200ms..").until_s
    inf
    """
    match = re.fullmatch(r"([^:]+):([^@]+)(?:@(.+?)\.\.(.*))?", text)
    try:
        factor = float(match[2]) if match else float("nan")
    except ValueError:
        match = None
    if not match:
        raise ValueError(
            f"slow link {text!r}; accepted: LINK:FACTOR or LINK:FACTOR@T1..T2, such as "
            "0->1:0.5@1ms..2ms, gpu3:0.1@5ms.. or node1.up:0.1"
        )
    try:
        times = [parse_time(time) for time in match.group(3, 4) if time]
        return Slowdown(match[1], factor, *times)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def _trace_file(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".json", ".csv"):
        raise ValueError(f"trace file {text!r}; accepted: a name that ends in .json or .csv")
    if not os.path.isdir(path.parent):  # unlike Path's, takes a name of any length
        raise ValueError(f"trace file {text!r}: {str(path.parent)!r} is not a directory")
    return path


def parse(arguments: list[str]) -> argparse.Namespace:
    """The namespace of a command line; a ValueError of one line if it is not accepted."""
    parser = _Parser(prog="simcore", allow_abbrev=False, description=_ABOUT)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    subs = {
        name: commands.add_parser(name, allow_abbrev=False, help=h, description=h)
        for name, h in COMMANDS.items()
    }
    for sub in subs.values():
        sub.add_argument("--json", action="store_true", help="one JSON document, nothing else")
    subs["simulate"].add_argument("algorithm", help="a name from 'algorithms'")
    subs["step"].add_argument("strategy", help="ddp, dp, ps, fsdp … (see docs/training-step.md)")
    for name, sub in subs.items():
        if name != "algorithms":
            _add_case(sub, command=name)
    _add_what_if(subs["simulate"])
    for name in ("step", "compare"):
        add_training(subs[name])
    add = subs["step"].add_argument
    add("--trace", type=_checked(_trace_file), metavar="FILE", help=".json or .csv")
    add(
        *("--measured",),
        type=_checked(parse_time),
        metavar="T",
        help="what a real step took: how much of it can be the network",
    )
    subs["step"].add_argument(
        "--bound", type=_checked(_number), metavar="S", help="ps-async: gradients ahead at most"
    )
    args, left = parser.parse_known_args(_normal(arguments, subs))
    if left:
        raise ValueError(f"unexpected argument {left[0]!r}; accepted: see '{args.command} --help'")
    if args.command in ("simulate", "compare"):
        _settle(args)
    return args


def _settle(args: argparse.Namespace) -> None:
    """The type of the numbers; and flags that belong to the other kind of comparison."""
    if args.command == "compare":
        modelled = args.model is not None
        others = ("dtype",) if modelled else _TRAINING
        for name in others:
            if getattr(args, name) not in (None, []):
                with_what = "--size" if modelled else "--model"
                raise ValueError(f"--{name.replace('_', '-')} goes with {with_what}")
    args.dtype = args.dtype or "float32"


_TRAINING = (
    *("forward", "backward", "optimizer", "gpu", "batch", "bucket_cap_mb", "static_graph"),
    *("find_unused_parameters", "hook", "iteration", "accumulate", "overlap", "backend"),
    *("algorithm", "period", "slower", "not_pipelined", "servers", "gpus_per_node"),
    "launch_per_replica",
)


def _normal(arguments: list[str], subs: dict[str, _Parser]) -> list[str]:
    """Misspelt names get their nearest; a negative value is a value, not a flag of argparse's."""
    command = next((text for text in arguments if not text.startswith("-")), None)
    if command is None:
        if not {"-h", "--help"} & set(arguments):
            raise ValueError(f"no command; accepted: {', '.join(subs)}")
        return arguments
    if command not in subs:
        raise ValueError(unknown("command", command, subs))
    flags = sorted(subs[command]._option_string_actions)
    joined: list[str] = []
    for text in arguments:
        if joined and joined[-1] in flags and re.match(r"-(\.?\d|inf|nan)", text):
            joined[-1] += f"={text}"
            continue
        if text.startswith("--") and text.partition("=")[0] not in flags:
            raise ValueError(unknown("argument", text, [f for f in flags if f.startswith("--")]))
        joined.append(text)
    return joined


def _add_case(sub: argparse.ArgumentParser, command: str) -> None:
    sub.add_argument("--gpus", type=_checked(_gpus), required=True, metavar="N")
    either = command == "compare"
    moved = sub.add_mutually_exclusive_group(required=True) if either else sub
    needed: dict[str, Any] = {} if either else {"required": True}
    if command != "step":
        moved.add_argument("--size", type=_checked(parse_bytes), metavar="S", help="8MiB", **needed)
    if command != "simulate":
        about = "resnet50, or a JSON or CSV file"
        moved.add_argument("--model", metavar="NAME|FILE", help=about, **needed)
    where = sub.add_mutually_exclusive_group(required=True)
    where.add_argument("--bandwidth", type=_checked(parse_rate), metavar="B", help="25Gbit/s")
    where.add_argument("--cluster", metavar="NAME|FILE", help="a preset or a JSON file")
    sub.add_argument("--latency", type=_checked(parse_time), metavar="L", help="5us")
    if command != "step":
        sub.add_argument("--dtype", type=_checked(_dtype), metavar="float32|…")
    for what in ("collective", "message"):
        sub.add_argument(f"--launch-per-{what}", type=_checked(parse_time), metavar="T")


def _add_what_if(sub: argparse.ArgumentParser) -> None:
    for flag, help_text in ALGORITHM_FLAGS.items():
        name = f"--{flag.replace('_', '-')}"
        sub.add_argument(name, type=_checked(_number), metavar="K", help=help_text)
    sub.add_argument(
        "--order",
        type=_checked(_order),
        default="natural",
        metavar="natural|auto|R,R,…",
        help="which rank takes which place; auto: as the cluster's groups suggest",
    )
    sub.add_argument("--sync", type=_checked(_sync), default="rank", help="rank|dataflow|barrier")
    sub.add_argument(
        "--stagger",
        type=_checked(parse_time),
        default=0.0,
        metavar="T",
        help="rank r starts r × T late",
    )
    many: dict[str, Any] = {"action": "append", "default": []}
    sub.add_argument("--straggler", type=_checked(_straggler), metavar="RANK:T", **many)
    sub.add_argument(
        "--slow-link", type=_checked(parse_slow_link), metavar="LINK:F[@T1..[T2]]", **many
    )
    sub.add_argument("--explain", action="store_true", help="print the critical path")
    sub.add_argument("--trace", type=_checked(_trace_file), metavar="FILE", help=".json or .csv")


def add_training(
    sub: argparse.ArgumentParser,
    backend: str = "nccl (default) or gloo, which for dp means copies",
) -> None:
    """What a model's step needs to know beyond its bytes; ``step_command`` reads it.

    ``backend`` is what the help says of the flag.
    """
    add = sub.add_argument
    for name in ("forward", "backward", "optimizer"):
        add(f"--{name}", type=_checked(parse_time), metavar="T", help=f"seconds of the {name} pass")
    add("--gpu", metavar="NAME", help="estimate those from FLOPs and a named GPU, such as A100")
    add("--batch", type=_checked(_samples), metavar="B", help="samples per GPU")
    add("--bucket-cap-mb", type=_checked(_megabytes), metavar="X", help="DDP's, in MiB")
    yes: dict[str, Any] = {"action": "store_true", "default": None}
    add("--static-graph", help="DDP's", **yes)
    add("--find-unused-parameters", help="DDP's", **yes)
    add("--hook", metavar="fp16|bf16|powersgd:R", help="DDP's communication hook")
    add(
        "--iteration",
        type=_checked(_number),
        metavar="I",
        help="0 is the first; default: a late one",
    )
    add("--accumulate", type=_checked(_number), metavar="K", help="micro-batches; default 1")
    add("--backend", metavar="NAME", help=backend)
    add("--algorithm", metavar="NAME", help="of the all-reduce; default ring")
    add("--period", type=_checked(_number), metavar="H", help="of local SGD; default 8")
    add("--not-pipelined", help="push all, then pull all (ps, ps-dedicated)", **yes)
    for flag, parse_value, metavar, about in _STEP_FLAGS:
        many: dict[str, Any] = {"action": "append", "default": []} if flag == "slower" else {}
        add(f"--{flag}", type=_checked(parse_value), metavar=metavar, help=about, **many)


def _samples(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise ValueError(f"{text!r} is no batch; accepted: samples per GPU, at least 1")
    return int(text)


def _megabytes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise ValueError(f"{text!r} is no bucket size; accepted: MiB from 0 to 1000000, such as 25")
    return value


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"overlap {text!r}; accepted: from 0 (none) to 1 (all that can)")
    return value


def _slower(text: str) -> tuple[int, float]:
    match = re.fullmatch(r"(\d{1,9}):(\d+(?:\.\d+)?)", text)
    if not match or not float(match[2]):
        raise ValueError(f"slower {text!r}; accepted: RANK:FACTOR, such as 3:1.5")
    return int(match[1]), float(match[2])


_STEP_FLAGS: tuple[tuple[str, Callable[[str], Any], str, str], ...] = (
    ("overlap", _share, "0…1", "how much of the remaining backward pass a bucket may overlap (1)"),
    ("slower", _slower, "RANK:FACTOR", "a GPU that computes FACTOR times as long; may be repeated"),
    ("launch-per-replica", parse_time, "T", "dp: of each replica's forward pass, in turn"),
    ("servers", _number, "K", "how many servers (ps, ps-dedicated, byteps)"),
    ("gpus-per-node", _number, "K", "ranks in a node (hsdp, or --algorithm hierarchical)"),
)
