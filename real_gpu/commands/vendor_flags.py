"""The flags of ``run`` for the library's own trainings, for NCCL and for torch's profiler."""

from __future__ import annotations

import argparse
import math
import os
from typing import Any

from real_gpu.commands.common import whole
from real_gpu.job import COLLECTIVES, TRAININGS, Case
from real_gpu.vendor import collectives as vendor
from real_gpu.vendor import plan as vendor_plan
from simcore.names import unknown

NCCL_ALGOS = ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
NCCL_PROTOS = ("Simple", "LL", "LL128")
# What would otherwise go another way than the algorithm that is asked for.
_NCCL_PLAIN = {"NCCL_WIN_ENABLE": "0"}
_NCCL_NO_SWITCH = {"NCCL_NVLS_ENABLE": "0", "NCCL_COLLNET_ENABLE": "0"}


def add_vendor_flags(parser: argparse.ArgumentParser) -> None:
    """Of trainings, and of NCCL."""
    for option, about in vendor_plan.FLAGS.items():
        value: dict[str, Any] = (
            {"metavar": "X"} if option in vendor_plan.WITH_VALUE else {"action": "store_true"}
        )
        parser.add_argument(
            vendor_plan.flag(option), dest=f"of_{option}", default=None, help=about, **value
        )
    parser.add_argument(
        "--profile", metavar="FILE", help="torch's own trace of one more run, on rank 0"
    )
    parser.add_argument("--nccl-algo", metavar="A", help=f"force it: {', '.join(NCCL_ALGOS)}")
    parser.add_argument("--nccl-proto", metavar="P", help=f"force it: {', '.join(NCCL_PROTOS)}")


def training_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options given, by torch's names; ``accumulate`` always."""
    given: dict[str, Any] = {}
    for option in vendor_plan.FLAGS:
        value = getattr(args, f"of_{option}")
        if value is not None:
            given[option] = _value(option, value)
    if args.name not in TRAININGS:
        if given:
            vendor_plan.check_takes(args.name, given)
        return {}
    if args.dtype != "float32":
        raise ValueError(f"dtype {args.dtype!r}: {args.name} trains in float32")
    vendor_plan.check_takes(args.name, given)
    return (
        {"accumulate": 1} | given if "accumulate" in vendor_plan.TABLE[args.name].takes else given
    )


def _value(option: str, value: Any) -> Any:
    if option == "accumulate":
        return whole("--accumulate", value, 1)
    if option == "bucket_cap_mb":
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1e6 or math.isnan(number):
            raise ValueError(f"--bucket-cap-mb {value!r}: accepted are MiB from 0 to 1000000")
        return number
    return option not in vendor_plan.ON_BY_DEFAULT if value is True else value


def vendor_case(case: Case, n: int, backend: str) -> None:
    """A ``ValueError`` for what this collective or training cannot do with this backend."""
    if case.name in TRAININGS:
        vendor_plan.check_runs(case, n, backend)
    elif case.name in COLLECTIVES:
        vendor.check_parts(case.name, case.elements, n)


def force_nccl(args: argparse.Namespace) -> None:
    """Put NCCL's algorithm and protocol into the environment that the ranks inherit.

    NCCL takes its algorithms' names in any case, and has no fallback: what a collective cannot do
    is an error.
    """
    for flag, accepted in (("nccl_algo", NCCL_ALGOS), ("nccl_proto", NCCL_PROTOS)):
        value = getattr(args, flag)
        if value is None:
            continue
        name = next((a for a in accepted if a.lower() == value.lower()), None)
        if name is None:
            raise ValueError(unknown(f"--{flag.replace('_', '-')}", value, accepted))
        if args.backend != "nccl":
            raise ValueError(f"--{flag.replace('_', '-')} alone; accepted: with --backend nccl")
        os.environ[flag.upper()] = name
        os.environ.update(_NCCL_PLAIN)
        if flag == "nccl_algo" and name in ("Ring", "Tree"):
            os.environ.update(_NCCL_NO_SWITCH)


def again(args: argparse.Namespace) -> list[str]:
    """The words of the command line once more."""
    words: list[str] = []
    for option in vendor_plan.FLAGS:
        value = getattr(args, f"of_{option}")
        if value is not None:
            words += [vendor_plan.flag(option), *([] if value is True else [value])]
    for flag in ("nccl_algo", "nccl_proto"):
        if (value := getattr(args, flag)) is not None:
            words += [f"--{flag.replace('_', '-')}", value]
    return words
