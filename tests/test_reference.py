"""What a schedule does to buffers: exact sums, a documented order, inputs left alone."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import Collective, Op, build_schedule, chunk_sizes, parse_schedule, reference
from simcore.schedule import chunk_bounds
from tests.strategies import ALL_REDUCES, NAMES, algorithms, any_schedules

DTYPES = [np.int64, np.int32, np.uint8, np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
all_reduces = algorithms(among=ALL_REDUCES)
sizes = st.integers(0, 50)


def _numbers(n, elements, dtype, seed=0, workers=None):
    """Different for every rank and element, so that a wrong chunk shows; none for servers."""
    numbers = np.random.default_rng(seed).normal(0, 1000, (n, elements))
    if workers is not None:
        numbers[workers:] = 0
    with np.errstate(over="ignore"):
        return np.abs(numbers).astype(dtype) if dtype is np.uint8 else numbers.astype(dtype)


@given(all_reduces, sizes, st.sampled_from([np.int64, np.int32, np.uint8]), st.integers(0, 99))
def test_integers_end_as_their_exact_sum_everywhere(schedule, elements, dtype, seed):
    info, shape = np.iinfo(dtype), (schedule.n, elements)
    inputs = np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)
    inputs[schedule.workers :] = 0
    outputs = reference.run(schedule, inputs)[: schedule.workers]
    assert outputs.dtype == dtype
    assert outputs.shape == (schedule.workers, elements)
    assert (outputs == inputs.sum(axis=0, dtype=dtype)).all()


@given(all_reduces, sizes, st.integers(0, 99))
def test_floats_end_near_their_sum(schedule, elements, seed):
    inputs = _numbers(schedule.n, elements, np.float64, seed, schedule.workers)
    outputs = reference.run(schedule, inputs)[: schedule.workers]
    wanted = np.tile(inputs.sum(axis=0), (schedule.workers, 1))
    np.testing.assert_allclose(outputs, wanted, atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_bits_are_those_of_the_rows_applied_one_by_one(name, dtype):
    schedule = build_schedule(name, 6)
    inputs = _numbers(schedule.n, 13, dtype, workers=schedule.workers)
    *_, (values, _) = reference.history(schedule, inputs)
    assert values.tobytes() == _row_by_row(schedule, inputs).tobytes()


def _row_by_row(schedule, inputs):
    """Chunk by chunk: all of a step's are read before the first is written."""
    cells = [np.array_split(row, schedule.chunks) for row in inputs.copy()]
    rows = list(schedule)
    for number in range(schedule.n_steps):
        step = [row for row in rows if row.step == number]
        arriving = [cells[row.src][row.chunk].copy() for row in step]
        for row, values in zip(step, arriving, strict=True):
            held = cells[row.dst][row.chunk]
            cells[row.dst][row.chunk] = held + values if row.op is Op.ADD else values
    return np.array([np.concatenate(row) for row in cells])


LINES = ["ring", "ring-reduce-scatter", "ring-all-gather", "hierarchical", "chain-reduce"]
SERVERS = ["ps", "ps-sharded", "ps-dedicated", "dp", "pairwise", "ring-broadcast"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*LINES, *SERVERS])
def test_bits_are_those_of_the_contributors_added_in_the_order_shown(name, dtype):
    elements = 13
    schedule = build_schedule(name, 5)
    inputs = _numbers(schedule.n, elements, dtype, workers=schedule.workers)
    bounds = chunk_bounds(elements, schedule.chunks)
    for values, contributors in reference.history(schedule, inputs):
        for rank in range(schedule.n):
            for chunk, ranks in enumerate(contributors[rank]):
                part = slice(bounds[chunk], bounds[chunk + 1])
                # A partial sum arrives and is added to what the rank holds: (own) + (arriving).
                by_hand = _in_order(inputs, ranks, part, name)
                assert values[rank, part].tobytes() == by_hand.tobytes(), (rank, chunk, ranks)


def _in_order(inputs, ranks, part, name):
    """The sum of ``inputs[ranks, part]``, in the order in which the algorithm forms it."""
    if not ranks:
        return np.zeros_like(inputs[0, part])
    if name in SERVERS:
        total = inputs[ranks[0], part].copy()  # a server adds to its own, arrival by arrival
        for rank in ranks[1:]:
            total = total + inputs[rank, part]
        return total
    # Along a line the sum so far arrives and is added to the holder's own: the last joined first.
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


def test_an_extra_server_brings_nothing_of_its_own():
    schedule = build_schedule("ps-dedicated", 2, servers=2)
    states = [who for _, who in reference.history(schedule, np.zeros((4, 4)))]
    assert states[0] == [[(0,), (0,)], [(1,), (1,)], [(), ()], [(), ()]]
    assert states[1] == [[(0,), (0,)], [(1,), (1,)], [(0, 1), ()], [(), (0, 1)]]
    assert states[2][:2] == [[(0, 1), (0, 1)]] * 2


