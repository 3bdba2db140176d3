"""What the laws are tried on: clusters, start times, and schedules of any shape."""

from dataclasses import dataclass

from hypothesis import strategies as st

from simcore import ALGORITHMS, Cluster, Op, Port, Schedule, SlowLink, Transfer, build_schedule
from simcore.schedule import schedule_of

NAMES = [algorithm.name for algorithm in ALGORITHMS]
ALL_REDUCES = ["ring", "ps", "dp"]

names = st.sampled_from(NAMES)
rates = st.floats(1e3, 1e12)
delays = st.one_of(st.just(0.0), st.floats(1e-7, 1e-1))


def elements(n: int) -> st.SearchStrategy[int]:
    """Buffer lengths, with those that trip up a splitter: none, fewer than ranks, primes."""
    awkward = {0, 1, n - 1, n, n + 1, 2 * n, 7, 997, 104_729}
    return st.one_of(st.sampled_from(sorted(awkward)), st.integers(0, 10**9))


def starts(n: int) -> st.SearchStrategy[list[float]]:
    """When each rank may start."""
    return st.lists(delays, min_size=n, max_size=n)


@st.composite
def clusters(draw: st.DrawFn, n: int, *, equal: bool = False, launch: bool = True) -> Cluster:
    """``n`` ports of equal rates, or of a few that are not."""
    if equal:
        ports = (Port(*[draw(rates)] * 2),) * n
    else:
        few = st.one_of(st.sampled_from([1e6, 2e6, 3e6]), rates)
        ports = tuple(Port(draw(few), draw(few)) for _ in range(n))
    return Cluster(
        "drawn",
        ports,
        latency_s=draw(delays),
        launch_per_collective_s=draw(delays) if launch else 0.0,
        launch_per_message_s=draw(delays) if launch else 0.0,
        wire_time_per_payload_byte=draw(st.sampled_from([1.0, 1.0456])),
    )


@st.composite
def any_schedules(draw: st.DrawFn, max_n: int = 5) -> Schedule:
    """Rows at random, several to a port: no algorithm at all, but a schedule."""
    n, chunks = draw(st.integers(2, max_n)), draw(st.integers(1, 4))
    row = st.tuples(
        st.integers(0, n - 1),
        st.integers(1, n - 1),
        st.integers(0, chunks - 1),
        st.sampled_from(Op),
    )
    steps = draw(st.lists(st.lists(row, max_size=6), max_size=4))
    rows = [
        Transfer(number, src, (src + away) % n, chunk, op)
        for number, step in enumerate(steps)
        for src, away, chunk, op in step
    ]
    return schedule_of(rows, name="any", n=n, chunks=chunks, n_steps=len(steps))


@st.composite
def contended_schedules(draw: st.DrawFn, max_n: int = 5) -> Schedule:
    """Rows at random, then a parameter server: never faster than the bound of an all-reduce."""
    first = draw(any_schedules(max_n))
    rows = list(first)
    for step, op in enumerate((Op.ADD, Op.COPY), start=first.n_steps):
        for worker in range(1, first.n):
            ends = (worker, 0) if op is Op.ADD else (0, worker)
            rows += [Transfer(step, *ends, chunk, op) for chunk in range(first.chunks)]
    return schedule_of(rows, name="contended", n=first.n, chunks=first.chunks)


@st.composite
def quiet_schedules(draw: st.DrawFn, max_n: int = 5) -> Schedule:
    """Partial permutations at random, then DataParallel's copies: never two flows on a port."""
    n, chunks = draw(st.integers(2, max_n)), draw(st.integers(1, 4))
    permutations = draw(st.lists(st.permutations(range(n)), max_size=5))
    rows = [
        Transfer(number, src, dst, draw(st.integers(0, chunks - 1)), draw(st.sampled_from(Op)))
        for number, permutation in enumerate(permutations)
        for src, dst in enumerate(permutation)
        if src != dst and draw(st.booleans())
    ]
    step = len(permutations)
    for ends, op in ((lambda w: (w, 0), Op.ADD), (lambda w: (0, w), Op.COPY)):
        for worker in range(1, n):
            for chunk in range(chunks):
                rows.append(Transfer(step, *ends(worker), chunk, op))
                step += 1
    return schedule_of(rows, name="quiet", n=n, chunks=chunks)


@dataclass(frozen=True)
class Case:
    """Everything that ``simulate`` needs, but the rule."""

    schedule: Schedule
    cluster: Cluster
    elements: int
    starts_s: list[float]
    slow_links: tuple[SlowLink, ...] = ()


@st.composite
def contended_cases(draw: st.DrawFn, *, launch: bool = True) -> Case:
    """Ports that carry several flows, unequal rates, late ranks and, at times, a slow pair."""
    schedule = draw(contended_schedules())
    n = schedule.n
    pairs = st.sampled_from([(src, dst) for src in range(n) for dst in range(n) if src != dst])
    slow = draw(st.lists(st.tuples(pairs, st.floats(0.05, 1.0)), max_size=1))
    return Case(
        schedule,
        draw(clusters(n, launch=launch)),
        draw(st.integers(1, 40)),
        draw(starts(n)),
        tuple(SlowLink(*pair, factor) for pair, factor in slow),
    )


@st.composite
def quiet_cases(draw: st.DrawFn) -> Case:
    """What the recurrence can solve, though it is no algorithm of the table."""
    schedule = draw(quiet_schedules())
    n = schedule.n
    return Case(schedule, draw(clusters(n)), draw(st.integers(1, 40)), draw(starts(n)))


@st.composite
def algorithm_cases(draw: st.DrawFn, *, max_n: int = 12, equal: bool = False) -> Case:
    """One of the algorithms on a cluster of its size."""
    n = draw(st.integers(1, max_n))
    return Case(
        build_schedule(draw(names), n),
        draw(clusters(n, equal=equal)),
        draw(elements(n)),
        draw(starts(n)),
    )
