"""One lane of a picture: its network in use, and the bytes of every GPU."""

from __future__ import annotations

import math

import numpy as np

from simcore.schedule import Op
from simcore.trace import FloatArray
from simcore.units import format_time
from views.links import FULL
from views.nodes import nodes_of
from views.pictures.captions import caption
from views.pictures.counters import MANY, WIDTH, Counters, Scale
from views.pictures.nodes import NodeBoxes
from views.pictures.shapes import (
    ADD,
    BUSY,
    COPY,
    FULL_PORT,
    GROUND,
    HOT,
    HOT_INK,
    IDLE,
    INK,
    QUIET,
    RULE,
    Anchor,
    Arc,
    Circle,
    Line,
    Rect,
    Shape,
    Words,
    shorten,
)
from views.pictures.state import Moves, State
from views.player import PlayerLane, bottleneck
from views.text import Text

GRAPH = 248  # height of the graph; it is WIDTH wide
GRAPH_TOP = 44  # below it, the graph
MOST_LABELS = 4  # of ports; more would hide the network


def layout(n: int, hub: int | None) -> FloatArray:
    """Centres of ``n`` GPUs, shape ``(n, 2)``: on a circle, or around a hub with a gap below it.

    >>> layout(4, hub=None).round().tolist()
    [[160.0, 23.0], [261.0, 124.0], [160.0, 225.0], [59.0, 124.0]]
    """
    ranks = np.arange(n, dtype=np.float64)
    degrees: FloatArray = 360 * ranks / n - 90
    if hub is not None:
        spokes = n - 1
        step = min(360 / spokes, 270 / max(1, spokes - 1), 120) if spokes > 1 else 0
        degrees = (ranks - (ranks > hub) - (spokes - 1) / 2) * step - 90
    angles = np.radians(degrees)
    places = np.column_stack([np.cos(angles), np.sin(angles)])
    if hub is not None:
        places[hub] = 0
    top, bottom = places[:, 1].min(), places[:, 1].max()
    places[:, 1] -= (top + bottom) / 2
    placed: FloatArray = places * min(120, 202 / max(1, bottom - top))
    placed += (WIDTH / 2, GRAPH / 2)
    return placed


