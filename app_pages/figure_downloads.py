"""Pages' figures as files: drawn when somebody asks, and only where Matplotlib is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from app_pages.exports import Files
from simcore.measured.records import load_records
from views.scaling.curves import Scaling
from views.scaling.pieces import Pieces
from views.scaling.rows import measured_points
from views.scaling.winners import Winners
from views.text import Text
from views.traffic import TrafficSetting, all_traffic

Picture = Scaling | Winners | Pieces | TrafficSetting


def figure_file(what: Picture, text: Text) -> Files:
    """The page's figure for ``show_exports``."""
    return drawn(lambda: draw(what, text))


def draw(what: Picture, text: Text) -> Any:
    """Matplotlib is imported here: half a second that only the first click pays."""
    from matplotlib.figure import Figure

    from views import figures
    from views.scaling import figures as figures_scaling

    if isinstance(what, TrafficSetting):
        return figures.all_ports(all_traffic(what), text)
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    match what:
        case Scaling():
            points = measured_points(what, load_records())
            figures_scaling.scaling_curves(what, axes, points, text)
        case Winners():
            figures_scaling.winner_map(what, axes, text)
        case Pieces():
            figures_scaling.pieces_curve(what, axes, text)
    return figure


def drawn(figure: Callable[[], Any]) -> Files:
    """The kinds ``figure`` and ``png`` of a figure made by the click; empty without Matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return {}

    def saved(kind: str) -> str | bytes:
        from views.figure_words import png, svg

        return png(figure()) if kind == "png" else svg(figure())

    return {"figure": lambda: saved("svg"), "png": lambda: saved("png")}
