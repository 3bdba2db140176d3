"""Drives the cases of a job on a set of ranks: agreed starts, counters, answers. No torch here.

The ranks may be processes of this one's, or of torchrun on several machines (``machines``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from real_gpu.job import OVER_GLOO, Case, CaseResult, Job, RunError, joining_s
from real_gpu.network.interfaces import LOOPBACK, chosen_interface
from real_gpu.network.shaped import Hub
from real_gpu.network.shaper import packet_bytes
from real_gpu.processes.ranks import Asking, Ranks
from real_gpu.validation.confidence import enough

_START_IN_S = 0.1  # time for every rank to hear of an agreed start
_SETTLE_S, _SETTLE_WITHIN_S = 0.02, 3.0
# The least that a link may carry before its run is taken to hang: half of 1 Gbit/s Ethernet; and
# between GPUs of one machine, that is through its memory at worst, one lane of PCIe 3.
_SOCKET_BYTES_PER_S, _LANE_BYTES_PER_S = 50e6, 985e6
_BESIDE_S, _BESIDE_GPU_S = 10.0, 30.0  # a first run over NCCL opens channels and loads kernels
_CHECKED_BYTES_PER_S = 50e6  # results go to the CPU, which compares them


def launch(
    job: Job, hub: Hub | None = None, on_result: Callable[[CaseResult], None] | None = None
) -> list[CaseResult]:
    """Run all cases of the job on one set of processes; with a hub, over its shaped network.

    ``on_result`` hears of each result as it comes.
    """
    with Ranks(job.n) as ranks:
        ranks.start()
        address, interface = _network(ranks, job, hub)
        ranks.ask(
            [{"do": "load", "rank": r, "n": job.n, "backend": job.backend} for r in range(job.n)],
            60 + 5 * job.n,
        )
        listen = {"do": "listen", "address": address, "port": job.port}
        port = ranks.ask([listen], 10, ranks=[0])[0]["port"]
        join = {"do": "join", "address": address, "port": port, "timeout_s": longest_s(job)}
        ranks.ask([join | {"interface": name} for name in interface], joining_s(job.n, job.backend))
        results = []
        for result in run_cases(ranks, job, hub):
            results.append(result)
            if on_result:
                on_result(result)
        return results


def run_cases(ranks: Asking, job: Job, hub: Hub | None = None) -> Iterator[CaseResult]:
    """The job's cases one after another, on ranks that have met."""
    for case in job.cases:
        yield _run_case(ranks, case, _patience_s(case, job), hub)


def longest_s(job: Job) -> float:
    """How long any one run of the job may take before its ranks end it themselves: wherever they
    are, and no sooner than its driver does, who can say more.
    """
    anywhere = replace(job, launched={"machines": job.n})
    return max((_patience_s(case, anywhere) for case in job.cases), default=30.0)


def _network(ranks: Ranks, job: Job, hub: Hub | None) -> tuple[str, list[str]]:
    """The address of rank 0, and every rank's interface."""
    if hub is None or job.network is None:
        return "127.0.0.1", [chosen_interface() or LOOPBACK] * job.n
    ranks.all(30, do="isolate")
    for rank, process in enumerate(ranks.processes):
        hub.plug(rank, process.pid)
    hub.all_plugged()
    settings = {
        "do": "connect",
        "packet_bytes": packet_bytes(hub.wiring.slowest_usual_bytes_per_s),
        "round_trip_s": 2 * hub.wiring.longest_latency_s,
    }
    wires = [{"rank": r, "wire": asdict(w)} for r, w in enumerate(hub.wiring.sends)]
    ends = ranks.ask([settings | wire for wire in wires], 20 + job.n)
    return ends[0]["address"], [end["interface"] for end in ends]


def _patience_s(case: Case, job: Job) -> float:
    """How long one run may take: several times what the slowest serial order would need."""
    wiring = job.network.wiring(job.n) if job.network else None
    slowest = wiring.slowest_bytes_per_s if wiring else _slowest_bytes_per_s(case, job)
    messages = 2 * job.n * (1 + (wiring.longest_latency_s if wiring else 0.0))
    computing_s = case.training["computing_s"] if case.training else 0.0
    beside_s = _BESIDE_S
    if job.backend == "nccl":
        beside_s = _BESIDE_GPU_S + case.size_bytes / _CHECKED_BYTES_PER_S
    return beside_s + 4 * (messages * case.size_bytes / slowest + computing_s)


def _slowest_bytes_per_s(case: Case, job: Job) -> float:
    """Of links that nobody shaped."""
    one_machine = job.launched.get("machines", 1) == 1
    between_gpus = job.backend == "nccl" and one_machine and case.name not in OVER_GLOO
    return _LANE_BYTES_PER_S if between_gpus else _SOCKET_BYTES_PER_S