class LanePanel:
    """A lane at a place, under a ``title`` that fits.

    ``beside``, its counters stand to the right of its graph.
    """

    def __init__(
        self,
        lane: PlayerLane,
        text: Text,
        scale: Scale,
        x: float,
        y: float,
        title: str,
        beside: bool = False,
    ) -> None:
        self.title = title
        self.lane, self.text, self.scale, self.x, self.y = lane, text, scale, x, y
        self.moves = Moves(lane.trace, lane.cluster, lane.slowdowns)
        self.n = lane.trace.n
        self.hot = bottleneck(lane.trace) if lane.inputs is None else None
        nodes = nodes_of(lane.cluster, self.moves.links.network, text)
        self.boxes = NodeBoxes(nodes.boxes if nodes else (), text, x, y + GRAPH_TOP)
        self.can_be_hot = self.hot is not None or not self.moves.links.is_plain
        places = nodes.places if nodes else layout(self.n, lane.hub)
        self.places = places + np.array([x, y + GRAPH_TOP])
        apart = _closest(self.places)
        self.r = min(15.0 if self.n <= 8 else 9.0, 0.31 * apart)
        self.hub_r = max(self.r, 17.0)
        self.links = sorted(set(zip(self.moves.src.tolist(), self.moves.dst.tolist(), strict=True)))
        below = y + GRAPH_TOP + GRAPH + 34
        place = (x + WIDTH + 36, y + GRAPH_TOP) if beside else (x, below)
        self.counters = Counters(lane.trace, self.hot, text, scale, *place)
        self.width = WIDTH + 36 + WIDTH if beside else WIDTH
        self.bottom = max(below, self.counters.bottom)

    def caption(self, state: State) -> str:
        """The moment in a few words."""
        return caption(self.lane, self.moves, state, self.text)

    def still(self) -> list[Shape]:
        """Title, tracks and GPUs, and where the counters will end."""
        x, y = self.x, self.y
        end = Words(x + self.width, y + 8, format_time(self.lane.trace.time_s), 12, QUIET, "end")
        title = Words(x, y + 8, self.title, 14, bold=True)
        rule = Line(x, y + 20, x + self.width, y + 20, RULE)
        tracks = [Line(*self._ends(src, dst), IDLE, self._wide) for src, dst in self.links]
        gpus = [shape for rank in range(self.n) for shape in self._gpu(rank)]
        bar_y = y + GRAPH_TOP + GRAPH + 8
        use: list[Shape] = [
            Words(x, bar_y + 4, self.text("player.in_use"), 12, QUIET),
            Rect(x + 112, bar_y, WIDTH - 112 - 48, 8, IDLE),
        ]
        parts = (self.boxes.still(), tracks, gpus, use, self.counters.still())
        return [title, end, rule, *(shape for part in parts for shape in part)]

    def moving(self, state: State) -> list[Shape]:
        """Caption, flows, tokens, port loads and bytes."""
        caption = Words(self.x, self.y + 33, shorten(self.caption(state), self.width), 12)
        bar_y = self.y + GRAPH_TOP + GRAPH + 8
        use: list[Shape] = [
            Rect(self.x + 112, bar_y, (WIDTH - 112 - 48) * state.in_use, 8, BUSY),
            Words(self.x + WIDTH, bar_y + 4, self._percent(state.in_use), 12, INK, "end", True),
        ]
        flows, tokens = self._traffic(state)
        hot = self.hot_ports(state)
        gauges = [arc for rank in range(self.n) for arc in self._gauges(rank, state, hot[rank])]
        boxes, labels = self.boxes.moving(state.links), self._labels(state, hot)
        counters = self.counters.moving(state)
        return [caption, *flows, *tokens, *gauges, *boxes, *labels, *use, *counters]

    def _percent(self, share: float) -> str:
        return self.text("player.percent", value=math.floor(share * 100 + 0.5 + 1e-6))

    @property
    def _wide(self) -> float:
        return 8.0 if self.n <= 8 else 5.0 if self.n <= MANY else 2.0

    def _radius(self, rank: int) -> float:
        return self.hub_r if rank == self.lane.hub else self.r

    def _ends(self, src: int, dst: int) -> tuple[float, float, float, float]:
        """The visible part of a link: from rim to rim."""
        a, b = self.places[src], self.places[dst]
        length = float(np.hypot(*(b - a)))
        unit = (b - a) / length
        aside = np.array([-unit[1], unit[0]]) * (10 if self.n == 2 else 0)
        gap = 7 if self.n <= MANY else 3
        start = a + unit * (self._radius(src) + gap) + aside
        stop = b - unit * (self._radius(dst) + gap) + aside
        (x1, y1), (x2, y2) = start.tolist(), stop.tolist()
        return x1, y1, x2, y2

    def _gpu(self, rank: int) -> list[Shape]:
        x, y = map(float, self.places[rank])
        r, hub = self._radius(rank), rank == self.lane.hub
        shapes: list[Shape] = [Circle(x, y, r, GROUND, BUSY)]
        if self.n <= MANY:
            shapes[:0] = [Circle(x, y, r + 4, GROUND, RULE, 4.5)]
        if self.n <= MANY or hub:
            size = 15 if hub else 13 if self.n <= 8 else 10
            shapes.append(Words(x, y, str(rank), size, INK, "middle", hub))
        elif rank % 8 == 0:  # the others are between
            middle = (
                self.places.mean(axis=0) if self.lane.hub is None else self.places[self.lane.hub]
            )
            away = self.places[rank] - middle
            at = self.places[rank] + away / np.hypot(*away) * 14
            shapes.append(Words(float(at[0]), float(at[1]), str(rank), 10, QUIET, "middle"))
        return shapes

    def hot_ports(self, state: State) -> list[tuple[bool, bool]]:
        """Whose receiving and sending ports hold somebody up now: the hot ones, and the busiest
        GPU's while it is full, for which others wait that have not begun."""
        links, into = self.moves.links, 0 if self.moves.links.half_duplex else self.n
        most = [rank == self.hot for rank in range(self.n)]
        return [
            (
                into + rank in state.links.hot or (most[rank] and state.receiving[rank] >= FULL),
                rank in state.links.hot or (most[rank] and state.sending[rank] >= FULL),
            )
            for rank in range(links.n)
        ]

    def _gauges(self, rank: int, state: State, hot: tuple[bool, bool]) -> list[Shape]:
        """Half a ring for each direction of the port: left receives, right sends."""
        x, y = map(float, self.places[rank])
        gauge = self._radius(rank) + (4 if self.n <= MANY else 2)
        arcs: list[Shape] = []
        for load, is_hot, left in (
            (state.receiving[rank], hot[0], True),
            (state.sending[rank], hot[1], False),
        ):
            if load <= 0 and not is_hot:
                continue
            sweep = 180 * (1.0 if is_hot else min(1.0, float(load)))
            start, end = (90, 90 + sweep) if left else (90 - sweep, 90)
            wide = (8.0 if is_hot else 4.5) * (1.0 if self.n <= MANY or is_hot else 0.5)
            colour = HOT if is_hot else FULL_PORT if load >= FULL else BUSY
            arcs.append(Arc(x, y, gauge, start, end, colour, wide))
        return arcs

    def _labels(self, state: State, hot: list[tuple[bool, bool]]) -> list[Shape]:
        """In figures what holds others up, and what the busiest GPU's port does."""
        ranks = [rank for rank in range(self.n) if any(hot[rank]) or rank == self.hot]
        if len(ranks) > 1:  # the rings of several say it themselves
            ranks = [r for r in ranks if self.port_words(r, state) == self.text("player.cut")]
        shapes: list[Shape] = [self._port_label(rank, state) for rank in ranks[:MOST_LABELS]]
        for link in sorted(state.links.hot):
            words = self._percent(min(1.0, float(state.links.load[link])))
            words = words if state.links.capacity[link] else self.text("player.link_cut")
            at = self.boxes.above(link)
            if at is None and link in self.moves.links.pairs:
                x1, y1, x2, y2 = self._ends(*self.moves.links.pairs[link])
                shapes.append(self._beside((x1 + x2) / 2, (y1 + y2) / 2, words))
            elif at is not None:
                shapes.append(_label(*at, words))
        return shapes

    def _beside(self, x: float, y: float, words: str) -> Words:
        """On the side of a link that looks to the middle, clear of what travels in it."""
        dx, dy = self.x + WIDTH / 2 - x, self.y + GRAPH_TOP + GRAPH / 2 - y
        away = math.hypot(dx, dy) or 1.0
        anchor: Anchor = "middle" if abs(dx) <= 24 else "start" if dx > 0 else "end"
        return _label(x + 14 * dx / away, y + 16 * (dy or -away) / away, words, anchor)

    def _port_label(self, rank: int, state: State) -> Words:
        """Below a hub and in a box; else on the circle's inner side, where there is room."""
        x, y = map(float, self.places[rank])
        words, below = self.port_words(rank, state), self._radius(rank) + 24
        if rank == self.lane.hub or self.boxes.boxes:
            return _label(min(self.x + 262, max(self.x + 58, x)), y + below, words)
        middle = self.x + WIDTH / 2, self.y + GRAPH_TOP + GRAPH / 2
        side = int(np.sign(math.floor((middle[0] - x) / 20 + 0.5)))
        anchors: tuple[Anchor, ...] = ("end", "middle", "start")
        at_y = y if side else y + float(np.sign(middle[1] - y)) * below
        return _label(x + side * below, at_y, words, anchors[side + 1])

    def port_words(self, rank: int, state: State) -> str:
        """How full a GPU's port is, each way; or that it stands still."""
        links = self.moves.links
        ways = [("port_both", rank, state.sending)]
        if not links.half_duplex:
            ways = [("in", self.n + rank, state.receiving), ("out", rank, state.sending)]
        capacity, hot = state.links.capacity, state.links.hot
        cut = [link in hot and not capacity[link] for _, link, _ in ways]
        if all(cut):
            return self.text("player.cut")
        words = [
            f"{self.text(f'player.{way}')} "
            + (self.text("player.cut") if is_cut else self._percent(load[rank]))
            for (way, _, load), is_cut in zip(ways, cut, strict=True)
            if load[rank] > 0 or is_cut
        ]
        return " · ".join(words)

    def _traffic(self, state: State) -> tuple[list[Shape], list[Shape]]:
        """A line on every link in use, as wide as its load, and what travels along it."""
        moves, loads, tokens = self.moves, dict[tuple[int, int], tuple[float, int]](), []
        columns = (state.active, state.links.own, state.progress)
        for i, load, progress in zip(*(c.tolist() for c in columns), strict=True):
            pair = int(moves.src[i]), int(moves.dst[i])
            loads[pair] = loads.get(pair, (0.0, 0))[0] + load, int(moves.op[i])
            tokens += self._token(i, self._ends(*pair), progress)
        hot = {moves.links.pairs[link] for link in state.links.hot if link in moves.links.pairs}
        flows: list[Shape] = [
            Line(*self._ends(*pair), HOT, self._wide * 1.125)
            if pair in hot
            else Line(*self._ends(*pair), _colour(op), self._wide * 0.875 * min(1.0, load))
            for pair, (load, op) in loads.items()
            if load > 0 or pair in hot
        ]
        return flows, tokens

    def _token(self, i: int, ends: tuple[float, ...], progress: float) -> list[Shape]:
        """A round partial sum to be added, or a square result to be kept."""
        x1, y1, x2, y2 = ends
        x, y = x1 + (x2 - x1) * progress, y1 + (y2 - y1) * progress
        chunks, op = self.lane.schedule.chunks, int(self.moves.op[i])
        r = (8 if self.n <= 8 else 5 if self.n <= MANY else 2) + (chunks == 1)
        box = Rect(x - r, y - r, 2 * r, 2 * r, COPY, edge=GROUND)
        shape = Circle(x, y, r, ADD, GROUND) if op == Op.ADD else box
        if chunks == 1 or self.n > 8 or self.moves.width[i] > 1:
            return [shape]
        return [shape, Words(x, y, str(self.moves.chunk[i]), 10, GROUND, "middle", True)]


def _closest(places: FloatArray) -> float:
    """The least distance between two GPUs."""
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    return float(apart[~np.eye(len(places), dtype=bool)].min()) if len(places) > 1 else 100.0


def _label(x: float, y: float, words: str, anchor: Anchor = "middle") -> Words:
    return Words(x, y, words, 13, HOT_INK, anchor, True, True)


def _colour(op: int) -> str:
    return ADD if op == Op.ADD else COPY
