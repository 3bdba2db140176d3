"""How fast the core is, with the work counted: ``python benchmarks/core.py [--quick]``.

A table of medians over fresh processes, with the peak memory of each. Nothing here passes or
fails: times depend on the machine, the counted work does not. ``--quick`` runs each case once.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 1 if "--quick" in sys.argv else 5
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent  # where the processes run, so that a checkout need not be installed

# Each case is run by a fresh interpreter, which prints seconds, messages, events, MiB as JSON.
PROLOGUE = """
import json, resource, sys, time
import numpy as np
def report(begin, messages=None, events=None):
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([time.perf_counter() - begin, messages, events, mib]))
"""
SIMULATE = """
from simcore import build_schedule, load_cluster, simulate, uniform
schedule = build_schedule({name!r}, {n}, **{flags})
cluster = load_cluster({preset!r}, schedule.n) if {preset!r} else uniform(
    schedule.n, 25e9, latency_s=5e-6)
begin = time.perf_counter()
run = simulate(schedule, cluster, {size} // 4, keep="totals", solver={solver!r},
               starts_s=np.arange(schedule.n) * {stagger})
report(begin, run.transfers, run.events)
"""
BASELINE = """
sys.path.insert(0, {here!r})
import baselines
begin = time.perf_counter()
_, events = baselines.{loop}({n}, 2 * ({n} - 1), {size} / {n} / 25e9, 5e-6,
                             [r * {stagger} for r in range({n})])
report(begin, 2 * ({n} - 1) * {n}, events)
"""
IMPORT = """
begin = time.perf_counter()
import simcore
report(begin)
"""
GIB = 2**30
# Sizes that the ranks divide: unequal chunks make nearly every message an instant of its own.
NODES_OF_4 = 2160 * 500_000


def case(
    name: str,
    n: int,
    *,
    solver: str = "auto",
    stagger: float = 0.0,
    size: int = GIB,
    preset: str = "",
    **flags: int,
) -> str:
    return SIMULATE.format(**locals())


def baseline(loop: str, n: int, stagger: float = 0.0) -> str:
    return BASELINE.format(loop=loop, n=n, stagger=stagger, size=GIB, here=str(HERE))


LATE = 7e-9
CASES = {
    "import simcore, above numpy": IMPORT,
    "automatic: ring 256": case("ring", 256),
    "automatic: ring 1,024": case("ring", 1024),
    "automatic: ring 1,024, staggered by 7 ns": case("ring", 1024, stagger=LATE),
    "automatic: ring 1,024, 1 GB (unequal chunks)": case("ring", 1024, size=10**9),
    "automatic: ring 4,096": case("ring", 4096),
    "automatic: ring 4,096, 1 GB (unequal chunks)": case("ring", 4096, size=10**9),
    "automatic: ring 16,384": case("ring", 16384),
    "automatic: ring 16,384, staggered": case("ring", 16384, stagger=LATE),
    "automatic: ps 1,024": case("ps", 1024),
    "automatic: dp 1,024": case("dp", 1024),
    "automatic: ps-sharded 1,024": case("ps-sharded", 1024),
    "automatic: tree 4,096": case("tree", 4096),
    "automatic: halving-doubling 4,096": case("halving-doubling", 4096),
    "automatic: pairwise 1,024": case("pairwise", 1024),
    "540 nodes of 4, flat ring": case("ring", 2160, preset="a100-4-per-node", size=NODES_OF_4),
    "540 nodes of 4, hierarchical": case(
        "hierarchical", 2160, preset="a100-4-per-node", size=NODES_OF_4, gpus_per_node=4
    ),
    "events: ring 256": case("ring", 256, solver="events"),
    "events: ring 1,024": case("ring", 1024, solver="events"),
    "events: ring 128, staggered": case("ring", 128, solver="events", stagger=LATE),
    "events: ring 256, staggered": case("ring", 256, solver="events", stagger=LATE),
    "events: ring 1,024, staggered": case("ring", 1024, solver="events", stagger=LATE),
    "heapq loop: ring 128, staggered": baseline("heapq_ring", 128, LATE),
    "heapq loop: ring 1,024": baseline("heapq_ring", 1024),
    "heapq loop: ring 1,024, staggered": baseline("heapq_ring", 1024, LATE),
    "SimPy: ring 128, staggered": baseline("simpy_ring", 128, LATE),
    "SimPy: ring 256, staggered": baseline("simpy_ring", 256, LATE),
}
COMMAND = ["simulate", "ring", "--gpus", "1024", "--size", "1GB", "--bandwidth", "25GB/s", "--json"]

Row = tuple[float, int | None, int | None, float]


def measure(code: str) -> Row:
    command = [sys.executable, "-c", PROLOGUE + code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    seconds, messages, events, mib = json.loads(done.stdout)
    return seconds, messages, events, mib


def measure_command() -> Row:
    begin = time.perf_counter()
    command = [sys.executable, "-m", "simcore", *COMMAND]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    return time.perf_counter() - begin, document["transfers"], document["events"], 0.0


def row(name: str, runs: list[Row]) -> str:
    seconds = [run[0] for run in runs]
    messages, events = runs[0][1:3]
    median, mib = statistics.median(seconds), max(run[3] for run in runs)
    work = f"{messages or 0:>13,} {events or 0:>11,} {(messages or 0) / median / 1e6:>8.2f}"
    return f"{name:46} {median:9.4f} {min(seconds):9.4f} {max(seconds):9.4f} {work} {mib:6.0f}"


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}, {RUNS} fresh processes each")
    names = ("median s", "min", "max", "messages", "events", "M msg/s", "MiB")
    print(f"{'':46} {{:>9}} {{:>9}} {{:>9}} {{:>13}} {{:>11}} {{:>8}} {{:>6}}".format(*names))
    print(
        row("python -m simcore simulate ring --gpus 1024", [measure_command() for _ in range(RUNS)])
    )
    for name, code in CASES.items():
        print(row(name, [measure(code) for _ in range(RUNS)]), flush=True)


if __name__ == "__main__":
    main()