def test_inputs_of_servers_are_zero():
    schedule = build_schedule("ps-dedicated", 2)
    with pytest.raises(ValueError, match=r"inputs of the servers, ranks from 2 on, must be zero"):
        reference.run(schedule, np.array([[1], [10], [1]]))
    with pytest.raises(ValueError, match="must be zero"):
        next(reference.history(schedule, np.array([[1], [10], [1]])))
    assert reference.run(schedule, np.array([[1], [10], [0]])).tolist() == [[11], [11], [11]]


def test_a_wide_message_moves_all_its_chunks_and_no_other():
    rows = "0: 0->1 c1 add\n0: 0->1 c2 add\n1: 1->0 c0 copy"
    schedule = parse_schedule(rows, name="wide", n=2, chunks=4)
    assert [step.width.tolist() for step in schedule.steps()] == [[2], [1]]
    inputs = np.array([[1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60]])  # chunks of 2, 2, 1, 1
    ends = reference.run(schedule, inputs)
    assert ends.tolist() == [[10, 20, 3, 4, 5, 6], [10, 20, 33, 44, 55, 60]]
    *_, (_, who) = reference.history(schedule, inputs)
    assert who == [[(1,), (0,), (0,), (0,)], [(1,), (1, 0), (1, 0), (1,)]]


def test_the_order_of_a_sum_shows_in_its_bits():
    inputs = np.array([[1e8], [1.0], [-1e8]], np.float32)
    ends = {name: reference.run(build_schedule(name, 3), inputs)[0, 0] for name in ("ring", "ps")}
    assert ends["ps"] == np.float32(0)  # (1e8 + 1) - 1e8
    assert ends["ring"] == np.float32(-1e8) + (np.float32(1) + np.float32(1e8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_is_kept_and_every_rank_ends_with_the_same_bits(name, dtype):
    schedule = build_schedule(name, 4)
    inputs = _numbers(schedule.n, 10, dtype, workers=schedule.workers)
    outputs = reference.run(schedule, inputs)[: schedule.workers]
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


@given(st.one_of(any_schedules(), algorithms(6)), st.integers(1, 9))
def test_contributors_account_for_every_value_after_every_step(schedule, elements):
    # Any schedule at all: counting each rank's input as often as it is named gives the value.
    inputs = _numbers(schedule.n, elements, np.int64, workers=schedule.workers)
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
def test_a_ring_s_reduce_scatter_leaves_each_sum_with_its_owner(n, elements):
    schedule = build_schedule("ring-reduce-scatter", n)
    inputs = _numbers(n, elements, np.int64)
    outputs = reference.run(schedule, inputs)
    bounds = chunk_bounds(elements, n)
    assert schedule.owner == tuple((chunk - 1) % n for chunk in range(n))
    for chunk, owner in enumerate(schedule.owner):
        part = slice(bounds[chunk], bounds[chunk + 1])
        np.testing.assert_array_equal(outputs[owner, part], inputs[:, part].sum(axis=0))


@given(st.integers(1, 12), st.integers(0, 50))
def test_a_ring_s_all_gather_gives_everyone_what_each_owner_had(n, elements):
    schedule = build_schedule("ring-all-gather", n)
    inputs = _numbers(n, elements, np.int64)
    outputs = reference.run(schedule, inputs)
    owners = np.repeat(schedule.owner, chunk_sizes(elements, n))
    wanted = inputs[owners, np.arange(elements)]
    np.testing.assert_array_equal(outputs, np.tile(wanted, (n, 1)))


@given(st.integers(1, 12), st.integers(1, 9), sizes)
def test_a_broadcast_copies_rank_0_and_a_chain_sums_onto_it(n, pieces, elements):
    inputs = _numbers(n, elements, np.int64)
    broadcast = build_schedule("ring-broadcast", n, pieces=pieces)
    assert (broadcast.collective, set(broadcast.owner)) == (Collective.ALL_GATHER, {0})
    np.testing.assert_array_equal(reference.run(broadcast, inputs), np.tile(inputs[0], (n, 1)))
    reduce = build_schedule("chain-reduce", n, pieces=pieces)
    assert (reduce.collective, set(reduce.owner)) == (Collective.REDUCE_SCATTER, {0})
    np.testing.assert_array_equal(reference.run(reduce, inputs)[0], inputs.sum(axis=0))


@given(all_reduces)
def test_fewer_elements_than_ranks(schedule):
    for elements in range(schedule.n):
        inputs = _numbers(schedule.n, elements, np.int64, workers=schedule.workers)
        outputs = reference.run(schedule, inputs)[: schedule.workers]
        np.testing.assert_array_equal(outputs, np.tile(inputs.sum(axis=0), (len(outputs), 1)))


@pytest.mark.parametrize("shape", [(3, 5), (4,), (4, 2, 2), (0, 5)])
def test_inputs_are_one_row_per_rank(shape):
    with pytest.raises(ValueError, match="inputs must have shape"):
        reference.run(build_schedule("ring", 4), np.zeros(shape))
