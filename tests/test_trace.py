"""Traces as values: text and back, files for other tools, bytes at a moment."""

import csv
import dataclasses
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import (
    Op,
    Slowdown,
    Source,
    Trace,
    build_schedule,
    chunk_sizes,
    simulate,
    uniform,
)
from simcore.trace import Lane, Pieces, Spans
from tests.strategies import Case, algorithm_cases, contended_cases

any_case = st.one_of(contended_cases(), algorithm_cases(max_n=6))


def _trace(case: Case) -> Trace:
    how = {"starts_s": case.starts_s, "slowdowns": case.slowdowns}
    return simulate(case.schedule, case.cluster, case.elements, **how).trace


def _columns(trace: Trace) -> dict[str, list]:
    return {
        f"{part}.{f.name}": getattr(getattr(trace, part), f.name).tolist()
        for part, cls in (("spans", Spans), ("pieces", Pieces))
        for f in dataclasses.fields(cls)
    }


@pytest.fixture
def small() -> Trace:
    """Two pushes that share the server's port, one of them slow until 2 s, and two pulls."""
    cluster = uniform(3, 100.0, latency_s=0.5)
    slow = [Slowdown("1->0", 0.25, 0.0, 2.0)]
    return simulate(build_schedule("ps", 3), cluster, 25, slowdowns=slow).trace


# JSON.


@given(any_case, st.sampled_from(Source))
def test_json_is_a_round_trip(case, source):
    trace = dataclasses.replace(_trace(case), source=source)
    back = Trace.from_json(trace.to_json())
    assert back.to_json() == trace.to_json()
    assert _columns(back) == _columns(trace)
    assert (back.source, back.name, back.n, back.time_s) == (
        source,
        trace.name,
        trace.n,
        trace.time_s,
    )
    assert back.sent_bytes.tolist() == trace.sent_bytes.tolist()
    assert back.received_bytes.tolist() == trace.received_bytes.tolist()


def test_integers_beyond_floats_survive():
    run = simulate(build_schedule("ps", 3), uniform(3, 1e9), (10**18 + 4) // 4)
    back = Trace.from_json(run.trace.to_json())
    assert back.sent_bytes.tolist() == [2 * (10**18 + 4), 10**18 + 4, 10**18 + 4]
    assert set(back.spans.nbytes.tolist()) == {10**18 + 4}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a trace: not JSON"),
        ("{", "not a trace: not JSON"),
        ("[" * 100_000, "not a trace: not JSON"),
        ("null", "not a trace: accepted are documents with format 'syncscope-trace'"),
        ("[]", "not a trace: accepted are documents with format 'syncscope-trace'"),
        ("{}", "not a trace: accepted are documents with format 'syncscope-trace'"),
        ('{"format": "syncscope-trace"}', "trace version None is not accepted; accepted: 1"),
    ],
)
def test_text_that_is_no_trace(text, complaint):
    with pytest.raises(ValueError, match="trace") as error:
        Trace.from_json(text)
    assert str(error.value).startswith(complaint)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"version": 2}, "trace version 2 is not accepted; accepted: 1"),
        ({"source": "guessed"}, "'guessed' is not a valid Source"),
        ({"source": None}, "None is not a valid Source"),
        ({"n": "three"}, "invalid literal for int()"),
        ({"n": 2}, "bytes must be lists of 2 numbers"),
        ({"time_s": None}, "TypeError"),
        ({"time_s": float("nan")}, "numbers must be finite"),
        ({"sent_bytes": 3}, "bytes must be lists of 3 numbers"),
        ({"sent_bytes": [1, 2]}, "bytes must be lists of 3 numbers"),
        ({"sent_bytes": [1, 2, "x"]}, "invalid literal"),
        ({"received_bytes": [1, 2, 2**70]}, "OverflowError"),
        ({"spans": None}, "TypeError"),
        ({"spans": {}}, "KeyError: 'rank'"),
        ({"pieces": {"span": [0]}}, "KeyError: 'start_s'"),
    ],
)
def test_documents_with_a_mistake(small, change, complaint):
    document = json.loads(small.to_json()) | change
    with pytest.raises(ValueError, match="trace") as error:
        Trace.from_json(json.dumps(document))
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("part", "column", "values", "complaint"),
    [
        ("spans", "rank", [0], "equal length"),
        ("spans", "rank", [[0] * 8], "equal length"),
        ("spans", "rank", [3] * 8, "rank must be from 0 to 2"),
        ("spans", "rank", [-1] * 8, "rank must be from 0 to 2"),
        ("spans", "lane", [4] * 8, "lane must be from 0 to 3"),
        ("spans", "op", [2] * 8, "op must be from 0 to 1"),
        ("spans", "start_s", [float("nan")] * 8, "numbers must be finite"),
        ("spans", "end_s", ["soon"] * 8, "could not convert"),
        ("pieces", "span", [8] * 4, "span must be from 0 to 7"),
        ("pieces", "nbytes", [float("inf")] * 4, "numbers must be finite"),
    ],
)
def test_columns_with_a_mistake(small, part, column, values, complaint):
    document = json.loads(small.to_json())
    assert len(document[part][column]) == {"spans": 8, "pieces": 4}[part]
    document[part][column] = values
    with pytest.raises(ValueError, match="not a trace: ") as error:
        Trace.from_json(json.dumps(document))
    assert complaint in str(error.value)


