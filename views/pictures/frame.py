"""One frame of the player, drawn in Python: for files, and where no script runs.

What is on it is said here and in the modules beside it as plain shapes; ``svg`` and ``gif`` draw
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from simcore.units import format_time
from views.lanes import with_phases
from views.pictures.cells import CellsPanel
from views.pictures.counters import WIDTH, Scale
from views.pictures.lane import GRAPH_TOP, LanePanel
from views.pictures.legend import legend
from views.pictures.shapes import Frame, Shape, shorten_apart
from views.pictures.svg import svg_text
from views.pictures.timeline import Timeline
from views.player import PlayerLane
from views.text import HTML_LANGUAGES, Text

GAP = 28  # between lanes
TABLE = 640  # width of the chunk table


def frame_svg(lanes: Sequence[PlayerLane], t_s: float, text: Text) -> str:
    """The frame at ``t_s`` as an SVG document.

    >>> from simcore import build_schedule, simulate, uniform
    >>> from views.lanes import lanes_of
    >>> from views.text import load_text
    >>> text = load_text("en")
    >>> lanes = lanes_of(simulate(build_schedule("ring", 3), uniform(3, 1e6), 3000), text)
    >>> svg = frame_svg(lanes, 0.003, text)
    >>> [line for line in svg.splitlines() if line.startswith("<desc>")]
    ['<desc>Ring: 16 ms in all. Step 1 of 4: reduce-scatter</desc>']
    """
    return svg_text(Picture(lanes, text).at(t_s), HTML_LANGUAGES[text.language])


class Picture:
    """Lanes side by side over their common time axis; ``at`` draws a moment."""

    def __init__(self, lanes: Sequence[PlayerLane], text: Text) -> None:
        self.text = text = with_phases(text, lanes)
        self.lanes = lanes
        self.panels = _side_by_side(lanes, text)
        self.cells = [_cells_beside(self.panels[0], text)] if _has_cells(lanes) else []
        parts: list[LanePanel | CellsPanel] = [*self.panels, *self.cells]
        self.width = max(part.x + part.width for part in parts)
        bottom = max(part.bottom for part in parts)
        moves = [panel.moves for panel in self.panels]
        self.timeline = Timeline(lanes, moves, text, self.width, bottom + 20)
        explained, bottom = legend(self._legend(), text, self.width, self.timeline.bottom + 6)
        self.height = math.ceil(bottom)
        self._still: tuple[Shape, ...] = (
            *(shape for part in parts for shape in part.still()),
            *self.timeline.still(),
            *explained,
        )

    def _legend(self) -> list[str]:
        """What is there to be explained."""
        sources = {mark.source for lane in self.lanes for mark in lane.marks}
        keys = {
            "add": True,
            "copy": True,
            "send": self.timeline.gpus,
            "receive": self.timeline.gpus,
            "hot": any(panel.can_be_hot for panel in self.panels),
            "ports": True,
            "replayed": "replayed" in sources,
            "vendor": "vendor" in sources,
        }
        return [key for key, there in keys.items() if there]

    def at(self, t_s: float) -> Frame:
        """The frame at ``t_s``: numbers, and the same in words."""
        title, *sentences = self.sentences(t_s)
        words = "\n".join(sentences)
        return Frame(self.width, self.height, self._still, self.moving(t_s), title, words)

    def moving(self, t_s: float) -> list[Shape]:
        """What is not the same in every frame."""
        states = [panel.moves.at(t_s) for panel in self.panels]
        moving: list[Shape] = []
        for panel, state in zip(self.panels, states, strict=True):
            moving += panel.moving(state)
        for cells in self.cells:
            moving += cells.moving(t_s, states[0])
        return moving + self.timeline.moving(t_s)

    def sentences(self, t_s: float) -> list[str]:
        """What the frame says: what it shows, and what happens in each lane."""
        titles = ", ".join(lane.title for lane in self.lanes)
        title = self.text("picture.title", titles=titles, time=format_time(t_s))
        lanes = [
            self.text(
                "picture.lane",
                title=panel.lane.title,
                time=format_time(panel.lane.trace.time_s),
                caption=panel.caption(panel.moves.at(t_s)),
            )
            for panel in self.panels
        ]
        return [title, *lanes]


def _has_cells(lanes: Sequence[PlayerLane]) -> bool:
    return len(lanes) == 1 and lanes[0].inputs is not None


def _side_by_side(lanes: Sequence[PlayerLane], text: Text) -> list[LanePanel]:
    """The lanes in rows of three; a single one has its counters beside it."""
    traces = [lane.trace for lane in lanes]
    most = max(int(max(trace.sent_bytes.max(), trace.received_bytes.max())) for trace in traces)
    scale, columns = Scale(most), 2 if len(lanes) == 4 else 3
    beside = len(lanes) == 1 and not _has_cells(lanes)
    panels: list[LanePanel] = []
    titles = shorten_apart([lane.title for lane in lanes], WIDTH - 80, 14)
    top = bottom = 4.0
    for number, lane in enumerate(lanes):
        column = number % columns
        if column == 0 and number:
            top = bottom + 12
        panels.append(
            LanePanel(lane, text, scale, column * (WIDTH + GAP), top, titles[number], beside)
        )
        bottom = max(bottom, panels[-1].bottom)
    return panels


def _cells_beside(panel: LanePanel, text: Text) -> CellsPanel:
    """The chunk table of the only lane."""
    x, y = panel.width + GAP, panel.y + GRAPH_TOP
    return CellsPanel(panel.lane, panel.moves, text, x, y, TABLE)
