"""Schedules as values: columns, text and its inverse, splitting, laziness."""

import tracemalloc
from dataclasses import replace
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
    ring_order,
    simulate,
    uniform,
)
from simcore.check import check_hazards, check_meaning
from simcore.cluster import Level, even_groups
from simcore.schedule import Step, chunk_bounds, message_sizes, reorder, schedule_of
from tests.strategies import NAMES, algorithms, any_schedules, levels, settings_of


@given(any_schedules())
def test_text_is_a_round_trip(schedule):
    text = str(schedule)
    back = parse_schedule(text, name="any", n=schedule.n, chunks=schedule.chunks)
    assert list(back) == list(schedule)
    assert str(back) == text


@given(st.one_of(any_schedules(), algorithms(7)))
def test_reading_text_makes_messages_of_runs_of_chunks(schedule):
    back = parse_schedule(
        str(schedule),
        name=schedule.name,
        n=schedule.n,
        chunks=schedule.chunks,
        collective=schedule.collective,
        owner=schedule.owner,
        servers=schedule.servers,
    )
    assert list(back) == list(schedule)
    assert (back.owner, back.servers, back.workers) == (
        schedule.owner,
        schedule.servers,
        schedule.workers,
    )
    for step in back.steps():
        assert step.together() is step  # nothing is left to join
    wide = [_rows(step.together()) for step in schedule.steps() if len(step)]
    assert [_rows(step) for step in back.steps() if len(step)] == wide


def _rows(step):
    columns = (step.src, step.dst, step.chunk, step.op, step.width)
    return list(zip(*(c.tolist() for c in columns), strict=True))


@given(st.one_of(any_schedules(), algorithms(7)), st.integers(0, 99))
def test_messages_and_chunks_are_two_views_of_the_same(schedule, elements):
    bounds = chunk_bounds(elements, schedule.chunks)
    for step in schedule.steps():
        single = step.one_by_one()
        assert (single.width == 1).all()
        assert _rows(step.together().one_by_one()) == _rows(single)
        assert _rows(single.together()) == _rows(step.together())
        assert message_sizes(single, bounds).sum() == message_sizes(step, bounds).sum()
        by_hand = [
            sum(chunk_sizes(elements, schedule.chunks)[chunk : chunk + width].tolist())
            for _, _, chunk, _, width in _rows(step)
        ]
        assert message_sizes(step, bounds).tolist() == by_hand


@pytest.mark.parametrize(
    ("rows", "widths"),
    [
        ("0: 0->1 c0 add\n0: 0->1 c1 add", [2]),
        ("0: 0->1 c0 add\n0: 0->1 c1 copy", [1, 1]),  # another op
        ("0: 0->1 c1 add\n0: 0->1 c0 add", [1, 1]),  # not upwards
        ("0: 0->1 c0 add\n0: 0->1 c0 add", [1, 1]),  # the same again
        ("0: 0->1 c0 add\n0: 1->0 c1 add", [1, 1]),  # the other way
        ("0: 0->1 c0 add\n0: 2->1 c1 add\n0: 0->1 c1 add", [1, 1, 1]),  # not one after the other
        ("0: 0->1 c0 add\n0: 0->1 c1 add\n0: 0->1 c2 add\n0: 0->2 c3 add", [3, 1]),
    ],
)
def test_only_consecutive_chunks_between_the_same_two_ranks_are_one_message(rows, widths):
    schedule = parse_schedule(rows, name="joined", n=3, chunks=4)
    assert [step.width.tolist() for step in schedule.steps()] == [widths]
    assert str(schedule) == rows


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


@pytest.mark.parametrize("servers", [-1, 2, 3])
def test_somebody_works(servers):
    with pytest.raises(ValueError, match=f"servers must be from 0 to 1, got {servers}"):
        Schedule("bad", 2, 1, 0, Collective.ALL_REDUCE, lambda: iter(()), servers=servers)


# Other places for the ranks.


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), n=st.integers(1, 9))
def test_reordering_keeps_what_a_schedule_means(name, data, n):
    schedule = build_schedule(name, n, **data.draw(st.sampled_from(settings_of(name, n))))
    order = data.draw(st.permutations(range(n)))
    moved = reorder(schedule, order)
    check_meaning(moved)
    check_hazards(moved)
    place = [*order, *range(n, schedule.n)]
    rows = [replace(t, src=place[t.src], dst=place[t.dst]) for t in schedule]
    assert list(moved) == rows
    assert (moved.n_steps, moved.flags) == (schedule.n_steps, schedule.flags)
    back = [place.index(rank) for rank in range(n)]
    assert list(reorder(moved, back)) == list(schedule)


@pytest.mark.parametrize("order", [[], [0, 1], [0, 1, 1], [0, 1, 3], [-1, 0, 1], [0, 1, 2, 3]])
def test_an_order_names_each_rank_once(order):
    with pytest.raises(ValueError, match="order must name each of the ranks 0 to 2 once, got"):
        reorder(build_schedule("ring", 3), order)


def test_servers_keep_their_places():
    two = build_schedule("ps-dedicated", 2, servers=2)
    assert [(t.src, t.dst) for t in reorder(two, [1, 0]) if t.step == 0] == [
        *((1, 2), (0, 2)),
        *((1, 3), (0, 3)),
    ]
    moved = reorder(build_schedule("ps-dedicated", 2, servers=1), [1, 0])
    assert str(moved) == "0: 1->2 c0 add\n0: 0->2 c0 add\n1: 2->1 c0 copy\n1: 2->0 c0 copy"
    with pytest.raises(ValueError, match="ranks 0 to 1 once"):
        reorder(build_schedule("ps-dedicated", 2, servers=1), [2, 1, 0])


@given(st.data(), st.integers(1, 12))
def test_a_ring_in_the_topology_s_order_leaves_each_group_once(data, n):
    cluster = uniform(n, 1e9, levels=data.draw(levels(n)))
    order = ring_order(cluster)
    assert sorted(order.tolist()) == list(range(n))
    for level in cluster.levels:
        groups = [level.groups[rank] for rank in order.tolist()]
        changes = sum(a != b for a, b in pairwise([*groups, groups[0]]))
        assert changes == (len(set(groups)) if len(set(groups)) > 1 else 0)


def test_a_ring_is_through_with_a_rack_before_it_enters_the_next():
    pairs, racks = Level("pair", even_groups(8, 2)), Level("rack", (0, 0, 1, 1, 0, 0, 1, 1))
    cluster = uniform(8, 1e9, levels=(pairs, racks))
    assert ring_order(cluster).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]


def test_neighbours_that_are_close_make_a_ring_fast():
    scattered = Level("node", (0, 1) * 4, port_bytes_per_s=1e9, uplink_bytes_per_s=1e8)
    cluster = uniform(8, 1e9, levels=(scattered,))
    ring = build_schedule("ring", 8)
    natural_s = simulate(ring, cluster, 8000).trace.time_s
    auto_s = simulate(reorder(ring, ring_order(cluster)), cluster, 8000).trace.time_s
    # Through an uplink of a tenth of a port go four chunks at once, or one.
    assert natural_s == pytest.approx(14 * 4 * 4000 / 1e8)
    assert auto_s == pytest.approx(14 * 4000 / 1e8)
    together = uniform(8, 1e9, levels=(replace(scattered, groups=even_groups(8, 4)),))
    assert ring_order(together).tolist() == list(range(8))


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
