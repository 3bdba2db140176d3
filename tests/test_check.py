"""The oracles: every single-edit mutant is rejected, and no oracle could be left out."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from simcore import (
    Op,
    Schedule,
    ScheduleError,
    Transfer,
    build_schedule,
    parse_schedule,
    prove,
)
from simcore.check import COUNT_EXACTLY_UP_TO, check_hazards, check_meaning, check_traffic
from simcore.schedule import schedule_of
from tests.strategies import NAMES, settings_of

SMALL = [
    (name, n, flags)
    for name in NAMES
    for n in (2, 3, 4, 5)
    for flags in settings_of(name, n)
    if flags.get("pieces", 1) <= 3  # more pieces are more of the same, and slow
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [*range(1, 25), 33, COUNT_EXACTLY_UP_TO, COUNT_EXACTLY_UP_TO + 1])
def test_the_algorithms_pass(name, n):
    flags = settings_of(name, n) if n <= 12 else [{}, settings_of(name, n)[-1]]
    for setting in flags:
        prove(build_schedule(name, n, **setting))


@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_ranks_pass(name):
    prove(build_schedule(name, 100))


@pytest.mark.parametrize("root", range(4))
def test_a_server_anywhere_passes_where_it_is_said_to_be(root):
    schedule = build_schedule("ps", 4, root=root)
    prove(schedule)
    prove(schedule, root=root)
    with pytest.raises(ScheduleError):
        prove(schedule, root=(root + 1) % 4)


def _edited(schedule: Schedule, rows: list[Transfer]) -> Schedule:
    """The schedule with other rows, each step's in the order given."""
    edited = schedule_of(
        sorted(rows, key=lambda t: t.step),
        name=schedule.name,
        n=schedule.n,
        chunks=schedule.chunks,
        collective=schedule.collective,
        owner=schedule.owner,
        servers=schedule.servers,
        n_steps=max(schedule.n_steps, *(t.step + 1 for t in rows), 0),
    )
    return replace(edited, flags=schedule.flags)


