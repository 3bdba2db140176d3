"""A cluster out of one Linux machine: a network namespace per rank, joined by shaped wires.

Namespaces here have no names: processes alone hold them, and the kernel removes them, and every
interface in them, when the last process is gone, however it went. A veth pair joins each rank to
a bridge, and a shaper at either end gives the rank a full-duplex port, each way at its own rate.
Where nodes share an uplink, each has a bridge of its own, joined to the others' by one more pair.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from real_gpu.job import RunError
from real_gpu.network.shaper import SUBNET, Changes, End, address, interface, no_ipv6
from real_gpu.network.wiring import Wire, Wiring

_CLONE_NEWNET = 0x40000000
# Small, so that a send ends when its bytes have left rather than when the kernel has taken them.
_SEND_BUFFER_BYTES = 65_536
_WINDOW_SEGMENTS = 400
# No slow start after idle; nothing remembered from earlier connections.
_SYSCTLS = {
    "tcp_rmem": "4096 1048576 6291456",
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
    return _tried()


def why_no_latency() -> str | None:
    """Why wires cannot have a latency where there are wires; None when they can."""
    return _tried("latency")


def _tried(*what: str) -> str | None:
    """Why the probe in namespaces of its own fails; None when it does not."""
    command = [*namespace_command(), sys.executable, "-m", "real_gpu.network.shaped", *what]
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
    if what:
        return lines[-1]
    how = "" if os.geteuid() == 0 else "; as root, or with unprivileged user namespaces, it may"
    return f"this machine does not allow a shaped network ({lines[-1]}){how}"


def package_path() -> str:
    """A PYTHONPATH with which a child finds this package."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


class Hub:
    """The switches: bridges in this process's network, and the far end of every rank's wire."""

    def __init__(self, wiring: Wiring) -> None:
        from pyroute2 import IPRoute

        self.ip, self.wiring = IPRoute(), wiring
        self.ports: list[End] = []
        no_ipv6()
        self.ip.link("set", index=interface(self.ip, "lo"), state="up")
        spine = self._bridge("switch")
        self.bridges = [spine]
        self.uplinks: list[End] = []
        if wiring.ups:
            self.bridges = [self._bridge(f"node{k}") for k in range(len(wiring.ups))]
            for node, bridge in enumerate(self.bridges):
                self._uplink(node, bridge, spine)

    def _bridge(self, name: str) -> int:
        self.ip.link("add", ifname=name, kind="bridge")
        index = interface(self.ip, name)
        self.ip.link("set", index=index, state="up")
        return index

    def _uplink(self, node: int, bridge: int, spine: int) -> None:
        up, down = f"up{node}", f"down{node}"
        self.ip.link("add", ifname=up, kind="veth", peer={"ifname": down})
        ends = ((up, self.wiring.ups, bridge), (down, self.wiring.downs, spine))
        for name, wires, switch in ends:
            self.uplinks.append(self._shaped(name, wires[node], switch))

    def _shaped(self, name: str, wire: Wire, switch: int) -> End:
        end = End(self.ip, name, wire)
        end.shape()
        self.ip.link("set", index=end.index, master=switch, state="up")
        return end

    def plug(self, rank: int, pid: int) -> None:
        """A wire from the rank's bridge into the network of process ``pid``."""
        self.ip.link("add", ifname=f"port{rank}", kind="veth", peer={"ifname": f"rank{rank}"})
        self.ip.link("set", index=interface(self.ip, f"rank{rank}"), net_ns_pid=pid)
        nodes = sorted(set(self.wiring.node_of))
        switch = self.bridges[nodes.index(self.wiring.node_of[rank])]
        self.ports.append(self._shaped(f"port{rank}", self.wiring.receives[rank], switch))

    def all_plugged(self) -> None:
        """No more wires: from here on they can change."""
        self.changes = Changes([*self.ports, *self.uplinks])

    def counters(self) -> dict[str, list[dict[str, int]]]:
        """What has gone out to each rank so far, and over each uplink, up before down."""
        return {
            "port": [port.counters() for port in self.ports],
            "uplink": [end.counters() for end in self.uplinks],
        }


class RankPort:
    """The rank's end of its wire, in the rank's own network."""

    def __init__(
        self, rank: int, wire: Wire, packet_bytes: int = 65_536, round_trip_s: float = 0.0
    ) -> None:
        from pyroute2 import IPRoute

        self.ip, self.name, self.address = IPRoute(), f"rank{rank}", address(rank)
        no_ipv6()
        # A long wire holds more than the usual buffer: twice that, for what is unacknowledged.
        buffer = max(_SEND_BUFFER_BYTES, int(2 * wire.bytes_per_s * round_trip_s))
        sysctls = _SYSCTLS | {"tcp_wmem": f"4096 16384 {buffer}"}
        for name, value in sysctls.items():
            Path(f"/proc/sys/net/ipv4/{name}").write_text(value, encoding="ascii")
        self.ip.link("set", index=interface(self.ip, "lo"), state="up")
        self.end = End(self.ip, self.name, wire)
        self.ip.addr("add", index=self.end.index, address=self.address, prefixlen=24)
        self.end.shape()
        self.ip.link("set", index=self.end.index, state="up", gso_max_size=packet_bytes)
        # Per route, since the machine's list of allowed congestion controls may lack cubic;
        # BBR, where it is the default, models a path whose every delay is queueing badly.
        route = {"dst": SUBNET, "oif": self.end.index, "prefsrc": self.address}
        self.ip.route(
            "replace",
            **route,
            proto="kernel",
            scope="link",
            metrics={
                "cc_algo": "cubic",
                "initcwnd": _WINDOW_SEGMENTS,
                "initrwnd": _WINDOW_SEGMENTS,
            },
        )
        self.changes = Changes([self.end])

    def counters(self) -> dict[str, int]:
        """What the rank has sent so far."""
        return self.end.counters()


def leave_network() -> None:
    """Give the calling thread a network of its own (``os.unshare`` is there from Python 3.12)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise RunError(f"no network namespace for a rank: {os.strerror(ctypes.get_errno())}")


def _probe(latency: bool) -> None:
    """One wire, to see whether the kernel has all that it takes."""
    from pyroute2.netlink.exceptions import NetlinkError

    send, receive = Wire("gpu0.tx", 1e6, 1e-3 if latency else 0.0), Wire("gpu0.rx", 1e6)
    try:
        Hub(Wiring((send,), (receive,), (0,))).plug(0, os.getpid())
        RankPort(0, send)
    except (NetlinkError, OSError, RunError) as error:
        sys.exit(f"{error.args[-1]}")


if __name__ == "__main__":
    _probe("latency" in sys.argv[1:])
