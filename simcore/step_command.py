"""``step``, and ``compare --model``: arguments to settings, results to tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from simcore import async_step
from simcore.buckets import DdpOptions
from simcore.cluster import Cluster
from simcore.explain import not_the_network
from simcore.model import Workload
from simcore.names import unknown
from simcore.step import StepResult, step
from simcore.strategies import STRATEGIES, Setting, Strategy, find_strategy
from simcore.units import format_bytes, format_time
from simcore.workload import load_workload

MAX_TRACE_GPUS = 64  # with more, single messages make no picture


# Flags whose names on the command line are not those in the setting.
_NAMED = {"pipelined": "not_pipelined", "launch_per_replica_s": "launch_per_replica"}
_OF_OPTIONS = ("bucket_cap_mb", "static_graph", "find_unused_parameters", "hook")
_OF_STRATEGIES = tuple(dict.fromkeys(name for row in STRATEGIES for name in row.takes))


def workload_of(args: argparse.Namespace) -> Workload:
    """The model with its compute time: its own, given, or estimated; never guessed."""
    work = load_workload(args.model)
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
    given = _given(args)
    chosen = {name: given[name] for name in takes if name in given}
    options = DdpOptions(**{name: chosen.pop(name) for name in _OF_OPTIONS if name in chosen})
    slower = [1.0] * args.gpus if args.slower else []
    for rank, factor in args.slower:
        if rank >= args.gpus:
            raise ValueError(f"--slower {rank}: accepted are GPUs 0 to {args.gpus - 1}")
        slower[rank] *= factor
    accumulate, slow = 1 if args.accumulate is None else args.accumulate, tuple(slower)
    return Setting(work, args.gpus, options, accumulate=accumulate, slower=slow, **chosen)


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """What the command line holds of the flags that not every strategy takes."""
    values = {name: getattr(args, _NAMED.get(name, name)) for name in _OF_STRATEGIES}
    given = {name: value for name, value in values.items() if value is not None}
    return given | ({"pipelined": False} if "pipelined" in given else {})


def flag_of(name: str) -> str:
    """What a setting's field is called on the command line."""
    return "--" + _NAMED.get(name, name).replace("_", "-")


def check_taken(args: argparse.Namespace, strategy: Strategy) -> None:
    """A flag that means nothing here is an error, not silence."""
    for name in _given(args):
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
        async_step.NAME: args.servers or 0,
        "ps-dedicated": args.servers or 1,
        "byteps": args.gpus if args.servers is None else args.servers,
    }
    return int(args.gpus + extra.get(strategy, 0))


def check_strategy(name: str) -> None:
    """A name that ``step`` accepts, or a ``ValueError`` that lists them."""
    names = [*(row.name for row in STRATEGIES), async_step.NAME]
    if name not in names:
        raise ValueError(unknown("strategy", name, names))


def prepare_async(args: argparse.Namespace) -> Setting:
    """The setting of ``ps-async``, which takes few of the flags."""
    for name in _given(args):
        if name != "servers":
            accepted = [row.name for row in STRATEGIES if name in row.takes]
            raise ValueError(
                f"{async_step.NAME} takes no {flag_of(name)}; accepted: with {', '.join(accepted)}"
            )
    if args.accumulate not in (None, 1):
        raise ValueError(f"{async_step.NAME} takes no --accumulate")
    if args.servers not in (None, 0, 1):
        raise ValueError(f"--servers {args.servers}: {async_step.NAME} accepts 0 or 1")
    return setting_of(args, workload_of(args), ())


def run_step(
    args: argparse.Namespace, cluster: Cluster, progress: Callable[[float], None] | None = None
) -> StepResult:
    """One step of the strategy that was asked for."""
    strategy = find_strategy(args.strategy)
    if args.bound is not None:
        raise ValueError(f"{strategy.name} takes no --bound; accepted: with {async_step.NAME}")
    check_taken(args, strategy)
    setting = setting_of(args, workload_of(args), strategy.takes)
    keep = args.trace is not None and args.gpus <= MAX_TRACE_GPUS
    return step(strategy.name, setting, cluster, transfers=keep, progress=progress)


