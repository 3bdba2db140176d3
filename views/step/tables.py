"""Tables, files and commands of the step page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from simcore.training.buckets import buckets
from simcore.training.step import StepResult
from simcore.training.strategies import find_strategy
from simcore.training.work import Work
from simcore.units import format_bytes, format_time
from views.comparison import binary_bytes
from views.step.chart import gpu_name
from views.step.rows import all_rows, shown_from_s
from views.step.runs import (
    LONGEST_COMPARED_S,
    NAMES,
    ONE_SWITCH,
    StepChoice,
    about,
    impossible,
    refusal,
    run_step,
    work_of,
)
from views.step.sweep import Point
from views.step.tasks import task_words
from views.step.words import fullest, gigabytes, name_of
from views.tables import markdown_table
from views.text import Text

MOST_ROWS = 40  # of a table that people read
MOST_BUCKETS = 14


def number_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose numbers stay on a line with their units.

    >>> number_table(["", "time"], [["first bucket", "1 ms"]]).splitlines()[-1]
    '| first bucket | 1\\xa0ms |'
    """
    tight = [[row[0], *(cell.replace(" ", "\u00a0") for cell in row[1:])] for row in rows]
    return markdown_table(header, tight)


def bucket_header(text: Text) -> list[str]:
    """Of ``bucket_rows``."""
    keys = ("holds", "size", "ready", "starts", "ends")
    return [text(f"step.buckets_header_{key}") for key in keys]


def bucket_rows(choice: StepChoice, text: Text) -> list[list[str]]:
    """DDP's buckets: what is in each, and when it goes, where that is simulated."""
    work, setting = choice.workload(), choice.setting()
    filled = buckets(work, setting.options, setting.number)
    times: list[list[str]] = [["–"] * 3] * len(filled)
    if refusal(choice, "ddp", text) is None:
        times = [
            [format_time(moment) for moment in (bucket.ready_s, bucket.start_s, bucket.end_s)]
            for bucket in run_step(choice, "ddp").buckets
        ]
    rows = []
    for number, (bucket, moments) in enumerate(zip(filled, times, strict=True)):
        first, last = (work.parameters[bucket.indices[place]].name for place in (0, -1))
        count = len(bucket.indices)
        key = "step.buckets_one" if count == 1 else "step.buckets_range"
        holds = text(key, number=number, count=count, first=f"`{first}`", last=f"`{last}`")
        rows.append([holds, binary_bytes(bucket.nbytes), *moments])
    if len(rows) > MOST_BUCKETS:
        more = text("step.buckets_more", count=len(rows) - MOST_BUCKETS)
        half = MOST_BUCKETS // 2
        rows = [*rows[:half], [more, *[""] * 4], *rows[-half:]]
    return rows


def bucket_note(choice: StepChoice, text: Text) -> str:
    """Why the first is small, or why it is not."""
    if choice.cap_mb is None:
        return text("step.buckets_note_default")
    return text("step.buckets_note_given", cap=f"{choice.cap_mb:g}")


@dataclass(frozen=True, slots=True)
class Compared:
    """All strategies that are simulated here, the fastest first, and why the others are not."""

    results: list[StepResult]
    impossible: dict[str, str]
    too_long: dict[str, str]


def compare(choice: StepChoice, text: Text) -> Compared:
    """The two that are drawn, and as many others as can be simulated while somebody waits."""
    chosen = {choice.first, choice.second}
    without: dict[str, str] = {}
    long: dict[str, str] = {}
    works: dict[str, Work] = {}
    for name in NAMES:
        why = impossible(choice, name, text)
        if why is None:
            works[name] = work_of(choice, name)
        else:
            without[name] = why
    results, left_s = [], LONGEST_COMPARED_S
    for name, work in sorted(works.items(), key=lambda item: item[1].seconds):
        if name not in chosen and work.seconds > left_s:
            long[name] = text("step.some_messages", messages=about(work.messages))
            continue
        left_s -= work.seconds if name not in chosen else 0.0
        results.append(run_step(choice, name))
    return Compared(sorted(results, key=lambda result: result.time_s), without, long)


def comparison_header(text: Text) -> list[str]:
    """Of ``comparison_rows``."""
    keys = ("strategy", "time", "exposed", "samples", "efficiency", "sent", "memory")
    return [text(f"step.col.{key}") for key in keys]


def comparison_rows(choice: StepChoice, compared: Compared, text: Text) -> list[list[str]]:
    """A row per strategy; the two that are drawn above in bold."""
    rows = []
    for result in compared.results:
        name = name_of(result.strategy, text)
        drawn = result.strategy in (choice.first, choice.second)
        held = fullest(result)[1].total
        needs = gigabytes(held)
        over = held > choice.card.memory_bytes
        rows.append(
            [
                f"**{name}**" if drawn else name,
                format_time(result.time_s),
                format_time(result.exposed_communication_s),
                f"{result.samples_per_s:.4g}",
                text("common.percent", value=f"{result.efficiency * 100:.3g}"),
                format_bytes(round(sent_by_busiest(result))),
                text("step.too_much", needs=needs) if over else needs,
            ]
        )
    return rows


def sent_by_busiest(result: StepResult) -> float:
    """Bytes per step of the GPU that sends most; extra servers are no GPUs."""
    gpus = result.setting.gpus
    return float(result.run.sent_bytes[:gpus].max()) / result.steps


