"""``python -m simcore simulate``: one algorithm on one cluster, how long and why."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from simcore.algorithms import ALGORITHM_FLAGS, build_schedule, find_algorithm
from simcore.cluster import Cluster, ring_order
from simcore.commands import values
from simcore.commands.common import (
    Parser,
    Progress,
    add_dtype,
    add_json,
    add_machines,
    add_size,
    cluster_of,
    elements_of,
    per_gpu,
    write_trace,
)
from simcore.cost import ClosedForm, closed_form
from simcore.engine import Simulation, simulate
from simcore.explain import critical_path, idle_s
from simcore.schedule import Schedule, reorder
from simcore.units import ITEM_BYTES, format_bytes, format_rate, format_time

HELP = "time one algorithm"
PATH_LINES = 16  # of a critical path, before its middle is left out
MAX_TRACE_TRANSFERS = 500_000  # a larger trace opens in no viewer


def add(parser: Parser) -> None:
    """The case, and what may go wrong in it."""
    add = parser.add_argument
    add("algorithm", help="a name from 'algorithms'")
    add_machines(parser)
    add_size(parser, required=True)
    add_dtype(parser)
    for flag, about in ALGORITHM_FLAGS.items():
        add(f"--{flag.replace('_', '-')}", type=values.count, metavar="K", help=about)
    add(
        "--order",
        type=values.order,
        default="natural",
        metavar="natural|auto|R,R,…",
        help="which rank takes which place; auto: as the cluster's groups suggest",
    )
    add("--sync", type=values.sync, default="rank", help="rank|dataflow|barrier")
    late = "rank r starts r × T late"
    add("--stagger", type=values.seconds, default=0.0, metavar="T", help=late)
    many: dict[str, Any] = {"action": "append", "default": []}
    add("--straggler", type=values.straggler, metavar="RANK:T", **many)
    add("--slow-link", type=values.slow_link, metavar="LINK:F[@T1..[T2]]", **many)
    add("--explain", action="store_true", help="print the critical path")
    add("--trace", type=values.trace_file, metavar="FILE", help=".json or .csv")
    add_json(parser)


def command(args: argparse.Namespace) -> None:
    """Simulate it, write the trace, say what came out."""
    find_algorithm(args.algorithm)
    args.dtype = args.dtype or "float32"
    flags = {f: value for f in ALGORITHM_FLAGS if (value := getattr(args, f)) is not None}
    schedule = build_schedule(args.algorithm, args.gpus, **flags)
    cluster = cluster_of(args, schedule.n)
    if args.order != "natural":
        near = [r for r in ring_order(cluster).tolist() if r < schedule.workers]
        schedule = reorder(schedule, near if args.order == "auto" else args.order)
    run, form = _simulated(args, schedule, cluster)
    shown = document(args, args.algorithm, args.sync, run, form)
    if args.explain:
        shown["critical_path"] = [asdict(part) for part in critical_path(run.trace)]
        shown["idle_s"] = idle_s(run.trace).tolist()
    if args.trace:
        write_trace(args.trace, run.trace)
    if args.json:
        print(json.dumps(shown, allow_nan=False))
        return
    print("\n".join(_lines(shown, cluster)))
    if args.explain:
        _print_path(shown)


def _simulated(
    args: argparse.Namespace, schedule: Schedule, cluster: Cluster
) -> tuple[Simulation, ClosedForm | None]:
    """The run, with single transfers only where they are asked for; and its closed form."""
    elements, item, starts = elements_of(args), ITEM_BYTES[args.dtype], _starts(args, schedule.n)
    how = {"sync": args.sync, "starts_s": starts, "slowdowns": args.slow_link}
    with Progress() as progress:
        run = simulate(schedule, cluster, elements, item, keep="totals", progress=progress, **how)
        if args.trace or args.explain:
            if run.transfers > MAX_TRACE_TRANSFERS:
                raise ValueError(
                    f"--trace and --explain: {run.transfers} transfers; "
                    f"accepted: up to {MAX_TRACE_TRANSFERS}"
                )
            run = simulate(schedule, cluster, elements, item, progress=progress, **how)
    if any(starts) or args.slow_link:
        return run, None
    return run, closed_form(args.algorithm, cluster, elements, item, args.sync, **schedule.flags)


def _starts(args: argparse.Namespace, ranks: int) -> list[float]:
    starts = [rank * args.stagger for rank in range(ranks)]
    for rank, late_s in args.straggler:
        if rank >= ranks:
            raise ValueError(f"--straggler {rank}: accepted are ranks 0 to {ranks - 1}")
        starts[rank] += late_s
    return starts


def document(
    args: argparse.Namespace, algorithm: str, sync: str, run: Simulation, form: ClosedForm | None
) -> dict[str, Any]:
    """A run for JSON."""
    link, busy = run.busiest_link
    return {
        "algorithm": algorithm,
        "gpus": args.gpus,
        "size_bytes": args.size,
        "dtype": args.dtype,
        "sync": sync,
        "source": run.trace.source.value,
        "time_s": run.trace.time_s,
        "lower_bound_s": run.lower_bound_s,
        "closed_form_s": form.time_s if form else None,
        "closed_form": f"{form.symbols} = {form.numbers}" if form else None,
        "steps": run.steps,
        "transfers": run.transfers,
        "events": run.events,
        "solver": run.solver,
        "sent_bytes": run.trace.sent_bytes.tolist(),
        "received_bytes": run.trace.received_bytes.tolist(),
        "busiest_link": {"name": link, "busy_fraction": busy},
    }


def _lines(shown: dict[str, Any], cluster: Cluster) -> list[str]:
    rates = {
        rate for port in cluster.ports for rate in (port.send_bytes_per_s, port.receive_bytes_per_s)
    }
    ports = format_rate(min(rates)) if len(rates) == 1 else f"from {format_rate(min(rates))}"
    by_size = [seconds for _, seconds in cluster.latency_by_size] or [cluster.latency_s]
    latency = " to ".join(format_time(s) for s in sorted({min(by_size), max(by_size)}))
    form = shown["closed_form"]
    what = f"{format_bytes(shown['size_bytes'])} of {shown['dtype']}"
    case = f"{shown['algorithm']} on {shown['gpus']} GPUs: {what}, {ports} per port"
    link, busy = shown["busiest_link"].values()
    events = f"{shown['events']} events, solver '{shown['solver']}'"
    return [
        f"{case}, latency {latency}, rule '{shown['sync']}'",
        f"simulated     {format_time(shown['time_s'])}",
        f"lower bound   {format_time(shown['lower_bound_s'])}",
        f"closed form   {form}" if form else "closed form   none for this case",
        f"sent          {per_gpu(shown['sent_bytes'])}",
        f"received      {per_gpu(shown['received_bytes'])}",
        f"busiest link  {link}, {busy:.1%} busy",
        f"work          {shown['steps']} steps, {shown['transfers']} transfers, {events}",
    ]


def _print_path(shown: dict[str, Any]) -> None:
    print("\nwhy so long: nothing on this path could begin earlier")
    parts = shown["critical_path"]
    by_kind: dict[str, float] = {}
    for part in parts:
        seconds = part["end_s"] - part["start_s"]
        by_kind[part["kind"]] = by_kind.get(part["kind"], 0.0) + seconds
    lines = [
        f"  {format_time(part['start_s']):>9}  {part['kind']:8} "
        f"{format_time(part['end_s'] - part['start_s']):>9}  {part['label']}"
        for part in parts
    ]
    if len(lines) > PATH_LINES:
        half = PATH_LINES // 2
        lines[half:-half] = [f"  … {len(parts) - PATH_LINES} more"]
    print("\n".join(lines))
    total = ", ".join(f"{kind} {format_time(seconds)}" for kind, seconds in by_kind.items())
    idle = shown["idle_s"]
    print(f"in all: {total}")
    print(f"idle: GPU {idle.index(max(idle))} most, {format_time(max(idle))} of the run")
