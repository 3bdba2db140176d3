"""Drives the cases of a job on a set of ranks: agreed starts, counters, answers. No torch here."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Any

from real_gpu.job import Case, CaseResult, Job, RunError
from real_gpu.ranks import Ranks
from real_gpu.shaped import Hub

_START_IN_S = 0.1  # time for every rank to hear of an agreed start
_SETTLE_S, _SETTLE_WITHIN_S = 0.02, 3.0
_LOOPBACK = {"linux": "lo", "darwin": "lo0"}


def launch(job: Job, hub: Hub | None = None) -> list[CaseResult]:
    """Run all cases of the job on one set of processes; with a hub, over its shaped network."""
    with Ranks(job.n) as ranks:
        address, interface = _network(ranks, job, hub)
        ranks.ask(
            [{"do": "load", "rank": r, "n": job.n, "backend": job.backend} for r in range(job.n)],
            60 + 5 * job.n,
        )
        listen = {"do": "listen", "address": address, "port": job.port}
        port = ranks.ask([listen], 10, ranks=[0])[0]["port"]
        longest_s = max((_patience_s(case, job) for case in job.cases), default=30.0)
        join = {"do": "join", "address": address, "port": port, "timeout_s": longest_s}
        ranks.ask([join | {"interface": name} for name in interface], 30)
        return [_run_case(ranks, case, _patience_s(case, job), hub) for case in job.cases]


def _network(ranks: Ranks, job: Job, hub: Hub | None) -> tuple[str, list[str]]:
    """The address of rank 0, and every rank's interface."""
    if hub is None or job.network is None:
        return "127.0.0.1", [_LOOPBACK.get(sys.platform, "")] * job.n
    ranks.all(30, do="isolate")
    for rank, process in enumerate(ranks.processes):
        hub.plug(rank, process.pid)
    settings = {"bytes_per_s": job.network.bytes_per_s, "latency_s": job.network.latency_s}
    ends = ranks.ask([{"do": "connect", "rank": r} | settings for r in range(job.n)], 20)
    return ends[0]["address"], [end["interface"] for end in ends]


def _patience_s(case: Case, job: Job) -> float:
    """How long one run may take: several times what the slowest serial order would need."""
    slowest = job.network.bytes_per_s if job.network else 50e6
    messages = 2 * job.n * (1 + (job.network.latency_s if job.network else 0.0))
    computing_s = case.training["computing_s"] if case.training else 0.0
    return 10 + 4 * (messages * case.size_bytes / slowest + computing_s)


def _run_case(ranks: Ranks, case: Case, patience_s: float, hub: Hub | None) -> CaseResult:
    payload = ranks.all(30 + patience_s, do="prepare", case=asdict(case))
    result = CaseResult([], [], [], payload if all(payload) else None)
    warm, late = 0, 0
    while len(result.runs_s) < case.runs:
        ranks.all(30, do="reset")
        before = _settled_counters(ranks, hub) if hub else None
        start_s = time.monotonic() + _START_IN_S
        answers = ranks.all(patience_s, do="run", start_s=start_s)
        after = _settled_counters(ranks, hub) if hub else None
        if warm < case.warm_runs:
            warm += 1
            continue
        if max(a["late_s"] for a in answers) > 0:
            late += 1
            if late > case.runs:
                raise RunError("the ranks keep missing the agreed start; is the machine busy?")
            continue
        result.runs_s.append(max(a["end_s"] for a in answers) - start_s)
        if before and after:
            result.counters.append(_difference(before, after))
        result.spans[:] = [
            [rank, *row[:6], row[6] - start_s, row[7] - start_s, row[8]]
            for rank, answer in enumerate(answers)
            for row in answer["spans"]
        ]
    return result


def _settled_counters(ranks: Ranks, hub: Hub) -> dict[str, Any]:
    """Counters once they no longer move; a run that has ended may still be acknowledging."""
    deadline = time.monotonic() + _SETTLE_WITHIN_S
    last = None
    while time.monotonic() < deadline:
        now = {"rank": ranks.all(10, do="counters"), "port": hub.counters()}
        if now == last:
            return now | {"settled": True}
        last = now
        time.sleep(_SETTLE_S)
    return now | {"settled": False}


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What one run added: what left each rank's end, and what left the switch's end for it."""

    def added(end: str, what: str) -> list[int]:
        return [b[what] - a[what] for a, b in zip(before[end], after[end], strict=True)]

    return {
        "sent": added("rank", "data"),
        "received": added("port", "data"),
        "ack_sent": added("rank", "ack"),
        "ack_received": added("port", "ack"),
        "drops": sum(added("rank", "drops") + added("port", "drops")),
        "settled": before["settled"] and after["settled"],
    }
