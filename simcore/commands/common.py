"""What the commands share: their parser, the case and its cluster, progress, tables, files."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from simcore.cluster import Cluster, uniform
from simcore.cluster_file import load_cluster, presets
from simcore.commands import values
from simcore.trace import Trace
from simcore.units import ITEM_BYTES, format_bytes


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as a ValueError."""

    def error(self, message: str) -> NoReturn:
        """Say it."""
        raise ValueError(message)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Every command's flag."""
    parser.add_argument("--json", action="store_true", help="one JSON document, nothing else")


def add_size(where: Any, **needed: bool) -> None:
    """The flag of what is moved: a buffer."""
    where.add_argument("--size", type=values.nbytes, metavar="S", help="8MiB", **needed)


def add_model(where: Any, **needed: bool) -> None:
    """The flag of what is trained."""
    about = "resnet50, or a JSON or CSV file"
    where.add_argument("--model", metavar="NAME|FILE", help=about, **needed)


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """The flag of the buffer's numbers; float32 where it is not given."""
    parser.add_argument("--dtype", type=values.dtype, metavar="float32|…")


def add_machines(parser: argparse.ArgumentParser) -> None:
    """The flags of the GPUs and of what connects them."""
    parser.add_argument("--gpus", type=values.gpus, required=True, metavar="N")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bandwidth", type=values.bytes_per_s, metavar="B", help="25Gbit/s")
    where.add_argument("--cluster", metavar="NAME|FILE", help="a preset or a JSON file")
    parser.add_argument("--latency", type=values.seconds, metavar="L", help="5us")
    for what in ("collective", "message"):
        parser.add_argument(f"--launch-per-{what}", type=values.seconds, metavar="T")


def cluster_of(args: argparse.Namespace, ranks: int) -> Cluster:
    """What the flags of the machines say."""
    launches = {
        f"launch_per_{what}_s": value
        for what in ("collective", "message")
        if (value := getattr(args, f"launch_per_{what}")) is not None
    }
    if args.bandwidth is not None:
        return uniform(ranks, args.bandwidth, latency_s=args.latency or 0.0, **launches)
    if args.latency is not None:
        raise ValueError("--latency goes with --bandwidth; a cluster has its own")
    cluster = load_cluster(args.cluster, ranks)
    if args.cluster in presets():  # a preset's protocol is an assumption, a file's is its own
        cluster = cluster.without_protocol()
    return replace(cluster, **launches)


def elements_of(args: argparse.Namespace) -> int:
    """How many numbers the buffer holds."""
    item = ITEM_BYTES[args.dtype]
    if args.size % item:
        raise ValueError(
            f"--size {args.size}B is no whole number of {args.dtype} items; "
            f"accepted: multiples of {item} bytes"
        )
    return int(args.size // item)


class Progress:
    """A line on a terminal's standard error while a run takes more than two seconds."""

    def __enter__(self) -> Callable[[float], None]:
        self.begin_s, self.shown = time.perf_counter(), False
        return self.show

    def show(self, done: float) -> None:
        """Draw the part that is done."""
        if sys.stderr.isatty() and time.perf_counter() - self.begin_s > 2:
            self.shown = True
            sys.stderr.write(f"\rsimulating … {done:4.0%}  (Ctrl-C ends it)")
            sys.stderr.flush()

    def __exit__(self, *error: object) -> None:
        if self.shown:
            sys.stderr.write("\r\033[K")


def write_trace(path: Path, trace: Trace) -> None:
    """As a table or for a viewer, by the file's ending."""
    text = trace.to_csv() if path.suffix == ".csv" else trace.to_perfetto()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"trace file {str(path)!r}: {error.strerror}") from None


def per_gpu(nbytes: list[int]) -> str:
    """A table's cell for bytes per GPU: one figure, or who has the most and what the rest have.

    >>> per_gpu([1024, 1024]), per_gpu([2048, 1024, 1024])
    ('1 KiB each', '2 KiB GPU 0, others 1 KiB')
    """
    most, least = max(nbytes), min(nbytes)
    if most == least:
        return f"{format_bytes(most)} each"
    who = f"GPU {nbytes.index(most)}" if nbytes.count(most) == 1 else f"{nbytes.count(most)} GPUs"
    rest = f"{format_bytes(least)}" if len(set(nbytes)) == 2 else f"from {format_bytes(least)}"
    return f"{format_bytes(most)} {who}, others {rest}"


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
