"""A quick validation on this machine, started from the page: one at a time for the whole server.

It ends with its session, with the server, and with a server that is killed: see
``measured_guard``. Nothing here imports what it runs.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from views.measured.files import Read, read_folder

ROOT = Path(__file__).parent.parent
PATIENCE_S = 30.0  # from an interrupt to the end by force
GONE_S = 15.0  # a session that has been away for so long does not come back
INFO_S = 120.0
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_LEFT = re.compile(r"(\d+) (s|min) left")


def quick_command(folder: Path) -> list[str]:
    """What is run; tests put something quicker in its place."""
    return [sys.executable, "-m", "real_gpu", "validate", "--quick", "--out", str(folder)]


def info_command() -> list[str]:
    """What says whether that can run here."""
    return [sys.executable, "-m", "real_gpu", "info", "--json"]


class Guarded:
    """A command on a leash: its lines, its end, and how to end it. ``folder`` is its own."""

    def __init__(self, command: Callable[[Path], list[str]]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="syncscope-"))
        self.lines: deque[str] = deque(maxlen=200)
        self.output = ""
        self.stopped = False
        self.begin_s = time.monotonic()
        self.total_s: float | None = None  # as it says itself, and when that is over
        self.over_s = 0.0
        guard = [sys.executable, "-m", "app_pages.measured_guard", str(PATIENCE_S)]
        try:
            self.process = subprocess.Popen(
                [*guard, str(self.folder), *command(self.folder)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read_out, self._read_err)
        ]
        for reader in self.readers:
            reader.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        self.output = self.process.stdout.read()

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:  # progress that overwrites itself is lines, too
            if words := line.strip():
                self.lines.append(words[:300])
                self._look_for_time(words)

    def _look_for_time(self, line: str) -> None:
        if found := _LEFT.search(line):
            left_s = float(found[1]) * (60 if found[2] == "min" else 1)
            self.over_s = time.monotonic() + left_s
            self.total_s = self.total_s or left_s

    @property
    def share(self) -> float:
        """How much of it is done, by what it last said of the time left; never quite all."""
        left_s = self.over_s - time.monotonic()
        return min(0.99, max(0.0, 1 - left_s / self.total_s)) if self.total_s else 0.0

    @property
    def ended(self) -> bool:
        """Whether the command is over and all that it said has been read."""
        return self.process.poll() is not None and not any(r.is_alive() for r in self.readers)

    def wait(self, within_s: float) -> bool:
        """Until it has ended; whether it has."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within_s)
            for reader in self.readers:
                reader.join(within_s)
        return self.ended

    def stop(self) -> None:
        """Interrupt it; it may keep what it has so far."""
        self.stopped = True
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write("stop\n")
            self.process.stdin.flush()

    def close(self, within_s: float = PATIENCE_S + 10) -> None:
        """Let go: it ends if it has not, and its folder is gone, at the latest when it has."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.close()
        self.wait(within_s)  # for its readers too: a stream that is read cannot be closed
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None and self.ended:
                stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Running(Guarded):
    """The validation under way, and the session that sees it."""

    def __init__(self, session: str, alive: Callable[[str], bool]) -> None:
        super().__init__(quick_command)
        self.session, self.alive = session, alive
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """Nobody is there to see it any more: then it is not to go on."""
        last_seen_s = time.monotonic()
        while not self.ended:
            if self.alive(self.session):
                last_seen_s = time.monotonic()
            elif time.monotonic() - last_seen_s > GONE_S:
                RUNS.discard(self)
                return
            time.sleep(min(1.0, GONE_S / 3))


class Registry:
    """The server's one validation, if there is one; every session's script runs in a thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.run: Running | None = None

    def start(self, session: str, alive: Callable[[str], bool]) -> Running:
        """Start one; or, of two who ask at once, the one that is under way."""
        with self.lock:
            if self.run is None:
                self.run = Running(session, alive)
            return self.run

    def take(self) -> tuple[Read, Running] | None:
        """What an ended one has left, once."""
        with self.lock:
            run = self.run
            if run is None or not run.ended:
                return None
            self.run = None
        found = read_folder(run.folder)
        run.close()
        return found, run

    def discard(self, run: Running, within_s: float = PATIENCE_S + 10) -> None:
        """End it, whatever it has."""
        with self.lock:
            if self.run is run:
                self.run = None
        run.close(within_s)


RUNS = Registry()


@atexit.register
def _end() -> None:
    if RUNS.run is not None:
        RUNS.discard(RUNS.run, within_s=1.0)  # a server that stops does not wait


def is_local(headers: Mapping[str, str], ip: str | None) -> bool:
    """Whether browser and server are on one machine, without a proxy in between.

    >>> is_local({"Host": "localhost:8501"}, None), is_local({"Host": "lab.example:8501"}, None)
    (True, False)
    >>> is_local({"Host": "localhost:8501", "X-Forwarded-For": "10.0.0.7"}, None)
    False
    """
    names = {name.lower(): value for name, value in headers.items()}
    host = names.get("host", "")
    named = any(host == name or host.startswith(f"{name}:") for name in _LOCAL)
    forwarded = any(name in names for name in ("forwarded", "x-forwarded-for", "x-real-ip"))
    return named and not forwarded and ip in (None, "127.0.0.1", "::1")


@cache
def missing() -> str:
    """Why nothing can be run here, '' where it can; asked once, which takes some seconds."""
    asked = Guarded(lambda _folder: info_command())
    try:
        asked.wait(INFO_S)
        if not asked.ended or asked.process.returncode:
            return asked.lines[-1] if asked.lines else "python -m real_gpu info gave no answer"
        found = json.loads(asked.output)
        if found.get("backend") is None:
            return str(found.get("why", "no backend"))
        needed = [m for m in map(str, found.get("missing", ())) if "psutil" in m]
        return "; ".join(needed)
    except ValueError:
        return "python -m real_gpu info gave no answer"
    finally:
        asked.close()
