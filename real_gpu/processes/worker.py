"""One rank: answers the launcher's requests, one JSON line each way. Started by ``launch``.

The rank ends when its standard input does, whatever ended the launcher.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from real_gpu.job import Case, RunError, TransferFailed, joining_s

_PR_SET_PDEATHSIG = 1
_SETTING_UP = ("isolate", "connect", "load", "listen", "join", "leave")
_REQUESTS = (*_SETTING_UP, "clock", "prepare", "reset", "run", "counters")
WHERE = '{"do": "where"}\n'


class Rank:
    """The state of one rank; each public method is a request and returns its answer."""

    def __init__(self) -> None:
        self.rank = self.n = 0
        self.work: Any = None
        self.device_clock: Any = None  # made anew for each run
        self.port: Any = None  # the rank's end of the shaped network
        self.store: Any = None  # where the ranks meet

    def isolate(self) -> dict[str, Any]:
        """Leave the launcher's network for one of this process's own."""
        from real_gpu.network.shaped import leave_network

        leave_network()
        return {}

    def connect(self, rank: int, wire: dict[str, Any], **settings: Any) -> dict[str, Any]:
        """Set up the end of the wire that the launcher has put into this network."""
        from real_gpu.network.shaped import RankPort
        from real_gpu.network.wiring import Wire

        self.port = RankPort(rank, Wire(**wire), **settings)
        return {"address": self.port.address, "interface": self.port.name}

    def counters(self) -> dict[str, Any]:
        """What the rank's port has sent so far."""
        return dict(self.port.counters())

    def clock(self) -> dict[str, Any]:
        """What this rank's clock shows."""
        return {"now_s": time.monotonic()}

    def load(self, rank: int, n: int, backend: str, gpu: int | None = None) -> dict[str, Any]:
        """Import torch and open the device, which takes seconds; ``gpu`` is the device, by default
        that of the rank.
        """
        import torch

        self.rank, self.n, self.backend = rank, n, backend
        torch.set_num_threads(1)
        cuda = backend == "nccl"
        # With several ranks on one GPU the same index comes again.
        index = rank % max(1, torch.cuda.device_count()) if gpu is None else gpu
        self.device = torch.device("cuda", index) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
            torch.empty(1, device=self.device)  # here, where there is time for the driver to start
        return {}

    def listen(self, address: str, port: int) -> dict[str, Any]:
        """Rank 0 opens the rendezvous, on this one address, and says at which port."""
        from real_gpu.processes.meeting import listening_store

        advice = "name another with --port, or leave --port away to get a free one"
        self.store = listening_store(address, address, port, advice)
        return {"port": self.store.port}

    def join(
        self, address: str, port: int, interface: str, timeout_s: float, meeting: str = "only"
    ) -> dict[str, Any]:
        """Meet the other ranks, at the address unless the rank has a store already; one that has
        met others before in this store needs another name for the ``meeting``.
        """
        import torch.distributed as dist
        import torch.distributed.nn  # noqa: F401 - once there is a group, its defaults hold it for ever

        if interface:  # NCCL's own variable is the user's, or has been set before
            os.environ["GLOO_SOCKET_IFNAME"] = interface
        wait = timedelta(seconds=20)
        if self.store is None:
            self.store = dist.TCPStore(  # type: ignore[attr-defined]
                address, port, timeout=wait, wait_for_workers=False
            )
        if self.backend == "nccl":  # whose ranks hear of each other through it while they set up
            self.store.set_timeout(timedelta(seconds=joining_s(self.n, self.backend)))
        with self._ahead():  # Gloo's thread, which moves the bytes, inherits it and stays ahead
            dist.init_process_group(
                self.backend,
                store=dist.PrefixStore(meeting, self.store),  # type: ignore[attr-defined]
                rank=self.rank,
                world_size=self.n,
                timeout=timedelta(seconds=timeout_s),
                device_id=self.device if self.backend == "nccl" else None,
            )
        return {}

    def leave(self) -> dict[str, Any]:
        """Part from the other ranks, and forget the case: another job's meet next."""
        import torch.distributed as dist

        self.work = None
        dist.destroy_process_group()
        return {}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        """Make this case's input, and what must come out; answers the payload of a replay."""
        from real_gpu.work.works import make_work

        self.case = Case(**case)
        self.work = make_work(self.case, self.rank, self.n, self.device)
        return dict(self.work.payload)

    def reset(self, watched: bool = False) -> dict[str, Any]:
        """Put the input back, and make what will time the device: NVML takes its time to start,
        which nothing that waits for an agreed moment has. ``watched``: its messages too.
        """
        from real_gpu.device.clock import DeviceClock

        self.work.reset()
        if watched:
            self.work.watch()
        self._finish()
        self.device_clock = DeviceClock(self.device)
        return {}

    def run(self, start_s: float, profile: str | None = None) -> dict[str, Any]:
        """Run the case at the agreed time, check the result, and only then say when it ended."""
        clock = self.device_clock
        changing = self.port is not None and self.case.fills is None
        if changing:
            self.port.changes.arm(start_s)
        late_s = time.monotonic() - start_s
        waited_s = cpu_wait_s()
        with self._profiled(profile), self._ahead():
            time.sleep(max(0.0, -late_s))
            began_s = time.monotonic()
            clock.begin()
            spans = self.work.run()
            clock.end()
            self._finish()
            end_s = time.monotonic()
        waited_s = cpu_wait_s() - waited_s
        changes = self.port.changes.finish() if changing else []
        if wrong := self.work.difference():
            raise RunError(f"{self.case.name} gave a wrong result: rank {self.rank}, {wrong}")
        times = {"began_s": began_s, "end_s": end_s, "late_s": late_s, "device": clock.seen()}
        times |= {"waited_s": waited_s, "changes": changes}
        return {**times, "spans": spans if self.case.spans else []}

    @contextlib.contextmanager
    def _profiled(self, path: str | None) -> Iterator[None]:
        """With a path: write what torch's profiler sees there, as a Chrome trace."""
        if path is None:
            yield
            return
        from torch import profiler

        with profiler.profile() as seen:
            yield
        try:
            seen.export_chrome_trace(path)
        except (OSError, RuntimeError) as error:
            raise RunError(f"file {path!r} cannot be written: {error}") from None

    @contextlib.contextmanager
    def _ahead(self) -> Iterator[None]:
        """On the shaped network, where root: ahead of other work on this machine.

        A rank uses little of the CPU but must have it at once, or its port runs dry.
        """
        real_time = self.port is not None
        if real_time:
            try:
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            except OSError:
                real_time = False
        try:
            yield
        finally:
            if real_time:
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    def _finish(self) -> None:
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize()


