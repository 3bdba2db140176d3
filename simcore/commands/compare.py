"""``python -m simcore compare``: all-reduce algorithms, or strategies for a model, side by side."""

from __future__ import annotations

import argparse
import json
from typing import Any

from simcore.algorithms import ALGORITHMS, Algorithm, build_schedule
from simcore.commands import training
from simcore.commands.common import (
    Parser,
    Progress,
    add_dtype,
    add_json,
    add_machines,
    add_model,
    add_size,
    cluster_of,
    elements_of,
    per_gpu,
    print_table,
)
from simcore.commands.simulate import document
from simcore.cost import closed_form
from simcore.engine import simulate
from simcore.schedule import Collective
from simcore.training.step import StepResult, step
from simcore.training.strategies import STRATEGIES
from simcore.training.work import work_of
from simcore.units import ITEM_BYTES, format_bytes, format_time

HELP = "time all all-reduce algorithms, or strategies for a model, side by side"
LONGEST_S = 60.0  # of one strategy, told in advance; longer ones are left out
_SYNC = "rank"


def add(parser: Parser) -> None:
    """The case: a buffer or a model."""
    add_machines(parser)
    moved = parser.add_mutually_exclusive_group(required=True)
    add_size(moved)
    add_model(moved)
    add_dtype(parser)
    training.add_training(parser)
    training.add_simulated(parser)
    add_json(parser)


def command(args: argparse.Namespace) -> None:
    """Which of the two comparisons; flags of the other one are an error, not silence."""
    modelled = args.model is not None
    for name in ("dtype",) if modelled else training.FLAGS:
        if getattr(args, name) not in (None, []):
            with_what = "--size" if modelled else "--model"
            raise ValueError(f"--{name.replace('_', '-')} goes with {with_what}")
    if modelled:
        _strategies(args)
    else:
        args.dtype = args.dtype or "float32"
        _algorithms(args)


def _algorithms(args: argparse.Namespace) -> None:
    rows, skipped = _compared(args)
    if args.json:
        print(json.dumps({"algorithms": rows, "skipped": skipped}, allow_nan=False))
        return
    header = ["algorithm", "simulated", "of bound", "sent", "received", "busiest link"]
    print_table(header, [_row(shown) for shown in rows])
    print(f"lower bound {format_time(rows[0]['lower_bound_s'])}; all times simulated")
    for row in skipped:
        print(f"not compared: {row['algorithm']} ({row['reason']})")


def _compared(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """A row per all-reduce, fastest first; and what does not fit this case, with the reason."""
    elements_of(args), cluster_of(args, args.gpus)  # what is wrong with these is wrong for all
    rows, skipped = [], []
    for algorithm in ALGORITHMS:
        try:
            runs = [_simulated(args, algorithm, f) for f in _flags(args, algorithm.flags)]
        except ValueError as error:
            skipped.append({"algorithm": algorithm.name, "reason": str(error)})
            continue
        rows += sorted((run for run in runs if run is not None), key=_rounded_time)[:1]
    return sorted(rows, key=_rounded_time), skipped


def _flags(args: argparse.Namespace, takes: tuple[str, ...]) -> list[dict[str, int]]:
    """The settings of which the best takes part: pieces to try, and the cluster's own nodes."""
    if "pieces" in takes:
        return [{"pieces": 2**power} for power in range(9)]
    if "gpus_per_node" in takes:
        levels = cluster_of(args, args.gpus).levels
        sizes = {level.groups.count(group) for level in levels[:1] for group in level.groups}
        return [{"gpus_per_node": sizes.pop()}] if len(sizes) == 1 else []
    return [{}]


def _simulated(
    args: argparse.Namespace, algorithm: Algorithm, flags: dict[str, int]
) -> dict[str, Any] | None:
    """The document of one run; None for what is no all-reduce."""
    schedule = build_schedule(algorithm.name, args.gpus, **flags)
    if schedule.collective is not Collective.ALL_REDUCE:
        return None
    cluster = cluster_of(args, schedule.n)
    elements, item = elements_of(args), ITEM_BYTES[args.dtype]
    with Progress() as progress:
        run = simulate(schedule, cluster, elements, item, keep="totals", progress=progress)
    form = closed_form(algorithm.name, cluster, elements, item, _SYNC, **flags)
    return document(args, algorithm.name, _SYNC, run, form) | {"flags": flags}


def _rounded_time(row: dict[str, Any]) -> float:
    return float(f"{row['time_s']:.9g}")  # rounding decides no race


def _row(shown: dict[str, Any]) -> list[str]:
    flags = [f"--{flag} {k}".replace("_", "-") for flag, k in shown["flags"].items()]
    bound_s, link = shown["lower_bound_s"], shown["busiest_link"]
    return [
        " ".join([shown["algorithm"], *flags]),
        format_time(shown["time_s"]),
        f"{shown['time_s'] / bound_s:.2f} x" if bound_s else "-",
        per_gpu(shown["sent_bytes"]),
        per_gpu(shown["received_bytes"]),
        f"{link['name']} {link['busy_fraction']:.0%}",
    ]


def _strategies(args: argparse.Namespace) -> None:
    results, skipped = _steps(args)
    if args.json:
        documents = [result.document() for result in results]
        print(json.dumps({"strategies": documents, "skipped": skipped}, allow_nan=False))
        return
    header = ["strategy", "step", "exposed", "samples/s", "efficiency", "most sent by a GPU"]
    print_table(header, [_step_row(result) for result in results])
    print("all times simulated; per step")
    for row in skipped:
        print(f"not compared: {row['strategy']} ({row['reason']})")


def _steps(args: argparse.Namespace) -> tuple[list[StepResult], list[dict[str, str]]]:
    """Every strategy that this case allows, the fastest first; and the others with the reason.

    A flag counts for those that take it. But ``--overlap`` says what the model allows, so what
    cannot follow it is left out.
    """
    work, results, skipped = training.workload_of(args), [], []
    cluster_of(args, args.gpus)  # what is wrong with it, or with all flags together, is for all
    training.setting_of(args, work, training.OF_STRATEGIES)
    with Progress() as progress:
        for number, row in enumerate(STRATEGIES):

            def of_all(done: float, before: int = number) -> None:
                progress((before + done) / len(STRATEGIES))

            try:
                if args.overlap is not None and "overlap" not in row.takes:
                    raise ValueError(f"{row.name} takes no --overlap")
                setting = training.setting_of(args, work, row.takes)
                cluster = cluster_of(args, training.ranks_of(args, row.name))
                needed = work_of(row.name, setting, cluster.is_plain)
                if needed.seconds > LONGEST_S:
                    raise ValueError(f"{needed}; step {row.name} simulates it")
                results.append(step(row.name, setting, cluster, progress=of_all))
            except ValueError as error:
                skipped.append({"strategy": row.name, "reason": str(error)})
    skipped.append({"strategy": training.ASYNC, "reason": "has no one step; see step ps-async"})
    return sorted(results, key=lambda result: result.time_s), skipped


def _step_row(result: StepResult) -> list[str]:
    return [
        result.strategy,
        format_time(result.time_s),
        format_time(result.exposed_communication_s),
        f"{result.samples_per_s:.4g}",
        f"{result.efficiency:.1%}",
        format_bytes(round(float(result.run.sent_bytes.max()) / result.steps)),
    ]
