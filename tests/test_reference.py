"""What a schedule does to buffers: exact sums, a documented order, inputs left alone."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import Collective, build_schedule, chunk_sizes, parse_schedule, reference
from simcore.schedule import chunk_bounds
from tests.strategies import ALL_REDUCES, NAMES, any_schedules, names

DTYPES = [np.int64, np.int32, np.uint8, np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
all_reduces = st.sampled_from(ALL_REDUCES)
shapes = st.tuples(st.integers(1, 12), st.integers(0, 50))


def _numbers(n, elements, dtype, seed=0):
    """Different for every rank and element, so that a wrong chunk shows."""
    numbers = np.random.default_rng(seed).normal(0, 1000, (n, elements))
    with np.errstate(over="ignore"):
        return np.abs(numbers).astype(dtype) if dtype is np.uint8 else numbers.astype(dtype)


@given(all_reduces, shapes, st.sampled_from([np.int64, np.int32, np.uint8]), st.integers(0, 99))
def test_integers_end_as_their_exact_sum_everywhere(name, shape, dtype, seed):
    info = np.iinfo(dtype)
    inputs = np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)
    outputs = reference.run(build_schedule(name, shape[0]), inputs)
    assert outputs.dtype == dtype
    np.testing.assert_array_equal(outputs, np.tile(inputs.sum(axis=0, dtype=dtype), (shape[0], 1)))


@given(all_reduces, shapes, st.integers(0, 99))
def test_floats_end_near_their_sum(name, shape, seed):
    inputs = _numbers(*shape, np.float64, seed)
    outputs = reference.run(build_schedule(name, shape[0]), inputs)
    np.testing.assert_allclose(outputs, np.tile(inputs.sum(axis=0), (shape[0], 1)), atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_bits_are_those_of_the_contributors_added_in_the_order_shown(name, dtype):
    n, elements = 5, 13
    schedule, inputs = build_schedule(name, n), _numbers(n, elements, dtype)
    bounds = chunk_bounds(elements, schedule.chunks)
    for values, contributors in reference.history(schedule, inputs):
        for rank in range(n):
            for chunk, ranks in enumerate(contributors[rank]):
                part = slice(bounds[chunk], bounds[chunk + 1])
                # A partial sum arrives and is added to what the rank holds: (own) + (arriving).
                by_hand = _in_order(inputs, ranks, part, name, rank)
                assert values[rank, part].tobytes() == by_hand.tobytes(), (rank, chunk, ranks)


def _in_order(inputs, ranks, part, name, holder):
    """The sum of ``inputs[ranks, part]``, in the order in which the algorithm forms it."""
    if not name.startswith("ring"):
        total = inputs[ranks[0], part].copy()  # a server adds to its own, arrival by arrival
        for rank in ranks[1:]:
            total = total + inputs[rank, part]
        return total
    # On a ring the sum so far arrives and is added to the holder's own, so the last joined first.
    total = inputs[ranks[-1], part].copy()
    for rank in ranks[-2::-1]:
        total = inputs[rank, part] + total
    return total


def test_a_ring_s_contributors_are_its_path_backwards():
    *_, (_, contributors) = reference.history(build_schedule("ring", 4), np.zeros((4, 4)))
    # Chunk c starts on rank c and is summed while it travels to rank c - 1, which owns it.
    assert contributors[0] == [(3, 2, 1, 0), (0, 3, 2, 1), (1, 0, 3, 2), (2, 1, 0, 3)]
    assert all(row == contributors[0] for row in contributors)


def test_a_server_s_contributors_are_itself_and_its_workers_in_turn():
    *_, (_, contributors) = reference.history(build_schedule("ps", 4, root=2), np.zeros((4, 1)))
    assert contributors == [[(2, 0, 1, 3)]] * 4


def test_the_order_of_a_sum_shows_in_its_bits():
    inputs = np.array([[1e8], [1.0], [-1e8]], np.float32)
    ends = {name: reference.run(build_schedule(name, 3), inputs)[0, 0] for name in ("ring", "ps")}
    assert ends["ps"] == np.float32(0)  # (1e8 + 1) - 1e8
    assert ends["ring"] == np.float32(-1e8) + (np.float32(1) + np.float32(1e8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_is_kept_and_every_rank_ends_with_the_same_bits(name, dtype):
    schedule, inputs = build_schedule(name, 4), _numbers(4, 10, dtype)
    outputs = reference.run(schedule, inputs)
    assert outputs.dtype == inputs.dtype
    if schedule.collective is Collective.ALL_REDUCE:
        assert {row.tobytes() for row in outputs} == {outputs[0].tobytes()}


@given(any_schedules(), st.integers(0, 9))
def test_inputs_stay_as_they_are(schedule, elements):
    inputs = _numbers(schedule.n, elements, np.int64)
    before = inputs.copy()
    outputs = reference.run(schedule, inputs)
    for values, _ in reference.history(schedule, inputs):
        last = values.copy()
        values[:] = 0  # what was handed out is nobody's state
    np.testing.assert_array_equal(last, outputs)
    np.testing.assert_array_equal(inputs, before)
    assert not np.shares_memory(outputs, inputs)


@given(any_schedules(), st.integers(0, 9))
def test_history_has_a_state_per_step_and_ends_where_run_does(schedule, elements):
    inputs = _numbers(schedule.n, elements, np.int64)
    states = [values for values, _ in reference.history(schedule, inputs)]
    assert len(states) == schedule.n_steps + 1
    np.testing.assert_array_equal(states[0], inputs)
    np.testing.assert_array_equal(states[-1], reference.run(schedule, inputs))


@given(any_schedules(), st.integers(1, 9))
def test_contributors_account_for_every_value_after_every_step(schedule, elements):
    # Any schedule at all: counting each rank's input as often as it is named gives the value.
    inputs = _numbers(schedule.n, elements, np.int64)
    bounds = chunk_bounds(elements, schedule.chunks)
    for values, contributors in reference.history(schedule, inputs):
        for rank, row in enumerate(contributors):
            for chunk, ranks in enumerate(row):
                part = slice(bounds[chunk], bounds[chunk + 1])
                np.testing.assert_array_equal(values[rank, part], inputs[list(ranks), part].sum(0))


def test_sends_of_a_step_read_what_was_there_before_it():
    swap = parse_schedule("0: 0->1 c0 copy\n0: 1->0 c0 copy", name="swap", n=2, chunks=1)
    assert reference.run(swap, np.array([[1], [10]])).tolist() == [[10], [1]]


@pytest.mark.parametrize(
    ("rows", "ends"),
    [
        ("0: 2->0 c0 add\n0: 1->0 c0 copy", 10),
        ("0: 1->0 c0 copy\n0: 2->0 c0 add", 110),
    ],
)
def test_arrivals_of_a_step_are_applied_in_the_order_of_its_rows(rows, ends):
    schedule = parse_schedule(rows, name="both", n=3, chunks=1)
    assert reference.run(schedule, np.array([[1], [10], [100]]))[0, 0] == ends


@given(st.integers(1, 12), st.integers(0, 50))
def test_reduce_scatter_leaves_each_sum_with_its_owner(n, elements):
    schedule = build_schedule("ring-reduce-scatter", n)
    inputs = _numbers(n, elements, np.int64)
    outputs = reference.run(schedule, inputs)
    bounds = chunk_bounds(elements, n)
    assert schedule.owner == tuple((chunk - 1) % n for chunk in range(n))
    for chunk, owner in enumerate(schedule.owner):
        part = slice(bounds[chunk], bounds[chunk + 1])
        np.testing.assert_array_equal(outputs[owner, part], inputs[:, part].sum(axis=0))


@given(st.integers(1, 12), st.integers(0, 50))
def test_all_gather_gives_everyone_what_each_owner_had(n, elements):
    schedule = build_schedule("ring-all-gather", n)
    inputs = _numbers(n, elements, np.int64)
    outputs = reference.run(schedule, inputs)
    owners = np.repeat(schedule.owner, chunk_sizes(elements, n))
    wanted = inputs[owners, np.arange(elements)]
    np.testing.assert_array_equal(outputs, np.tile(wanted, (n, 1)))


@given(names, st.integers(2, 12))
def test_fewer_elements_than_ranks(name, n):
    for elements in range(n):
        inputs = _numbers(n, elements, np.int64)
        outputs = reference.run(build_schedule(name, n), inputs)
        if name in ALL_REDUCES:
            np.testing.assert_array_equal(outputs, np.tile(inputs.sum(axis=0), (n, 1)))


@pytest.mark.parametrize("shape", [(3, 5), (4,), (4, 2, 2), (0, 5)])
def test_inputs_are_one_row_per_rank(shape):
    with pytest.raises(ValueError, match="inputs must have shape"):
        reference.run(build_schedule("ring", 4), np.zeros(shape))