def skipped_words(compared: Compared, text: Text) -> str:
    """Which are missing and why; empty if none is."""

    def listed(names: dict[str, str]) -> str:
        parts = [
            text("step.skipped_one", name=name_of(name, text), reason=reason)
            for name, reason in names.items()
        ]
        return text("step.skipped_join").join(parts)

    said = []
    if compared.impossible:
        said.append(text("step.skipped", list=listed(compared.impossible)))
    if compared.too_long:
        said.append(text("step.skipped_long", list=listed(compared.too_long)))
    return text.joined(said)


def timeline_header(text: Text) -> list[str]:
    """Of ``timeline_rows``."""
    return [text(f"step.table_{key}") for key in ("what", "start", "end", "exposed", "size")]


def timeline_rows(result: StepResult, text: Text) -> list[tuple[str, list[list[str]]]]:
    """What the timeline draws, for those who cannot see it: per GPU a title and the tasks."""
    from_s, found = shown_from_s(result), []
    for gpu in all_rows(result):
        exposed: dict[tuple[float, float, str, int], float] = {}
        for bar in (
            bar for row in gpu.rows for bar in row.bars if bar.kind not in ("wait", "held")
        ):
            key = (*bar.part_of_s, bar.label, bar.nbytes)
            exposed[key] = exposed.get(key, 0.0) + bar.duration_s * (bar.kind == "exposed")
        rows = [
            [
                task_words(label, text),
                *(format_time(t - from_s) for t in (start_s, end_s)),
                format_time(seconds) if nbytes else "",
                format_bytes(nbytes) if nbytes else "",
            ]
            for (start_s, end_s, label, nbytes), seconds in sorted(exposed.items())
        ]
        if len(rows) > MOST_ROWS:
            rest = text("step.table_rest", count=len(rows) - MOST_ROWS)
            rows = [*rows[:MOST_ROWS], [rest, "", "", "", ""]]
        who = gpu_name(gpu, result, text)
        title = text("step.table_title", name=name_of(result.strategy, text), gpu=who)
        found.append((title, rows))
    return found


def assumptions(choice: StepChoice, text: Text, network: str, compute: str) -> str:
    """All that is assumed, as a list."""
    items = [
        compute,
        text("step.assume_network", network=network),
        *(text(f"step.assume_{key}") for key in ("ddp", "dp", "servers", "left_out")),
    ]
    return "\n".join(f"- {item}" for item in items)


def export_rows(choice: StepChoice, compared: Compared) -> list[dict[str, Any]]:
    """A row per strategy, in SI units, for files."""
    return [
        {
            "source": "simulated",
            "strategy": result.strategy,
            "model": choice.model,
            "gpu": choice.gpu,
            "gpus": choice.gpus,
            "batch_per_gpu": choice.batch,
            "time_s": result.time_s,
            "compute_s": result.compute_s,
            "exposed_communication_s": result.exposed_communication_s,
            "samples_per_s": result.samples_per_s,
            "efficiency": result.efficiency,
            "sent_bytes_busiest": sent_by_busiest(result),
            "memory_bytes_fullest": fullest(result)[1].total,
        }
        for result in compared.results
    ]


def export_json(
    choice: StepChoice, drawn: Sequence[StepResult], compared: Compared, points: Sequence[Point]
) -> str:
    """The runs that are drawn in full, the comparison, and the sweep."""
    document = {
        "steps": [result.document() for result in drawn],
        "comparison": export_rows(choice, compared),
        "bucket_sweep": [
            {"bucket_cap_mb": p.cap_mb, "time_s": p.time_s, "exposed_communication_s": p.exposed_s}
            for p in points
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False)


def commands(choice: StepChoice) -> str:
    """What simulates the drawn runs again, and compares all."""
    flags = [f"--model {choice.model} --gpu {quote(choice.gpu)} --batch {choice.batch}"]
    flags.append(f"--gpus {choice.gpus}")
    if choice.network == ONE_SWITCH:
        flags.append(f"--bandwidth {choice.rate} --latency {choice.latency}")
    else:
        flags.append(f"--cluster {choice.network}")
    if choice.accumulate > 1:
        flags.append(f"--accumulate {choice.accumulate}")
    if choice.slower != 1:
        flags.append(f"--slower {choice.gpus - 1}:{choice.slower:g}")
    own = {  # by what of a setting each flag sets: not every strategy takes them
        "bucket_cap_mb": f"--bucket-cap-mb {choice.cap_mb:g}" if choice.cap_mb else "",
        "overlap": f"--overlap {choice.overlap_percent / 100:g}" * (choice.overlap_percent < 100),
        "launch_per_replica_s": f"--launch-per-replica {choice.launch}" * (choice.launch != "0s"),
        "backend": f"--backend {choice.backend}" * (choice.backend != "nccl"),
        "gpus_per_node": f"--gpus-per-node {choice.gpus_per_node}" * bool(choice.gpus_per_node),
    }
    lines = []
    for name in dict.fromkeys((choice.first, choice.second)):
        takes = find_strategy(name).takes
        taken = [flag for of, flag in own.items() if flag and of in takes]
        if name != "hsdp":  # for all others it belongs to the hierarchical all-reduce
            taken = [flag for flag in taken if not flag.startswith("--gpus-per-node")]
        lines.append(" ".join([f"python -m simcore step {name}", *flags, *taken]))
    everything = [*flags, *filter(None, own.values())]
    return "\n".join([*lines, " ".join(["python -m simcore compare", *everything])])
