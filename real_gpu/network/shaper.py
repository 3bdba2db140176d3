"""One end of a wire: what leaves there goes at a rate, is counted, and may change at a moment."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from real_gpu.job import RunError
from real_gpu.network.wiring import Wire

_ETH_P_IP = 0x0800

# Handles, written as tc does: 1: is the shaper, 1:1 data, 1:2 acknowledgements.
# Of a shared wire, 1:3 is for what belongs to no flow, and 1:10 and on for one flow each.
_ROOT, _DATA, _ACK, _REST, _FLOW = 0x1_0000, 0x1_0001, 0x1_0002, 0x1_0003, 0x1_0010
SUBNET = "10.88.0.0/24"  # exists only inside the namespaces; holds 254 ranks, `measure` allows 64
_ACK_BYTES_PER_S = 125_000_000
_BURST_BYTES, _BURST_S, _LEAST_BURST_BYTES = 32 * 1024, 1.3e-3, 2048
_MOST_PACKET_BYTES, _PACKET_S, _LEAST_PACKET_BYTES = 65_536, 0.65e-3, 2 * 1514
_CLOCK_S = 0.25e-3  # how late a busy kernel may wake a shaper without losing its rate
# Never full: a drop would mean that TCP's recovery is measured, not the link. Of a queue that many
# flows share, or in which packets wait out a latency: what 64 senders with a full send buffer each
# have under way, in single frames.
_QUEUE_PACKETS = 12_000


def burst_bytes(bytes_per_s: float) -> int:
    """What a link may send at once after a pause: always about a millisecond's worth.

    >>> burst_bytes(125e3), burst_bytes(25e6), burst_bytes(125e6), burst_bytes(1.25e9)
    (2048, 32500, 32768, 312500)
    """
    usual = min(_BURST_BYTES, max(_LEAST_BURST_BYTES, bytes_per_s * _BURST_S))
    return int(max(usual, bytes_per_s * _CLOCK_S))


def packet_bytes(bytes_per_s: float) -> int:
    """The most that a sender hands to a wire of that rate at once.

    A large packet passes a shaper whole, ahead of its time; on a slow wire it must be smaller for
    that to stay as short. Fewer, large packets cost less of the CPU.

    >>> packet_bytes(125e3), packet_bytes(12.5e6), packet_bytes(25e6)
    (3028, 8125, 16250)
    """
    return int(min(_MOST_PACKET_BYTES, max(_LEAST_PACKET_BYTES, bytes_per_s * _PACKET_S)))


class End:
    """The end of a wire in this process's network."""

    def __init__(self, ip: Any, name: str, wire: Wire) -> None:
        self.ip, self.index, self.wire = ip, interface(ip, name), wire

    def shape(self) -> None:
        """Data at the rate; pure acknowledgements (IP length below 64) apart and ahead, so that
        they do not queue behind data. Large packets stay whole: htb lets its bucket go below zero.
        """
        rest = _REST if self.wire.flows else _DATA
        self.ip.tc("add", "htb", self.index, _ROOT, default=rest & 0xFFFF)
        self._rate_class("add-class", self.ip, self.wire.bytes_per_s)
        ack = _speed(_ACK_BYTES_PER_S)
        self.ip.tc("add-class", "htb", self.index, _ACK, parent=_ROOT, prio=0, **ack)
        self._filter(_ACK, ["0x0000/0xffc0+2", "0x06/0xff+9"])
        leaves = [_ACK, rest]
        for number, (src, dst) in enumerate(self.wire.flows):
            leaves.append(_FLOW + number)
            self._filter(leaves[-1], [f"{_word(src)}+12", f"{_word(dst)}+16"])
        for leaf in leaves:
            if leaf not in (_ACK, _DATA):  # a right to next to nothing, and a turn at the rest
                turn = {"rate": 1000, "ceil": 2**31, "burst": 2048, "cburst": 2**20}
                turn["quantum"] = packet_bytes(self.wire.bytes_per_s)
                self.ip.tc("add-class", "htb", self.index, leaf, parent=_DATA, prio=1, **turn)
            self._queue(leaf)

    def _filter(self, target: int, keys: list[str]) -> None:
        what = {"parent": _ROOT, "prio": 1, "protocol": _ETH_P_IP, "target": target, "keys": keys}
        self.ip.tc("add-filter", "u32", self.index, **what)

    def _queue(self, parent: int) -> None:
        handle = (0x100 + (parent & 0xFFFF)) << 16
        if self.wire.latency_s:
            self._delay(handle, parent)
        elif parent in (_DATA, _ACK, _REST):  # a flow's own, with what one send buffer holds, is
            # short enough to be left as the kernel makes it
            self.ip.tc("add", "pfifo", self.index, handle, parent=parent, limit=_QUEUE_PACKETS)

    def _delay(self, handle: int, parent: int) -> None:
        from pyroute2.netlink.exceptions import NetlinkError

        delay = {"delay": round(self.wire.latency_s * 1e6), "limit": _QUEUE_PACKETS}
        try:
            self.ip.tc("add", "netem", self.index, handle, parent=parent, **delay)
        except NetlinkError as error:
            raise RunError(
                f"the latency cannot be made: this kernel lacks netem ({error.args[-1]}); "
                "ask for a network without latency, or use a kernel with CONFIG_NET_SCH_NETEM"
            ) from None

    def set_rate(self, ip: Any, bytes_per_s: float) -> float:
        """Another rate from now on; the one that the kernel then says it has."""
        self._rate_class("change-class", ip, bytes_per_s)
        return self.rate(ip)

    def _rate_class(self, command: str, ip: Any, bytes_per_s: float) -> None:
        speed = _speed(bytes_per_s)
        ip.tc(command, "htb", self.index, _DATA, parent=_ROOT, prio=1, **speed)

    def rate(self, ip: Any) -> float:
        """Bytes per second, as the kernel has it."""
        for found in ip.get_classes(index=self.index):
            if found["handle"] == _DATA:
                options = found.get_attr("TCA_OPTIONS")
                long = options.get_attr("TCA_HTB_RATE64")
                return float(long or options.get_attr("TCA_HTB_PARMS")["rate"])
        raise RunError(f"the shaper of {self.wire.link} is gone")

    def counters(self) -> dict[str, int]:
        """Bytes by class, as frames on the wire, and drops, of which htb counts its queues' too."""
        nbytes = {
            c["handle"]: c.get_attr("TCA_STATS2").get_attr("TCA_STATS_BASIC")["bytes"]
            for c in self.ip.get_classes(index=self.index)
        }
        queues = {(q["index"], q["handle"]): q for q in self.ip.get_qdiscs(index=self.index)}
        of_all = queues[self.index, _ROOT].get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")
        return {"data": nbytes[_DATA], "ack": nbytes[_ACK], "drops": of_all["drops"]}


