"""Each algorithm is the one that the table describes: golden text, steps, loads, bytes."""

from itertools import pairwise
from math import ceil, log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import ALGORITHMS, Collective, build_schedule, chunk_sizes, parse_schedule
from simcore.algorithms import ALGORITHM_FLAGS, find_algorithm
from simcore.algorithms.exchange import shifts
from simcore.algorithms.trees import two_trees
from tests.strategies import ALL_REDUCES, NAMES, algorithms, elements, settings_of

GOLDEN = Path(__file__).parent / "golden"
# With these the text tells more than without; the others stand as they come.
GOLDEN_FLAGS = {
    **{name: {"pieces": 2} for name in ("double-tree", "ring-broadcast", "chain-reduce")},
    **{name: {"servers": 2} for name in ("ps-sharded", "ps-dedicated")},
}


def _golden(name, n):
    nodes = {"gpus_per_node": 2} if (name, n) == ("hierarchical", 4) else {}
    return build_schedule(name, n, **GOLDEN_FLAGS.get(name, nodes))


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_golden_text(name, n):
    text = (GOLDEN / f"{name}_{n}.txt").read_text(encoding="utf-8")
    schedule = _golden(name, n)
    assert f"{schedule}\n" == text
    read = parse_schedule(
        text,
        name=name,
        n=schedule.n,
        chunks=schedule.chunks,
        collective=schedule.collective,
        owner=schedule.owner,
        servers=schedule.servers,
    )
    assert list(read) == list(schedule)


def test_golden_text_for_nothing_else():
    assert {path.name for path in GOLDEN.glob("*.txt")} == {
        f"{a}_{n}.txt" for a in NAMES for n in (3, 4)
    }


def test_the_table_lists_the_fourteen_in_order():
    in_order = (
        "ring, ring-reduce-scatter, ring-all-gather, ps, ps-sharded, ps-dedicated, dp, tree, "
        "double-tree, halving-doubling, pairwise, hierarchical, ring-broadcast, chain-reduce"
    )
    assert in_order.split(", ") == NAMES
    assert {a.name: a.flags for a in ALGORITHMS if a.flags} == {
        "ps": ("root",),
        "ps-sharded": ("servers",),
        "ps-dedicated": ("servers",),
        "double-tree": ("pieces",),
        "hierarchical": ("gpus_per_node",),
        "ring-broadcast": ("pieces",),
        "chain-reduce": ("pieces",),
    }
    assert set(ALGORITHM_FLAGS) == {flag for a in ALGORITHMS for flag in a.flags}
    assert all(build_schedule(name, 3).name == name for name in NAMES)
    assert set(NAMES) - set(ALL_REDUCES) == {
        *("ring-reduce-scatter", "ring-all-gather", "ring-broadcast", "chain-reduce")
    }


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12, 16])
@pytest.mark.parametrize(
    ("name", "flags", "steps"),
    [
        ("ring", {}, lambda n: 2 * (n - 1)),
        ("ring-reduce-scatter", {}, lambda n: n - 1),
        ("ring-all-gather", {}, lambda n: n - 1),
        ("ps", {}, lambda n: 2 if n > 1 else 0),
        ("ps-sharded", {}, lambda n: 2 if n > 1 else 0),
        ("ps-sharded", {"servers": 1}, lambda n: 2 if n > 1 else 0),
        ("ps-dedicated", {}, lambda n: 2),
        ("ps-dedicated", {"servers": 3}, lambda n: 2),
        ("dp", {}, lambda n: 2 * (n - 1)),
        ("tree", {}, lambda n: 2 * ceil(log2(n))),
        ("halving-doubling", {}, lambda n: 2 * int(log2(n)) + 2 * (n not in (1, 2, 16))),
        ("pairwise", {}, lambda n: 2 * (n - 1)),
        ("hierarchical", {}, lambda n: 2 * (n - 1)),
        ("hierarchical", {"gpus_per_node": 1}, lambda n: 2 * (n - 1)),
        ("ring-broadcast", {}, lambda n: n - 1),
        ("ring-broadcast", {"pieces": 5}, lambda n: n - 2 + 5 if n > 1 else 0),
        ("chain-reduce", {"pieces": 5}, lambda n: n - 2 + 5 if n > 1 else 0),
    ],
)
def test_steps(name, flags, steps, n):
    schedule = build_schedule(name, n, **flags)
    assert schedule.n_steps == steps(n) == len(list(schedule.steps()))


