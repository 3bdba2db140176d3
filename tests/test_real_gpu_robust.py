"""However a run ends: a line that says so, status 1, within 15 s, and nothing left."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from real_gpu.network.shaped import why_not
from real_gpu.processes.ranks import signals_held
from tests.support import require

psutil = pytest.importorskip("psutil", reason="pip install psutil")

from tests import soak  # noqa: E402
from tests.long_run import REPOSITORY, Run  # noqa: E402

pytestmark = [
    pytest.mark.gloo,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc: needs Linux"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="pip install torch"),
]


@pytest.fixture(params=[None, "200Mbit/s"], ids=["loopback", "shaped"])
def run(request, tmp_path):
    if request.param:
        require("shaped", why_not())
    run = Run(tmp_path, request.param)
    yield run
    run.end()


def test_a_rank_is_killed(run):
    """The line names the rank, and what a peer of it was doing, with whom and in which step."""
    run.wait_for_traffic()
    run.ranks()[1].kill()
    said = run.check_ended("was killed by SIGKILL during '")
    if "'run'" in said:  # else it died between two runs, when nobody talked to it
        where = r"rank ([01]) was killed.*; rank ([01]) was at step [01], (sending|receiving) "
        found = re.search(where + r"chunk [01] (to|from) rank ([01])\b", said)
        assert found, said
        assert found[1] == found[5] != found[2]


ENDINGS = {
    "SIGINT": lambda run: run.send(signal.SIGINT),
    "SIGTERM": lambda run: run.send(signal.SIGTERM),
    "SIGINT twice": lambda run: run.send(signal.SIGINT, signal.SIGINT),
    "Ctrl-C in a terminal, twice": lambda run: (run.interrupt_group(), run.interrupt_group()),
}


@pytest.mark.parametrize("ending", list(ENDINGS))
def test_a_signal(run, ending):
    run.wait_for_traffic()
    ENDINGS[ending](run)
    run.check_ended(f"stopped by {'SIGTERM' if ending == 'SIGTERM' else 'SIGINT'}")


def test_a_signal_while_ranks_are_starting(run):
    deadline = time.monotonic() + 30
    while not run.ranks() and time.monotonic() < deadline:
        time.sleep(0.02)
    run.send(signal.SIGINT)
    run.check_ended("stopped by SIGINT")


def test_a_signal_waits_whichever_thread_the_kernel_gives_it_to():
    """A thread of somebody else's takes it, and Python handles it in this one."""
    done, happened = threading.Event(), []
    other = threading.Thread(target=done.wait)
    other.start()
    before = signal.signal(signal.SIGTERM, lambda *_: happened.append("handled"))
    try:
        with signals_held():
            signal.pthread_kill(other.ident, signal.SIGTERM)
            until = time.monotonic() + 0.05
            while time.monotonic() < until:
                pass
            happened.append("block ends")
        assert happened == ["block ends", "handled"]
    finally:
        signal.signal(signal.SIGTERM, before)
        done.set()
        other.join()


def test_the_launcher_itself_is_killed(run):
    run.wait_for_traffic()
    run.process.kill()
    run.check_ended("", status=-signal.SIGKILL)


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


def test_the_soak_has_every_fault_and_sees_what_is_left(monkeypatch):
    """It is a command outside the suite; here once, and once with faults that leave something."""
    for words in ("killed", "port in use", "world size", "another size", "another dtype"):
        assert any(words in fault for fault in soak.FAULTS), words
    assert {"a missing interface", "/dev/shm too small (runs through)"} <= {*soak.FAULTS}
    assert "Ctrl-C twice, to the whole group" in soak.FAULTS
    assert soak.begun("a missing interface") > 0
    monkeypatch.setitem(soak.BEGINNINGS, "litter", lambda folder: (folder / "left").touch())
    with pytest.raises(AssertionError, match="left"):
        soak.begun("litter")
    monkeypatch.setitem(
        soak.BEGINNINGS,
        "works after all",
        lambda folder: soak._fails(
            soak.Run(folder, None, "--help"), "GLOO_SOCKET_IFNAME 'eth99' is not here", 2
        ),
    )
    with pytest.raises(AssertionError):
        soak.begun("works after all")


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
        done = _cli("clean", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert str(started["orphan"].pid) in done.stdout
        assert {who for who, p in started.items() if p.poll() is None} == {"in use", "a stranger"}
        assert _cli("clean", cwd=tmp_path).stdout == "nothing was left behind\n"
    finally:
        for process in started.values():
            process.kill()
            process.wait()