def mutants(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """Every schedule that is one edit away, with what was done."""
    rows, n = list(schedule), schedule.n
    for i, t in enumerate(rows):
        before, after = rows[:i], rows[i + 1 :]
        others = [r for r in range(n) if r not in (t.src, t.dst)]
        yield f"dropped {t}", _edited(schedule, before + after)
        yield f"doubled {t}", _edited(schedule, [*before, t, t, *after])
        changed = {
            "flipped": [replace(t, op=Op(1 - t.op))],
            "earlier": [replace(t, step=t.step - 1)] if t.step else [],
            "later": [replace(t, step=t.step + 1)],
            "wrong chunk": [replace(t, chunk=c) for c in range(schedule.chunks) if c != t.chunk],
            "wrong src": [replace(t, src=r) for r in others],
            "wrong dst": [replace(t, dst=r) for r in others],
            "turned round": [replace(t, src=t.dst, dst=t.src)],
        }
        for edit, variants in changed.items():
            for variant in variants:
                yield f"{edit} {t} -> {variant}", _edited(schedule, [*before, variant, *after])


@pytest.mark.parametrize(("name", "n", "flags"), SMALL)
def test_every_single_edit_is_rejected(name, n, flags):
    # None is equivalent to its original: traffic names each port's load in each step, and within
    # a step no two rows of an algorithm can stand in for each other.
    schedule = build_schedule(name, n, **flags)
    survivors, tried = [], 0
    for edit, mutant in mutants(schedule):
        tried += 1
        try:
            prove(mutant)
        except ScheduleError:
            continue
        survivors.append(edit)
    assert survivors == []
    assert tried >= 5 * len(list(schedule))


@pytest.mark.parametrize("name", NAMES)
def test_many_ranks_are_checked_by_weights_as_well_as_few_by_counts(name):
    n = COUNT_EXACTLY_UP_TO + 1
    schedule = build_schedule(name, n)
    *rows, last = schedule
    flipped = [*rows, replace(last, op=Op(1 - last.op))]
    with pytest.raises(ScheduleError, match="got a sum of weight"):
        check_meaning(_edited(schedule, flipped))


# What each oracle alone is for: a wrong schedule that the other two accept.


def _verdicts(schedule: Schedule) -> list[str]:
    """The oracles that reject."""
    rejecting = []
    for check in (check_meaning, check_hazards, check_traffic):
        try:
            check(schedule)
        except ScheduleError:
            rejecting.append(check.__name__.removeprefix("check_"))
    return rejecting


def test_only_meaning_sees_a_sum_that_was_overwritten():
    schedule = build_schedule("ring", 4)
    rows = list(schedule)
    assert _verdicts(_edited(schedule, [replace(rows[0], op=Op.COPY), *rows[1:]])) == ["meaning"]


def test_only_meaning_sees_a_contribution_that_is_counted_twice():
    # "Somebody's gradient got there" is true of every cell: rank 1's, and twice.
    text = "0: 1->0 c0 add\n1: 1->0 c0 add\n2: 0->1 c0 copy\n3: 0->2 c0 copy"
    twice = parse_schedule(text, name="dp", n=3, chunks=1)
    with pytest.raises(ScheduleError, match=r"dp: rank 0, chunk 0: got x0 \+ 2\*x1, wanted"):
        check_meaning(twice)
    complete = "0: 1->0 c0 add\n0: 2->0 c0 add\n1: 1->0 c0 add\n2: 0->1 c0 copy\n2: 0->2 c0 copy"
    present = parse_schedule(complete, name="dp", n=3, chunks=1)
    assert _everyone_got_there(present)
    with pytest.raises(ScheduleError, match=r"got x0 \+ 2\*x1 \+ x2, wanted x0 \+ x1 \+ x2"):
        check_meaning(present)


def _everyone_got_there(schedule: Schedule) -> bool:
    """The boolean oracle that counting replaces."""
    there = np.repeat(np.eye(schedule.n, dtype=bool)[:, None], schedule.chunks, axis=1)
    for t in schedule:
        there[t.dst, t.chunk] |= there[t.src, t.chunk]
    return bool(there.all())


def test_only_hazards_see_an_exchange_that_reads_what_it_writes():
    # Right if both reads come first, wrong if one is late; the bytes are those of a ring of two.
    text = "0: 0->1 c0 add\n0: 1->0 c0 add\n1: 0->1 c1 add\n1: 1->0 c1 add"
    assert _verdicts(parse_schedule(text, name="ring", n=2, chunks=2)) == ["hazards"]


def test_only_traffic_sees_two_transfers_at_once():
    schedule = build_schedule("dp", 3)
    *rows, last = schedule
    assert _verdicts(_edited(schedule, [*rows, replace(last, step=2)])) == ["traffic"]


def test_only_traffic_sees_a_server_that_calls_itself_a_ring():
    rows = list(build_schedule("ps", 4))
    assert _verdicts(schedule_of(rows, name="ring", n=4, chunks=1)) == ["traffic"]


def test_only_traffic_sees_work_that_changes_nothing():
    schedule = build_schedule("ps", 3)
    rows = [*schedule, Transfer(2, 1, 2, 0, Op.COPY)]
    assert _verdicts(_edited(schedule, rows)) == ["traffic"]


# How they say it.


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0: 0->1 c0 copy", "got x0, wanted x0 + x1"),
        ("0: 0->1 c0 add\n1: 1->0 c0 add", "got 2*x0 + x1, wanted x0 + x1"),
    ],
)
def test_meaning_names_the_cell_what_it_holds_and_what_it_should(text, complaint):
    with pytest.raises(ScheduleError) as error:
        check_meaning(parse_schedule(text, name="wrong", n=2, chunks=1))
    assert str(error.value) == f"wrong: rank 0, chunk 0: {complaint}"


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("0: 0->1 c0 copy\n0: 1->2 c0 copy", "rank 1, chunk 0: got a cell that is both"),
        ("0: 0->1 c0 copy\n0: 2->1 c0 copy", "rank 1, chunk 0: got a cell overwritten while"),
        ("0: 0->2 c1 add\n0: 1->2 c1 copy", "rank 2, chunk 1: got a cell overwritten while"),
    ],
)
def test_hazards_name_the_step_and_the_cell(text, cell):
    schedule = parse_schedule(text, name="race", n=3, chunks=2)
    with pytest.raises(ScheduleError, match=f"race: step 0, {cell}"):
        check_hazards(schedule)


def test_adds_into_one_cell_are_no_hazard():
    check_hazards(build_schedule("ps", 5))


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda rows: rows[:-1], "ps: step 1, rank 0: got sends 1 chunks, wanted sends 2 chunks"),
        (lambda rows: rows[:2], "ps: got 1 steps, wanted 2"),
    ],
)
def test_traffic_names_the_step_the_rank_and_the_load(edit, complaint):
    rows = edit(list(build_schedule("ps", 3)))
    with pytest.raises(ScheduleError) as error:
        check_traffic(schedule_of(rows, name="ps", n=3, chunks=1))
    assert str(error.value) == complaint


def test_traffic_tells_chunks_apart_by_their_bytes():
    # The loads are a ring's; but rank 0 sends chunk 1 where it should send chunk 0.
    schedule = build_schedule("ring", 3)
    first, *rows = schedule
    with pytest.raises(ScheduleError, match="ring: in all, rank 0: got sends"):
        check_traffic(_edited(schedule, [replace(first, chunk=1), *rows]))
