"""The shaped network of a cluster file: what is built, refused, checked and changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from real_gpu.job import (
    Case,
    CaseResult,
    Job,
    RunError,
    job_from_json,
    parse_network,
)
from real_gpu.network import shaper
from real_gpu.network.instrument import calibration, instrument, rate_errors
from real_gpu.network.interfaces import chosen_interface
from real_gpu.network.probes import calibration_schedule, link_times, unfilled, wires_alone
from real_gpu.network.shaped import namespace_command, package_path, why_not
from real_gpu.network.wiring import Wire
from real_gpu.processes import worker
from real_gpu.processes.measure import measure
from real_gpu.recording import record_of
from simcore.cluster import Cluster
from simcore.cluster_file import cluster_from_dict
from simcore.engine import simulate
from simcore.measured.records import record_from_json
from simcore.trace import Spans
from simcore.units import FRAME_FACTOR
from tests.support import require

REPOSITORY = Path(__file__).resolve().parent.parent
MBIT = 1e6 / 8
TWO_NODES: dict[str, Any] = {
    "name": "two nodes",
    "ports": [
        {"send": "200Mbit/s", "receive": "200Mbit/s"},
        {"send": "100Mbit/s", "receive": "200Mbit/s"},
        {"send": "200Mbit/s", "receive": "150Mbit/s"},
        {"send": "200Mbit/s", "receive": "200Mbit/s"},
    ],
    "levels": [{"name": "node", "groups": [[0, 2], [1, 3]], "uplink": "150Mbit/s"}],
}


@pytest.fixture
def file(tmp_path):
    def write(document: Any) -> str:
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps(document))
        return str(path)

    return write


# -- what is built -------------------------------------------------------------------------------


def test_a_cluster_file_becomes_its_wires(file):
    network = parse_network(file(TWO_NODES), ["node1:0.5@1ms..2ms", "gpu2.rx:0.5"])
    wires = network.wiring(4)
    rates = {w.link: w.bytes_per_s / MBIT for w in (*wires.sends, *wires.receives)}
    unlike = {"gpu1.tx": 100, "gpu2.rx": 150}
    assert rates == {link: pytest.approx(unlike.get(link, 200)) for link in rates}
    assert wires.node_of == (0, 1, 0, 1)
    assert [w.link for w in (*wires.ups, *wires.downs)] == [
        *("node0.up", "node1.up", "node0.down", "node1.down")
    ]
    # Each pair that shares an uplink has a queue of its own there, in its direction.
    assert set(wires.ups[1].flows) == set(wires.downs[0].flows) == {(1, 0), (1, 2), (3, 0), (3, 2)}
    slowed = ((1e-3, pytest.approx(75 * MBIT)), (2e-3, pytest.approx(150 * MBIT)))
    assert wires.ups[1].changes == wires.downs[1].changes == slowed
    assert wires.receives[2].changes == ((0.0, pytest.approx(75 * MBIT)),)
    assert wires.slowest_bytes_per_s == pytest.approx(75 * MBIT)


def test_latency_is_made_once_per_way():
    level = {"name": "node", "size": 2, "uplink": "1Gbit/s", "latency": "10us"}
    cluster = {"bandwidth": "1Gbit/s", "latency": "50us", "levels": [level]}
    wires = parse_network_dict(cluster).wiring(4)
    assert {w.latency_s for w in wires.sends} == {10e-6}
    assert [w.latency_s for w in wires.ups] == pytest.approx([40e-6, 40e-6])
    assert {w.latency_s for w in (*wires.receives, *wires.downs)} == {0.0}
    assert wires.longest_latency_s == pytest.approx(50e-6)


def parse_network_dict(document: dict[str, Any], slow_links: tuple[str, ...] = ()) -> Any:
    frames = FRAME_FACTOR
    names = ("wire_time_per_payload_byte", "counter_bytes_per_payload_byte")
    document = document | dict.fromkeys(names, frames)
    return replace(parse_network("1Gbit/s", slow_links), document=document, from_file=True)


NODE: dict[str, Any] = {"name": "node", "size": 2, "uplink": "1Gbit/s"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"half_duplex": True}, "'half_duplex'"),
        ({"pair_latency": [{"src": 0, "dst": 1, "latency": "1ms"}]}, "'pair_latency'"),
        ({"latency": "2s"}, "'latency'"),
        ({"levels": [NODE, {"name": "rack", "size": 4, "uplink": "1Gbit/s"}]}, "'levels'"),
        ({"levels": [NODE | {"port": "2Gbit/s"}]}, "'port' of level 'node'"),
        ({"levels": [NODE | {"bus": "2Gbit/s"}]}, "'bus' of level 'node'"),
        ({"levels": [NODE | {"nics": 2}]}, "'nics' of level 'node'"),
        ({"levels": [NODE | {"half_duplex": True}]}, "'half_duplex' of level 'node'"),
        ({"levels": [NODE | {"latency": "1us"}]}, "'latency' of level 'node'"),
        ({"bandwidth": "100Gbit/s"}, "gpu0.tx at 12.5 GB/s: accepted are 1Mbit/s to 10Gbit/s"),
        ({"bandwith": "1Gbit/s"}, "did you mean 'bandwidth'"),
        ({"gpus": 8}, "'gpus' is 8, but 4"),
    ],
)
def test_what_cannot_be_made_is_named(changes, says, file):
    network = parse_network(file({"bandwidth": "1Gbit/s"} | changes))
    with pytest.raises(ValueError, match=r"^network 'cluster\.json': ") as caught:
        network.wiring(4)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("slow_link", "says"),
    [
        ("0->1:0.5", "is a pair of ranks"),
        ("gpu7.tx:0.5", "unknown link 'gpu7.tx'"),
        ("node0.up:0.5", "unknown link 'node0.up'"),
        ("gpu1.tx:0", "gpu1.tx at 0 B/s"),
        ("gpu1.tx", "LINK:FACTOR"),
    ],
)
def test_changes_that_cannot_be_made_are_named(slow_link, says):
    with pytest.raises(ValueError, match=says):
        parse_network("1Gbit/s", [slow_link]).wiring(4)


def test_the_command_line_refuses_before_it_starts_anything(file):
    run = ("run", "ring", "--gpus", "4", "--size", "8B", "--out", "r.json")
    bad = file(TWO_NODES | {"half_duplex": True})
    for words, says in (
        (("--network", bad), "half_duplex"),
        (("--network", "no-such-preset"), "a .json file"),
        (("--slow-link", "gpu0.tx:0.5"), "with --network"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "real_gpu", *run, *words],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_job_travels_as_json(file):
    network = parse_network(file(TWO_NODES), ["gpu1.tx:0.5"])
    job = Job(4, (calibration(network), Case("ring", 8)), network=network)
    assert job_from_json(json.loads(json.dumps(job.to_json()))) == job


# -- the checks ----------------------------------------------------------------------------------


def clusters() -> list[Cluster]:
    plain = {"bandwidth": "200Mbit/s"}
    uplinks = [plain | {"levels": [NODE | {"uplink": f"{rate}Mbit/s"}]} for rate in (50, 300, 900)]
    fast_root = [{"send": f"{x}Mbit/s", "receive": f"{x}Mbit/s"} for x in (600, 200, 200, 200)]
    documents = [plain, TWO_NODES, {"ports": fast_root}, *uplinks]
    return [cluster_from_dict(document, 4) for document in documents]


@pytest.mark.parametrize("cluster", clusters())
def test_a_calibration_fills_every_link_that_can_be_filled(cluster):
    bare = wires_alone(cluster)
    run = simulate(calibration_schedule(cluster), bare, 2**20)
    filled = {link for link, _ in link_times(bare, run.trace.spans)}
    links = {name for name in run.network.names if name != "free"}
    assert filled | set(unfilled(cluster)) == links
    assert not filled & set(unfilled(cluster))
    # Two ranks behind an uplink of more than twice a port never fill it, and nothing else is left.
    wide = any((level.uplink_bytes_per_s or 0) > 400 * MBIT for level in cluster.levels)
    assert all("node" in link for link in unfilled(cluster))
    assert bool(unfilled(cluster)) == wide


def as_rows(spans: Spans) -> list[list[float]]:
    return np.column_stack([getattr(spans, name) for name in asdict(spans)]).tolist()


@pytest.mark.parametrize("slow", ["gpu1.tx", "gpu2.rx", "node0.up", "node1.down"])
def test_a_link_that_is_off_its_rate_is_called_by_its_name(slow, file):
    """As measured on a network one of whose links is 3 % slower than the file says."""
    network = parse_network(file(TWO_NODES))
    cluster, elements = network.cluster(4), calibration(network).elements
    off = parse_network(file(TWO_NODES), [f"{slow}:0.97"])
    schedule, bare = calibration_schedule(cluster), wires_alone(cluster)
    run = simulate(schedule, bare, elements, slowdowns=off.slowdowns)
    calibrated = CaseResult([run.trace.time_s], [], as_rows(run.trace.spans), None)
    errors = rate_errors(cluster, elements, calibrated)
    assert errors[slow][1] == pytest.approx(-0.03, abs=0.003)
    assert errors["gpu0.tx"][1] == pytest.approx(0, abs=0.003)
    found = instrument(Job(4, (), network=network), quiet_result(4), calibrated)
    assert not found["ok"]
    assert slow in found["reasons"][0]
    assert "-3.0% off the rate that was set" in found["reasons"][0]
    assert found["links"][slow]["rate_error"] == errors[slow][1]


@pytest.mark.parametrize(("slow", "believed"), [(0, True), (2, True), (3, False), (4, False)])
def test_a_link_that_is_slow_in_most_runs_has_not_the_rate_of_its_fastest(slow, believed):
    """Of five runs: one or two that the machine disturbed say nothing of the link."""
    network = parse_network("200Mbit/s")
    case, cluster = calibration(network), network.cluster(2)
    schedule, bare = calibration_schedule(cluster), wires_alone(cluster)
    rows = as_rows(simulate(schedule, bare, case.elements).trace.spans)
    end_s = max(row[8] for row in rows)
    late = [[*row[:8], row[8] * 1.08, row[9]] for row in rows]
    spans = [row for run in range(5) for row in (late if run < slow else rows)]
    runs_s = [end_s * (1.08 if run < slow else 1) for run in range(5)]
    calibrated = CaseResult(runs_s, [], spans, None)
    found = instrument(Job(2, (), network=network), quiet_result(2), calibrated)
    assert found["ok"] == believed
    assert abs(found["rate_error"]) < 0.003
    assert found["median_rate_error"] == pytest.approx(0.0 if believed else -0.074, abs=0.004)
    if not believed:
        (reason,) = found["reasons"]
        assert "only the fastest runs have the rate" in reason
        assert "gpu0.tx" in reason
        assert "-7.4%" in reason


def quiet_result(n: int, **changes: Any) -> CaseResult:
    per_rank = ("sent", "received", "ack_sent", "ack_received")
    counted: dict[str, Any] = {name: [1] * n for name in per_rank}
    counted |= {"waited_s": [0.0] * n, "dropped": {}, "uplinks": {}, "changes": []}
    counted |= {"settled": True} | changes
    return CaseResult([1.0, 1.0], [counted, counted], [], [{"sent": 1, "received": 1}] * n)


MADE = {
    "link": "gpu1.tx",
    "at_s": 0.5,
    "late_s": 0.0,
    "wanted_bytes_per_s": 9e6,
    "bytes_per_s": 9e6,
}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dropped": {"gpu1.rx": 2}}, "4 packets were dropped at gpu1.rx"),
        ({"settled": False}, "counters had not settled"),
        ({"changes": [MADE | {"late_s": 0.02}]}, "changed 20.0 ms after its moment"),
        ({"changes": [MADE | {"bytes_per_s": 25e6}]}, "read back as 25000000"),
        ({"changes": []}, "not every change was made in every run: gpu1.tx"),
        ({"changes": [MADE | {"at_s": 0.4}]}, "in every run: gpu1.tx"),
        ({"changes": [MADE | {"link": "gpu0.tx"}]}, "in every run: gpu1.tx"),
        ({"settled": False, "waited_s": [0.0, 0.3]}, "waited up to 300 ms of a run for a CPU"),
    ],
)
def test_each_check_has_its_reason(changes, says):
    job = Job(2, (), network=parse_network("200Mbit/s", ["gpu1.tx:0.36@0.5s.."]))
    assert instrument(job, quiet_result(2, changes=[MADE]), None)["ok"]
    found = instrument(job, quiet_result(2, **{"changes": [MADE]} | changes), None)
    assert not found["ok"]
    assert says in " ".join(found["reasons"])


def test_a_change_that_a_run_lacks_is_missed_unless_the_run_was_over():
    job = Job(2, (), network=parse_network("200Mbit/s", ["gpu1.tx:0.36@0.5s.."]))
    result = quiet_result(2, changes=[MADE])
    unlike = [result.counters[0], result.counters[1] | {"changes": []}]
    assert not instrument(job, replace(result, counters=unlike), None)["ok"]
    short = replace(quiet_result(2), runs_s=[0.5, 0.5])
    assert instrument(job, short, None)["ok"]


@pytest.mark.parametrize("nbytes", [0, 8])
def test_only_what_was_to_be_sent_decides_that_there_is_nothing_to_check(nbytes):
    """Counters that stand still under traffic are a fault of theirs, not a quiet run."""
    case, stuck = Case("ring", nbytes // 4, runs=2), [0 if nbytes else 9] * 2
    job = Job(2, (case,), network=parse_network("200Mbit/s"))
    result = quiet_result(2, sent=stuck, received=stuck, settled=False)
    result = replace(result, payload=[{"sent": nbytes, "received": nbytes}] * 2)
    record = record_of(job, case, result, calibrated=None, command="none")
    assert (record.instrument is None) == (nbytes == 0)
    assert record.simulated is not None
    assert record.simulated["received_bytes"] == [nbytes] * 2


def test_waiting_alone_is_no_fault():
    job = Job(2, (), network=parse_network("200Mbit/s"))
    found = instrument(job, quiet_result(2, waited_s=[0.0, 0.3]), None)
    assert found["ok"]
    assert found["cpu_wait_s"] == 0.3


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_waiting_for_a_cpu_is_seen():
    """Two processes that want the same CPU: one of them waits until it has waited."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    rival = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        before_s = worker.cpu_wait_s()
        for _ in range(10**9):
            if worker.cpu_wait_s() > before_s + 0.01:
                break
    finally:
        rival.kill()
        rival.wait()
        os.sched_setaffinity(0, allowed)