def cpu_wait_s() -> float:
    """How long this process's threads have been ready to run without a CPU; 0 where unknown."""
    waited_ns = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            waited_ns += int(path.read_text(encoding="ascii").split()[1])
    return waited_ns / 1e9


def main(rank: Rank, more_requests: tuple[str, ...] = ()) -> None:
    """Answer the requests on standard input until there are no more."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    said = threading.Lock()

    def say(line: str) -> None:
        with said:
            answers.write(line)

    serve(rank, sys.stdin, say, lambda: os._exit(1), more_requests)


def serve(
    rank: Rank,
    lines: Iterable[str],
    say: Callable[[str], None],
    ended: Callable[[], object],
    more_requests: tuple[str, ...] = (),
) -> NoReturn:
    """Answer requests for as long as the process lives; each is a method of ``rank``.

    A thread reads them, and calls ``ended`` after the last. The question where the rank is gets
    its answer at once, though a request is being worked on.
    """
    requests: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in lines:
            if line == WHERE:
                where = str(rank.work.progress) if rank.work else ""
                say(json.dumps({"where": where}) + "\n")
            else:
                requests.put(line)
        ended()

    threading.Thread(target=read, daemon=True).start()
    handlers: dict[str, Callable[..., dict[str, Any]]] = {
        name: getattr(rank, name) for name in (*_REQUESTS, *more_requests)
    }
    while True:
        request = json.loads(requests.get())
        try:
            answer = handlers[request.pop("do")](**request)
        except RunError as error:
            answer = {"error": str(error), "final": True}
        except TransferFailed as error:
            answer = {"error": str(error)}
        except Exception as error:  # whatever torch raises goes to the launcher as one line
            text = (str(error).strip() or repr(error)).splitlines()[0]
            answer = {"error": f"{type(error).__name__}: {text}"}
        say(json.dumps(answer) + "\n")


def die_with_parent() -> None:
    """On Linux the kernel ends this process with its parent, should the thread above be stuck."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(Rank())