def test_a_trace_of_totals_only_is_a_trace():
    run = simulate(build_schedule("ring", 3), uniform(3, 1e9), 10, keep="totals")
    back = Trace.from_json(run.trace.to_json())
    assert (len(back.spans), back.time_s) == (0, run.trace.time_s)
    assert back.bytes_at(1.0)[0].tolist() == [0.0, 0.0, 0.0]
    assert len(back.to_csv().splitlines()) == 1


# CSV.


def test_csv_by_hand():
    trace = simulate(build_schedule("dp", 2), uniform(2, 100.0, latency_s=0.5), 25).trace
    assert trace.to_csv() == (
        "source,rank,lane,label,step,peer,chunk,op,start_s,end_s,bytes\n"
        "simulated,1,send,0: 1->0 c0 add,0,0,0,add,0.0,1.0,100\n"
        "simulated,0,receive,0: 1->0 c0 add,0,1,0,add,0.5,1.5,100\n"
        "simulated,0,send,1: 0->1 c0 copy,1,1,0,copy,1.5,2.5,100\n"
        "simulated,1,receive,1: 0->1 c0 copy,1,0,0,copy,2.0,3.0,100\n"
    )


@given(any_case)
def test_csv_has_a_row_for_every_span_with_its_numbers_in_full(case):
    trace = _trace(case)
    rows = list(csv.DictReader(io.StringIO(trace.to_csv())))
    assert len(rows) == len(trace.spans)
    assert [float(row["start_s"]) for row in rows] == trace.spans.start_s.tolist()
    assert [float(row["end_s"]) for row in rows] == trace.spans.end_s.tolist()
    assert [int(row["bytes"]) for row in rows] == trace.spans.nbytes.tolist()
    labels = [row["label"] for row in rows if row["lane"] == "send"]
    assert labels == [text for text, nbytes in _messages(case) if nbytes]


def _messages(case: Case) -> list[tuple[str, int]]:
    """The text of each message, with its bytes; empty chunks at its end do not count."""
    nbytes = (4 * chunk_sizes(case.elements, case.schedule.chunks)).tolist()
    found = []
    for number, step in enumerate(case.schedule.steps()):
        columns = (step.src, step.dst, step.chunk, step.width, step.op)
        for src, dst, c, width, op in zip(*(x.tolist() for x in columns), strict=True):
            chunks = f"{c}" if width == 1 else f"{c}-{c + width - 1}"
            text = f"{number}: {src}->{dst} c{chunks} {Op(op)}"
            found.append((text, sum(nbytes[c : c + width])))
    return found


# Perfetto.


def _events(trace: Trace, phase: str) -> list[dict]:
    return [e for e in json.loads(trace.to_perfetto())["traceEvents"] if e["ph"] == phase]


def test_perfetto_by_hand():
    trace = simulate(build_schedule("dp", 2), uniform(2, 100.0, latency_s=0.5), 25).trace
    assert _events(trace, "X")[:2] == [
        {
            "ph": "X",
            "name": "0: 1->0 c0 add",
            "cat": "simulated",
            "pid": 1,
            "tid": Lane.SEND,
            "ts": 0.0,
            "dur": 1e6,
            "args": {"bytes": 100},
        },
        {
            "ph": "X",
            "name": "0: 1->0 c0 add",
            "cat": "simulated",
            "pid": 0,
            "tid": Lane.RECEIVE,
            "ts": 5e5,
            "dur": 1e6,
            "args": {"bytes": 100},
        },
    ]
    names = {(e["pid"], e.get("tid")): e["args"]["name"] for e in _events(trace, "M")}
    assert names == {
        (0, None): "rank 0 (simulated)",
        (1, None): "rank 1 (simulated)",
        (0, Lane.SEND): "send",
        (0, Lane.RECEIVE): "receive",
        (1, Lane.SEND): "send",
        (1, Lane.RECEIVE): "receive",
    }