class Attributes(dict[str, Any]):
    get_attr = dict.__getitem__


def test_a_dropped_packet_is_counted_once():
    """htb counts what its leaves drop, and some leaves are not in the kernel's list."""

    def row(index: int, handle: int, nbytes: int, drops: int) -> Attributes:
        counts = {"TCA_STATS_BASIC": {"bytes": nbytes}, "TCA_STATS_QUEUE": {"drops": drops}}
        stats = {"TCA_STATS2": Attributes(counts)}
        return Attributes({"index": index, "handle": handle} | stats)

    class Kernel:
        def link_lookup(self, ifname: str) -> list[int]:
            return [7]

        def get_classes(self, index: int) -> list[Attributes]:
            return [row(7, 0x1_0001, 900, 3), row(7, 0x1_0002, 60, 0)]

        def get_qdiscs(self, index: int) -> list[Attributes]:
            other = row(8, 0x1_0000, 0, 5)
            return [row(7, 0x1_0000, 960, 3), row(7, 0x101_0000, 900, 3), other]

    end = shaper.End(Kernel(), "rank0", Wire("gpu0.tx", 25e6))
    assert end.counters() == {"data": 900, "ack": 60, "drops": 3}


def test_a_kernel_without_netem_is_told_apart_from_other_failures():
    errors = pytest.importorskip("pyroute2.netlink.exceptions", reason="pip install pyroute2")

    class NoNetem:
        def link_lookup(self, ifname: str) -> list[int]:
            return [7]

        def tc(self, command: str, kind: str, *where: Any, **what: Any) -> None:
            if kind == "netem":
                raise errors.NetlinkError(2, "No such file or directory")

    shaper.End(NoNetem(), "rank0", Wire("gpu0.tx", 25e6)).shape()
    with pytest.raises(RunError, match="this kernel lacks netem"):
        shaper.End(NoNetem(), "rank0", Wire("gpu0.tx", 25e6, 50e-6)).shape()


