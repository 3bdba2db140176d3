"""A run that would take hours, as a process, to be ended in every way; for tests and the soak."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).resolve().parent.parent
WITHIN_S = 15


class Run:
    """A long run of two ranks as a process in a group of its own, and all that belongs to it."""

    def __init__(
        self,
        folder: Path,
        network: str | None,
        *words: str,
        before: tuple[str, ...] = (),
        **changes: str,
    ) -> None:
        """With more ``words`` for the command, others ``before`` it, a changed environment."""
        self.folder, self.interfaces = folder, interfaces()
        command = [*before, sys.executable, "-m", "real_gpu", "run", "ring", "--gpus", "2"]
        command += ["--size", "2MiB", "--runs", "100000", "--out", "record.json"]
        command += [*(["--network", network] if network else []), *words]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder)} | changes
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ours(self) -> list[psutil.Process]:
        """Living processes that carry this run's mark."""
        found = []
        for process in psutil.process_iter():
            try:
                mark = process.environ().get("SYNCSCOPE_RUN", "")
                if mark.startswith(f"{self.process.pid}:") and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def ranks(self) -> list[psutil.Process]:
        return [p for p in self.ours() if "real_gpu.processes.worker" in _command(p)]

    def wait_for_traffic(self) -> None:
        """Until both ranks are connected to each other and a while into their runs."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            ranks = self.ranks()
            if len(ranks) == 2 and all(_connected(p) for p in ranks):
                time.sleep(1)
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.2)
        raise AssertionError(f"the run did not start: {self.process.communicate()}")

    def send(self, *numbers: signal.Signals) -> None:
        """To the launcher alone."""
        for number in numbers:
            self.process.send_signal(number)

    def interrupt_group(self) -> None:
        """What Ctrl-C in a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def check_ended(self, message: str, status: int = 1, within_s: float = WITHIN_S) -> str:
        """It ends as it should in time and leaves nothing; returns what it said."""
        out, complaints = self.process.communicate(timeout=within_s)
        assert self.process.returncode == status, complaints
        assert out == ""
        assert message in complaints, complaints
        assert len(complaints.splitlines()) == (1 if status > 0 else 0), complaints
        if status < 0:  # killed: it could not wait for its own
            deadline = time.monotonic() + WITHIN_S
            while self.ours() and time.monotonic() < deadline:
                time.sleep(0.05)
        assert self.ours() == []
        assert list(self.folder.iterdir()) == []
        assert interfaces() == self.interfaces
        return complaints

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _connected(process: psutil.Process) -> bool:
    """Whether TCP connections are established in the process's network, and Gloo is at work."""
    try:
        table = Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]
        return process.num_threads() > 4 and any(line.split()[3] == "01" for line in table)
    except (psutil.Error, OSError):
        return False


def interfaces() -> set[str]:
    """Of this machine's own network."""
    return set(os.listdir("/sys/class/net"))