def _run_case(ranks: Asking, case: Case, patience_s: float, hub: Hub | None) -> CaseResult:
    hub = hub if case.counted else None
    changing = hub if case.fills is None else None
    payload = ranks.all(30 + patience_s, do="prepare", case=asdict(case))
    result = CaseResult([], [], [], payload if all(payload) else None)
    warm, late = 0, 0
    while not enough(result.runs_s, case.runs, case.confidence):
        ranks.all(30, do="reset")
        before = _settled_counters(ranks, hub) if hub else None
        answers, changes = _run(ranks, patience_s, changing)
        after = _settled_counters(ranks, hub) if hub else None
        if warm < case.warm_runs:
            warm += 1
            continue
        if max(a["late_s"] for a in answers) > 0:
            late += 1
            if late > case.runs:
                raise RunError("the ranks keep missing the agreed start; is the machine busy?")
            continue
        _add(result, answers, keep=case.fills is not None)
        if hub and before and after:
            waited_s = [a["waited_s"] for a in answers]
            heard = {"waited_s": waited_s, "changes": changes}
            result.counters.append(_difference(hub, before, after) | heard)
    if case.profile:
        ranks.all(30, do="reset")
        _run(ranks, patience_s + 60, changing, case.profile)
    return _watched(ranks, result, patience_s) if case.spans and result.devices else result


def _watched(ranks: Asking, result: CaseResult, patience_s: float) -> CaseResult:
    """The spans of one more run, which is not timed: to see a GPU's messages slows them."""
    ranks.all(30, do="reset", watched=True)
    answers, _ = _run(ranks, patience_s, None)
    return replace(result, spans=_spans(answers), watched_s=max(a["end_s"] for a in answers))


def _run(
    ranks: Asking, patience_s: float, hub: Hub | None, profile: str | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One run, agreed to start 0.1 s from now; every time in the answers counts from that start,
    on this process's clock. The hub's links change as they should; the changes made come second.
    Rank 0 writes to ``profile`` what torch's profiler sees.
    """
    clocks = ranks.clocks()
    start_s = time.monotonic() + _START_IN_S
    requests = [{"do": "run", "start_s": clock.there(start_s)} for clock in clocks]
    requests[0] |= {"profile": profile}
    if hub:
        hub.changes.arm(start_s)
    answers = ranks.ask(requests, patience_s)
    changes = hub.changes.finish() if hub else []
    for clock, answer in zip(clocks, answers, strict=True):
        for moment in ("began_s", "end_s"):
            answer[moment] = clock.here(answer[moment]) - start_s
        for row in answer["spans"]:
            row[6:8] = [clock.here(moment) - start_s for moment in row[6:8]]
        answer["clock_s"] = clock.uncertainty_s
        changes = [*changes, *answer["changes"]]
    return answers, changes


def _add(result: CaseResult, answers: list[dict[str, Any]], keep: bool) -> None:
    """A timed run, into the result; its spans after those of the runs before, or in their place."""
    result.runs_s.append(max(a["end_s"] for a in answers))
    result.begins_s.append([a["began_s"] for a in answers])
    result.ends_s.append([a["end_s"] for a in answers])
    if all(a["device"] for a in answers):
        result.devices.append([a["device"] for a in answers])
    result.clocks_s.append(max(a["clock_s"] for a in answers))
    if not keep:
        result.spans.clear()
    result.spans.extend(_spans(answers))


def _spans(answers: list[dict[str, Any]]) -> list[list[float]]:
    return [[rank, *row] for rank, answer in enumerate(answers) for row in answer["spans"]]


def _settled_counters(ranks: Asking, hub: Hub) -> dict[str, Any]:
    """Counters once they no longer move; a run that has ended may still be acknowledging."""
    deadline = time.monotonic() + _SETTLE_WITHIN_S
    last = None
    while time.monotonic() < deadline:
        now: dict[str, Any] = {"rank": ranks.all(10, do="counters")} | hub.counters()
        if now == last:
            return now | {"settled": True}
        last = now
        time.sleep(_SETTLE_S)
    return now | {"settled": False}


def _difference(hub: Hub, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What one run added: what left each rank's end, and what left the switch's end for it."""

    def added(end: str, what: str) -> list[int]:
        return [b[what] - a[what] for a, b in zip(before[end], after[end], strict=True)]

    wiring = hub.wiring
    uplinks = [end.wire.link for end in hub.uplinks]
    wires = {"rank": wiring.sends, "port": wiring.receives}
    names = {end: [wire.link for wire in of] for end, of in wires.items()} | {"uplink": uplinks}
    drops = [
        (link, packets)
        for end, links in names.items()
        for link, packets in zip(links, added(end, "drops"), strict=True)
    ]
    return {
        "sent": added("rank", "data"),
        "received": added("port", "data"),
        "ack_sent": added("rank", "ack"),
        "ack_received": added("port", "ack"),
        "dropped": {link: packets for link, packets in drops if packets},
        "uplinks": dict(zip(uplinks, added("uplink", "data"), strict=True)),
        "settled": before["settled"] and after["settled"],
    }
