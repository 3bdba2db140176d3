"""The ranks of other processes as rank 0 drives them: over sockets, its own in a thread."""

from __future__ import annotations

import contextlib
import functools
import json
import queue
import signal
import threading
from typing import Any, NoReturn

from real_gpu.job import RunError, Stopped
from real_gpu.processes.clocks import Offset, compare
from real_gpu.processes.meeting import Line, gather
from real_gpu.processes.ranks import Asking
from real_gpu.processes.seats import Seat
from real_gpu.processes.worker import Rank, serve

Hello = dict[str, Any]


class Peers(Asking):
    """The ranks of other processes, over their lines, and this process's own in a thread.

    The first ``n`` of them are asked; that may change from job to job. A death is seen of any.
    """

    def __init__(self, n: int, me: Rank) -> None:
        super().__init__(n)
        self.me = me
        self.lines: dict[int, Line] = {}
        self.clock_names: list[str] = []
        self._own: queue.Queue[str] = queue.Queue()

    def meet(self, seat: Seat) -> dict[int, Hello]:
        """Wait for all the others; what each says of itself."""
        hellos = {}
        for rank, line, hello in gather(seat, self.me.store):
            self.lines[rank], hellos[rank] = line, hello
            threading.Thread(target=self._hear, args=(rank, line), daemon=True).start()
        threading.Thread(target=self._serve, daemon=True).start()
        return hellos

    def _serve(self) -> NoReturn:
        """Answer for this process's own rank; its requests never end before the process does."""
        say = functools.partial(self._take, 0)
        serve(self.me, iter(self._own.get, None), say, lambda: None)

    def _take(self, rank: int, text: str | None) -> None:
        self.answers.put((rank, text))

    def _hear(self, rank: int, line: Line) -> None:
        for text in line:
            self._take(rank, text)
        self._take(rank, None)

    def send(self, rank: int, line: str) -> None:
        """To the other's line, or to our own thread."""
        if rank:
            self.lines[rank].say(line)
        else:
            self._own.put(line)

    def death(self, rank: int) -> str:
        """What can be seen from here."""
        return "died, or its machine is out of reach,"

    def clocks(self) -> list[Offset]:
        """Each machine's clock beside ours, by questions to the first rank on it."""
        known = {self.clock_names[0]: Offset()}
        for rank, name in enumerate(self.clock_names[: self.n]):
            if name not in known:
                known[name] = compare(functools.partial(self._show_clock, rank))
        return [known[name] for name in self.clock_names[: self.n]]

    def _show_clock(self, rank: int) -> float:
        return float(self.ask([{"do": "clock"}], 10, ranks=[rank])[0]["now_s"])

    def _fail(self, doing: str, rank: int, line: str | None) -> None:
        # The launcher may have seen it too, and ends the ranks now; there is still a line to say.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super()._fail(doing, rank, line)

    def __enter__(self) -> Peers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: object
    ) -> None:
        """End the others, with the status that this process is about to end with."""
        status = 0 if kind is None else 2 if issubclass(kind, ValueError) else 1
        for line in self.lines.values():
            line.say(json.dumps({"do": "end", "status": status}) + "\n")
        if isinstance(error, Stopped):
            self.blame(error)

    def blame(self, stopped: Stopped) -> None:
        """A ``RunError`` where a rank was gone before the signal came: its launcher may send it."""
        if (lost := self._lost()) is not None:
            raise RunError(f"rank {lost} {self.death(lost)} before {stopped} came") from None

    def _lost(self) -> int | None:
        with contextlib.suppress(queue.Empty):
            while True:
                rank, line = self.answers.get_nowait()
                if line is None:
                    return rank
        return None
