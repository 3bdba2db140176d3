"""Whatever process of a shaped run is killed, and when: nothing of the run is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from real_gpu.network.shaped import why_not
from tests.support import require

psutil = pytest.importorskip("psutil", reason="pip install psutil")
pytest.importorskip("torch", reason="pip install torch")
REPOSITORY = Path(__file__).resolve().parent.parent
WITHIN_S = 15
ENVIRONMENT = os.environ | {"PYTHONPATH": str(REPOSITORY)}

pytestmark = [
    pytest.mark.shaped,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc: needs Linux"),
]

# As somebody who is not root, where the tests are.
WITHOUT_ROOT = "import os, sys; os.geteuid = lambda: 1000; import real_gpu.__main__ as m; "
RUN = ["run", "ring", "--gpus", "2", "--size", "2MiB", "--network", "200Mbit/s", "--out", "r.json"]


class Tree:
    """A shaped run as a process, everything that belongs to it, and the namespaces it is in."""

    def __init__(self, folder: Path, as_root: bool) -> None:
        call = ["-m", "real_gpu"] if as_root else ["-c", WITHOUT_ROOT + "sys.exit(m.main())"]
        self.launcher = subprocess.Popen(
            [sys.executable, *call, *RUN, "--runs", "100000"],
            cwd=folder,
            env=ENVIRONMENT | {"TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mark = process.environ().get("SYNCSCOPE_RUN", "")
                if mark.startswith(f"{self.launcher.pid}:") and process.status() != "zombie":
                    yield process

    def of(self, program: str) -> list[psutil.Process]:
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if program in (words[0], words[2] if len(words) > 2 else ""):
                    found.append(process)
        return found

    def wait_for_wires(self) -> None:
        """Until both ranks have their ends of the network."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            ranks = self.of("real_gpu.processes.worker")
            if len(ranks) == 2 and all(_has_wire(rank.pid) for rank in ranks):
                return
            assert self.launcher.poll() is None, self.launcher.communicate()
            time.sleep(0.02)
        pytest.fail("the run made no network within 60 s")

    def namespaces(self) -> set[str]:
        """Of its processes, those that are not this one's."""
        return {ns for p in self.processes() for ns in _namespaces(p.pid)} - _namespaces("self")


def _namespaces(pid: int | str) -> set[str]:
    with contextlib.suppress(OSError):
        return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "pid", "user")}
    return set()


def _has_wire(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "rank" in Path(f"/proc/{pid}/net/dev").read_text()
    return False


def _in(namespaces: set[str]) -> list[psutil.Process]:
    """Whoever is in one of them, marked or not; the kernel gives a namespace's number again."""
    return [p for p in psutil.process_iter() if _namespaces(p.pid) & namespaces]


def _alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != "zombie":
                found.append(process)
    return found


def _kept_alive() -> list[str]:
    """Namespaces that a mount holds although no process is in them."""
    return [x for x in Path("/proc/self/mountinfo").read_text().splitlines() if " nsfs " in x]


@pytest.mark.parametrize(
    ("as_root", "victim", "says"),
    [
        (True, "unshare", "ended early"),
        (True, "real_gpu.processes.inside", "ended early"),
        (False, "launcher", None),
        (False, "unshare", "ended early"),
        (False, "real_gpu.processes.inside", "ended early"),
        (False, "real_gpu.processes.worker", "was killed by SIGKILL"),
    ],
)
def test_nothing_is_left(as_root, victim, says, tmp_path):
    if as_root and os.geteuid():
        pytest.skip("as root, which this is not")
    require("shaped", why_not())
    interfaces, kept = set(os.listdir("/sys/class/net")), _kept_alive()
    tree = Tree(tmp_path, as_root)
    try:
        tree.wait_for_wires()
        namespaces = tree.namespaces()
        assert len(namespaces) >= 4  # network of the switch and of each rank, processes
        inside = _in(namespaces)
        pid = tree.launcher.pid if victim == "launcher" else tree.of(victim)[0].pid
        os.kill(pid, signal.SIGKILL)
        out, complaints = tree.launcher.communicate(timeout=WITHIN_S)
        if says:
            assert (tree.launcher.returncode, out) == (1, "")
            assert says in complaints
            assert len(complaints.splitlines()) == 1
        deadline = time.monotonic() + WITHIN_S
        while _alive([*tree.processes(), *inside]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _alive([*tree.processes(), *inside]) == []
        assert _kept_alive() == kept
        assert set(os.listdir("/sys/class/net")) == interfaces
        assert list(tmp_path.iterdir()) == []
    finally:
        tree.launcher.kill()
        tree.launcher.communicate()


def test_clean_ends_a_real_orphan(tmp_path):
    """A process that a run started and that outlived it: its launcher was killed by SIGKILL."""
    program = """
import os, signal, subprocess, sys
from real_gpu.processes.measure import MARK, mark
os.environ[MARK] = mark()
quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleep, start_new_session=True, **quiet)
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run(
        [sys.executable, "-c", program],
        env=ENVIRONMENT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    orphan = psutil.Process(int(died.stdout))
    try:
        assert orphan.is_running()
        done = subprocess.run(
            [sys.executable, "-m", "real_gpu", "clean", "--json"],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert str(orphan.pid) in done.stdout
        assert not orphan.is_running() or orphan.status() == "zombie"
    finally:
        with contextlib.suppress(psutil.Error):
            orphan.kill()
