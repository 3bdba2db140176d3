"""Runs a job here or in namespaces of its own, and refuses what the machine cannot bear."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from typing import Any

from real_gpu.backends import with_hint
from real_gpu.job import COLLECTIVES, TRAININGS, Case, CaseResult, Job, RunError, workers
from real_gpu.network.interfaces import NCCL_VARIABLE, interface_for_nccl
from real_gpu.network.shaped import namespace_command, package_path, why_not
from real_gpu.processes.launch import launch
from real_gpu.processes.ranks import signals_held
from simcore.units import format_bytes

OnResult = Callable[[CaseResult], None]
MOST_RANKS = 64
_RANK_BYTES = 250e6  # a process with torch imported
MARK = "SYNCSCOPE_RUN"  # in the environment of every process of ours, for `clean`


def measure(job: Job, on_result: OnResult | None = None) -> list[CaseResult]:
    """The results of the job's cases, in order; a failure is a ``RunError`` and leaves nothing.

    ``on_result`` hears of each result as it comes; what it raises ends the run.
    """
    check_bearable(job)
    os.environ[MARK] = mark()
    if job.backend == "device":
        from real_gpu.device import device

        return device.launch(job, on_result)
    if job.backend == "nccl":
        os.environ[NCCL_VARIABLE] = interface_for_nccl()
    if job.network is None:
        try:
            return launch(job, on_result=on_result)
        except RunError as error:
            raise RunError(with_hint(str(error), job.backend, os.environ)) from None
    if reason := why_not():
        raise RunError(reason)
    results: list[CaseResult] = []

    def take(line: str) -> None:
        if not line.endswith("\n"):
            return  # it was ended in the middle of the line
        outcome = json.loads(line)
        if "error" in outcome:
            raise RunError(outcome["error"])
        results.append(CaseResult(**outcome["result"]))
        if on_result:
            on_result(results[-1])

    complaints = _inside(job, take)
    if len(results) < len(job.cases):
        last = (complaints.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"the launcher inside the namespaces ended early ({last})")
    return results


def _inside(job: Job, take: Callable[[str], None]) -> str:
    """Run the job in namespaces, hand over every line of answer; what it says on its error."""
    process = None
    try:
        with signals_held():
            process = subprocess.Popen(
                [*namespace_command(), sys.executable, "-m", "real_gpu.processes.inside"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": package_path()},
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):  # if it has ended already, the answer is empty
            process.stdin.write(json.dumps(job.to_json()) + "\n")
            process.stdin.flush()  # and stays open: the end of it is the end of the run
        for line in process.stdout:
            take(line)
    finally:
        if process is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            # Returns when nobody holds the pipes any more, that is when every process is gone.
            _, complaints = process.communicate()
    return complaints


def check_bearable(
    job: Job, available: float | None = None, here: Collection[int] | None = None
) -> None:
    """Refuse more processes or memory than a machine has, before starting any: this one with all
    the ranks, unless another's ``available`` bytes and the ranks ``here`` are given.
    """
    count = job.n if here is None else len(here)
    one_process = job.backend == "device"
    if count > MOST_RANKS and not one_process:
        raise RunError(
            f"{count} ranks are more than this machine bears; accepted: 1 to {MOST_RANKS}"
        )
    if available is None:
        available = psutil().virtual_memory().available
    for case in job.cases:
        held = count * _bytes_per_rank(case) + _fan_in_bytes(case, job.n, here)
        needed = (1 if one_process else count) * _RANK_BYTES + held
        if needed > 0.9 * available:
            raise RunError(
                f"{count} ranks with {format_bytes(case.size_bytes)} each need about "
                f"{needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} GB are available; "
                "ask for fewer ranks or a smaller size"
            )


def _fan_in_bytes(case: Case, n: int, here: Collection[int] | None) -> float:
    """What all the others send at once to the roots that are on this machine."""
    if case.name == "ps-dedicated":  # each server has its part of the buffer
        roots = range(workers(case, n), n)
        of_one = case.size_bytes * workers(case, n) / max(1, len(roots))
    elif case.name in ("ps", "torch.ps", "torch.ps-async"):
        root = case.flags.get("root", 0)
        roots, of_one = range(root, root + 1), case.size_bytes * (n - 1)
    else:
        return 0.0
    return of_one * sum(here is None or root in here for root in roots)


def _bytes_per_rank(case: Case) -> float:
    """Input, buffer, scratch, reference, and room to compare; a library's sum in 64 bits."""
    if case.training is not None:
        return 3 * case.size_bytes  # parameters, gradients, buckets
    if case.name in TRAININGS:
        return 10 * case.size_bytes  # the same, the start, the reference, and both compared
    if case.name in COLLECTIVES:
        return 3 * case.size_bytes + 32 * case.elements
    return 5 * case.size_bytes


def psutil() -> Any:
    """The package, which an installation without the extra 'real' lacks."""
    try:
        import psutil
    except ImportError:
        raise RunError("psutil is not installed: pip install psutil") from None
    return psutil


def mark() -> str:
    """Names this process, so that `clean` can tell a dead run's processes from a live one's."""
    return f"{os.getpid()}:{psutil().Process().create_time():.2f}"
