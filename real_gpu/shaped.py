"""A cluster out of one Linux machine: a network namespace per rank, joined by shaped wires.

Namespaces here have no names: processes alone hold them, and the kernel removes them, and every
interface in them, when the last process is gone, however it went. A veth pair joins each rank to
a bridge, and one shaper at either end gives the rank a full-duplex port of a chosen rate.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from real_gpu.job import RunError

_SUBNET = "10.88.0"  # exists only inside the namespaces
_CLONE_NEWNET = 0x40000000
_ETH_P_IP = 0x0800

# Handles, written as tc does: 1: is the shaper, 1:1 data, 1:2 acknowledgements.
_ROOT, _DATA, _ACK = 0x1_0000, 0x1_0001, 0x1_0002
_BURST_BYTES = 32 * 1024
_ACK_BYTES_PER_S = 125_000_000
_QUEUE_PACKETS = 3000  # never full: a drop would mean TCP's recovery is measured, not the link

# A small send buffer, so that a send ends when its bytes have left rather than when the kernel
# has taken them; no slow start after idle; nothing remembered from earlier connections.
_SYSCTLS = {
    "tcp_wmem": "4096 16384 262144",
    "tcp_slow_start_after_idle": "0",
    "tcp_no_metrics_save": "1",
}


def namespace_command() -> list[str]:
    """The command that starts another one in namespaces of its own.

    The process namespace is the guarantee: when its first process dies, the kernel kills the rest.
    """
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--pid", "--fork", "--kill-child=SIGKILL"]


def why_not() -> str | None:
    """Why this machine cannot make a shaped network, and what to do; None when it can."""
    if sys.platform != "linux":
        return f"a shaped network needs Linux, this is {sys.platform}"
    try:
        import pyroute2  # noqa: F401
    except ImportError:
        return "a shaped network needs pyroute2: pip install pyroute2"
    command = [*namespace_command(), sys.executable, "-m", "real_gpu.shaped"]
    try:
        tried = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": package_path()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except FileNotFoundError:
        return "a shaped network needs the command unshare (package util-linux)"
    except subprocess.TimeoutExpired:
        return "making a network namespace took over 20 s"
    if tried.returncode == 0:
        return None
    lines = tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"]
    how = "" if os.geteuid() == 0 else "; as root, or with unprivileged user namespaces, it may"
    return f"this machine does not allow a shaped network ({lines[-1]}){how}"


def package_path() -> str:
    """A PYTHONPATH with which a child finds this package."""
    here = str(Path(__file__).resolve().parent.parent)
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


class Hub:
    """The switch: a bridge in this process's network, and the far end of every rank's wire."""

    def __init__(self, bytes_per_s: float, latency_s: float) -> None:
        from pyroute2 import IPRoute

        self.ip, self.bytes_per_s, self.latency_s = IPRoute(), bytes_per_s, latency_s
        self.ports: list[int] = []
        _no_ipv6()
        self.ip.link("set", index=_index(self.ip, "lo"), state="up")
        self.ip.link("add", ifname="switch", kind="bridge")
        self.bridge = _index(self.ip, "switch")
        self.ip.link("set", index=self.bridge, state="up")

    def plug(self, rank: int, pid: int) -> None:
        """A wire from the bridge into the network of process ``pid``."""
        self.ip.link("add", ifname=f"port{rank}", kind="veth", peer={"ifname": f"rank{rank}"})
        self.ip.link("set", index=_index(self.ip, f"rank{rank}"), net_ns_pid=pid)
        port = _index(self.ip, f"port{rank}")
        # The latency is on the rank's side only: once per way.
        _shape(self.ip, port, self.bytes_per_s, 0.0)
        self.ip.link("set", index=port, master=self.bridge, state="up")
        self.ports.append(port)

    def counters(self) -> list[dict[str, int]]:
        """What has gone out to each rank so far."""
        return [_counters(self.ip, port) for port in self.ports]


class RankPort:
    """The rank's end of its wire, in the rank's own network."""

    def __init__(self, rank: int, bytes_per_s: float, latency_s: float) -> None:
        from pyroute2 import IPRoute

        self.ip, self.name, self.address = IPRoute(), f"rank{rank}", f"{_SUBNET}.{rank + 1}"
        _no_ipv6()
        self.index = _index(self.ip, self.name)
        for name, value in _SYSCTLS.items():
            Path(f"/proc/sys/net/ipv4/{name}").write_text(value, encoding="ascii")
        self.ip.link("set", index=_index(self.ip, "lo"), state="up")
        self.ip.addr("add", index=self.index, address=self.address, prefixlen=24)
        _shape(self.ip, self.index, bytes_per_s, latency_s)
        self.ip.link("set", index=self.index, state="up")
        # Per route, since the machine's list of allowed congestion controls may lack cubic;
        # BBR, where it is the default, models a path whose every delay is queueing badly.
        route = {"dst": f"{_SUBNET}.0/24", "oif": self.index, "prefsrc": self.address}
        self.ip.route(
            "replace", **route, proto="kernel", scope="link", metrics={"cc_algo": "cubic"}
        )

    def counters(self) -> dict[str, int]:
        """What the rank has sent so far."""
        return _counters(self.ip, self.index)


def leave_network() -> None:
    """Give the calling thread a network of its own (``os.unshare`` is there from Python 3.12)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise RunError(f"no network namespace for a rank: {os.strerror(ctypes.get_errno())}")


