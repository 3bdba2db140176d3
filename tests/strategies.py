"""What the laws are tried on: clusters, start times, and schedules of any shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

from hypothesis import settings
from hypothesis import strategies as st

from simcore import (
    ALGORITHMS,
    Cluster,
    Collective,
    Level,
    Op,
    Port,
    Schedule,
    Slowdown,
    Transfer,
    build_schedule,
)
from simcore.algorithms import find_algorithm
from simcore.schedule import schedule_of
from tests.naive import capacities

NAMES = [algorithm.name for algorithm in ALGORITHMS]
ALL_REDUCES = [
    name for name in NAMES if build_schedule(name, 2).collective is Collective.ALL_REDUCE
]


def often(times: int) -> settings:
    """For a law that is worth more examples than the others; grows with the profile's number."""
    return settings(max_examples=times * settings().max_examples)


rates = st.floats(1e3, 1e12)
few_rates = st.one_of(st.sampled_from([1e6, 2e6, 3e6]), rates)
delays = st.one_of(st.just(0.0), st.floats(1e-7, 1e-1))
# Sizes among those of the messages that the strategies below draw, from bytes to gigabytes.
sizes_bytes = st.one_of(st.integers(0, 200), st.integers(0, 10**9))
latency_points = st.one_of(
    st.just(()),
    st.lists(st.tuples(sizes_bytes, delays), max_size=4, unique_by=lambda point: point[0]).map(
        lambda points: tuple(sorted(points))
    ),
)


def settings_of(name: str, n: int) -> list[dict[str, int]]:
    """Every value of an algorithm's flag that means something for ``n`` ranks, and none given."""
    if name == "ps":
        return [{}, *({"root": root} for root in range(n))]
    if name == "ps-sharded":
        return [{}, *({"servers": k} for k in range(1, n + 1))]
    if name == "ps-dedicated":
        return [{}, *({"servers": k} for k in range(1, n + 3))]
    if name == "hierarchical":
        return [{}, *({"gpus_per_node": g} for g in range(1, n + 1) if n % g == 0)]
    if "pieces" in find_algorithm(name).flags:
        return [{}, *({"pieces": p} for p in sorted({1, 2, 3, 5, n, 2 * n}))]
    return [{}]


@st.composite
def algorithms(draw: st.DrawFn, max_n: int = 12, among: list[str] = NAMES) -> Schedule:
    """One of the algorithms, with its flags at any value."""
    name, n = draw(st.sampled_from(among)), draw(st.integers(1, max_n))
    return build_schedule(name, n, **draw(st.sampled_from(settings_of(name, n))))


def elements(n: int) -> st.SearchStrategy[int]:
    """Buffer lengths, with those that trip up a splitter: none, fewer than ranks, primes."""
    awkward = {0, 1, n - 1, n, n + 1, 2 * n, 7, 997, 104_729}
    multiples = st.integers(1, 10**6).map(lambda k: k * n)
    return st.one_of(st.sampled_from(sorted(awkward)), multiples, st.integers(0, 10**9))


def starts(n: int) -> st.SearchStrategy[list[float]]:
    """When each rank may start."""
    return st.lists(delays, min_size=n, max_size=n)


@st.composite
def clusters(draw: st.DrawFn, n: int, *, equal: bool = False, launch: bool = True) -> Cluster:
    """``n`` ports on one switch, of equal rates, or of a few that are not."""
    if equal:
        ports = (Port(*[draw(rates)] * 2),) * n
    else:
        ports = tuple(Port(draw(few_rates), draw(few_rates)) for _ in range(n))
    points = () if equal else draw(latency_points)
    return Cluster(
        "drawn",
        ports,
        latency_s=0.0 if points else draw(delays),
        latency_by_size=points,
        launch_per_collective_s=draw(delays) if launch else 0.0,
        launch_per_message_s=draw(delays) if launch else 0.0,
        wire_time_per_payload_byte=draw(st.sampled_from([1.0, 1.0456])),
    )


def _maybe(strategy: st.SearchStrategy[float]) -> st.SearchStrategy[float | None]:
    return st.one_of(st.none(), strategy)


