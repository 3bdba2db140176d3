"""The command line: ``python -m simcore algorithms | simulate | compare | step``.

Exit status 0; 1 for a run that failed; 2 for bad usage or input, with one line that says what
was given and what is accepted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from simcore import async_step
from simcore.algorithms import (
    ALGORITHM_FLAGS,
    ALGORITHMS,
    Algorithm,
    build_schedule,
    find_algorithm,
)
from simcore.arguments import parse
from simcore.cluster import Cluster, ring_order, uniform
from simcore.cluster_file import load_cluster, presets
from simcore.cost import ClosedForm, closed_form
from simcore.engine import Simulation, SimulationError, simulate
from simcore.explain import critical_path, idle_s
from simcore.schedule import Collective, Schedule, reorder
from simcore.step_command import (
    check_strategy,
    compare_steps,
    comparison_rows,
    prepare_async,
    ranks_of,
    run_step,
    step_lines,
    verdict,
)
from simcore.trace import Trace
from simcore.units import ITEM_BYTES, format_bytes, format_rate, format_time

PATH_LINES = 16  # of a critical path, before its middle is left out
MAX_TRACE_TRANSFERS = 500_000  # a larger trace opens in no viewer


def _cluster(args: argparse.Namespace, ranks: int) -> Cluster:
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


def _elements(args: argparse.Namespace) -> int:
    item = ITEM_BYTES[args.dtype]
    if args.size % item:
        raise ValueError(
            f"--size {args.size}B is no whole number of {args.dtype} items; "
            f"accepted: multiples of {item} bytes"
        )
    return int(args.size // item)


def _schedule(args: argparse.Namespace) -> Schedule:
    flags = {f: value for f in ALGORITHM_FLAGS if (value := getattr(args, f)) is not None}
    return build_schedule(args.algorithm, args.gpus, **flags)


def _starts(args: argparse.Namespace, ranks: int) -> list[float]:
    starts = [rank * args.stagger for rank in range(ranks)]
    for rank, late_s in args.straggler:
        if rank >= ranks:
            raise ValueError(f"--straggler {rank}: accepted are ranks 0 to {ranks - 1}")
        starts[rank] += late_s
    return starts


def _simulate(args: argparse.Namespace) -> dict[str, Any]:
    schedule, elements, item = _schedule(args), _elements(args), ITEM_BYTES[args.dtype]
    cluster, starts = _cluster(args, schedule.n), _starts(args, schedule.n)
    if args.order != "natural":
        near = [r for r in ring_order(cluster).tolist() if r < schedule.workers]
        schedule = reorder(schedule, near if args.order == "auto" else args.order)
    how = {"sync": args.sync, "starts_s": starts, "slowdowns": args.slow_link}
    with _Progress() as progress:
        run = simulate(schedule, cluster, elements, item, keep="totals", progress=progress, **how)
        if (args.trace or args.explain) and run.transfers > MAX_TRACE_TRANSFERS:
            raise ValueError(
                f"--trace and --explain: {run.transfers} transfers; "
                f"accepted: up to {MAX_TRACE_TRANSFERS}"
            )
        if args.trace or args.explain:
            run = simulate(schedule, cluster, elements, item, progress=progress, **how)
    if args.trace:
        _write_trace(args.trace, run.trace)
    form = None
    if not any(starts) and not args.slow_link:
        form = closed_form(args.algorithm, cluster, elements, item, args.sync, **schedule.flags)
    document = _document(args, run, form)
    if args.explain:
        document["critical_path"] = [asdict(part) for part in critical_path(run.trace)]
        document["idle_s"] = idle_s(run.trace).tolist()
    return document


class _Progress:
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


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"trace file {str(path)!r}: {error.strerror}") from None


def _compare(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """A row per all-reduce, fastest first; and what does not fit this case, with the reason."""
    _elements(args), _cluster(args, args.gpus)  # what is wrong with these is wrong for all
    args.sync = "rank"
    rows, skipped = [], []
    for algorithm in ALGORITHMS:
        try:
            runs = [_compared(args, algorithm, f) for f in _flags_to_compare(args, algorithm.flags)]
        except ValueError as error:
            skipped.append({"algorithm": algorithm.name, "reason": str(error)})
            continue
        rows += sorted((run for run in runs if run is not None), key=_rounded_time)[:1]
    return sorted(rows, key=_rounded_time), skipped


def _compared(
    args: argparse.Namespace, algorithm: Algorithm, flags: dict[str, int]
) -> dict[str, Any] | None:
    """The document of one run; None for what is no all-reduce."""
    schedule = build_schedule(algorithm.name, args.gpus, **flags)
    if schedule.collective is not Collective.ALL_REDUCE:
        return None
    cluster, elements, item = _cluster(args, schedule.n), _elements(args), ITEM_BYTES[args.dtype]
    with _Progress() as progress:
        run = simulate(schedule, cluster, elements, item, keep="totals", progress=progress)
    form = closed_form(algorithm.name, cluster, elements, item, "rank", **flags)
    args.algorithm = algorithm.name
    return _document(args, run, form) | {"flags": flags}


def _rounded_time(row: dict[str, Any]) -> float:
    return float(f"{row['time_s']:.9g}")  # rounding decides no race


def _flags_to_compare(args: argparse.Namespace, takes: tuple[str, ...]) -> list[dict[str, int]]:
    """The settings of which the best takes part: pieces to try, and the cluster's own nodes."""
    if "pieces" in takes:
        return [{"pieces": 2**power} for power in range(9)]
    if "gpus_per_node" in takes:
        levels = _cluster(args, args.gpus).levels
        sizes = {level.groups.count(group) for level in levels[:1] for group in level.groups}
        return [{"gpus_per_node": sizes.pop()}] if len(sizes) == 1 else []
    return [{}]


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
    ranks = len(document["sent_bytes"])
    cluster = _cluster(args, ranks)
    rates = {
        rate for port in cluster.ports for rate in (port.send_bytes_per_s, port.receive_bytes_per_s)
    }
    ports = format_rate(min(rates)) if len(rates) == 1 else f"from {format_rate(min(rates))}"
    by_size = [seconds for _, seconds in cluster.latency_by_size] or [cluster.latency_s]
    latency = " to ".join(format_time(s) for s in sorted({min(by_size), max(by_size)}))
    form = document["closed_form"]
    case = f"{args.algorithm} on {args.gpus} GPUs: {format_bytes(args.size)} of {args.dtype}"
    link, busy = document["busiest_link"].values()
    events = f"{document['events']} events, solver '{document['solver']}'"
    lines = [
        f"{case}, {ports} per port, latency {latency}, rule '{args.sync}'",
        f"simulated     {format_time(document['time_s'])}",
        f"lower bound   {format_time(document['lower_bound_s'])}",
        f"closed form   {form}" if form else "closed form   none for this case",
        f"sent          {_per_gpu(document['sent_bytes'])}",
        f"received      {_per_gpu(document['received_bytes'])}",
        f"busiest link  {link}, {busy:.1%} busy",
        f"work          {document['steps']} steps, {document['transfers']} transfers, {events}",
    ]
    print("\n".join(lines))
    if args.explain:
        _print_path(document)


