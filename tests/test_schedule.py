"""Schedules as values: columns, text and its inverse, splitting, laziness."""

import tracemalloc
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import (
    Collective,
    Op,
    Schedule,
    ScheduleError,
    Transfer,
    build_schedule,
    chunk_sizes,
    parse_schedule,
)
from simcore.schedule import Step, chunk_bounds, schedule_of
from tests.strategies import any_schedules


@given(any_schedules())
def test_text_is_a_round_trip(schedule):
    text = str(schedule)
    back = parse_schedule(text, name="any", n=schedule.n, chunks=schedule.chunks)
    assert list(back) == list(schedule)
    assert str(back) == text


@given(any_schedules())
def test_a_schedule_can_be_walked_again(schedule):
    assert list(schedule) == list(schedule)
    assert len(list(schedule.steps())) == schedule.n_steps


def test_a_line_reads_step_ends_chunk_op():
    assert str(Transfer(3, 10, 2, 7, Op.COPY)) == "3: 10->2 c7 copy"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "0",
        "0: 0->1 c0 max",
        "0: 0->1 c0",
        "0: 0->1 c0 add add",
        "0 0->1 c0 add",
        "0: 0-1 c0 add",
        "0: 0->1 0 add",
        "-1: 0->1 c0 add",
        "0: 0->1 c0 ADD",
        "0.5: 0->1 c0 add",
    ],
)
def test_malformed_lines_are_named(line):
    with pytest.raises(ScheduleError) as error:
        parse_schedule(f"0: 1->0 c0 add\n{line}\n", name="bad", n=2, chunks=1)
    assert str(error.value) == (
        f"bad: line 2 is {line!r}; accepted: 'STEP: SRC->DST cCHUNK add|copy'"
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("0: 0->2 c0 add", "two different ranks below 2"),
        ("0: 2->0 c0 add", "two different ranks below 2"),
        ("0: 1->1 c0 add", "two different ranks below 2"),
        ("0: 0->1 c1 add", "chunk must be below 1"),
        ("1: 0->1 c0 add\n0: 0->1 c0 add", "order of steps"),
    ],
)
def test_rows_name_existing_ranks_and_chunks_in_order(line, complaint):
    with pytest.raises(ScheduleError, match=complaint) as error:
        parse_schedule(line, name="bad", n=2, chunks=1)
    assert repr(line.splitlines()[-1]) in str(error.value)


def test_trailing_steps_may_be_empty_but_rows_may_not_lie_beyond_them():
    row = Transfer(1, 0, 1, 0, Op.ADD)
    assert schedule_of([row], name="long", n=2, chunks=1, n_steps=5).n_steps == 5
    with pytest.raises(ScheduleError, match="n_steps is 1, but step 1 has transfers"):
        schedule_of([row], name="short", n=2, chunks=1, n_steps=1)


@pytest.mark.parametrize("n", [0, -1, 1.0, True, "2", None])
def test_ranks_are_counted_from_one(n):
    with pytest.raises(ValueError, match=f"at least 1, got {n!r}"):
        Schedule("bad", n, 1, 0, Collective.ALL_REDUCE, lambda: iter(()))


@pytest.mark.parametrize(
    ("collective", "owner"),
    [
        (Collective.ALL_REDUCE, (0,)),
        (Collective.ALL_GATHER, None),
        (Collective.REDUCE_SCATTER, (0, 1)),
        (Collective.REDUCE_SCATTER, (2,)),
    ],
)
def test_owners_go_with_the_collective(collective, owner):
    with pytest.raises(ValueError, match="owner"):
        Schedule("bad", 2, 1, 0, collective, lambda: iter(()), owner)


def test_a_schedule_has_a_chunk():
    with pytest.raises(ValueError, match="chunks must be >= 1, got 0"):
        Schedule("bad", 2, 0, 0, Collective.ALL_REDUCE, lambda: iter(()))


def test_rows_broadcast():
    step = Step.of(src=[1, 2, 3], dst=0, chunk=[4, 5, 6], op=Op.ADD)
    assert [c.tolist() for c in (step.src, step.dst, step.chunk, step.op)] == [
        [1, 2, 3],
        [0, 0, 0],
        [4, 5, 6],
        [1, 1, 1],
    ]


@given(st.integers(0, 10**15), st.integers(1, 100))
def test_chunks_add_up_to_the_buffer_and_differ_by_one_at_most(elements, chunks):
    sizes = chunk_sizes(elements, chunks).tolist()
    assert len(sizes) == chunks
    assert sum(sizes) == elements
    assert sorted(sizes, reverse=True) == sizes
    assert sizes[0] - sizes[-1] in (0, 1)
    bounds = chunk_bounds(elements, chunks).tolist()
    assert [end - begin for begin, end in pairwise(bounds)] == sizes
    assert (bounds[0], bounds[-1]) == (0, elements)


def test_no_buffer_is_shorter_than_empty():
    with pytest.raises(ValueError, match="elements must be >= 0, got -1"):
        chunk_sizes(-1, 2)


def test_steps_are_made_when_they_are_asked_for():
    n = 100_000
    tracemalloc.start()
    first, second = islice(build_schedule("ring", n).steps(), 2)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(first), len(second)) == (n, n)
    assert peak_bytes < 100 * n  # a dozen columns of one step; all of them are 2(n-1) times that
