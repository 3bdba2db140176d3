"""The shaped network's own checks: without them no number of it is to be believed."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from real_gpu.job import (
    ITEMSIZE,
    Case,
    CaseResult,
    Job,
    Network,
)
from real_gpu.network.probes import (
    CALIBRATION,
    calibration_schedule,
    each_run,
    link_times,
    named,
    unfilled,
    wires_alone,
)
from simcore.cluster import Cluster
from simcore.engine import simulate
from simcore.units import FRAME_FACTOR

CALIBRATE_S, CALIBRATE_RUNS = 0.5, 5
# At least what makes a packet ahead of its time small; at most what any machine has room for.
_LEAST_CALIBRATE_BYTES, _MOST_CALIBRATE_BYTES = 2**20, 2**26
MOST_SPREAD, MOST_RATE_ERROR = 0.05, 0.01
_MUCH_WAITING = 0.005  # of a run: less explains nothing
_SURELY_IN = 0.99  # of a run: a change due later may find that it has ended


def calibration(network: Network) -> Case:
    """Traffic that fills every link of the network, to see the rate that it has."""
    payload = _fastest(network) * CALIBRATE_S / FRAME_FACTOR
    payload = min(max(payload, _LEAST_CALIBRATE_BYTES), _MOST_CALIBRATE_BYTES)
    elements = round(payload / ITEMSIZE["float32"])
    plain = "ports" not in network.document and not network.document.get("levels")
    runs = CALIBRATE_RUNS if plain else 3  # of several steps each
    return Case(CALIBRATION, elements, "float32", runs, spans=True, fills=network.document)


def _fastest(network: Network) -> float:
    """Of all ports, in bytes per second; how many ranks there are need not be known."""
    n = len(network.document.get("ports", [])) or network.document.get("gpus", 1)
    bare = {k: v for k, v in network.document.items() if k not in ("levels", "pair_latency")}
    ports = Network(network.text, bare).cluster(n).ports
    return max(max(p.send_bytes_per_s, p.receive_bytes_per_s) for p in ports)


def instrument(job: Job, result: CaseResult, calibrated: CaseResult | None) -> dict[str, Any]:
    """Every check's figure, and a reason for each that failed."""
    spread = (max(result.runs_s) - min(result.runs_s)) / median(result.runs_s)
    dropped: dict[str, int] = {}
    for run in result.counters:
        for link, packets in run["dropped"].items():
            dropped[link] = dropped.get(link, 0) + packets
    reasons = []
    if spread > MOST_SPREAD:
        reasons.append(f"runs spread by {spread:.1%} of their median, above {MOST_SPREAD:.0%}")
    if dropped:
        reasons.append(f"{sum(dropped.values())} packets were dropped at {named(list(dropped))}")
    settled = all(run["settled"] for run in result.counters)
    if not settled:
        reasons.append("counters had not settled")
    waited_s = [max(run["waited_s"], default=0.0) for run in result.counters]
    found = {
        "drops": sum(dropped.values()),
        "spread": spread,
        "settled": settled,
        "cpu_wait_s": max(waited_s, default=0.0),
    }
    for more, why in (_rates(job, calibrated), _changes(job, result), _uplinks(result)):
        found |= more
        reasons += why
    if reasons and found["cpu_wait_s"] > _MUCH_WAITING * median(result.runs_s):
        reasons.append(
            f"ranks waited up to {found['cpu_wait_s'] * 1e3:.0f} ms of a run for a CPU: "
            "a quieter machine, fewer ranks or a slower network may help"
        )
    return {"ok": not reasons, "reasons": reasons} | found


Found = tuple[dict[str, Any], list[str]]


