"""How ranks that a launcher started find each other: a store, and a line from rank 0 to each.

The store is torch's, at the address that torchrun or srun gives all of them. Through it rank 0
says where it listens, and a secret, so that nothing else that may connect is taken for a rank.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from real_gpu.job import RunError, Stopped
from real_gpu.network.interfaces import interface_of
from real_gpu.processes.seats import Seat

MEET_S = 60.0  # importing torch from a cluster's file system takes its time
_ANSWER_S = 10.0
_MOST_HELLO_BYTES = 1 << 20
# A peer that says nothing any more, its machine having lost power, is given up after 10 s.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}


class Line:
    """Lines of text to another process and back, over a socket."""

    def __init__(self, end: socket.socket) -> None:
        self.socket, self._saying = end, threading.Lock()
        self._incoming = end.makefile("r", encoding="utf-8", newline="\n")
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def say(self, text: str) -> None:
        """Send it; lost where nobody is left to hear, which the end of the line tells."""
        with self._saying, contextlib.suppress(OSError):
            self.socket.sendall(text.encode())

    def hear(self) -> str:
        """The next line, the empty text at the end."""
        return self._incoming.readline(_MOST_HELLO_BYTES)

    def __iter__(self) -> Iterator[str]:
        with contextlib.suppress(OSError):  # reset by the other's end
            yield from self._incoming

    @property
    def local_address(self) -> str | None:
        """This end's address; None where both ends are on one machine."""
        here, there = self.socket.getsockname()[0], self.socket.getpeername()[0]
        return None if here == there else str(here).removeprefix("::ffff:")

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def listening_store(bind: str, address: str, port: int, advice: str) -> Any:
    """A store of this process's own, at a port that nobody else uses."""
    import torch.distributed as dist

    try:
        listener = _listener(bind, port)
    except OSError as error:
        reason = (error.strerror or "no reason given").partition(" (")[0]
        raise RunError(
            f"rendezvous port {port} on {address} cannot be used: {reason}; {advice}"
        ) from None
    port = listener.getsockname()[1]
    handed_over: dict[str, Any] = {}
    if sys.platform == "win32":  # where a store takes no listener of ours
        listener.close()
    else:
        handed_over = {"master_listen_fd": listener.detach()}
    return dist.TCPStore(  # type: ignore[attr-defined]
        address,
        port,
        is_master=True,
        timeout=timedelta(seconds=_ANSWER_S),
        wait_for_workers=False,
        **handed_over,
    )


def _listener(bind: str, port: int) -> socket.socket:
    """Listens on an address of this machine; on all of them, of either kind, for the empty text."""
    both = not bind and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in bind else socket.AF_INET
    return socket.create_server((bind, port), family=family, backlog=128, dualstack_ipv6=both)


def open_store(seat: Seat) -> Any:
    """The store where the ranks meet, opened by rank 0 unless torchrun's agent has."""
    import torch.distributed as dist

    where = f"{seat.address}:{seat.port}"
    try:
        socket.getaddrinfo(seat.address, seat.port)
    except OSError:
        raise RunError(f"MASTER_ADDR {seat.address!r} is no address of a machine") from None
    try:
        if seat.rank == 0 and not seat.agent:
            bind = seat.address if seat.one_machine else ""
            store = listening_store(bind, seat.address, seat.port, "name another in MASTER_PORT")
        else:
            _wait_for_listener(seat)
            wait = timedelta(seconds=_ANSWER_S)
            store = dist.TCPStore(  # type: ignore[attr-defined]
                seat.address, seat.port, timeout=wait, wait_for_workers=False
            )
    except RuntimeError:  # as torch's own are; its text is of many lines
        raise RunError(
            f"there is no rendezvous of this run at {where}: either MASTER_ADDR is not rank 0's "
            "machine, or something else uses the port; accepted: rank 0's address, a free port"
        ) from None
    # torchrun's agent opens its store long before rank 0 comes, rank 0 its own as it comes.
    store.set_timeout(timedelta(seconds=MEET_S if seat.agent else _ANSWER_S))
    return dist.PrefixStore("syncscope", store)  # type: ignore[attr-defined]


def _wait_for_listener(seat: Seat) -> None:
    deadline = time.monotonic() + MEET_S
    while True:
        try:
            socket.create_connection((seat.address, seat.port), timeout=_ANSWER_S).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                reason = os.strerror(error.errno or errno.ETIMEDOUT)
                raise RunError(
                    f"rank 0 at {seat.address}:{seat.port} does not answer ({reason}) for "
                    f"{MEET_S:.0f} s; is the port open between the machines?"
                ) from None
            time.sleep(0.2)


def gather(seat: Seat, store: Any) -> Iterator[tuple[int, Line, dict[str, Any]]]:
    """At rank 0: every other rank as it comes, its line and what it says first.

    A ``RunError`` names who is missing. A rank that knows of another number of ranks is the last.
    """
    host = "127.0.0.1" if seat.one_machine else ""
    secret = secrets.token_hex(16)
    missing = set(range(1, seat.ranks))
    with _listener(host, 0) as listener:
        at = {"address": host or seat.address, "port": listener.getsockname()[1], "secret": secret}
        store.set("line", json.dumps(at))
        deadline = time.monotonic() + MEET_S
        while missing:
            listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                end, _ = listener.accept()
            except (TimeoutError, Stopped) as error:
                ended = f"stopped by {error}" if isinstance(error, Stopped) else f"{MEET_S:.0f} s"
                raise RunError(
                    f"{seat.ranks - len(missing)} of {seat.ranks} ranks had come when the wait "
                    f"ended ({ended}); missing: rank {', '.join(map(str, sorted(missing)))}"
                ) from None
            line, hello = _greet(end, secret)
            if hello is None:
                line.close()
                continue
            yield hello["rank"], line, hello
            if hello["ranks"] != seat.ranks:
                return
            if hello["rank"] not in missing:
                raise ValueError(f"two processes are rank {hello['rank']}; accepted: one each")
            missing.remove(hello["rank"])


def _greet(end: socket.socket, secret: str) -> tuple[Line, dict[str, Any] | None]:
    """What a rank says first; None where it is no rank of this run."""
    end.settimeout(5)
    line = Line(end)
    try:
        hello = json.loads(line.hear())
        known = hmac.compare_digest(str(hello.pop("secret")), secret)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return line, None
    end.settimeout(None)
    return line, hello if known else None


def join(seat: Seat, store: Any, hello: dict[str, Any]) -> Line:
    """At every other rank: the line to rank 0, with the first word said."""
    try:
        at = json.loads(store.get("line"))
        end = socket.create_connection((at["address"], at["port"]), timeout=_ANSWER_S)
    except RuntimeError:
        raise RunError(
            f"rank 0 does not come to the rendezvous at {seat.address}:{seat.port}; has it "
            "failed, or does another run use the port?"
        ) from None
    except OSError as error:
        reason = error.strerror or "no answer"
        raise RunError(
            f"rank 0 listens on {at['address']}:{at['port']}, which cannot be reached from here "
            f"({reason}); all ports must be open between the machines"
        ) from None
    end.settimeout(None)
    line = Line(end)
    found = interface_of(line.local_address) if line.local_address else None
    more = {"secret": at["secret"], "interface": hello.get("interface") or found}
    line.say(json.dumps(hello | more) + "\n")
    return line