def _shape(ip: Any, index: int, bytes_per_s: float, latency_s: float) -> None:
    """Data at the rate; pure acknowledgements (IP length below 64) apart and ahead, so that they
    do not queue behind data. Large packets stay whole: htb lets its bucket go below zero.
    """
    ip.tc("add", "htb", index, _ROOT, default=_DATA & 0xFFFF)
    classes = ((_DATA, int(bytes_per_s), 1), (_ACK, _ACK_BYTES_PER_S, 0))
    for handle, rate, prio in classes:
        speed = {"rate": rate, "ceil": rate, "burst": _BURST_BYTES, "cburst": _BURST_BYTES}
        ip.tc("add-class", "htb", index, handle, parent=_ROOT, prio=prio, **speed)
    for handle, parent in ((0x11_0000, _DATA), (0x12_0000, _ACK)):
        if latency_s:
            _delay(ip, index, handle, parent, latency_s)
        else:
            ip.tc("add", "pfifo", index, handle, parent=parent, limit=_QUEUE_PACKETS)
    ip.tc(
        "add-filter",
        "u32",
        index,
        parent=_ROOT,
        prio=1,
        protocol=_ETH_P_IP,
        target=_ACK,
        keys=["0x0000/0xffc0+2", "0x06/0xff+9"],
    )


def _delay(ip: Any, index: int, handle: int, parent: int, latency_s: float) -> None:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        delay_us = round(latency_s * 1e6)
        ip.tc("add", "netem", index, handle, parent=parent, delay=delay_us, limit=_QUEUE_PACKETS)
    except NetlinkError as error:
        raise RunError(
            f"the latency cannot be made: this kernel lacks netem ({error.args[-1]}); "
            "ask for a network without latency, or use a kernel with CONFIG_NET_SCH_NETEM"
        ) from None


def _counters(ip: Any, index: int) -> dict[str, int]:
    """Bytes by class, as frames on the wire, and drops of every queue."""
    nbytes = {
        c["handle"]: c.get_attr("TCA_STATS2").get_attr("TCA_STATS_BASIC")["bytes"]
        for c in ip.get_classes(index=index)
    }
    queues = [q for q in ip.get_qdiscs(index=index) if q["index"] == index]
    drops = sum(q.get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")["drops"] for q in queues)
    return {"data": nbytes[_DATA], "ack": nbytes[_ACK], "drops": drops}


def _index(ip: Any, name: str) -> int:
    found = ip.link_lookup(ifname=name)
    if not found:
        raise RunError(f"network interface {name} is not there")
    return int(found[0])


def _no_ipv6() -> None:
    """Keep the kernel's own IPv6 chatter off the counters."""
    for scope in ("all", "default"):
        path = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if path.exists():
            path.write_text("1", encoding="ascii")


def _probe() -> None:
    """One wire, to see whether the kernel has all that it takes."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        Hub(1e6, 0.0).plug(0, os.getpid())
        RankPort(0, 1e6, 0.0)
    except (NetlinkError, OSError) as error:
        sys.exit(f"{error.args[-1]}")


if __name__ == "__main__":
    _probe()
