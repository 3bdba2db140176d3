"""How fast the core is, with the work counted: ``python benchmarks/core.py``.

A table of medians over five runs, each in a fresh process, with the peak memory of that process.
Nothing here passes or fails: times depend on the machine, the counted work does not.
"""

from __future__ import annotations

import json
import platform
import resource
import statistics
import subprocess
import sys
import time

RUNS = 5
GIGABYTE = 10**9

# name, what to run in a fresh interpreter; each prints (seconds, transfers, events) as JSON
SIMULATE = """
import time, numpy as np
from simcore.algorithms import build_schedule
from simcore.cluster import uniform
from simcore.engine import simulate
schedule, cluster = build_schedule({name!r}, {n}), uniform({n}, 25e9, latency_s=5e-6)
begin = time.perf_counter()
run = simulate(schedule, cluster, {size} // 4, keep="totals", solver={solver!r},
               starts_s=np.arange({n}) * {stagger})
import json
print(json.dumps([time.perf_counter() - begin, run.transfers, run.events]))
"""
IMPORT = """
import time, json
import numpy
begin = time.perf_counter()
import simcore
print(json.dumps([time.perf_counter() - begin, None, None]))
"""


def case(
    name: str, n: int, *, solver: str = "auto", stagger: float = 0.0, size: int = GIGABYTE
) -> str:
    return SIMULATE.format(name=name, n=n, solver=solver, stagger=stagger, size=size)


CASES = {
    "import simcore, above numpy": IMPORT,
    "ring, 1,024 GPUs, 1 GB": case("ring", 1024),
    "ring, 1,024 GPUs, staggered by 7 ns": case("ring", 1024, stagger=7e-9),
    "ring, 4,096 GPUs, 1 GB": case("ring", 4096),
    "ring, 1,024 GPUs, event solver, 2**30 bytes": case("ring", 1024, solver="events", size=2**30),
    "ring, 128 GPUs, event solver, staggered": case("ring", 128, solver="events", stagger=7e-9),
    "ps, 1,024 GPUs": case("ps", 1024),
    "dp, 1,024 GPUs": case("dp", 1024),
}
COMMAND = ["simulate", "ring", "--gpus", "1024", "--size", "1GB", "--bandwidth", "25GB/s", "--json"]


def measure(code: str) -> tuple[float, int | None, int | None]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, transfers, events = json.loads(done.stdout)
    return seconds, transfers, events


def measure_command() -> tuple[float, int, int]:
    begin = time.perf_counter()
    command = [sys.executable, "-m", "simcore", *COMMAND]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    return time.perf_counter() - begin, document["transfers"], document["events"]


def row(name: str, runs: list[tuple[float, int | None, int | None]]) -> str:
    seconds = [run[0] for run in runs]
    transfers, events = runs[0][1:]
    work = (
        f"{transfers:>12,} {events:>10,}"
        if transfers is not None and events is not None
        else " " * 23
    )
    median = statistics.median(seconds)
    return f"{name:46} {median:9.4f} {min(seconds):9.4f} {max(seconds):9.4f} {work}"


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}, {RUNS} runs each, seconds")
    print(f"{'':46} {'median':>9} {'min':>9} {'max':>9} {'transfers':>12} {'events':>10}")
    print(
        row(
            "python -m simcore " + " ".join(COMMAND[:4]) + " …",
            [measure_command() for _ in range(RUNS)],
        )
    )
    for name, code in CASES.items():
        print(row(name, [measure(code) for _ in range(RUNS)]), flush=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"largest process of all: {peak / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