def compare_steps(
    args: argparse.Namespace,
    cluster_for: Callable[[int], Cluster],
    progress: Callable[[float], None] | None = None,
) -> tuple[list[StepResult], list[dict[str, str]]]:
    """Every strategy that this case allows, the fastest first; and the others with the reason.

    A flag counts for those that take it. But ``--overlap`` says what the model allows, so what
    cannot follow it is left out.
    """
    work, results, skipped = workload_of(args), [], []
    cluster_for(args.gpus)  # what is wrong with it, or with all flags together, is wrong for all
    setting_of(args, work, _OF_STRATEGIES)
    for number, row in enumerate(STRATEGIES):

        def of_all(done: float, before: int = number) -> None:
            if progress:
                progress((before + done) / len(STRATEGIES))

        try:
            if args.overlap is not None and "overlap" not in row.takes:
                raise ValueError(f"{row.name} takes no --overlap")
            setting = setting_of(args, work, row.takes)
            cluster = cluster_for(ranks_of(args, row.name))
            results.append(step(row.name, setting, cluster, progress=of_all))
        except ValueError as error:
            skipped.append({"strategy": row.name, "reason": str(error)})
    return sorted(results, key=lambda result: result.time_s), skipped


def verdict(result: StepResult, measured_s: float) -> str:
    """What the network can have to do with a step that was measured to take this long."""
    lost_s, wire_s = measured_s - result.alone_s, result.communication_s
    if lost_s <= 0:
        return "no longer than one GPU computes; look at the compute times"
    return not_the_network(lost_s, wire_s) or (
        f"{format_time(lost_s)} more than one GPU computes; "
        f"the network can take up to {format_time(wire_s)}"
    )


def step_lines(result: StepResult) -> list[str]:
    """For people."""
    work, setting, sent = result.setting.workload, result.setting, result.run.sent_bytes
    exposed_s, time_s = result.exposed_communication_s, max(result.time_s, 1e-300)
    most, least = (format_bytes(round(float(f(sent)) / result.steps)) for f in (max, min))
    held = [memory.total for memory in result.memory]
    most_held, least_held = format_bytes(max(held)), format_bytes(min(held))
    case = f"batch {work.batch} on each of {setting.gpus} GPUs"
    speed = f"{result.samples_per_s:.4g} samples/s, efficiency {result.efficiency:.1%}"
    lines = [
        f"{result.strategy}: {work.name}, {case}, gradients {format_bytes(work.gradient_bytes)}",
        f"compute        {work.compute_source or 'as the model file says'}",
        f"simulated      {format_time(result.time_s)} a step, {speed}",
        f"  computing    {format_time(result.compute_s)}",
        f"  exposed      {format_time(exposed_s)}, {exposed_s / time_s:.1%} of the step",
        f"sent           {most} by the GPU that sends most"
        + f", {least} by the least" * (most != least),
        f"must hold      {most_held}"
        + f" on the GPU that holds most, {least_held} on the least" * (most_held != least_held),
    ]
    if result.buckets:
        lines.append("bucket         ready         begins        ends")
    for bucket in result.buckets:
        times = (bucket.ready_s, bucket.start_s, bucket.end_s)
        cells = "".join(f"{format_time(seconds):<14}" for seconds in times)
        lines.append(f"  {format_bytes(bucket.nbytes):<12} {cells}".rstrip())
    return lines


def comparison_rows(results: list[StepResult]) -> list[list[str]]:
    """A row per strategy."""
    return [
        [
            result.strategy,
            format_time(result.time_s),
            format_time(result.exposed_communication_s),
            f"{result.samples_per_s:.4g}",
            f"{result.efficiency:.1%}",
            format_bytes(round(float(result.run.sent_bytes.max()) / result.steps)),
        ]
        for result in results
    ]
