"""The command line: ``python -m simcore algorithms | simulate | compare``.

Exit status 0; 1 for a run that failed; 2 for bad usage or input, with one line that says what
was given and what is accepted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from simcore.algorithms import ALGORITHMS, build_schedule, find_algorithm
from simcore.arguments import parse
from simcore.cluster import Cluster, load_cluster, uniform
from simcore.cost import ClosedForm, closed_form
from simcore.engine import Simulation, SimulationError, simulate
from simcore.schedule import Collective
from simcore.units import ITEM_BYTES, format_bytes, format_rate, format_time

MAX_TRACE_TRANSFERS = 500_000  # a larger trace opens in no viewer


def _cluster(args: argparse.Namespace) -> Cluster:
    launches = {
        f"launch_per_{what}_s": value
        for what in ("collective", "message")
        if (value := getattr(args, f"launch_per_{what}")) is not None
    }
    if args.bandwidth is not None:
        return uniform(args.gpus, args.bandwidth, latency_s=args.latency or 0.0, **launches)
    if args.latency is not None:
        raise ValueError("--latency goes with --bandwidth; a cluster has its own")
    cluster = load_cluster(args.cluster, args.gpus).without_protocol()
    return replace(cluster, **launches)


def _elements(args: argparse.Namespace) -> int:
    item = ITEM_BYTES[args.dtype]
    if args.size % item:
        raise ValueError(
            f"--size {args.size}B is no whole number of {args.dtype} items; "
            f"accepted: multiples of {item} bytes"
        )
    return int(args.size // item)


def _starts(args: argparse.Namespace) -> list[float]:
    starts = [rank * args.stagger for rank in range(args.gpus)]
    for rank, late_s in args.straggler:
        if rank >= args.gpus:
            raise ValueError(f"--straggler {rank}: accepted are ranks 0 to {args.gpus - 1}")
        starts[rank] += late_s
    return starts


def _simulate(args: argparse.Namespace) -> dict[str, Any]:
    cluster, elements, item = _cluster(args), _elements(args), ITEM_BYTES[args.dtype]
    flags = {} if args.root is None else {"root": args.root}
    schedule = build_schedule(args.algorithm, args.gpus, **flags)
    starts = _starts(args)
    how = {"sync": args.sync, "starts_s": starts, "slow_links": args.slow_link}
    run = simulate(schedule, cluster, elements, item, keep="totals", **how)
    if args.trace:
        if run.transfers > MAX_TRACE_TRANSFERS:
            raise ValueError(
                f"--trace: {run.transfers} transfers; accepted: up to {MAX_TRACE_TRANSFERS}"
            )
        whole = simulate(schedule, cluster, elements, item, keep="spans", **how).trace
        text = whole.to_csv() if args.trace.suffix == ".csv" else whole.to_perfetto()
        _write(args.trace, text)
    form = None
    if not any(starts) and not args.slow_link:
        form = closed_form(args.algorithm, cluster, elements, item, args.sync)
    return _document(args, run, form)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"trace file {str(path)!r}: {error.strerror}") from None


def _compare(args: argparse.Namespace) -> list[dict[str, Any]]:
    cluster, elements, item = _cluster(args), _elements(args), ITEM_BYTES[args.dtype]
    args.sync = "rank"
    rows = []
    for algorithm in ALGORITHMS:
        schedule = algorithm.build(args.gpus)
        if schedule.collective is Collective.ALL_REDUCE:
            args.algorithm = algorithm.name
            run = simulate(schedule, cluster, elements, item, keep="totals")
            form = closed_form(algorithm.name, cluster, elements, item)
            rows.append(_document(args, run, form))
    return sorted(rows, key=lambda row: float(f"{row['time_s']:.9g}"))  # rounding decides no race


def _document(args: argparse.Namespace, run: Simulation, form: ClosedForm | None) -> dict[str, Any]:
    link, busy = run.busiest_link
    return {
        "algorithm": args.algorithm,
        "gpus": args.gpus,
        "size_bytes": args.size,
        "dtype": args.dtype,
        "sync": args.sync,
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


def _per_gpu(nbytes: list[int]) -> str:
    """A table's cell for bytes per GPU: one figure, or who has the most and what the rest have."""
    most, least = max(nbytes), min(nbytes)
    if most == least:
        return f"{format_bytes(most)} each"
    who = f"GPU {nbytes.index(most)}" if nbytes.count(most) == 1 else f"{nbytes.count(most)} GPUs"
    rest = f"{format_bytes(least)}" if len(set(nbytes)) == 2 else f"from {format_bytes(least)}"
    return f"{format_bytes(most)} {who}, others {rest}"


