"""Two machines out of one: this process, first of namespaces of its own, joins two networks by a
wire, and starts a torchrun in each. ``python -m tests.two_machines RANKS_EACH COMMAND...``

Its output is that of the ranks, and the bytes that each machine has sent.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyroute2 import IPRoute

from real_gpu.network.shaped import leave_network

PORT = "29577"
SENT = "bytes sent by this machine:"


def machine(number: int, each: str, command: list[str]) -> None:
    """Become a machine's torchrun, once the other end of the wire is here."""
    leave_network()
    print(flush=True)  # noqa: T201
    sys.stdin.readline()
    ip = IPRoute()
    for name in ("lo", f"wire{number}"):
        index = ip.link_lookup(ifname=name)[0]
        if name != "lo":
            ip.addr("add", index=index, address=f"10.77.0.{number + 1}", prefixlen=24)
        ip.link("set", index=index, state="up")
    print(flush=True)  # noqa: T201
    sys.stdin.readline()
    agent = ["--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", each]
    meet = ["--master-addr", "10.77.0.1", "--master-port", PORT]
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    done = subprocess.run([*torchrun, *agent, *meet, "-m", "real_gpu", *command], check=False)
    counters = Path("/proc/self/net/dev").read_text(encoding="ascii").partition(f"wire{number}:")[2]
    print(SENT, counters.split()[8], flush=True)  # noqa: T201
    sys.stdin.read()  # with the first of the two machines the wire goes, and the other's counters
    sys.exit(done.returncode)


def main(each: str, command: list[str]) -> int:
    """Both machines, and the wire between them."""
    here = [sys.executable, "-m", "tests.two_machines"]
    machines = [
        subprocess.Popen(
            [*here, "--machine", str(number), each, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (0, 1)
    ]
    for step in ("isolated", "connected"):
        for process in machines:
            assert process.stdout is not None
            process.stdout.readline()
        if step == "isolated":
            ip = IPRoute()
            ip.link("add", ifname="wire0", kind="veth", peer={"ifname": "wire1"})
            for number, process in enumerate(machines):
                index = ip.link_lookup(ifname=f"wire{number}")[0]
                ip.link("set", index=index, net_ns_pid=process.pid)
        for process in machines:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
    said = [said_by(process) for process in machines]
    for process in machines:
        process.communicate()
    print(*said[0][:-1], *said[1][:-1], sep="\n")  # noqa: T201
    print([int(lines[-1].removeprefix(SENT)) for lines in said])  # noqa: T201
    return max(process.returncode for process in machines)


def said_by(process: subprocess.Popen[str]) -> list[str]:
    """All lines up to the one with the bytes sent."""
    assert process.stdout is not None
    lines: list[str] = []
    while not (lines and lines[-1].startswith(SENT)) and (line := process.stdout.readline()):
        lines.append(line.rstrip("\n"))
    return lines


if __name__ == "__main__":
    if sys.argv[1] == "--machine":
        machine(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    sys.exit(main(sys.argv[1], sys.argv[2:]))