# -- real ones -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One job without root: a calibration, a ring that is changed while it runs, and another."""
    pytest.importorskip("torch", reason="pip install torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 1000)
        require("shaped", why_not())
        path = tmp_path_factory.mktemp("network") / "two-nodes.json"
        path.write_text(json.dumps(TWO_NODES))
        changes = ("gpu1.tx:0.25", "node1.up:0.5@0s..1us", "gpu3.rx:0.5@100s..")
        network = parse_network(str(path), changes)
        ring = Case("ring", 2**18, runs=1)
        small = replace(calibration(network), elements=2**14, runs=2)
        job = Job(4, (small, ring), network=network)
        return job, measure(job)


@pytest.mark.shaped
def test_a_real_network_of_nodes_counts_what_is_simulated(measured):
    job, (_, ring) = measured
    assert job.network is not None
    simulated = simulate(
        record_case_schedule(), job.network.cluster(4), 2**18, slowdowns=job.network.slowdowns
    )
    names = simulated.network.names
    payload = dict(zip(names, simulated.link_bytes.tolist(), strict=True))
    [counted] = ring.counters
    assert counted["dropped"] == {}
    assert set(counted["uplinks"]) == {"node0.up", "node0.down", "node1.up", "node1.down"}
    for link, nbytes in counted["uplinks"].items():
        assert nbytes == pytest.approx(payload[link] * FRAME_FACTOR, rel=0.02)
    for rank in range(4):
        wire = payload[f"gpu{rank}.tx"] * FRAME_FACTOR
        assert counted["sent"][rank] == pytest.approx(wire, rel=0.02)


def record_case_schedule() -> Any:
    from simcore.algorithms import ring

    return ring(4)


@pytest.mark.shaped
def test_a_real_link_changes_during_the_run(measured):
    """The kernel says so while it is on; what lies beyond the run's end is not made."""
    _, (_, ring) = measured
    made = {(c["link"], c["at_s"]): c["bytes_per_s"] / MBIT for c in ring.counters[0]["changes"]}
    assert made == {
        ("gpu1.tx", 0.0): pytest.approx(25),
        ("node1.up", 0.0): pytest.approx(75),
        ("node1.up", 1e-6): pytest.approx(150),
    }


@pytest.mark.shaped
def test_a_real_calibration_reaches_every_link(measured):
    job, (calibrated, _) = measured
    assert job.network is not None
    assert [run["changes"] for run in calibrated.counters] == [[], []]
    errors = rate_errors(job.network.cluster(4), 2**14, calibrated)
    assert len(errors) == 12  # eight ports, four uplinks
    assert all(rate > 0 for rate, *_ in errors.values())


@pytest.mark.shaped
def test_its_record_says_which_network(measured):
    job, (calibrated, ring) = measured
    small = replace(job, cases=job.cases[1:])
    record = record_of(small, job.cases[1], ring, calibrated=None, command="pytest")
    assert record.network == "two-nodes.json"
    assert record.cluster is not None
    assert record.simulated is not None
    assert record.cluster["levels"] == TWO_NODES["levels"]
    assert record.simulated["cluster"] == record.cluster
    assert record.slow_links[0] == "gpu1.tx:0.25"
    assert record.network_bytes_per_s is None  # not a plain switch: nearest to no such run
    assert record_from_json(record.to_json()) == record
    assert calibrated.spans


@pytest.mark.shaped
def test_as_many_ranks_as_are_allowed_get_ports_of_their_own():
    """All in one network, which is enough to see that names and addresses suffice."""
    require("shaped", why_not())
    program = """
import os
from real_gpu.job import parse_network
from real_gpu.network.shaped import Hub, RankPort
from simcore.units import FRAME_FACTOR
wiring = parse_network("1Gbit/s").wiring(64)
hub = Hub(wiring)
for rank in range(64):
    hub.plug(rank, os.getpid())
last = RankPort(63, wiring.sends[63])
print(len(hub.counters()["port"]), last.address, int(last.end.rate(last.ip)))
"""
    done = subprocess.run(
        [*namespace_command(), sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": package_path()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["64", "10.88.0.64", "125000000"], done.stderr


# -- what else a run needs -----------------------------------------------------------------------


def test_an_interface_that_is_not_there_is_named_with_those_that_are(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo,eth99")
    with pytest.raises(ValueError, match="GLOO_SOCKET_IFNAME 'eth99' is not here") as caught:
        measure(Job(2, (Case("ring", 2),)))
    assert "lo" in str(caught.value).split("accepted: ")[1].split(", ")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert chosen_interface() == "lo"


@pytest.mark.gloo
def test_a_run_needs_no_shared_memory(tmp_path):
    """With a /dev/shm that holds nothing; where one cannot be made, there is nothing to see."""
    pytest.importorskip("torch", reason="pip install torch")
    if sys.platform != "linux":
        pytest.skip("/dev/shm is Linux's")
    namespaces = ["unshare", "--user", "--map-root-user", "--mount"]
    empty = "mount -t tmpfs -o size=4k,nr_inodes=2 none /dev/shm && cp /etc/hostname /dev/shm/full"
    if subprocess.run(
        [*namespaces, "sh", "-c", empty], capture_output=True, check=False
    ).returncode:
        pytest.skip("needs unprivileged user namespaces, to give a run a /dev/shm of its own")
    run = "run ring --gpus 2 --size 1MiB --runs 1 --out r.json"
    done = subprocess.run(
        [*namespaces, "sh", "-c", f'{empty} && exec "$0" -m real_gpu {run}', sys.executable],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.json").exists()
