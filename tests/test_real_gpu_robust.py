"""However a run ends: a line that says so, status 1, within 15 s, and nothing left."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from real_gpu.shaped import why_not
from tests.support import require

psutil = pytest.importorskip("psutil", reason="pip install psutil")
REPOSITORY = Path(__file__).resolve().parent.parent
WITHIN_S = 15

pytestmark = [
    pytest.mark.gloo,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc: needs Linux"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="pip install torch"),
]


class Run:
    """A long run of two ranks as a process, and everything that belongs to it."""

    def __init__(self, folder: Path, network: str | None) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "real_gpu", "run", "ring", "--gpus", "2", "--size", "2MiB"]
        command += ["--runs", "100000", "--out", "record.json"]
        command += ["--network", network] if network else []
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
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
        return [p for p in self.ours() if "real_gpu.worker" in _command(p)]

    def wait_for_traffic(self) -> None:
        """Until both ranks are connected to each other and a while into their runs."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            ranks = self.ranks()
            if len(ranks) == 2 and all(_connected(p) for p in ranks):
                time.sleep(1)
                return
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.2)
        pytest.fail("the run did not start within 60 s")

    def check_ended(self, message: str) -> None:
        start_s = time.monotonic()
        out, complaints = self.process.communicate(timeout=WITHIN_S)
        assert time.monotonic() - start_s < WITHIN_S
        assert self.process.returncode == 1
        assert out == ""
        assert message in complaints
        assert len(complaints.splitlines()) == 1
        assert self.ours() == []  # at once: it waits for its own
        assert list(self.folder.iterdir()) == []

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


def _interfaces() -> set[str]:
    return set(os.listdir("/sys/class/net"))


@pytest.fixture(params=[None, "200Mbit/s"], ids=["loopback", "shaped"])
def run(request, tmp_path):
    if request.param:
        require("shaped", why_not())
    before = _interfaces()
    run = Run(tmp_path, request.param)
    yield run
    run.end()
    assert _interfaces() == before


def test_a_rank_is_killed(run):
    run.wait_for_traffic()
    run.ranks()[1].kill()
    run.check_ended("was killed by SIGKILL")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal(run, number):
    run.wait_for_traffic()
    run.process.send_signal(number)
    run.check_ended(f"stopped by {number.name}")


def test_a_signal_while_ranks_are_starting(run):
    deadline = time.monotonic() + 30
    while not run.ranks() and time.monotonic() < deadline:
        time.sleep(0.02)
    run.process.send_signal(signal.SIGINT)
    run.check_ended("stopped by SIGINT")


def test_the_launcher_itself_is_killed(run):
    run.wait_for_traffic()
    run.process.kill()
    run.process.communicate(timeout=WITHIN_S)  # returns when no process holds its pipes
    deadline = time.monotonic() + WITHIN_S
    while run.ours() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run.ours() == []
    assert list(run.folder.iterdir()) == []


def _cli(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "real_gpu", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_port_in_use(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        run = ("run", "ring", "--gpus", "2", "--size", "8B", "--out", "r.json", "--port", port)
        done = _cli(*run, cwd=tmp_path)
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 cannot be used: Address already in use" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_clean_ends_the_orphans_and_nobody_else(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    me = f"{os.getpid()}:{psutil.Process().create_time():.2f}"
    marks = {"orphan": f"{gone.pid}:1.00", "in use": me, "a stranger": None}
    started = {
        who: subprocess.Popen(sleep, env=os.environ | ({"SYNCSCOPE_RUN": mark} if mark else {}))
        for who, mark in marks.items()
    }
    try:
        time.sleep(0.5)
        done = _cli("clean", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert str(started["orphan"].pid) in done.stdout
        assert {who for who, p in started.items() if p.poll() is None} == {"in use", "a stranger"}
        assert _cli("clean", cwd=tmp_path).stdout == "nothing was left behind\n"
    finally:
        for process in started.values():
            process.kill()
            process.wait()