def _print_path(document: dict[str, Any]) -> None:
    print("\nwhy so long: nothing on this path could begin earlier")
    parts = document["critical_path"]
    by_kind: dict[str, float] = {}
    for part in parts:
        seconds = part["end_s"] - part["start_s"]
        by_kind[part["kind"]] = by_kind.get(part["kind"], 0.0) + seconds
    shown = parts if len(parts) <= PATH_LINES else [*parts[: PATH_LINES // 2], None]
    shown += [] if len(parts) <= PATH_LINES else parts[-PATH_LINES // 2 :]
    for part in shown:
        if part is None:
            print(f"  … {len(parts) - PATH_LINES} more")
            continue
        seconds = format_time(part["end_s"] - part["start_s"])
        print(
            f"  {format_time(part['start_s']):>9}  {part['kind']:8} {seconds:>9}  {part['label']}"
        )
    total = ", ".join(f"{kind} {format_time(seconds)}" for kind, seconds in by_kind.items())
    idle = document["idle_s"]
    print(f"in all: {total}")
    print(f"idle: GPU {idle.index(max(idle))} most, {format_time(max(idle))} of the run")


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
            flags = [" ".join(f"--{f.replace('_', '-')}" for f in row["flags"]) for row in rows]
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
    elif args.command == "step":
        _step(args)
    elif args.model is not None:
        _compare_steps(args)
    else:
        documents, skipped = _compare(args)
        if args.json:
            print(json.dumps({"algorithms": documents, "skipped": skipped}, allow_nan=False))
        else:
            _print_comparison(documents, skipped)


def _step(args: argparse.Namespace) -> None:
    if args.strategy == async_step.NAME:
        _async_step(args)
        return
    check_strategy(args.strategy)
    cluster = _cluster(args, ranks_of(args, args.strategy))
    with _Progress() as progress:
        result = run_step(args, cluster, progress)
    told = verdict(result, args.measured) if args.measured is not None else None
    if args.trace:
        _write_trace(args.trace, result.run.trace())
    if args.json:
        more = {} if told is None else {"measured_s": args.measured, "verdict": told}
        print(json.dumps(result.document() | more, allow_nan=False))
    else:
        print("\n".join(step_lines(result)))
        if told is not None:
            print(f"measured       {format_time(args.measured)}: {told}")


def _async_step(args: argparse.Namespace) -> None:
    if args.measured is not None:
        raise ValueError(f"{async_step.NAME} takes no --measured")
    setting = prepare_async(args)
    cluster = _cluster(args, ranks_of(args, args.strategy))
    result = async_step.run_async_step(args, setting, cluster)
    if args.trace:
        _write_trace(args.trace, result.run.trace)
    if args.json:
        print(json.dumps(result.document(), allow_nan=False))
    else:
        print("\n".join(async_step.async_lines(result)))


def _write_trace(path: Path, trace: Trace) -> None:
    _write(path, trace.to_csv() if path.suffix == ".csv" else trace.to_perfetto())


def _compare_steps(args: argparse.Namespace) -> None:
    with _Progress() as progress:
        results, skipped = compare_steps(args, lambda ranks: _cluster(args, ranks), progress)
    if args.json:
        documents = [result.document() for result in results]
        print(json.dumps({"strategies": documents, "skipped": skipped}, allow_nan=False))
        return
    header = ["strategy", "step", "exposed", "samples/s", "efficiency", "most sent by a GPU"]
    _print_table(header, comparison_rows(results))
    print("all times simulated; per step")
    for row in skipped:
        print(f"not compared: {row['strategy']} ({row['reason']})")


def _print_comparison(documents: list[dict[str, Any]], skipped: list[dict[str, str]]) -> None:
    header = ["algorithm", "simulated", "of bound", "sent", "received", "busiest link"]
    rows = [
        [
            " ".join(
                [d["algorithm"], *(f"--{f} {k}".replace("_", "-") for f, k in d["flags"].items())]
            ),
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
    for row in skipped:
        print(f"not compared: {row['algorithm']} ({row['reason']})")


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
