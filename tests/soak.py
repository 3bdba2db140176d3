"""Ends runs at random moments in every way, again and again, and looks for what is left.

    python -m tests.soak [--times 100] [--seed 0] [--out docs/reports/soak.md]

Outside the suite: 100 times take about twenty minutes. Each time a run of two ranks is started,
over loopback or the shaped network, and ended by one of ``FAULTS`` after a random part of its
first seconds, while it starts, connects or sends. It must end within 15 s with one line and
status 1 and leave no process, interface, namespace or file. Exits with 1 if one did not.
"""

from __future__ import annotations

import argparse
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import psutil

from real_gpu.network.shaped import why_not
from tests.long_run import WITHIN_S, Run

MOST_DELAY_S = 6.0  # by then the ranks have sent for seconds


def kill_a_rank(run: Run) -> str:
    """The first or second rank, or the launcher inside the namespaces if there is none yet."""
    while not (ranks := run.ranks()):
        if run.process.poll() is not None:
            raise AssertionError("the run ended by itself")
        time.sleep(0.01)
    random.choice(ranks).kill()
    return "was killed by SIGKILL"


def interrupt(run: Run) -> str:
    run.send(signal.SIGINT)
    return "stopped by SIGINT"


def interrupt_twice(run: Run) -> str:
    run.interrupt_group()
    time.sleep(random.uniform(0, 0.2))
    if run.process.poll() is None:
        run.interrupt_group()
    return "stopped by SIGINT"


def terminate(run: Run) -> str:
    run.send(signal.SIGTERM)
    return "stopped by SIGTERM"


def kill_the_launcher(run: Run) -> str:
    run.process.kill()
    return ""


FAULTS: dict[str, Callable[[Run], str]] = {
    "a rank killed": kill_a_rank,
    "SIGINT": interrupt,
    "Ctrl-C twice, to the whole group": interrupt_twice,
    "SIGTERM": terminate,
    "the launcher killed": kill_the_launcher,
}


def network_namespaces(processes: Iterable[psutil.Process]) -> set[str]:
    """Those that any of the processes is in."""
    found = set()
    for process in processes:
        try:
            found.add(Path(f"/proc/{process.pid}/ns/net").readlink().name)
        except OSError:
            continue
    return found


def once(fault: str, network: str | None, delay_s: float) -> float:
    """Seconds from the fault to the end; an ``AssertionError`` for what is not as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), network)
        try:
            if fault != "a rank killed":
                _wait_until_it_listens(run)
            time.sleep(delay_s)
            made = network_namespaces(run.ours()) - network_namespaces([psutil.Process()])
            start_s = time.monotonic()
            message = FAULTS[fault](run)
            status = -signal.SIGKILL if fault == "the launcher killed" else 1
            run.check_ended(message, status)
            took_s = time.monotonic() - start_s
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended after {WITHIN_S} s") from None
        finally:
            run.end()
    assert not made & network_namespaces(psutil.process_iter()), "a network namespace is left"
    return took_s


def _wait_until_it_listens(run: Run) -> None:
    """Until the launcher handles signals: before, Python itself ends it, as any program."""
    status = Path(f"/proc/{run.process.pid}/status")
    while run.process.poll() is None:
        caught = next(x for x in status.read_text().splitlines() if x.startswith("SigCgt"))
        if int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.005)


def report(times: dict[tuple[str, str], list[float]], failures: list[str], command: str) -> str:
    kernel = platform.release().split("-")[0]
    rows = [
        f"| {fault} | {network} | {len(took)} | {max(took):.1f} s |"
        for (fault, network), took in sorted(times.items())
    ]
    return "\n".join(
        [
            "# Soak: runs ended in every way at random moments",
            "",
            f"`{command}`, {datetime.now(UTC).date()}, Linux {kernel}, {psutil.cpu_count()} cores.",
            f"Each run must end within {WITHIN_S} s with one line and status 1, and leave no",
            "process, interface, namespace or file. (A launcher that is killed says nothing.)",
            "",
            "| fault | network | times | slowest end |",
            "|---|---|---|---|",
            *rows,
            "",
            f"{sum(map(len, times.values()))} ended as they should, {len(failures)} did not.",
            *(f"- {failure}" for failure in failures),
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    random.seed(args.seed)
    networks = [None] if why_not() else [None, "200Mbit/s"]
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    failures = []
    for number in range(args.times):
        fault = list(FAULTS)[number % len(FAULTS)]
        network = networks[number // len(FAULTS) % len(networks)]
        where, delay_s = network or "loopback", random.uniform(0, MOST_DELAY_S)
        try:
            times[fault, where].append(once(fault, network, delay_s))
            outcome = f"ended after {times[fault, where][-1]:.1f} s"
        except AssertionError as error:
            outcome = f"{fault}, {where}, after {delay_s:.2f} s: {error}"
            failures.append(outcome)
        print(f"{number + 1}/{args.times} {fault}, {where}: {outcome}", flush=True)
    text = report(times, failures, f"python -m tests.soak --times {args.times} --seed {args.seed}")
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    print(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
