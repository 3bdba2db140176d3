"""The worker processes of a run and the pipes to them; they end when the block ends.

Requests go to the ranks' standard inputs, answers come back on their standard outputs: barriers
cost the measured network nothing, and a rank's death is seen at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from real_gpu.job import RunError
from real_gpu.shaped import package_path

Request = dict[str, Any]


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """A signal waits until the block has ended, lest a process starts of which nobody knows.

    What is started in the block inherits that, and may undo it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Ranks:
    """``n`` worker processes, each in a session of its own, killed when the block ends."""

    def __init__(self, n: int, program: str = "real_gpu.worker") -> None:
        self.program = program
        self.processes: list[subprocess.Popen[str]] = []
        self.answers: queue.Queue[tuple[int, str | None]] = queue.Queue()
        self.complaints: list[deque[str]] = [deque(maxlen=5) for _ in range(n)]
        self.readers: list[threading.Thread] = []
        self.n = n

    def __enter__(self) -> Ranks:
        environment = os.environ | {
            "PYTHONPATH": package_path(),
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        if sys.platform == "win32":
            environment["USE_LIBUV"] = "0"
        try:
            with (
                signals_held()
            ):  # its reader threads hold them for good: the main thread's business
                for rank in range(self.n):
                    self._start(rank, environment)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, rank: int, environment: dict[str, str]) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.processes.append(process)
        for read in (self._read_answers, self._read_complaints):
            reader = threading.Thread(target=read, args=(rank, process), daemon=True)
            reader.start()
            self.readers.append(reader)

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        for process in self.processes:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
        for reader in self.readers:
            reader.join(10)
        for process in self.processes:
            process.wait(10)
            for stream in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(OSError):  # a request that nobody will read any more
                    stream.close() if stream else None

    def _read_answers(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.answers.put((rank, line))
        self.answers.put((rank, None))

    def _read_complaints(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.complaints[rank].extend(process.stderr)

    def ask(
        self, requests: Sequence[Request], within_s: float, ranks: Sequence[int] | None = None
    ) -> list[Any]:
        """Send each rank its request, wait for all the answers; a failure is a ``RunError``."""
        asked = list(range(self.n)) if ranks is None else list(ranks)
        doing = requests[0]["do"]
        for rank, request in zip(asked, requests, strict=True):
            stdin = self.processes[rank].stdin
            assert stdin is not None
            with contextlib.suppress(OSError):  # a dead rank is reported below
                stdin.write(json.dumps(request) + "\n")
                stdin.flush()
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + within_s
        while len(answers) < len(asked):
            try:
                rank, line = self.answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                missing = ", ".join(str(r) for r in asked if r not in answers)
                raise RunError(
                    f"{len(answers)} of {len(asked)} ranks answered '{doing}' within "
                    f"{within_s:.0f} s; missing: rank {missing}"
                ) from None
            if line is None or "error" in (answer := json.loads(line)):
                self._fail(doing, rank, line)
            answers[rank] = answer
        return [answers[rank] for rank in asked]

    def all(self, within_s: float, **request: Any) -> list[Any]:
        """The same request to every rank."""
        return self.ask([request] * self.n, within_s)

    def _fail(self, doing: str, rank: int, line: str | None) -> None:
        """Say what went wrong first: the others fail too when a rank dies, often before it is
        seen dead.
        """
        failures = [(rank, line)]
        deadline = time.monotonic() + 0.5
        with contextlib.suppress(queue.Empty):
            while True:
                failures.append(self.answers.get(timeout=max(0.0, deadline - time.monotonic())))
        for dead, said in failures:
            if said is None:
                raise RunError(f"rank {dead} {self._death(dead)} during '{doing}'")
        errors = [(json.loads(said), at) for at, said in failures if said]
        # A rank that found its result wrong knows more than one that lost its peer.
        answer, at = min(
            ((a, at) for a, at in errors if "error" in a),
            key=lambda e: (not e[0].get("final"), e[1]),
        )
        text = answer["error"]
        raise RunError(text if answer.get("final") else f"rank {at} failed in '{doing}': {text}")

    def _death(self, rank: int) -> str:
        try:
            status = self.processes[rank].wait(2)
        except subprocess.TimeoutExpired:
            return "closed its output"
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        last = self.complaints[rank][-1].strip() if self.complaints[rank] else "no message"
        return f"ended with exit status {status} ({last})"
