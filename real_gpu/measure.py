"""Runs a job here or in namespaces of its own, and refuses what the machine cannot bear."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any

from real_gpu.job import VENDOR, Case, CaseResult, Job, RunError
from real_gpu.launch import launch
from real_gpu.ranks import signals_held
from real_gpu.shaped import namespace_command, package_path, why_not
from simcore.units import format_bytes

MOST_RANKS = 64
_RANK_BYTES = 250e6  # a process with torch imported
MARK = "SYNCSCOPE_RUN"  # in the environment of every process of ours, for `clean`


def measure(job: Job) -> list[CaseResult]:
    """The results of the job's cases, in order; a failure is a ``RunError`` and leaves nothing."""
    check_bearable(job)
    os.environ[MARK] = mark()
    if job.network is None:
        return launch(job)
    if reason := why_not():
        raise RunError(reason)
    answer, complaints = _inside(job)
    if not answer:
        last = (complaints.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"the launcher inside the namespaces ended early ({last})")
    outcome = json.loads(answer)
    if "error" in outcome:
        raise RunError(outcome["error"])
    return [CaseResult(**result) for result in outcome["results"]]


def _inside(job: Job) -> tuple[str, str]:
    """Run the job in namespaces: the answer's line, and what was said on standard error."""
    process = None
    try:
        with signals_held():
            process = subprocess.Popen(
                [*namespace_command(), sys.executable, "-m", "real_gpu.inside"],
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
        answer = process.stdout.readline()
    finally:
        if process is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            # Returns when nobody holds the pipes any more, that is when every process is gone.
            _, complaints = process.communicate()
    return answer, complaints


def check_bearable(job: Job) -> None:
    """Refuse more processes or memory than this machine has, before starting any."""
    if job.n > MOST_RANKS:
        raise RunError(
            f"{job.n} ranks are more than this machine bears; accepted: 1 to {MOST_RANKS}"
        )
    available = psutil().virtual_memory().available
    for case in job.cases:
        fan_in = case.size_bytes * job.n if case.name == "ps" else 0  # at the root alone
        needed = job.n * (_RANK_BYTES + _bytes_per_rank(case)) + fan_in
        if needed > 0.9 * available:
            raise RunError(
                f"{job.n} ranks with {format_bytes(case.size_bytes)} each need about "
                f"{needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} GB are available; "
                "ask for fewer ranks or a smaller size"
            )


def _bytes_per_rank(case: Case) -> float:
    """Input, buffer, scratch, reference, and room to compare; a library's sum in 64 bits."""
    if case.training is not None:
        return 3 * case.size_bytes  # parameters, gradients, buckets
    return (
        5 * case.size_bytes if case.name not in VENDOR else 2 * case.size_bytes + 32 * case.elements
    )


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