def _rates(job: Job, calibrated: CaseResult | None) -> Found:
    """How fast every link really is."""
    if calibrated is None or job.network is None:
        return {}, []
    cluster = job.network.cluster(job.n)
    errors = rate_errors(cluster, calibration(job.network).elements, calibrated)
    links = {
        link: {"rate_bytes_per_s": rate, "rate_error": error, "median_rate_error": usual}
        for link, (rate, error, usual) in errors.items()
    }
    if not links:
        return {}, []
    worst = max(links.values(), key=lambda link: abs(link["rate_error"]))
    off = {name: e for name, (_, e, _) in errors.items() if abs(e) > MOST_RATE_ERROR}
    # Not of those again whose fastest run is off already.
    late = {n: e for n, (*_, e) in errors.items() if abs(e) > MOST_SPREAD and n not in off}
    reasons = []
    if off:
        most = max(off.values(), key=abs)
        up_to = "up to " if len(off) > 1 else ""
        run = "runs" if len(off) == 1 else "run"
        reasons.append(f"{named(list(off))} {run} {up_to}{most:+.1%} off the rate that was set")
    if late:
        most = max(late.values(), key=abs)
        reasons.append(
            f"{named(list(late))}: only the fastest runs have the rate that was set, "
            f"the median is {most:+.1%} off"
        )
    found: dict[str, Any] = {**worst, "links": links}
    return found | ({"unfilled": rest} if (rest := unfilled(cluster)) else {}), reasons


def rate_errors(
    cluster: Cluster, elements: int, calibrated: CaseResult
) -> dict[str, tuple[float, float, float]]:
    """Each link's rate in bytes of frames per second, how far that is off the set one, and how
    far the median run is.

    The fastest of a few runs says what rate the link has: noise on the machine can only slow a
    transfer down. What slows most of them down is no noise.
    """
    schedule, itemsize = calibration_schedule(cluster), ITEMSIZE["float32"]
    bare = wires_alone(cluster)
    simulated = link_times(bare, simulate(schedule, bare, elements, itemsize).trace.spans)
    runs = [
        link_times(cluster, spans) for spans in each_run(calibrated.spans, len(calibrated.runs_s))
    ]
    errors: dict[str, tuple[float, float, float]] = {}
    for (link, step), (nbytes, seconds) in simulated.items():
        took_s = [run[link, step][1] for run in runs]
        rate = nbytes * FRAME_FACTOR / min(took_s)
        error, usual = seconds / min(took_s) - 1, seconds / median(took_s) - 1
        errors[link] = max(errors.get(link, (0.0, -1.0, -1.0)), (rate, error, usual))
    return errors


def _changes(job: Job, result: CaseResult) -> Found:
    """Whether every change of a link was made, in time, and is the one asked for."""
    if job.network is None or not job.network.slow_links:
        return {}, []
    made = [change for run in result.counters for change in run["changes"]]
    late_s = max((change["late_s"] for change in made), default=0.0)
    reasons = [
        f"{change['link']} was set to {change['wanted_bytes_per_s']:.0f} bytes/s, "
        f"and read back as {change['bytes_per_s']:.0f}"
        for change in made
        if abs(change["bytes_per_s"] / change["wanted_bytes_per_s"] - 1) > MOST_RATE_ERROR
    ]
    if late_s > MOST_RATE_ERROR * median(result.runs_s):
        reasons.append(f"a link changed {late_s * 1e3:.1f} ms after its moment")
    if missing := _not_made(job.network, job.n, result):
        reasons.append(f"not every change was made in every run: {named(missing)}")
    last = result.counters[-1]["changes"] if result.counters else []
    return {"changes": last, "change_late_s": late_s}, reasons


def _not_made(network: Network, n: int, result: CaseResult) -> list[str]:
    """The links of which a run lacks a change that was due well before its end."""
    due = [(wire.link, at_s) for wire in network.wiring(n).wires for at_s, _ in wire.changes]
    missing = set()
    for run, run_s in zip(result.counters, result.runs_s, strict=False):
        made = {(change["link"], change["at_s"]) for change in run["changes"]}
        missing |= {
            link for link, at_s in due if at_s < _SURELY_IN * run_s and (link, at_s) not in made
        }
    return sorted(missing)


def _uplinks(result: CaseResult) -> Found:
    """Bytes of frames over each node's uplink in a run."""
    links = result.counters[-1]["uplinks"] if result.counters else {}
    counted = {
        link: int(np.median([run["uplinks"][link] for run in result.counters])) for link in links
    }
    return ({"uplink_bytes": counted} if counted else {}), []
