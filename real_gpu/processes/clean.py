"""Ends what a killed run left behind, and only that.

Nothing should be left: ranks end with their launcher, and a shaped network, having no name, with
its last process. No files are made but those the user named. This is for the day it fails.
"""

from __future__ import annotations

import contextlib

from real_gpu.processes.measure import MARK, psutil


def clean() -> list[int]:
    """The process ids that were ours, had lost their launcher, and have been ended."""
    ended = []
    for process in psutil().process_iter():
        with contextlib.suppress(psutil().Error, OSError):
            if _orphan(process.environ().get(MARK)):
                process.kill()
                ended.append(process)
    psutil().wait_procs(ended, timeout=5)
    return [process.pid for process in ended]


def _orphan(mark: str | None) -> bool:
    """Whether the launcher that a mark names is gone."""
    if mark is None:
        return False
    pid, _, created_s = mark.partition(":")
    try:
        return bool(abs(psutil().Process(int(pid)).create_time() - float(created_s)) > 2)
    except psutil().NoSuchProcess:
        return True
    except ValueError:
        return False