def test_simultaneous_transfers_get_tracks_of_their_own(small):
    names = {(e["pid"], e["args"]["name"]) for e in _events(small, "M") if "tid" in e}
    assert {name for pid, name in names if pid == 0} == {"send", "send 2", "receive", "receive 2"}
    assert {name for pid, name in names if pid == 1} == {"send", "receive"}


@given(any_case)
def test_perfetto_slices_are_the_spans_and_never_overlap_on_a_track(case):
    trace = _trace(case)
    slices = _events(trace, "X")
    named = {(e["pid"], e["tid"]) for e in _events(trace, "M") if "tid" in e}
    assert {(e["pid"], e["tid"]) for e in slices} == named
    assert [e["name"] for e in slices] == [trace.spans.label(i) for i in range(len(slices))]
    assert [e["pid"] for e in slices] == trace.spans.rank.tolist()
    np.testing.assert_allclose([e["ts"] for e in slices], trace.spans.start_s * 1e6)
    ends_us = [e["ts"] + e["dur"] for e in slices]
    np.testing.assert_allclose(ends_us, trace.spans.end_s * 1e6)
    tracks = {}
    for e in sorted(slices, key=lambda e: (e["ts"], e["ts"] + e["dur"])):
        free_us = tracks.get((e["pid"], e["tid"]), 0.0)
        assert free_us <= e["ts"] * (1 + 1e-12)  # to the last bit of a sum of floats
        tracks[e["pid"], e["tid"]] = e["ts"] + e["dur"]


# Bytes at a moment.


@given(any_case, st.lists(st.floats(0, 1), max_size=8))
def test_bytes_only_grow_from_none_to_all(case, fractions):
    trace = _trace(case)
    moments = sorted([0.0, *(f * trace.time_s for f in fractions), trace.time_s])
    bytes_at = [trace.bytes_at(t_s) for t_s in moments]
    for lane, total in enumerate((trace.sent_bytes, trace.received_bytes)):
        counts = np.array([both[lane] for both in bytes_at])
        assert (counts[0] == 0).all()
        assert (np.diff(counts, axis=0) >= -1e-9 * total).all()
        np.testing.assert_allclose(counts[-1], total, rtol=1e-9)


@given(any_case, st.floats(0, 1))
def test_what_has_arrived_had_left(case, fraction):
    trace = _trace(case)
    sent, received = trace.bytes_at(fraction * trace.time_s)
    assert received.sum() <= sent.sum() + 1e-9 * trace.sent_bytes.sum()


def test_bytes_by_hand(small):
    # Rank 1 pushes 25 bytes/s to 2 s and then 100, rank 2 75 to 4/3 s; all arrives 0.5 s later.
    assert small.bytes_at(1.0)[0].tolist() == pytest.approx([0, 25, 75])
    assert small.bytes_at(1.0)[1].tolist() == pytest.approx([50, 0, 0])
    assert small.bytes_at(2.0)[0].tolist() == pytest.approx([0, 50, 100])
    assert small.bytes_at(2.25)[0].tolist() == pytest.approx([0, 75, 100])
    assert small.bytes_at(3.0)[1].tolist() == pytest.approx([200, 0, 0])
    # The pulls share the server's port from 3 s on.
    assert small.bytes_at(4.0)[0].tolist() == pytest.approx([100, 100, 100])
    assert small.bytes_at(4.0)[1].tolist() == pytest.approx([200, 25, 25])
    assert small.bytes_at(99.0)[1].tolist() == pytest.approx([200, 100, 100])
    assert small.bytes_at(-1.0)[0].tolist() == [0, 0, 0]


def test_a_span_without_length_moves_its_bytes_at_once(small):
    # A measured trace may hold spans that are shorter than its clock's tick.
    spans = dataclasses.replace(small.spans, start_s=small.spans.end_s)
    no_pieces = Pieces(*(np.zeros(0, f) for f in (np.int64, float, float, float)))
    instant = dataclasses.replace(small, spans=spans, pieces=no_pieces)
    assert instant.bytes_at(2.49)[0].tolist() == [0, 0, 100]
    assert instant.bytes_at(2.5)[0].tolist() == [0, 100, 100]
    assert instant.bytes_at(instant.time_s)[1].tolist() == [200, 100, 100]