@st.composite
def levels(draw: st.DrawFn, n: int) -> tuple[Level, ...]:
    """None, one or two levels; groups of any sizes, the outer ones made of inner ones."""
    found: list[Level] = []
    groups = tuple(draw(st.lists(st.integers(0, n // 2), min_size=n, max_size=n)))
    for name in ("node", "rack")[: draw(st.integers(0, 2))]:
        uplink = draw(_maybe(few_rates))
        found.append(
            Level(
                name,
                groups,
                port_bytes_per_s=draw(_maybe(few_rates)),
                latency_s=draw(_maybe(delays)),
                bus_bytes_per_s=draw(_maybe(few_rates)),
                uplink_bytes_per_s=uplink,
                nics=1 if uplink is None else draw(st.integers(1, 3)),
                half_duplex=draw(st.booleans()),
            )
        )
        outer = draw(st.lists(st.integers(0, 1), min_size=n + 1, max_size=n + 1))
        groups = tuple(outer[group] for group in groups)
    return tuple(found)


@st.composite
def networks(draw: st.DrawFn, n: int, *, launch: bool = True) -> Cluster:
    """A cluster with anything between its ports: levels, half duplex, single slow pairs, adding."""
    cluster = draw(clusters(n, launch=launch))
    if draw(st.booleans()):
        return cluster
    half = draw(st.booleans())
    pair = st.sampled_from(list(permutations(range(n), 2)) or [None])
    pairs = draw(st.lists(pair, max_size=2 if n > 1 else 0, unique=True))
    return replace(
        cluster,
        ports=tuple(Port(*[p.send_bytes_per_s] * 2) for p in cluster.ports)
        if half
        else cluster.ports,
        half_duplex=half,
        levels=draw(levels(n)),
        pair_latency_s=tuple((*pair, draw(delays)) for pair in pairs),
        reduce_s_per_byte=draw(st.sampled_from([0.0, 1e-6, 3.3e-4])),
    )


@st.composite
def slowdowns(draw: st.DrawFn, cluster: Cluster, max_size: int = 2) -> tuple[Slowdown, ...]:
    """Windows on single links, on all ports of a rank, and on pairs; they may overlap."""
    n = cluster.n
    pairs = [f"{src}->{dst}" for src in range(n) for dst in range(n) if src != dst]
    ranks = [link.split(".")[0] for link in capacities(cluster) if link.startswith("gpu")]
    link = st.sampled_from([*pairs, *capacities(cluster), *sorted(set(ranks))])
    found = []
    for name in draw(st.lists(link, max_size=max_size)):
        from_s, lasts_s = draw(delays), draw(st.one_of(st.none(), st.floats(1e-6, 1e-1)))
        if lasts_s is None:
            found.append(Slowdown(name, draw(st.floats(0.05, 1.0)), from_s))
        else:
            factor = draw(st.one_of(st.just(0.0), st.floats(0.05, 1.0)))
            found.append(Slowdown(name, factor, from_s, from_s + lasts_s))
    return tuple(found)


@st.composite
def any_schedules(draw: st.DrawFn, max_n: int = 5) -> Schedule:
    """Rows at random, several to a port: no algorithm at all, but a schedule."""
    n, chunks = draw(st.integers(2, max_n)), draw(st.integers(1, 4))
    row = st.tuples(
        st.integers(0, n - 1),
        st.integers(1, n - 1),
        st.integers(0, chunks - 1),
        st.integers(1, 3),
        st.sampled_from(Op),
    )
    steps = draw(st.lists(st.lists(row, max_size=6), max_size=4))
    rows = [
        Transfer(number, src, (src + away) % n, c, op)
        for number, step in enumerate(steps)
        for src, away, chunk, width, op in step
        for c in range(chunk, min(chunk + width, chunks))
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
    orders = draw(st.lists(st.permutations(range(n)), max_size=5))
    rows = [
        Transfer(number, src, dst, draw(st.integers(0, chunks - 1)), draw(st.sampled_from(Op)))
        for number, order in enumerate(orders)
        for src, dst in enumerate(order)
        if src != dst and draw(st.booleans())
    ]
    step = len(orders)
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
    slowdowns: tuple[Slowdown, ...] = ()


@st.composite
def contended_cases(draw: st.DrawFn, *, launch: bool = True, slow: bool = True) -> Case:
    """Links that carry several flows, unequal rates, late ranks and, at times, slow links."""
    schedule = draw(contended_schedules())
    cluster = draw(networks(schedule.n, launch=launch))
    return Case(
        schedule,
        cluster,
        draw(st.integers(1, 40)),
        draw(starts(schedule.n)),
        draw(slowdowns(cluster)) if slow and draw(st.booleans()) else (),
    )


@st.composite
def quiet_cases(draw: st.DrawFn) -> Case:
    """What the recurrence can solve, though it is no algorithm of the table."""
    schedule = draw(quiet_schedules())
    n = schedule.n
    return Case(schedule, draw(clusters(n)), draw(st.integers(1, 40)), draw(starts(n)))


@st.composite
def algorithm_cases(draw: st.DrawFn, *, max_n: int = 12, plain: bool = False) -> Case:
    """One of the algorithms on a cluster of its size; ``plain``: equal ports on one switch."""
    schedule = draw(algorithms(max_n))
    n = schedule.n
    cluster = clusters(n, equal=True) if plain else networks(n)
    return Case(schedule, draw(cluster), draw(elements(n)), draw(starts(n)))
