"""``python -m real_gpu validate``: simulated against replayed and the library's own, cell by cell.

Real runs are imported where they begin, so that refusals are quick.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from real_gpu.backends import PROCESSES
from real_gpu.commands.common import Parser, whole
from real_gpu.commands.staged import add_interface, staged
from real_gpu.job import ITEMSIZE, Job, RunError, Stopped
from real_gpu.processes.stage import Stage
from real_gpu.validation.suite import NAMES, Suite, make_suite
from simcore.cluster_file import cluster_from_dict, read_cluster_document
from simcore.measured.validation import Validation
from simcore.names import unknown
from simcore.units import format_bytes, parse_bytes

HELP = "measure many cells, predict each, and report how wrong the predictions are"


def add(parser: Parser) -> None:
    """Its arguments."""
    parser.add_argument("--out", required=True, metavar="DIR", help="a new or empty folder")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer cells: under two minutes on a quiet machine with 2 cores, not 25",
    )
    parser.add_argument("--gpus", metavar="N", help="most ranks, from 2 (6; 4 with --quick)")
    parser.add_argument("--backend", default="auto", help=", ".join(PROCESSES))
    parser.add_argument(
        "--network",
        metavar="RATE[,RATE…]",
        help="shaped ones (100Mbit/s,200Mbit/s), or none",
    )
    parser.add_argument("--only", metavar="NAME[,NAME…]", help=f"some of {', '.join(NAMES)}")
    parser.add_argument(
        "--sizes", metavar="S[,S…]", help="buffers (1MiB,2MiB,4MiB; over NCCL 1MiB,16MiB,128MiB)"
    )
    parser.add_argument(
        "--cluster", metavar="PRESET|FILE", help="predict with this cluster instead of calibrating"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    add_interface(parser)


def command(args: argparse.Namespace) -> int:
    """Measure, predict, report; what was measured stays, however it ends."""
    return staged(args, _validate)


def _validate(args: argparse.Namespace, stage: Stage) -> int:
    suite = _suite(args, stage)
    given = None if args.cluster is None else _cluster(args.cluster, suite.ranks)
    if given is None:
        stage.check_even()
    from real_gpu.recording import environment
    from real_gpu.validation.folder import Folder
    from real_gpu.validation.progress import Progress
    from real_gpu.validation.validate import validate

    job = stage.place(Job(max(suite.ranks), (), suite.backend))
    left_out = suite.without_steps
    about = environment(job, _again(args)) | {"backend": suite.why}
    folder = Folder(args.out, about | ({"left_out": left_out} if left_out else {}))
    print(f"backend: {suite.why}", file=sys.stderr)
    if left_out:
        print(left_out, file=sys.stderr)
    stopped: Exception | None = None
    try:
        with Progress(suite.seconds()) as progress:
            validate(suite, folder, progress, given, _again(args), stage)
    except (RunError, Stopped) as error:
        stopped = error
    except BaseException:
        folder.remove_if_empty()
        raise
    if not folder.cells:
        folder.remove_if_empty()
        raise stopped or RunError("nothing was measured")
    folder.save()  # a signal may have come between two files
    said = folder.report()
    if stopped is not None:
        why = f"stopped by {stopped}" if isinstance(stopped, Stopped) else str(stopped)
        cells = f"the {len(folder.cells)} cells" if len(folder.cells) > 1 else "the one cell"
        raise RunError(f"{why}; {args.out} holds {cells} measured until then")
    validation = folder.validation
    if args.json:
        print(json.dumps(validation.summary(), indent=1))
    else:
        print("\n".join([*_summary(validation, args.out), *filter(None, [said])]))
    return 0


def _suite(args: argparse.Namespace, stage: Stage) -> Suite:
    if args.backend not in PROCESSES:
        raise ValueError(unknown("backend", args.backend, PROCESSES))
    item = ITEMSIZE["float32"]
    sizes = [parse_bytes(text) for text in _parts(args.sizes)]
    for nbytes in sizes:
        if nbytes < item or nbytes % item:
            raise ValueError(
                f"--sizes: {format_bytes(nbytes)} is not accepted; accepted: multiples of the "
                f"{item} bytes of a float32"
            )
    return make_suite(
        backend=args.backend,
        network=args.network,
        gpus=None if args.gpus is None else whole("--gpus", args.gpus, 2),
        quick=args.quick,
        names=_parts(args.only),
        sizes=sizes,
        stage=stage,
    )


def _parts(text: str | None) -> list[str]:
    """Empty ones too, so that they are refused."""
    return [] if text is None else text.split(",")


def _cluster(name_or_path: str, ranks: tuple[int, ...]) -> dict[str, Any]:
    """A cluster file's content, which must hold for every number of ranks."""
    document = read_cluster_document(name_or_path)
    for n in ranks:
        cluster_from_dict(document, n, f"cluster {name_or_path!r}")
    return dict(document)


def _again(args: argparse.Namespace) -> str:
    """The command again, without anybody's folders."""
    words = ["python", "-m", "real_gpu", "validate", *(["--quick"] if args.quick else [])]
    for flag in ("gpus", "backend", "network", "only", "sizes"):
        value = getattr(args, flag)
        words += [] if value is None else [f"--{flag}", value]
    words += [] if args.cluster is None else ["--cluster", Path(args.cluster).name]
    return shlex.join([*words, "--out", Path(args.out).name or "DIR"])


def _summary(validation: Validation, out: str) -> list[str]:
    summary = validation.summary()
    lines = [f"{summary['measured_cells']} cells measured, {summary['cells']} of them predicted"]
    if summary["not_believable"]:
        lines[0] += f"; {summary['not_believable']} not counted: the instrument was not quiet"
    if validation.median_error is not None:
        errors = (f"{name} {summary[f'{name}_error']:.1%}" for name in ("median", "p90", "worst"))
        lines.append(f"held-out error: {', '.join(errors)}")
        wrong, pairs = len(summary["wrong_winners"]), summary["compared_pairs"]
        lines.append(f"wrong winners: {wrong} of {pairs} pairs that differ by more than 10 %")
    if validation.bytes_worst_error is not None:
        lines.append(f"bytes: at most {validation.bytes_worst_error:.2%} off")
    if validation.ring_against_gloo is not None:
        ratio = validation.ring_against_gloo
        lines.append(f"replayed ring takes {ratio:.3f} × the library's all-reduce, largest size")
    return [*lines, f"report: {Path(out) / 'report.html'}"]
