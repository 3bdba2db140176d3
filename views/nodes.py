"""Where GPUs are drawn that share a node: boxes side by side, each with a bar for its uplink."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simcore.cluster import Cluster, Level
from simcore.schedule import IntArray
from simcore.solvers.network import Network
from simcore.trace import FloatArray
from views.text import Text

WIDTH, HEIGHT = 320, 248  # of a graph, as of every other one
GAP, HEAD, FOOT = 10, 18, 30  # between boxes, for a box's name, for its uplink
BAR = 10  # height of an uplink

# Where four GPUs stand in boxes, two or four of them: corners (row, column) in their order, so that
# a ring through all boxes crosses nothing. Boxes follow each other clockwise.
_TL, _TR, _BR, _BL = (0, 0), (0, 1), (1, 1), (1, 0)
_FOUR = {
    2: ((_TR, _TL, _BL, _BR), (_BL, _BR, _TR, _TL)),
    4: ((_BL, _TL, _TR, _BR), (_TL, _TR, _BR, _BL), (_TR, _BR, _BL, _TL), (_BR, _BL, _TL, _TR)),
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A link that a box shares; ``way`` is ``out``, ``in`` or, for both at once, ``both``."""

    link: int
    way: str
    name: str
    x: float
    y: float
    width: float
    height: float = BAR


@dataclass(frozen=True, slots=True)
class Box:
    """A node with its name and its uplinks."""

    label: str
    x: float
    y: float
    width: float
    height: float
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Boxes, and the centres of all GPUs, shape ``(n, 2)``."""

    places: FloatArray
    boxes: tuple[Box, ...]

    def columns(self) -> dict[str, Any]:
        """For the player."""
        return {"places": self.places.tolist(), "boxes": [asdict(box) for box in self.boxes]}


def nodes_of(cluster: Cluster, network: Network, text: Text) -> Nodes | None:
    """The boxes of the innermost level with uplinks, else of the innermost one; None without.

    >>> from simcore.cluster import even_groups, uniform
    >>> from views.text import load_text
    >>> node = Level("node", even_groups(4, 2), uplink_bytes_per_s=1e6)
    >>> cluster = uniform(4, 1e6, levels=(node,))
    >>> nodes = nodes_of(cluster, Network(cluster), load_text("en"))
    >>> [(box.label, [network_bar.name for network_bar in box.bars]) for box in nodes.boxes]
    [('node 0', ['node0.up', 'node0.down']), ('node 1', ['node1.up', 'node1.down'])]
    """
    with_uplinks = [level for level in cluster.levels if level.uplink_bytes_per_s is not None]
    levels = with_uplinks or list(cluster.levels)
    if not levels or len(set(levels[0].groups)) < 2:
        return None
    level = levels[0]
    groups = sorted(set(level.groups))
    columns = len(groups) if len(groups) <= 3 else math.ceil(math.sqrt(len(groups)))
    rows = math.ceil(len(groups) / columns)
    width = (WIDTH - 2 - GAP * (columns - 1)) / columns
    height = (HEIGHT - 2 - GAP * (rows - 1)) / rows
    places = np.zeros((cluster.n, 2))
    boxes = []
    for number, group in enumerate(groups):
        row, column = divmod(number, columns)
        column = columns - 1 - column if row % 2 and rows * columns == len(groups) else column
        x, y = 1 + column * (width + GAP), 1 + row * (height + GAP)
        members = np.flatnonzero(np.array(level.groups) == group)
        foot = FOOT if level.uplink_bytes_per_s is not None else 4
        places[members] = _inside(
            _corners(len(members), len(groups), number), x, y + HEAD, width, height - HEAD - foot
        )
        bars = tuple(_bars(level, group, network, x, y + height, width))
        boxes.append(Box(_label(level.name, group, text), x, y, width, height, bars))
    return Nodes(places, tuple(boxes))


def _label(name: str, group: int, text: Text) -> str:
    return text("player.node", group=group) if name == "node" else f"{name} {group}"


def _corners(count: int, boxes: int, number: int) -> IntArray:
    """Rows and columns, shape ``(count, 2)``; rows turn at their ends: neighbours stay close."""
    if count == 4 and boxes in _FOUR:
        return np.array(_FOUR[boxes][number])
    columns = math.ceil(math.sqrt(count))
    row, column = np.divmod(np.arange(count), columns)
    return np.column_stack([row, np.where(row % 2, columns - 1 - column, column)])


def _inside(corners: IntArray, x: float, y: float, width: float, height: float) -> FloatArray:
    """Their centres in a space."""
    rows, columns = (corners.max(axis=0) + 1).tolist()
    across = x + (corners[:, 1] + 0.5) * width / columns
    return np.column_stack([across, y + (corners[:, 0] + 0.5) * height / rows])


def _bars(
    level: Level, group: int, network: Network, x: float, bottom: float, width: float
) -> Iterator[Bar]:
    """Out on the left, in on the right; of half-duplex uplinks one for both."""
    numbers = {name: number for number, name in enumerate(network.names)}
    nics = [
        f"{level.name}{group}" + (f".nic{i}" if level.nics > 1 else "") for i in range(level.nics)
    ]
    ways: Sequence[tuple[str, str]] = (("out", "up"), ("in", "down"))
    if level.half_duplex:
        ways = (("both", "up"),)
    room = (width - 8) / len(ways)
    for side, (way, ending) in enumerate(ways):
        links = [name for nic in nics if (name := f"{nic}.{ending}") in numbers]
        name_width = 22 if way != "both" else 0
        each = (room - name_width - 4) / max(1, len(links))
        for number, name in enumerate(links):
            left = x + 4 + side * room + name_width + number * each
            yield Bar(numbers[name], way, name, left, bottom - BAR - 4, each - 2 * (len(links) > 1))