def _print_run(args: argparse.Namespace, document: dict[str, Any]) -> None:
    cluster = _cluster(args)
    rates = {
        rate for port in cluster.ports for rate in (port.send_bytes_per_s, port.receive_bytes_per_s)
    }
    ports = format_rate(min(rates)) if len(rates) == 1 else f"from {format_rate(min(rates))}"
    form = document["closed_form"]
    case = f"{args.algorithm} on {args.gpus} GPUs: {format_bytes(args.size)} of {args.dtype}"
    link, busy = document["busiest_link"].values()
    events = f"{document['events']} events, solver '{document['solver']}'"
    lines = [
        f"{case}, {ports} per port, latency {format_time(cluster.latency_s)}, rule '{args.sync}'",
        f"simulated     {format_time(document['time_s'])}",
        f"lower bound   {format_time(document['lower_bound_s'])}",
        f"closed form   {form}" if form else "closed form   none for this case",
        f"sent          {_per_gpu(document['sent_bytes'])}",
        f"received      {_per_gpu(document['received_bytes'])}",
        f"busiest link  {link}, {busy:.1%} busy",
        f"work          {document['steps']} steps, {document['transfers']} transfers, {events}",
    ]
    print("\n".join(lines))


def _print_table(header: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _run_command(args: argparse.Namespace) -> None:
    if args.command == "algorithms":
        names = ("name", "title", "steps", "sent", "flags")
        rows = [{name: getattr(a, name) for name in names} for a in ALGORITHMS]
        if args.json:
            print(json.dumps(rows))
        else:
            flags = [" ".join(f"--{flag}" for flag in row["flags"]) for row in rows]
            cells = [
                [*(str(row[c]) for c in names[:4]), flag]
                for row, flag in zip(rows, flags, strict=True)
            ]
            _print_table(list(names), cells)
    elif args.command == "simulate":
        find_algorithm(args.algorithm)
        document = _simulate(args)
        if args.json:
            print(json.dumps(document, allow_nan=False))
        else:
            _print_run(args, document)
    else:
        documents = _compare(args)
        if args.json:
            print(json.dumps({"algorithms": documents}, allow_nan=False))
        else:
            _print_comparison(documents)


def _print_comparison(documents: list[dict[str, Any]]) -> None:
    header = ["algorithm", "simulated", "of bound", "sent", "received", "busiest link"]
    rows = [
        [
            d["algorithm"],
            format_time(d["time_s"]),
            f"{d['time_s'] / d['lower_bound_s']:.2f} x" if d["lower_bound_s"] else "-",
            _per_gpu(d["sent_bytes"]),
            _per_gpu(d["received_bytes"]),
            f"{d['busiest_link']['name']} {d['busiest_link']['busy_fraction']:.0%}",
        ]
        for d in documents
    ]
    _print_table(header, rows)
    print(f"lower bound {format_time(documents[0]['lower_bound_s'])}; all times simulated")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit status."""
    try:
        _run_command(parse(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except ValueError as error:
        print(f"simcore: {error}", file=sys.stderr)
        return 2
    except (SimulationError, MemoryError) as error:
        print(f"simcore: {error or 'out of memory'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("simcore: interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without our ⌈ shows ? instead
        sys.stdout.reconfigure(errors="replace")
    sys.exit(main())
