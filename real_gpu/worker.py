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
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from real_gpu.job import Case, RunError

_PR_SET_PDEATHSIG = 1
_SETTING_UP = ("isolate", "connect", "load", "listen", "join")
_REQUESTS = (*_SETTING_UP, "prepare", "reset", "run", "counters")


class Rank:
    """The state of one rank; each public method is a request and returns its answer."""

    def __init__(self) -> None:
        self.rank = self.n = 0
        self.port: Any = None  # the rank's end of the shaped network

    def isolate(self) -> dict[str, Any]:
        """Leave the launcher's network for one of this process's own."""
        from real_gpu.shaped import leave_network

        leave_network()
        return {}

    def connect(self, rank: int, bytes_per_s: float, latency_s: float) -> dict[str, Any]:
        """Set up the end of the wire that the launcher has put into this network."""
        from real_gpu.shaped import RankPort

        self.port = RankPort(rank, bytes_per_s, latency_s)
        return {"address": self.port.address, "interface": self.port.name}

    def counters(self) -> dict[str, Any]:
        """What the rank's port has sent so far."""
        return dict(self.port.counters())

    def load(self, rank: int, n: int, backend: str) -> dict[str, Any]:
        """Import torch, which takes seconds."""
        import torch

        self.rank, self.n, self.backend = rank, n, backend
        torch.set_num_threads(1)
        cuda = backend == "nccl"
        self.device = torch.device("cuda", rank) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        return {}

    def listen(self, address: str, port: int) -> dict[str, Any]:
        """Rank 0 opens the rendezvous, on this one address, and says at which port."""
        import torch.distributed as dist

        listener = socket.socket()
        try:
            listener.bind((address, port))
        except OSError as error:
            raise RunError(
                f"rendezvous port {port} on {address} cannot be used: {error.strerror}; "
                "name another with --port, or leave --port away to get a free one"
            ) from None
        port = listener.getsockname()[1]
        handed_over: dict[str, Any] = {}
        if sys.platform == "win32":  # where a store takes no listener of ours
            listener.close()
        else:
            listener.listen(128)
            handed_over = {"master_listen_fd": listener.detach()}
        self.store = dist.TCPStore(  # type: ignore[attr-defined]
            address,
            port,
            is_master=True,
            timeout=timedelta(seconds=20),
            wait_for_workers=False,
            **handed_over,
        )
        return {"port": port}

    def join(self, address: str, port: int, interface: str, timeout_s: float) -> dict[str, Any]:
        """Meet the other ranks."""
        import torch.distributed as dist

        if interface:
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
        wait = timedelta(seconds=20)
        if self.rank:
            self.store = dist.TCPStore(  # type: ignore[attr-defined]
                address, port, timeout=wait, wait_for_workers=False
            )
        with self._ahead():  # Gloo's thread, which moves the bytes, inherits it and stays ahead
            dist.init_process_group(
                self.backend,
                store=self.store,
                rank=self.rank,
                world_size=self.n,
                timeout=timedelta(seconds=timeout_s),
                device_id=self.device if self.backend == "nccl" else None,
            )
        return {}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        """Make this case's input, and what must come out; answers the payload of a replay."""
        from real_gpu.works import make_work

        self.case = Case(**case)
        self.work = make_work(self.case, self.rank, self.n, self.device)
        return self.work.payload

    def reset(self) -> dict[str, Any]:
        """Put the input back."""
        self.work.reset()
        self._finish()
        return {}

    def run(self, start_s: float) -> dict[str, Any]:
        """Run the case at the agreed time, check the result, and only then say when it ended."""
        late_s = time.monotonic() - start_s
        with self._ahead():
            time.sleep(max(0.0, -late_s))
            spans = self.work.run()
            self._finish()
            end_s = time.monotonic()
        if wrong := self.work.difference():
            raise RunError(f"{self.case.name} gave a wrong result: rank {self.rank}, {wrong}")
        return {"end_s": end_s, "late_s": late_s, "spans": spans if self.case.spans else []}

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


def main(rank: Rank, more_requests: tuple[str, ...] = ()) -> None:
    """Answer requests until there are no more; each is a method of ``rank``."""
    _die_with_parent()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the launcher held signals as it started us
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    requests = _requests()
    handlers: dict[str, Callable[..., dict[str, Any]]] = {
        name: getattr(rank, name) for name in (*_REQUESTS, *more_requests)
    }
    while True:
        request = json.loads(requests.get())
        try:
            answer = handlers[request.pop("do")](**request)
        except RunError as error:
            answer = {"error": str(error), "final": True}
        except Exception as error:  # whatever torch raises goes to the launcher as one line
            text = (str(error).strip() or repr(error)).splitlines()[0]
            answer = {"error": f"{type(error).__name__}: {text}"}
        answers.write(json.dumps(answer) + "\n")


def _requests() -> queue.Queue[str]:
    """Requests as they come in; the end of them is the end of this process."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _die_with_parent() -> None:
    """On Linux the kernel ends this process with its parent, should the thread above be stuck."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(Rank())
