"""Records: what is accepted, what is shipped, which one is nearest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from simcore.algorithms import ALGORITHMS, build_schedule
from simcore.cluster_file import cluster_from_dict
from simcore.engine import simulate
from simcore.measured.records import Record, load_records, nearest, record_from_json


def record(**changes: Any) -> Record:
    base = Record(
        source="replayed",
        name="ring",
        backend="gloo",
        network="200Mbit/s",
        gpus=2,
        size_bytes=8,
        dtype="float32",
        runs_s=(0.1, 0.3, 0.2),
        median_s=0.2,
        sent_bytes=(8, 8),
        received_bytes=(8, 8),
        counter_sent_bytes=None,
        counter_received_bytes=None,
        simulated=None,
        environment={"versions": {}, "machine": {}, "command": "", "date": "2026-11-30"},
    )
    return replace(base, **changes)


def test_text_and_back():
    assert record_from_json(record().to_json()) == record()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("record_version", 2),
        ("source", "simulated"),
        ("name", ""),
        ("network", "200"),
        ("network", 25e6),
        ("gpus", 0),
        ("gpus", True),
        ("size_bytes", -8),
        ("size_bytes", 8.5),
        ("runs_s", []),
        ("runs_s", [-0.1]),
        ("runs_s", "0.2"),
        ("median_s", 0.3),
        ("median_s", None),
        ("sent_bytes", [8, 8, 8]),
        ("sent_bytes", [8, -8]),
        ("counter_sent_bytes", [1.5, 2.5]),
        ("simulated", {"time_s": 1}),
        ("instrument", {"ok": True}),
        ("environment", {}),
        ("flags", {"root": "1"}),
        ("notes", [1]),
    ],
)
def test_a_wrong_field_is_named_in_one_line(field, value):
    text = json.dumps(json.loads(record().to_json()) | {field: value})
    with pytest.raises(ValueError, match=field) as caught:
        record_from_json(text, "a.json")
    assert str(caught.value).startswith("a.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "1", '{"runs_s": NaN}', "{}", '{"record_version": 1}'])
def test_what_is_not_a_record(text):
    with pytest.raises(ValueError, match=r"^a\.json: ") as caught:
        record_from_json(text, "a.json")
    assert "\n" not in str(caught.value)


def test_nearest_prefers_gpus_then_rate_then_size():
    records = [
        record(gpus=4, size_bytes=64, sent_bytes=None, received_bytes=None),
        record(gpus=2, size_bytes=8),
        record(gpus=2, size_bytes=64, network="400Mbit/s"),
    ]
    mbit = 1e6 / 8
    assert nearest(records, "ring", 2, 64, 200 * mbit) is records[1]
    assert nearest(records, "ring", 2, 64, 400 * mbit) is records[2]
    assert nearest(records, "ring", 3, 64, 200 * mbit) is records[0]
    assert nearest(records, "ring", 16, 64, 200 * mbit) is None
    assert nearest(records, "ring", 2, 64, 25e9) is None
    assert nearest(records, "ring", 2, 0, 200 * mbit) is None
    assert nearest(records, "ps", 2, 64, 200 * mbit) is None
    assert nearest([], "ring", 2, 64, 200 * mbit) is None


def test_an_unquiet_instrument_is_not_offered():
    noisy = record(instrument={"ok": False, "reasons": ["spread"]})
    assert not noisy.believable
    assert nearest([noisy, record(network=None)], "ring", 2, 8, 25e6) is None


def test_shipped_records_hold_what_they_claim():
    """Each is quiet, was predicted within 5 %, and its prediction is what the engine says today."""
    shipped = load_records()
    names = {a.name for a in ALGORITHMS}
    assert {r.name for r in shipped} == names | {"torch.all_reduce"}
    for r in shipped:
        where = f"{r.name} on {r.gpus}"
        assert r.believable, where
        assert len(r.runs_s) >= 5, where
        assert nearest(shipped, r.name, r.gpus, r.size_bytes, 25e6) is r, where
        if r.source == "vendor":
            assert r.simulated is None
            continue
        assert r.simulated is not None
        cluster = cluster_from_dict(r.simulated["cluster"], r.ranks)
        schedule = build_schedule(r.name, r.gpus, **r.flags)
        run = simulate(schedule, cluster, r.size_bytes // 4, 4, keep="totals")
        assert run.trace.time_s == pytest.approx(r.simulated["time_s"], rel=1e-9), where
        assert tuple(run.trace.sent_bytes.tolist()) == r.sent_bytes, where
        assert r.simulated["time_s"] == pytest.approx(r.median_s, rel=0.05), where
        assert r.sent_bytes is not None
        assert r.counter_sent_bytes is not None
        for payload, counted in zip(r.sent_bytes, r.counter_sent_bytes, strict=True):
            wire = payload * cluster.counter_bytes_per_payload_byte
            assert counted == pytest.approx(wire, rel=0.02, abs=2048), (
                where
            )  # notices of Gloo's own


def test_shipped_records_name_no_machine_and_no_folder():
    for r in load_records():
        text = json.dumps(r.environment)
        assert "/" not in text.replace("Mbit/s", ""), text
        assert set(r.environment["machine"]) == {"system", "kernel", "cpu", "cores"}
