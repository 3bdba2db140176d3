"""Each algorithm is the one that the table describes: golden text, steps, loads, bytes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import ALGORITHMS, Collective, build_schedule, chunk_sizes, parse_schedule
from simcore.algorithms import find_algorithm
from tests.strategies import NAMES, elements, names

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_golden_text(name, n):
    text = (GOLDEN / f"{name}_{n}.txt").read_text(encoding="utf-8")
    schedule = build_schedule(name, n)
    assert f"{schedule}\n" == text
    read = parse_schedule(
        text,
        name=name,
        n=n,
        chunks=schedule.chunks,
        collective=schedule.collective,
        owner=schedule.owner,
    )
    assert list(read) == list(schedule)


def test_golden_text_for_nothing_else():
    assert {path.name for path in GOLDEN.iterdir()} == {
        f"{a}_{n}.txt" for a in NAMES for n in (3, 4)
    }


def test_the_table_lists_the_five_in_order():
    assert NAMES == ["ring", "ring-reduce-scatter", "ring-all-gather", "ps", "dp"]
    assert {a.name: a.flags for a in ALGORITHMS if a.flags} == {"ps": ("root",)}
    assert all(build_schedule(name, 3).name == name for name in NAMES)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16])
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("ring", lambda n: 2 * (n - 1)),
        ("ring-reduce-scatter", lambda n: n - 1),
        ("ring-all-gather", lambda n: n - 1),
        ("ps", lambda n: 2 if n > 1 else 0),
        ("dp", lambda n: 2 * (n - 1)),
    ],
)
def test_steps(name, steps, n):
    schedule = build_schedule(name, n)
    assert schedule.n_steps == steps(n) == len(list(schedule.steps()))


def _bytes(schedule, elements, itemsize=4):
    """Counted row by row: sent and received bytes per rank."""
    sizes = (chunk_sizes(elements, schedule.chunks) * itemsize).tolist()
    sent, received = [0] * schedule.n, [0] * schedule.n
    for t in schedule:
        sent[t.src] += sizes[t.chunk]
        received[t.dst] += sizes[t.chunk]
    return sent, received


@given(st.data(), st.integers(2, 40))
def test_a_ring_sends_two_buffers_less_two_chunks(data, n):
    elements_ = data.draw(elements(n))
    sent, received = _bytes(build_schedule("ring", n), elements_)
    size, c = 4 * elements_, (4 * chunk_sizes(elements_, n)).tolist()
    assert sent == [2 * size - c[(r + 1) % n] - c[(r + 2) % n] for r in range(n)]
    assert received == [2 * size - c[r] - c[(r + 1) % n] for r in range(n)]
    if elements_ % n == 0:
        assert sent == received == [2 * (n - 1) * size // n] * n


@given(st.data(), st.integers(2, 40))
def test_the_ring_is_its_two_halves(data, n):
    elements_ = data.draw(elements(n))
    halves = [build_schedule(f"ring-{half}", n) for half in ("reduce-scatter", "all-gather")]
    rows = [str(row).partition(": ")[2] for half in halves for row in half]
    assert [str(row).partition(": ")[2] for row in build_schedule("ring", n)] == rows
    sums = np.sum([_bytes(half, elements_) for half in halves], axis=0).tolist()
    assert sums == list(_bytes(build_schedule("ring", n), elements_))


@given(st.data(), st.integers(2, 40), st.sampled_from(["ps", "dp"]))
def test_a_root_carries_n_minus_1_buffers_each_way_and_the_others_one(data, n, name):
    root = data.draw(st.integers(0, n - 1)) if name == "ps" else 0
    flags = {"root": root} if name == "ps" else {}
    elements_ = data.draw(elements(n))
    each = [4 * elements_] * n
    each[root] *= n - 1
    assert _bytes(build_schedule(name, n, **flags), elements_) == (each, each)


@given(st.data(), st.integers(1, 40), names)
def test_all_that_is_sent_is_received(data, n, name):
    schedule, elements_ = build_schedule(name, n), data.draw(elements(n))
    sent, received = _bytes(schedule, elements_)
    passes = 2 if schedule.collective is Collective.ALL_REDUCE else 1
    assert sum(sent) == sum(received) == passes * (n - 1) * 4 * elements_


@given(st.data(), st.integers(1, 40), names)
def test_what_an_algorithm_states_is_what_it_does(data, n, name):
    algorithm, schedule = find_algorithm(name), build_schedule(name, n)
    sizes = chunk_sizes(data.draw(elements(n)), schedule.chunks)
    for number, step in enumerate(schedule.steps()):
        loads = [np.bincount(ends, minlength=n).tolist() for ends in (step.src, step.dst)]
        assert [side.tolist() for side in algorithm.stated_loads(n, number)] == loads
    stated = [side.tolist() for side in algorithm.stated_bytes(n, sizes)]
    assert stated == list(_bytes(schedule, int(sizes.sum()), itemsize=1))


@pytest.mark.parametrize("n", [2, 3, 8])
def test_dp_never_moves_two_buffers_at_once(n):
    assert [len(step) for step in build_schedule("dp", n).steps()] == [1] * (2 * (n - 1))


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_has_nothing_to_do(name):
    assert str(build_schedule(name, 1)) == ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [0, -3, 2.5, True])
def test_no_ranks_is_an_error(name, n):
    with pytest.raises(ValueError, match=f"at least 1, got {n!r}"):
        build_schedule(name, n)


@pytest.mark.parametrize("root", [-1, 4, 100])
def test_the_root_is_one_of_the_ranks(root):
    with pytest.raises(ValueError, match=f"root must be a rank from 0 to 3, got {root}"):
        build_schedule("ps", 4, root=root)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ps"])
def test_a_flag_that_is_not_taken_is_an_error(name):
    with pytest.raises(ValueError, match=rf"'{name}' does not take 'root' \(ps does\)"):
        build_schedule(name, 4, root=1)


def test_an_unknown_flag_is_taken_by_none():
    with pytest.raises(ValueError, match=r"does not take 'servers' \(none does\)"):
        build_schedule("ps", 4, servers=2)


@pytest.mark.parametrize(
    ("name", "near"), [("rng", "ring"), ("PS", None), ("ring-allgather", "ring-all-gather")]
)
def test_an_unknown_name_gets_the_nearest(name, near):
    with pytest.raises(ValueError, match="unknown algorithm") as error:
        build_schedule(name, 4)
    hint = f" did you mean {near!r}?" if near else ""
    assert str(error.value) == f"unknown algorithm {name!r};{hint} accepted: {', '.join(NAMES)}"
