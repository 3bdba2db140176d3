"""What the driver of a run asks of its ranks; and the ranks that it starts itself, over pipes.

Requests and answers are lines of JSON that do not cross the measured network, so barriers cost it
nothing, and a rank's death is seen at once. Pipes lead to worker processes, which end when the
block ends; ``peers`` has sockets, to ranks that torchrun or srun has started.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from real_gpu.job import RunError
from real_gpu.network.shaped import package_path
from real_gpu.processes.clocks import Offset
from real_gpu.processes.worker import WHERE

Request = dict[str, Any]


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """A signal waits until the block has ended, lest a process starts of which nobody knows.

    To block it for this thread is not enough: the kernel then gives it to another, a BLAS's say,
    and Python handles it here all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # no handler runs here
        return
    held: list[int] = []
    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda caught, _: held.append(caught))
        yield
    finally:
        for held_back, handler in before.items():
            signal.signal(held_back, handler)
        if held:
            signal.raise_signal(held[0])


class Asking(ABC):
    """Questions to ``n`` ranks and their answers, however they are carried.

    ``answers`` holds the lines as they come, with their rank; None says that there are no more.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.answers: queue.Queue[tuple[int, str | None]] = queue.Queue()

    @abstractmethod
    def send(self, rank: int, line: str) -> None:
        """Carry a line to a rank; to a dead one it is lost."""

    @abstractmethod
    def death(self, rank: int) -> str:
        """How a rank that says no more came to that."""

    def clocks(self) -> list[Offset]:
        """How far each rank's clock is from this process's: not at all, on one machine."""
        return [Offset()] * self.n

    def ask(
        self, requests: Sequence[Request], within_s: float, ranks: Sequence[int] | None = None
    ) -> list[Any]:
        """Send each rank its request, wait for all the answers; a failure is a ``RunError``."""
        asked = list(range(self.n)) if ranks is None else list(ranks)
        doing = requests[0]["do"]
        for rank, request in zip(asked, requests, strict=True):
            self.send(rank, json.dumps(request) + "\n")
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + within_s
        while len(answers) < len(asked):
            try:
                rank, line = self.answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                missing = [r for r in asked if r not in answers]
                raise RunError(
                    f"{len(answers)} of {len(asked)} ranks answered '{doing}' within "
                    f"{within_s:.0f} s; missing: {self._whereabouts(missing)}"
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
        said = [(rank, line), *self._listen(range(self.n))]
        for dead, last in said:
            if last is None:
                death = f"rank {dead} {self.death(dead)} during '{doing}'"
                raise RunError(death + _seen_from(dead, said))
        errors = [(json.loads(line), at) for at, line in said if line]
        # A rank that found its result wrong knows more than one that lost its peer.
        answer, at = min(
            ((a, at) for a, at in errors if "error" in a),
            key=lambda e: (not e[0].get("final"), e[1]),
        )
        text = answer["error"]
        raise RunError(text if answer.get("final") else f"rank {at} failed in '{doing}': {text}")

    def _listen(self, ranks: Iterable[int]) -> list[tuple[int, str | None]]:
        """What else comes within half a second, once these have been asked where they are."""
        for rank in ranks:
            self.send(rank, WHERE)
        said = []
        deadline = time.monotonic() + 0.5
        with contextlib.suppress(queue.Empty):
            while True:
                said.append(self.answers.get(timeout=max(0.0, deadline - time.monotonic())))
        return said

    def _whereabouts(self, ranks: list[int]) -> str:
        """These ranks, and what each of them says that it waits for."""
        places = dict.fromkeys(ranks, "")
        for rank, line in self._listen(ranks):
            places[rank] = json.loads(line).get("where") or places.get(rank, "") if line else ""
        return ", ".join(f"rank {r}" + (f" (at {at})" if at else "") for r, at in places.items())


class Ranks(Asking):
    """``n`` worker processes, each in a session of its own, killed when the block ends."""

    def __init__(self, n: int, program: str = "real_gpu.processes.worker") -> None:
        super().__init__(n)
        self.program = program
        self.processes: list[subprocess.Popen[str]] = []
        self.complaints: list[deque[str]] = [deque(maxlen=5) for _ in range(n)]
        self.readers: list[threading.Thread] = []

    def __enter__(self) -> Ranks:
        return self  # starts none: a signal between this and the block would leave them behind

    def start(self) -> None:
        """Start them; within the block, whose end is theirs."""
        environment = os.environ | {
            "PYTHONPATH": package_path(),
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        if sys.platform == "win32":
            environment["USE_LIBUV"] = "0"
        with signals_held():
            for rank in range(self.n):
                self._start(rank, environment)

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
            with contextlib.suppress(subprocess.TimeoutExpired):  # the others' pipes close too
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

    def send(self, rank: int, line: str) -> None:
        """To its standard input."""
        stdin = self.processes[rank].stdin
        assert stdin is not None
        with contextlib.suppress(OSError):  # a dead rank is reported by the end of its answers
            stdin.write(line)
            stdin.flush()

    def death(self, rank: int) -> str:
        """By its exit status, and the last thing that it complained of."""
        try:
            status = self.processes[rank].wait(2)
        except subprocess.TimeoutExpired:
            return "closed its output"
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        last = self.complaints[rank][-1].strip() if self.complaints[rank] else "no message"
        return f"ended with exit status {status} ({last})"


def _seen_from(dead: int, said: list[tuple[int, str | None]]) -> str:
    """What a peer was waiting for from the dead rank, if one of them says so."""
    for at, line in said:
        answer = json.loads(line) if line else {}
        where = answer.get("where") or answer.get("error", "")
        if re.search(rf"step .* rank {dead}\b", where):
            return f"; rank {at} was at {where}"
    return ""
