"""Makes runs fail in every way, again and again, and looks for what is left.

    python -m tests.soak [--times 100] [--seed 0] [--out docs/reports/soak.md]

Outside the suite: 100 times take about twenty minutes. Each time a run of two ranks is started.
``ENDINGS`` end it, over loopback or the shaped network, after a random part of its first seconds,
while it starts, connects or sends: it must end within 15 s with one line and status 1.
``BEGINNINGS`` give it what cannot work: it must end with one line, and status 1, or 2 where that
is the input's fault. None may leave a process, interface, namespace or file. Exits with 1 if one
did not do so.
"""

from __future__ import annotations

import argparse
import platform
import random
import signal
import socket
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
from tests.launched import Processes
from tests.long_run import WITHIN_S, Run, interfaces

MOST_DELAY_S = 6.0  # by then the ranks have sent for seconds
STARTS_WITHIN_S = 60  # a run that fails by itself, the import of torch included


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


ENDINGS: dict[str, Callable[[Run], str]] = {
    "a rank killed": kill_a_rank,
    "SIGINT": interrupt,
    "Ctrl-C twice, to the whole group": interrupt_twice,
    "SIGTERM": terminate,
    "the launcher killed": kill_the_launcher,
}


def port_in_use(folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        _fails(Run(folder, None, "--port", port), f"port {port} on 127.0.0.1 cannot be used", 1)


def missing_interface(folder: Path) -> None:
    run = Run(folder, None, GLOO_SOCKET_IFNAME="eth99")
    _fails(run, "GLOO_SOCKET_IFNAME 'eth99' is not here", 2)


def _fails(run: Run, message: str, status: int) -> None:
    try:
        run.check_ended(message, status, STARTS_WITHIN_S)
    finally:
        run.end()


OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount")


def no_shared_memory(folder: Path) -> None:
    """Nothing needs it: the run goes through."""
    full = "mount -t tmpfs -o size=4k,nr_inodes=2 none /dev/shm && cp /etc/hostname /dev/shm/full"
    run = Run(
        folder, None, "--runs", "1", before=(*OWN_MOUNTS, "sh", "-c", f'{full} && exec "$0" "$@"')
    )
    try:
        _, complaints = run.process.communicate(timeout=STARTS_WITHIN_S)
        assert run.process.returncode == 0, complaints
        assert run.ours() == []
        (folder / "record.json").unlink()
    finally:
        run.end()


RING = "run ring --gpus 2 --size 64KiB --runs 100000 --out record.json"


def unlike(old: str, new: str, says: str, both: bool = False) -> Callable[[Path], None]:
    """Two ranks as torchrun starts them, of which one, or both, got another command."""

    def fault(folder: Path) -> None:
        other, commands = RING.replace(old, new), [RING, RING]
        commands[0 if both else 1] = commands[1] = other
        run = Processes(folder, commands)
        ended = run.end(STARTS_WITHIN_S)
        assert ended.status == [2, 2], ended
        assert says in ended.said, ended
        assert len(ended.said.splitlines()) == 1, ended
        ranks = [p for child in psutil.Process().children() for p in child.children()]
        assert ranks == [], ranks

    return fault


BEGINNINGS: dict[str, Callable[[Path], None]] = {
    "a port in use": port_in_use,
    "a wrong world size": unlike("--gpus 2", "--gpus 3", "torchrun started 2", both=True),
    "a rank with another size": unlike("64KiB", "32KiB", "rank 1 was given --size 32KiB"),
    "a rank with another dtype": unlike(
        "--out", "--dtype float64 --out", "rank 1 was given --dtype float64"
    ),
    "a missing interface": missing_interface,
    "/dev/shm too small (runs through)": no_shared_memory,
}
FAULTS = (*ENDINGS, *BEGINNINGS)


def possible() -> list[str]:
    """The faults that can be made here."""
    own = subprocess.run([*OWN_MOUNTS, "true"], capture_output=True, check=False).returncode == 0
    return [name for name in FAULTS if own or BEGINNINGS.get(name) is not no_shared_memory]


def network_namespaces(processes: Iterable[psutil.Process]) -> set[str]:
    """Those that any of the processes is in."""
    found = set()
    for process in processes:
        try:
            found.add(Path(f"/proc/{process.pid}/ns/net").readlink().name)
        except OSError:
            continue
    return found


def begun(fault: str) -> float:
    """Seconds that a run took to fail from its start; an ``AssertionError`` as ``once`` has it."""
    here, start_s = interfaces(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            BEGINNINGS[fault](Path(folder))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended after {STARTS_WITHIN_S} s") from None
        took_s = time.monotonic() - start_s
        left = [path.name for path in Path(folder).iterdir()]
    assert left == [], left
    assert interfaces() == here
    return took_s


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
            message = ENDINGS[fault](run)
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
            "# Soak: runs that fail in every way, or are ended at random moments",
            "",
            f"`{command}`, {datetime.now(UTC).date()}, Linux {kernel}, {psutil.cpu_count()} cores.",
            f"A run that is ended must end within {WITHIN_S} s with one line and status 1. A run",
            "that cannot work must end with one line and status 1, or 2 for bad input; its time",
            "counts from its start, torch's import included. None may leave a process, interface,",
            "namespace or file. (A launcher that is killed says nothing; a run needs no /dev/shm.)",
            "",
            "| fault | network | times | slowest |",
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
    failures, faults = [], possible()
    for number in range(args.times):
        fault, turn = faults[number % len(faults)], number // len(faults)
        network = networks[turn % len(networks)] if fault in ENDINGS else None
        where, delay_s = network or "loopback", random.uniform(0, MOST_DELAY_S)
        try:
            took_s = once(fault, network, delay_s) if fault in ENDINGS else begun(fault)
            times[fault, where].append(took_s)
            outcome = f"ended after {took_s:.1f} s"
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
