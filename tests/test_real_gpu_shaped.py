"""The shaped network as an instrument: its own checks, and the prediction against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from real_gpu.job import (
    Case,
    CaseResult,
    Job,
    parse_network,
)
from real_gpu.network.instrument import calibration
from real_gpu.network.shaped import why_not
from real_gpu.processes.measure import measure
from real_gpu.recording import record_of
from simcore.measured.records import Record
from simcore.units import FRAME_FACTOR
from tests.support import read_record, require

pytestmark = pytest.mark.shaped

REPOSITORY = Path(__file__).resolve().parent.parent
RATE = parse_network("200Mbit/s")
TRIES = 3  # the instrument says when the machine was too busy to be believed; then ask again


@pytest.fixture(scope="module")
def shaped():
    pytest.importorskip("torch", reason="pip install torch")
    require("shaped", why_not())


@pytest.fixture(scope="module")
def records(shaped) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for _ in range(TRIES):
        left = [n for n in ("ring", "ps", "dp") if n not in found or not found[n].believable]
        if left:
            cases = tuple(Case(name, 2**21) for name in left)
            job = Job(4, (calibration(RATE), *cases), network=RATE)
            calibrated, *results = measure(job)
            for case, result in zip(cases, results, strict=True):
                found[case.name] = record_of(
                    job,
                    case,
                    result,
                    calibrated=calibrated,
                    command="pytest",
                )
    return found


@pytest.mark.parametrize("name", ["ring", "ps", "dp"])
def test_simulated_within_five_percent_and_counters_within_two(records, name):
    record = records[name]
    assert record.instrument is not None
    assert record.believable, record.instrument["reasons"]
    assert record.instrument["drops"] == 0
    assert record.instrument["spread"] <= 0.05
    assert abs(record.instrument["rate_error"]) <= 0.01
    assert record.simulated is not None
    assert record.simulated["time_s"] == pytest.approx(record.median_s, rel=0.05)
    for way in ("sent", "received"):
        payload = getattr(record, f"{way}_bytes")
        counted = getattr(record, f"counter_{way}_bytes")
        wire = [p * FRAME_FACTOR for p in payload]
        assert list(counted) == pytest.approx(wire, rel=0.02)
        # A pure acknowledgement is 66 bytes; there is one for several frames of 1514.
        acks = getattr(record, f"counter_ack_{'received' if way == 'sent' else 'sent'}_bytes")
        assert all(0 < a < 0.03 * c for a, c in zip(acks, counted, strict=True))


def test_without_root(shaped, monkeypatch):
    """The same inside a user namespace, as anyone may have it."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    require("shaped", why_not())
    result = measure(Job(2, (Case("ring", 2**16, runs=1),), network=RATE))[0]
    assert result.counters[0]["sent"][0] == pytest.approx(2**18 * 1.0456, rel=0.02)
    assert result.counters[0]["dropped"] == {}


NOBODY = 65534


def _as_nobody(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of some Python that nobody may start, with the packages of this one."""
    here = os.pathsep.join([str(REPOSITORY), sysconfig.get_path("purelib")])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    refused: OSError = FileNotFoundError(version)
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            return subprocess.run(
                [python, *words],
                cwd=folder,
                env={"PYTHONPATH": here, "PATH": os.defpath, "HOME": folder},
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        except OSError as error:
            refused = error
    raise refused


@pytest.fixture
def nobodys(shaped):
    """A folder of a user without any right, who can read this tree and make a network."""
    if os.geteuid():
        pytest.skip("this is no root, who alone can become somebody else")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is root's alone
        os.chown(folder, NOBODY, NOBODY)
        probe = "import psutil, real_gpu.network.shaped as s; print(s.why_not() or '')"
        try:
            tried = _as_nobody(folder, "-c", probe)
        except OSError as error:
            pytest.skip(f"nobody may not start this Python: {error}")
        if tried.returncode or tried.stdout.strip():
            said = (tried.stdout + tried.stderr).strip().splitlines()[-1]
            pytest.skip(f"nobody may not read this tree, or make a network: {said}")
        yield folder


def test_as_nobody(nobodys):
    """A true user without rights: no capability is left that a test as root might lean on."""
    words = "run ring --gpus 2 --size 256KiB --runs 1 --network 200Mbit/s --out r.json"
    done = _as_nobody(nobodys, "-m", "real_gpu", *words.split())
    assert done.returncode in (0, 1), done.stderr  # 1: a busy machine is not believed, as ever
    assert "Traceback" not in done.stderr
    file = Path(nobodys) / "r.json"
    record = read_record(file)
    assert file.stat().st_uid == NOBODY
    assert record.counter_sent_bytes is not None
    assert record.counter_sent_bytes[0] == pytest.approx(2**18 * FRAME_FACTOR, rel=0.02)
    assert record.instrument is not None
    assert record.instrument["drops"] == 0


def test_an_unquiet_instrument_says_so(shaped):
    """Checks that cannot fail check nothing: made-up runs trip each of them."""
    case = Case("ring", 2**21)
    job = Job(2, (), network=RATE)
    calm = {k: [1, 1] for k in ("sent", "received", "ack_sent", "ack_received")}
    calm |= {"waited_s": [0.0, 0.0], "changes": [], "uplinks": {}}
    dropped = ({}, {"gpu1.rx": 3}, {})
    runs = [calm | {"dropped": d, "settled": s} for d, s in zip(dropped, (1, 1, 0), strict=True)]
    result = CaseResult([1.0, 1.0, 1.1], runs, [], [{"sent": 1, "received": 1}] * 2)
    # Both ranks' flows, of the size that takes half a second, arrive late: 0.51 and 0.52 s.
    nbytes = calibration(RATE).size_bytes
    flows = [[r, lane, 0, 1 - r, 0, 0, 1, 0.0] for r in (0, 1) for lane in (1, 2)]
    late = [[*flow, end_s, nbytes] for end_s in (0.52, 0.51) for flow in flows]
    slow = CaseResult([0.52, 0.51], [], late, None)
    record = record_of(job, case, result, calibrated=slow, command="none")
    assert not record.believable
    assert record.instrument is not None
    text = json.dumps(record.instrument["reasons"])
    for word in ("spread by 10.0%", "3 packets were dropped at gpu1.rx", "settled"):
        assert word in text
    assert "gpu0.tx, gpu1.tx, gpu0.rx and 1 more run up to -2.0% off the rate" in text
