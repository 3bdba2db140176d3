"""Records as cells of a validation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simcore.cluster import uniform
from simcore.measured.cells import cell_of_record, cell_of_step
from simcore.measured.records import load_records
from simcore.measured.step_records import load_step_records
from simcore.units import FRAME_FACTOR

RING = next(r for r in load_records() if r.name == "ring" and r.gpus == 4)


def test_the_worst_rank_and_way_count_in_the_bytes():
    """Counters against payload in frames, sent and received, whichever rank is furthest off."""
    assert RING.simulated is not None
    sent = received = RING.simulated["sent_bytes"]  # in a ring
    # Held to the simulated bytes, not to those that the replay counted itself.
    ring = replace(RING, simulated=RING.simulated | {"received_bytes": received})
    ring = replace(ring, received_bytes=tuple(2 * b for b in received))
    exact = {
        "counter_sent_bytes": tuple(round(b * FRAME_FACTOR) for b in sent),
        "counter_received_bytes": tuple(round(b * FRAME_FACTOR) for b in received),
    }
    assert cell_of_record(replace(ring, **exact)).bytes_error == pytest.approx(0, abs=1e-6)
    for name, values in exact.items():
        off = (*values[:2], round(values[2] * 0.93), values[3])
        found = cell_of_record(replace(ring, **exact | {name: off})).bytes_error
        assert found == pytest.approx(-0.07, abs=1e-6)
    none = dict.fromkeys(exact)
    assert cell_of_record(replace(ring, **none)).bytes_error is None
    only_sent = replace(RING, **exact | {"counter_received_bytes": (1,) * 4})  # as older records
    assert cell_of_record(only_sent).bytes_error == pytest.approx(0, abs=1e-6)
    assert cell_of_record(replace(RING, simulated=None)).bytes_error is None


def test_what_the_instrument_refused_is_not_believed():
    refused = {"ok": False, "reasons": ["7 packets were dropped"]}
    cell = cell_of_record(replace(RING, instrument=refused))
    assert not cell.believable
    assert cell.notes[0] == "7 packets were dropped"


def test_a_step_is_predicted_on_the_cluster_that_is_given():
    record = load_step_records()[0]
    as_set = cell_of_step(record)
    assert (as_set.kind, as_set.name) == ("step", record.name)
    assert as_set.simulated_s == pytest.approx(record.simulate().run.time_s)
    assert as_set.bytes_error == pytest.approx(0, abs=0.01)
    slower = cell_of_step(record, uniform(record.ranks, 1e6))
    assert as_set.simulated_s is not None
    assert slower.simulated_s is not None
    assert slower.simulated_s > 1.2 * as_set.simulated_s
    unknown = cell_of_step(replace(record, network=None, instrument=None))
    assert unknown.simulated_s is None
    assert unknown.believable
