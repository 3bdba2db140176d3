"""Plans: what waits for what, and two solvers that agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.algorithms import build_schedule
from simcore.cluster import Level, uniform
from simcore.cost import byteps_optimum_s
from simcore.schedule import ScheduleError, chunk_bounds
from simcore.solvers import recurrence
from simcore.solvers.network import Network, Slowdown
from simcore.trace import Lane, Trace
from simcore.training.model import Parameter, Workload
from simcore.training.perform import TwoAtOnce, perform
from simcore.training.plan import Communicate, Compute, Plan, collective, copies, on_ranks, part_of
from simcore.training.strategies import Setting, plan_step

VALUES = ("a", "b", "c", "d")
SOLVERS = ("serial", "events")
ALGORITHMS = ("ring", "ring-reduce-scatter", "ring-all-gather", "halving-doubling", "tree", "dp")


@st.composite
def plans(draw, streams=("network",), widths=(1,)):
    """Random programs: work of different length on each rank, collectives of all ranks or some."""
    n = draw(st.integers(1, 5))
    names = st.lists(st.sampled_from(VALUES), max_size=2, unique=True).map(tuple)
    tasks = []
    for number in range(draw(st.integers(1, 8))):
        reads, writes = draw(names), draw(names)
        some = draw(st.one_of(st.none(), st.sets(st.integers(0, n - 1), min_size=1)))
        ranks = None if some is None else tuple(sorted(some))
        count = n if ranks is None else len(ranks)
        if draw(st.booleans()):
            seconds = tuple(draw(st.integers(0, 40)) / 10 for _ in range(count))
            tasks.append(Compute(f"work {number}", seconds, "forward", reads, writes, ranks))
        else:
            tasks.append(
                collective(
                    *(f"sync {number}", draw(st.sampled_from(ALGORITHMS)), count),
                    60 * draw(st.integers(0, 50)),  # as many items in every chunk
                    ranks=ranks,
                    reads=reads,
                    writes=writes,
                    stream=draw(st.sampled_from(streams)),
                )
            )
    written = {name for task in tasks for name in task.writes}
    known = [replace(t, reads=tuple(name for name in t.reads if name in written)) for t in tasks]
    return Plan("random", n, tuple(known), {s: draw(st.sampled_from(widths)) for s in streams})


@given(
    st.one_of(plans(), plans(streams=("network", "more"), widths=(1, 2))),
    st.sampled_from([0.0, 0.25]),
    st.sampled_from([0.0, 0.125]),
)
def test_the_two_solvers_agree_to_the_last_digits(plan, latency_s, launch_s):
    cluster = uniform(
        plan.n,
        100.0,
        latency_s,
        launch_per_message_s=launch_s,
        launch_per_collective_s=launch_s / 2,
    )
    together = perform(plan, cluster, solver="events")
    try:
        alone = perform(plan, cluster, solver="serial")
    except Exception as error:  # where messages may compete only the events know
        assert type(error).__name__ in ("SharedLink", "TwoAtOnce")  # noqa: PT017
        return
    assert np.allclose(alone.ended_s, together.ended_s, rtol=1e-9, atol=1e-12, equal_nan=True)
    assert np.allclose(alone.entered_s, together.entered_s, rtol=1e-9, atol=1e-12, equal_nan=True)
    assert (alone.sent_bytes == together.sent_bytes).all()
    assert (alone.received_bytes == together.received_bytes).all()


@given(st.integers(2, 7), st.integers(0, 200), st.data())
def test_a_ring_that_is_entered_at_different_times(n, elements, data):
    """Its formula is off by less than an item in each step, wherever the solver uses it."""
    starts_s = tuple(data.draw(st.integers(0, 30)) / 7 for _ in range(n))
    latency_s, launch_s = data.draw(st.sampled_from([(0, 0), (0.3, 0), (0, 0.2), (0.3, 0.2)]))
    name = data.draw(st.sampled_from(["ring", "ring-reduce-scatter", "ring-all-gather"]))
    work = Compute("work", starts_s, "forward", writes=("a",))
    sync = collective("sync", name, n, elements, reads=["a"])
    cluster = uniform(n, 100.0, latency_s, launch_per_message_s=launch_s)
    plan = Plan("late", n, (work, sync))
    alone, together = (perform(plan, cluster, solver=s) for s in SOLVERS)
    # A message of no bytes is not sent, and costs neither latency nor launch.
    per_step_s = 4 / 100.0 + (latency_s + launch_s if elements < n else 0)
    late_s = alone.ended_s[1] - together.ended_s[1]
    assert (late_s >= -1e-9).all()
    assert (late_s <= sync.schedule.n_steps * per_step_s + 1e-9).all()


def test_a_late_rank_delays_nobody_by_a_chunk_of_nothing():
    """One item on three ranks: the only messages go from rank 0 to 1 and on to 2."""
    work = Compute("work", (0.0, 0.0, 5.0), "forward", writes=("a",))
    sync = collective("sync", "ring-reduce-scatter", 3, 1, reads=["a"])
    run = perform(Plan("late", 3, (work, sync)), uniform(3, 4.0))
    assert run.ended_s[1].tolist() == [1.0, 6.0, 6.0]


@given(st.integers(2, 7), st.integers(1, 9), st.integers(1, 200), st.data())
def test_a_broadcast_along_a_chain_that_is_entered_at_different_times(n, pieces, nbytes, data):
    starts_s = tuple(data.draw(st.integers(0, 30)) / 7 for _ in range(n))
    latency_s, launch_s = (data.draw(st.sampled_from([0, 0.2, 0.3])) for _ in range(2))
    work = Compute("work", starts_s, "forward", writes=("a",))
    flags = {"pieces": min(pieces, nbytes)}
    sync = collective("sync", "ring-broadcast", n, nbytes, 1, reads=["a"], flags=flags)
    cluster = uniform(n, 100.0, latency_s, launch_per_message_s=launch_s)
    alone, together = (perform(Plan("p", n, (work, sync)), cluster, solver=s) for s in SOLVERS)
    assert np.allclose(alone.ended_s, together.ended_s, rtol=1e-9, atol=1e-12)


@given(plans(streams=("network", "more"), widths=(1, 2)))
def test_every_task_waits_for_what_it_reads_and_for_its_turn(plan):
    run = perform(plan, uniform(plan.n, 100.0, 0.1))
    for number, before in enumerate(plan.waits_for()):
        for earlier in before:
            late = run.ended_s[earlier] - run.entered_s[number]
            assert not (late > 1e-9).any()
    for rank in range(plan.n):
        for stream in {task.stream for task in plan.tasks}:
            rows = [
                k
                for k, task in enumerate(plan.tasks)
                if task.stream == stream and not np.isnan(run.entered_s[k, rank])
            ]
            begins, ends = run.entered_s[rows, rank], run.ended_s[rows, rank]
            assert (np.diff(begins) >= -1e-9).all()  # in the order of the program
            for begin in begins:
                busy = (begins <= begin + 1e-9) & (ends > begin + 1e-9)
                assert busy.sum() <= plan.widths.get(stream, 1)


@given(plans(streams=("network", "more"), widths=(1, 2)))
def test_bytes_and_messages_are_those_of_the_schedules(plan):
    run = perform(plan, uniform(plan.n, 100.0, 0.1), transfers=True)
    trace = run.trace()
    sends = trace.spans.lane == Lane.SEND
    sent = np.bincount(trace.spans.rank[sends], trace.spans.nbytes[sends], minlength=plan.n)
    assert (sent == run.sent_bytes).all()
    assert (perform(plan, uniform(plan.n, 100.0, 0.1)).sent_bytes == run.sent_bytes).all()
    assert Trace.from_json(trace.to_json()).to_json() == trace.to_json()
    for row in np.flatnonzero(sends).tolist():
        task = trace.task_of[row]
        assert isinstance(plan.tasks[task], Communicate)
        rank = trace.spans.rank[row]
        assert run.entered_s[task, rank] <= trace.spans.start_s[row] + 1e-9
        assert trace.spans.end_s[row] <= run.ended_s[task, rank] + 1e-9


def two_rings(width):
    tasks = [collective(f"ring {k}", "ring", 2, 100, writes=(f"v{k}",)) for k in range(2)]
    return Plan("two", 2, tuple(tasks), {"network": width})


def test_two_at_a_time_share_the_link_and_end_together():
    run = perform(two_rings(2), uniform(2, 100.0))
    assert run.solver == "events"
    assert run.entered_s.tolist() == [[0, 0], [0, 0]]
    assert np.allclose(run.ended_s, 8.0)  # 400 B each way and ring, at half of 100 B/s
    one_by_one = perform(two_rings(1), uniform(2, 100.0))
    assert one_by_one.solver == "serial"
    assert np.allclose(one_by_one.ended_s, [[4.0, 4.0], [8.0, 8.0]])
    with pytest.raises(TwoAtOnce):
        perform(two_rings(2), uniform(2, 100.0), solver="serial")


def test_opposite_ways_do_not_meet():
    """A push and a pull of a dedicated server use different directions of each port."""
    push = collective("push", "ps-dedicated", 2, 100, part=(0, 1), stream="push")
    pull = collective("pull", "ps-dedicated", 2, 100, part=(1, 2), stream="pull")
    run = perform(Plan("both", 3, (push, pull), servers=1), uniform(3, 100.0))
    assert run.solver == "serial"
    assert run.time_s == 8.0


def test_groups_that_share_an_uplink_are_timed_together():
    groups = [(0, 2), (1, 3)]
    tasks = tuple(
        collective(f"rail {k}", "ring", 2, 100, ranks=ranks) for k, ranks in enumerate(groups)
    )
    free = uniform(4, 100.0)
    node = Level("node", (0, 0, 1, 1), uplink_bytes_per_s=100.0)
    shared = uniform(4, 100.0, levels=(node,))
    assert perform(Plan("rails", 4, tasks), free).time_s == 4.0
    run = perform(Plan("rails", 4, tasks), shared)
    assert (run.time_s, run.solver) == (8.0, "events")


def test_a_slow_link_in_a_plan():
    plan = two_rings(1)
    run = perform(plan, uniform(2, 100.0), slowdowns=[Slowdown("gpu1.tx", 0.5, 0.0, 2.0)])
    # Until 2 s the slow port has sent 100 B of its first 200; that step then lasts until 3 s.
    assert np.allclose(run.ended_s, [[5.0, 5.0], [9.0, 9.0]])


def test_copies_go_in_order_and_carry_their_bytes():
    rows = [(0, 0, 1, 100), (1, 0, 2, 50), (1, 1, 2, 0)]
    run = perform(Plan("scatter", 3, (copies("scatter", 3, rows),)), uniform(3, 100.0))
    assert run.sent_bytes.tolist() == [150, 0, 0]
    assert run.ended_s.tolist() == [[1.5, 1.0, 1.5]]


def test_what_is_wrong_with_a_plan():
    with pytest.raises(ValueError, match="accepted are ranks 0 to 1"):
        Plan("wrong", 2, (Compute("work", 1.0, "forward", ranks=(2,)),))
    with pytest.raises(ValueError, match="a schedule of 3 for 2 ranks"):
        Plan("wrong", 2, (collective("sync", "ring", 3, 10),))
    work = Compute("work", 1.0, "backward", writes=("gradients 0",))
    sync = collective("sync", "ring", 2, 10, reads=["gradients 0", "gradients 1"])
    with pytest.raises(ValueError, match="sync: it reads 'gradients 1', which no task writes"):
        Plan("wrong", 2, (work, sync))
    with pytest.raises(ValueError, match="seconds must be >= 0"):
        Plan("wrong", 1, (Compute("work", -1.0, "forward"),))
    with pytest.raises(ValueError, match="has 2 ranks, the cluster 3"):
        perform(two_rings(1), uniform(3, 1.0))


def test_a_part_promises_nothing_and_keeps_its_chunks():
    from simcore.algorithms import build_schedule
    from simcore.check import prove

    ring = build_schedule("ring", 4)
    first, second = part_of(ring, 0, 3), part_of(ring, 3, 6)
    assert [*map(str, first)] == [*map(str, ring)][:12]
    assert len([*second]) == 12
    with pytest.raises(ScheduleError, match="promises nothing"):
        prove(first)
    moved = on_ranks(ring, (3, 2, 1, 0), 4)
    assert {(t.src, t.dst) for t in moved} == {(3, 2), (2, 1), (1, 0), (0, 3)}


@pytest.mark.parametrize(
    ("n", "k"), [(4, 0), (4, 1), (4, 2), (4, 3), (4, 4), (8, 1), (8, 5), (8, 7)]
)
def test_byteps_is_one_part_above_its_optimum_with_any_number_of_extra_machines(n, k):
    """While the first part is pushed nothing is pulled, which costs its time once more.

    Without extra machines a port is only half full then, and nothing is lost.
    """
    work = Workload("one", (Parameter("weight", (2**22,)),)).with_compute(0.0, 0.0)
    plan = plan_step("byteps", Setting(work, n, servers=k, partition_bytes=2**20))
    time_s = perform(plan, uniform(plan.n, 1e9)).time_s
    optimum_s = byteps_optimum_s(n, k, work.gradient_bytes, 1e9)
    assert time_s == pytest.approx(optimum_s * (17 / 16 if k else 1), rel=2e-3)


def test_each_machine_more_makes_byteps_faster():
    work = Workload("one", (Parameter("weight", (2**24,)),)).with_compute(0.0, 0.0)
    plans = [plan_step("byteps", Setting(work, 8, servers=k)) for k in range(9)]
    times_s = [perform(plan, uniform(plan.n, 1e9)).time_s for plan in plans]
    assert times_s == sorted(times_s, reverse=True)


def test_where_a_machine_serves_far_more_than_a_gpu_byteps_is_a_tenth_above_its_optimum():
    """A GPU of 24 with 23 machines serves a 46th of a machine's share: more than there are
    messages to tell them apart by.
    """
    work = Workload("one", (Parameter("weight", (2**22,)),)).with_compute(0.0, 0.0)
    plan = plan_step("byteps", Setting(work, 24, servers=23, partition_bytes=2**20))
    time_s = perform(plan, uniform(plan.n, 1e9)).time_s
    above = time_s / byteps_optimum_s(24, 23, work.gradient_bytes, 1e9)
    assert 17 / 16 < above < 1.1


def nodes(n, each, uplink=40.0):
    """Ports of 100 B/s, and one uplink for each node: its ring has one slow way."""
    groups = tuple(rank // each for rank in range(n))
    level = Level("node", groups, latency_s=0.001, uplink_bytes_per_s=uplink)
    return uniform(n, 100.0, 0.01, levels=(level,))


def buckets_back_to_back(n, sizes):
    """Everyone computes for another time, then rings queue behind each other."""
    late = Compute("work", tuple(0.1 * (r * r % 7) for r in range(n)), "backward", (), ("g",))
    rings = [collective(f"bucket {k}", "ring", n, s, reads=["g"]) for k, s in enumerate(sizes)]
    return Plan("rings", n, (late, *rings))


@pytest.mark.parametrize(("n", "each"), [(12, 4), (12, 3), (6, 2)])
def test_rings_between_nodes_agree_with_the_event_solver(n, each):
    plan = buckets_back_to_back(n, [120, 240, 120, 120, 360, 120])
    serial, events = (perform(plan, nodes(n, each), solver=solver) for solver in SOLVERS)
    np.testing.assert_allclose(serial.ended_s, events.ended_s, rtol=1e-11)
    uneven = buckets_back_to_back(n, [121, 243, 121])
    serial, events = (perform(uneven, nodes(n, each), solver=solver) for solver in SOLVERS)
    item_s = 2 * (n - 1) * 4 / 40.0  # in each step one item more, at the most
    assert (serial.ended_s >= events.ended_s - 1e-9).all()
    assert (serial.ended_s - events.ended_s).max() <= 3 * item_s + 1e-9


def test_a_ring_is_calculated_until_its_steps_repeat_and_equal_ones_once(monkeypatch):
    steps, solved = [], []
    advance, solve = recurrence._Run.advance, recurrence.solve
    monkeypatch.setattr(recurrence._Run, "advance", lambda *them: steps.append(1) or advance(*them))
    monkeypatch.setattr(recurrence, "solve", lambda *a, **k: solved.append(1) or solve(*a, **k))
    cluster, plan = nodes(64, 8), buckets_back_to_back(64, [640] * 20)
    run = perform(plan, cluster)
    assert len(steps) < 20 * 126 / 10
    assert len(solved) < 15  # until one ring leaves its ranks as far apart as the one before
    ring = build_schedule("ring", 64)
    bounds, starts = chunk_bounds(640, 64) * 4, np.arange(64) % 5 / 10
    whole, quick = (
        solve(ring, Network(cluster), bounds, starts, keep_spans=keep) for keep in (True, False)
    )
    np.testing.assert_allclose(quick.rank_end_s, whole.rank_end_s, rtol=1e-12)
    assert (quick.link_bytes == whole.link_bytes).all()
    assert run.solver == "serial"