def address(rank: int) -> str:
    """A rank's own, in its network.

    >>> address(0), address(63)
    ('10.88.0.1', '10.88.0.64')
    """
    return str(ip_network(SUBNET)[rank + 1])


def _word(rank: int) -> str:
    """The address as a filter compares it."""
    return f"0x{int(ip_address(address(rank))):08x}/0xffffffff"


def _speed(bytes_per_s: float) -> dict[str, int]:
    rate, burst = int(bytes_per_s), burst_bytes(bytes_per_s)
    return {"rate": rate, "ceil": rate, "burst": burst, "cburst": burst}


class Changes:
    """Changes rates at their moments after an agreed start, and puts them back.

    A thread of its own does it, with a real-time priority above the ranks' where that is allowed;
    it alone talks to the kernel about rates.
    """

    def __init__(self, ends: Sequence[End]) -> None:
        self.ends = [end for end in ends if end.wire.changes]
        self.due = sorted(
            ((at_s, rate, end) for end in self.ends for at_s, rate in end.wire.changes),
            key=lambda change: change[0],
        )
        self.made: list[dict[str, Any]] = []
        self.starts: queue.Queue[float] = queue.Queue()
        self.over, self.restored = threading.Event(), threading.Event()
        if self.ends:
            threading.Thread(target=self._serve, daemon=True).start()

    def arm(self, start_s: float) -> None:
        """Be ready for a run that starts then."""
        if self.ends:
            self.over.clear()
            self.restored.clear()
            self.starts.put(start_s)

    def finish(self) -> list[dict[str, Any]]:
        """The run has ended: restore every rate, and say which changes were made and how late."""
        if not self.ends:
            return []
        self.over.set()
        if not self.restored.wait(10):
            links = ", ".join(end.wire.link for end in self.ends)
            raise RunError(f"the rate of {links} was not restored after the run")
        return self.made

    def _serve(self) -> None:
        from pyroute2 import IPRoute

        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
        ip = IPRoute()
        while True:
            start_s = self.starts.get()
            made = []
            for at_s, rate, end in self.due:
                moment_s = start_s + at_s if at_s else -1.0  # what holds from the start: at once
                if self.over.wait(max(0.0, moment_s - time.monotonic())):
                    break
                seen, late_s = end.set_rate(ip, rate), time.monotonic() - start_s - at_s
                made.append(_made(end.wire.link, at_s, rate, seen, max(late_s, 0.0)))
            self.over.wait()
            self.made = made
            if all(same(end.set_rate(ip, end.wire.bytes_per_s), end.wire) for end in self.ends):
                self.restored.set()


def _made(link: str, at_s: float, wanted: float, seen: float, late_s: float) -> dict[str, Any]:
    rates = {"wanted_bytes_per_s": wanted, "bytes_per_s": seen}
    return {"link": link, "at_s": at_s, "late_s": late_s} | rates


def same(bytes_per_s: float, wire: Wire) -> bool:
    """Whether that is the wire's own rate, to the byte that the kernel counts in."""
    return abs(bytes_per_s - wire.bytes_per_s) <= 1


def interface(ip: Any, name: str) -> int:
    """The number of a network interface."""
    found = ip.link_lookup(ifname=name)
    if not found:
        raise RunError(f"network interface {name} is not there")
    return int(found[0])


def no_ipv6() -> None:
    """Keep the kernel's own IPv6 chatter off the counters."""
    for scope in ("all", "default"):
        path = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if path.exists():
            path.write_text("1", encoding="ascii")
