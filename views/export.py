"""Several traces in one file: CSV, JSON, and Perfetto's format."""

from __future__ import annotations

import json
from collections.abc import Sequence

from simcore.trace import Trace


def traces_csv(traces: Sequence[Trace]) -> str:
    """A line per span, the algorithm's name first."""
    lines = []
    for number, trace in enumerate(traces):
        head, *rows = trace.to_csv().splitlines()
        lines += [f"algorithm,{head}"] if number == 0 else []
        lines += [f"{trace.name},{row}" for row in rows]
    return "\n".join(lines) + "\n"


def traces_json(traces: Sequence[Trace]) -> str:
    """A list of documents, each of which ``Trace.from_json`` takes."""
    return f"[{', '.join(trace.to_json() for trace in traces)}]\n"


def traces_perfetto(traces: Sequence[Trace]) -> str:
    """All on one clock: a process per algorithm and rank."""
    events = []
    first_pid = 0
    for trace in traces:
        for event in json.loads(trace.to_perfetto())["traceEvents"]:
            event["pid"] += first_pid
            if event["name"] == "process_name":
                event["args"]["name"] = f"{trace.name}, {event['args']['name']}"
            events.append(event)
        first_pid += trace.n
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
