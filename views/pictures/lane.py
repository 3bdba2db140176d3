"""One lane of a picture: its network in use, and the bytes of every GPU."""

from __future__ import annotations

import math

import numpy as np

from simcore.schedule import Op
from simcore.trace import FloatArray
from simcore.units import format_time
from views.pictures.counters import MANY, WIDTH, Counters, Scale
from views.pictures.shapes import (
    ADD,
    BUSY,
    COPY,
    GROUND,
    HOT,
    HOT_INK,
    IDLE,
    INK,
    QUIET,
    RULE,
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
FULL = 0.999


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
    """A lane at a place; ``beside``, its counters stand to the right of its graph."""

    def __init__(
        self, lane: PlayerLane, text: Text, scale: Scale, x: float, y: float, beside: bool = False
    ) -> None:
        self.lane, self.text, self.scale, self.x, self.y = lane, text, scale, x, y
        self.moves = Moves(lane.trace, lane.cluster)
        self.n = lane.trace.n
        self.hot = bottleneck(lane.trace) if lane.inputs is None else None
        self.places = layout(self.n, lane.hub) + np.array([x, y + GRAPH_TOP])
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
        text, schedule = self.text, self.lane.schedule
        if state.finished or not len(self.moves):
            return text("player.done", time=format_time(self.lane.trace.time_s))
        word = Op(int(self.moves.step_op[max(0, state.step)]))
        step = text("player.step", step=state.step + 1, steps=schedule.n_steps)
        return step + text("player.colon") + text(f"phase.{schedule.name}.{word}")

    def still(self) -> list[Shape]:
        """Title, tracks and GPUs, and where the counters will end."""
        x, y = self.x, self.y
        end = Words(x + self.width, y + 8, format_time(self.lane.trace.time_s), 12, QUIET, "end")
        room = self.width - 80
        title = Words(x, y + 8, shorten(self.lane.title, room, 14), 14, bold=True)
        rule = Line(x, y + 20, x + self.width, y + 20, RULE)
        tracks = [Line(*self._ends(src, dst), IDLE, self._wide) for src, dst in self.links]
        gpus = [shape for rank in range(self.n) for shape in self._gpu(rank)]
        bar_y = y + GRAPH_TOP + GRAPH + 8
        use: list[Shape] = [
            Words(x, bar_y + 4, self.text("player.in_use"), 12, QUIET),
            Rect(x + 112, bar_y, WIDTH - 112 - 48, 8, IDLE),
        ]
        return [title, end, rule, *tracks, *gpus, *use, *self.counters.still()]

    def moving(self, state: State) -> list[Shape]:
        """Caption, flows, tokens, port loads and bytes."""
        caption = Words(self.x, self.y + 33, shorten(self.caption(state), self.width), 12)
        bar_y = self.y + GRAPH_TOP + GRAPH + 8
        use: list[Shape] = [
            Rect(self.x + 112, bar_y, (WIDTH - 112 - 48) * state.in_use, 8, BUSY),
            Words(self.x + WIDTH, bar_y + 4, self._percent(state.in_use), 12, INK, "end", True),
        ]
        flows, tokens = self._traffic(state)
        gauges = [arc for rank in range(self.n) for arc in self._gauges(rank, state)]
        loads = self._hot_label(state)
        return [caption, *flows, *tokens, *gauges, *loads, *use, *self.counters.moving(state)]

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

    def _gauges(self, rank: int, state: State) -> list[Shape]:
        """Half a ring for each direction of the port: left receives, right sends."""
        x, y = map(float, self.places[rank])
        gauge = self._radius(rank) + (4 if self.n <= MANY else 2)
        arcs: list[Shape] = []
        for load, left in ((state.receiving[rank], True), (state.sending[rank], False)):
            if load <= 0:
                continue
            hot = rank == self.hot and load >= FULL
            sweep = 180 * min(1.0, float(load))
            start, end = (90, 90 + sweep) if left else (90 - sweep, 90)
            wide = (8.0 if hot else 4.5) * (1.0 if self.n <= MANY or hot else 0.5)
            arcs.append(Arc(x, y, gauge, start, end, HOT if hot else BUSY, wide))
        return arcs

    def _hot_label(self, state: State) -> list[Shape]:
        """What the busiest GPU's port does, in figures."""
        if self.hot is None:
            return []
        ways = (("in", state.receiving[self.hot]), ("out", state.sending[self.hot]))
        words = [
            f"{self.text(f'player.{way}')} {self._percent(load)}" for way, load in ways if load > 0
        ]
        x, y = map(float, self.places[self.hot])
        at_y = y + self._radius(self.hot) + 24
        return [Words(x, at_y, " · ".join(words), 13, HOT_INK, "middle", True, True)]

    def _traffic(self, state: State) -> tuple[list[Shape], list[Shape]]:
        """A line on every link in use, as wide as its load, and what travels along it."""
        moves, loads, tokens = self.moves, dict[tuple[int, int], tuple[float, int]](), []
        columns = (state.active, state.load, state.progress)
        for i, load, progress in zip(*(c.tolist() for c in columns), strict=True):
            pair = int(moves.src[i]), int(moves.dst[i])
            loads[pair] = loads.get(pair, (0.0, 0))[0] + load, int(moves.op[i])
            tokens += self._token(i, self._ends(*pair), progress)
        flows: list[Shape] = [
            Line(*self._ends(*pair), _colour(op), self._wide * 0.875 * min(1.0, load))
            for pair, (load, op) in loads.items()
            if load > 0
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


def _colour(op: int) -> str:
    return ADD if op == Op.ADD else COPY