@pytest.mark.parametrize(("n", "g"), [(4, 2), (12, 3), (12, 4), (12, 12), (16, 8)])
def test_a_hierarchy_s_steps(n, g):
    schedule = build_schedule("hierarchical", n, gpus_per_node=g)
    assert schedule.n_steps == 2 * (g - 1) + 2 * (n // g - 1) == len(list(schedule.steps()))


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


@given(st.data(), algorithms(40))
def test_all_that_is_sent_is_received(data, schedule):
    elements_ = data.draw(elements(schedule.n))
    sent, received = _bytes(schedule, elements_)
    assert sum(sent) == sum(received) == _crossing(schedule) * 4 * elements_


def _crossing(schedule):
    """How many buffers cross the wire, by the table; for two it depends on n's bits or nodes."""
    n = schedule.workers
    if schedule.name == "ps-dedicated":
        return 2 * n
    if schedule.name == "halving-doubling":  # a ring's among a power of two, and the rest twice
        core = 2 ** int(log2(n))
        return 2 * (core - 1) + 2 * (n - core)
    # In a hierarchy each node's ring moves G - 1 buffers twice, and the rails m - 1 twice.
    if schedule.name == "hierarchical":
        g = schedule.flags.get("gpus_per_node", n)
        return 2 * (n // g) * (g - 1) + 2 * (n // g - 1)
    return (2 if schedule.collective is Collective.ALL_REDUCE else 1) * (n - 1)


@given(st.data(), st.integers(2, 40))
def test_bytes_are_those_of_the_contract(data, n):
    """The table of the design, in bytes; chunks are equal where the table speaks of S/n."""
    k = data.draw(st.integers(1, n))
    g = data.draw(st.sampled_from([g for g in range(1, n + 1) if n % g == 0]))
    core = 2 ** int(log2(n))
    size = 4 * n * k * core * data.draw(st.integers(1, 1000))

    def each(name, **flags):
        sent, received = _bytes(build_schedule(name, n, **flags), size // 4)
        return (sent, received) if sent != received else sent

    fair = 2 * (n - 1) * size // n
    assert each("ring") == each("pairwise") == each("ps-sharded") == [fair] * n
    own = [(n - 1) * size // k - size // k] * k + [0] * (n - k)  # as a server, less the own shard
    assert each("ps-sharded", servers=k) == [size + more for more in own]
    assert each("ps-dedicated", servers=k) == [size] * n + [n * size // k] * k
    assert max(each("tree")) <= ceil(log2(n)) * size
    assert each("tree")[0] == ceil(log2(n)) * size
    inside, outside = 2 * (core - 1) * size // core, n - core
    halving = [inside + size * (rank < outside) for rank in range(core)] + [size] * outside
    assert each("halving-doubling") == halving
    rail = 2 * (n // g - 1) * size // n
    assert each("hierarchical", gpus_per_node=g) == [2 * (g - 1) * size // g + rail] * n
    sent, received = each("ring-broadcast", pieces=k)
    assert (sent, received) == ([size] * (n - 1) + [0], [0] + [size] * (n - 1))
    sent, received = each("chain-reduce", pieces=k)
    assert (sent, received) == ([0] + [size] * (n - 1), [size] * (n - 1) + [0])


@given(st.integers(2, 70), st.integers(1, 9), st.integers(0, 10**6))
def test_two_trees_send_at_most_the_buffer_twice(n, pieces, elements_):
    sent, received = _bytes(build_schedule("double-tree", n, pieces=pieces), elements_)
    assert sent == received  # a half goes up where it comes down
    assert max(sent) <= 4 * (2 * elements_ + pieces)  # halves differ by an item for each piece
    sent, _ = _bytes(build_schedule("double-tree", n, pieces=pieces), 2 * pieces * elements_)
    assert max(sent) <= 2 * 4 * 2 * pieces * elements_


@pytest.mark.parametrize("n", [*range(2, 40), 64, 100, 129])
def test_who_works_inside_one_tree_is_a_leaf_in_the_other(n):
    trees = [parents.tolist() for parents in two_trees(n)]
    for parents in trees:
        root = parents.index(-1)
        for rank in range(n):  # all lead to the root, in a logarithm of steps
            path = [rank]
            while path[-1] != root:
                path.append(parents[path[-1]])
                assert len(path) <= ceil(log2(n)) + 1
        children = [parents.count(rank) for rank in range(n)]
        assert max(children) <= 2
        assert children[root] == 1
    inside = [{parent for parent in parents if parent >= 0} for parents in trees]
    # With n odd somebody must do both; it is the first tree's root, which has one child there.
    assert inside[0] & inside[1] == (set() if n % 2 == 0 else {0} if n > 1 else set())


@pytest.mark.parametrize("n", range(2, 40))
def test_shifts_are_each_distance_once_and_none_stands_next_to_its_reverse(n):
    order = shifts(n)
    assert sorted(order) == list(range(1, n))
    beside = [a + b == n for a, b in pairwise(order)]
    # 1 and 2 stand together for three ranks, whatever the order.
    assert not any(beside) or n == 3


@pytest.mark.parametrize("n", [2, 3, 4, 5, 12, 31])
def test_a_rotated_exchange_sends_a_shift_further_and_back(n):
    steps = build_schedule("pairwise", n).steps()
    gone = [set(((step.dst - step.src) % n).tolist()) for step in steps]
    assert gone == [{shift} for shift in [*shifts(n), *reversed(shifts(n))]]


@given(st.data(), algorithms(40))
def test_what_an_algorithm_states_is_what_it_does(data, schedule):
    algorithm, n = find_algorithm(schedule.name), schedule.n
    sizes = chunk_sizes(data.draw(elements(n)), schedule.chunks)
    assert algorithm.stated_steps(n, **schedule.flags) == len(list(schedule.steps()))
    for number, messages in enumerate(schedule.steps()):
        step = messages.one_by_one()
        loads = [np.bincount(ends, minlength=n).tolist() for ends in (step.src, step.dst)]
        stated = algorithm.stated_loads(n, number, **schedule.flags)
        assert [side.tolist() for side in stated] == loads
    stated = [side.tolist() for side in algorithm.stated_bytes(n, sizes, **schedule.flags)]
    assert stated == list(_bytes(schedule, int(sizes.sum()), itemsize=1))


@pytest.mark.parametrize("n", [2, 3, 8])
def test_dp_never_moves_two_buffers_at_once(n):
    assert [len(step) for step in build_schedule("dp", n).steps()] == [1] * (2 * (n - 1))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ps-dedicated"])
def test_one_rank_has_nothing_to_do(name):
    assert str(build_schedule(name, 1)) == ""


def test_one_rank_may_still_have_a_server():
    assert str(build_schedule("ps-dedicated", 1)) == "0: 0->1 c0 add\n1: 1->0 c0 copy"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [0, -3, 2.5, True])
def test_no_ranks_is_an_error(name, n):
    with pytest.raises(ValueError, match=f"at least 1, got {n!r}"):
        build_schedule(name, n)


@pytest.mark.parametrize(
    ("name", "flags", "complaint"),
    [
        *(
            ("ps", {"root": root}, f"root must be a rank from 0 to 3, got {root}")
            for root in (-1, 4, 100)
        ),
        *(
            ("ps-sharded", {"servers": k}, f"servers must be from 1 to 4, got {k}")
            for k in (-1, 0, 5)
        ),
        *(
            ("ps-dedicated", {"servers": k}, f"servers must be at least 1, got {k}")
            for k in (-1, 0)
        ),
        *(
            (name, {"pieces": p}, f"pieces must be at least 1, got {p}")
            for name in ("double-tree", "ring-broadcast", "chain-reduce")
            for p in (-1, 0)
        ),
        *(
            ("hierarchical", {"gpus_per_node": g}, f"gpus_per_node must divide 4 GPUs, got {g}")
            for g in (-2, 0, 3, 8)
        ),
    ],
)
def test_a_flag_has_a_range(name, flags, complaint):
    with pytest.raises(ValueError, match="must") as error:
        build_schedule(name, 4, **flags)
    assert str(error.value) == complaint


TAKERS = {
    "root": "ps",
    "servers": "ps-sharded, ps-dedicated",
    "pieces": "double-tree, ring-broadcast, chain-reduce",
    "gpus_per_node": "hierarchical",
}


@pytest.mark.parametrize("flag", TAKERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_flag_that_is_not_taken_is_an_error(name, flag):
    if flag in find_algorithm(name).flags:
        assert build_schedule(name, 4, **{flag: 1}).flags == {flag: 1}
        return
    with pytest.raises(ValueError, match="does not take") as error:
        build_schedule(name, 4, **{flag: 1})
    assert str(error.value) == f"algorithm {name!r} does not take {flag!r} ({TAKERS[flag]} does)"


def test_an_unknown_flag_is_taken_by_none():
    with pytest.raises(ValueError, match=r"does not take 'seats' \(none does\)"):
        build_schedule("ps", 4, seats=2)


def test_flags_that_are_not_given_have_a_value():
    same = {
        "ps": {"root": 0},
        "ps-sharded": {"servers": 4},
        "ps-dedicated": {"servers": 1},
        "double-tree": {"pieces": 1},
        "hierarchical": {"gpus_per_node": 4},
        "ring-broadcast": {"pieces": 1},
        "chain-reduce": {"pieces": 1},
    }
    for name, flags in same.items():
        assert str(build_schedule(name, 4)) == str(build_schedule(name, 4, **flags))
        assert all(flags in settings_of(name, 4) for flags in ({}, flags))


@pytest.mark.parametrize(
    ("name", "near"),
    [("rng", "ring"), ("PS", None), ("ring-allgather", "ring-all-gather"), ("twintree", "tree")],
)
def test_an_unknown_name_gets_the_nearest(name, near):
    with pytest.raises(ValueError, match="unknown algorithm") as error:
        build_schedule(name, 4)
    hint = f" did you mean {near!r}?" if near else ""
    assert str(error.value) == f"unknown algorithm {name!r};{hint} accepted: {', '.join(NAMES)}"
