"""Charts on a dark ground: the player's colours there, as distinct as on a light one."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np

from views.line_styles import COLOURS, GREY, ON_DARK
from views.vega import on_any_ground

LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


def linear(colour: str):
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def test_on_a_dark_ground_the_lines_are_the_player_s_colours_and_as_distinct():
    """Every colour has one for dark ground, no two of them alike; the ring's is the player's."""
    assert set(COLOURS.values()) <= set(ON_DARK)
    dark = {name: ON_DARK[colour] for name, colour in COLOURS.items()}
    sheet = (Path(__file__).parent.parent / "views/player.css").read_text(encoding="utf-8")
    on_dark = sheet.split('.player[data-scheme="dark"]')[1]
    assert f"--add: {dark['ring'].lower()};" in on_dark
    for one, other in combinations(dark.values(), 2):
        assert np.linalg.norm(linear(one) - linear(other)) > 0.05
    ground = 0.05 + linear("#101317") @ LUMINANCE
    for colour in dark.values():
        assert (linear(colour) @ LUMINANCE + 0.05) / ground > 4.5


def test_every_colour_of_a_chart_asks_the_ground_but_for_the_grey():
    """In the data colours stay what they are, and a scale of their own turns them."""
    spec = on_any_ground(
        {
            "data": {"values": [{"colour": COLOURS["ring"]}]},
            "mark": {"color": COLOURS["ps"], "point": {"color": GREY}},
            "encoding": {"color": {"field": "colour", "scale": None}, "shape": {"scale": None}},
        }
    )
    assert spec["data"]["values"] == [{"colour": COLOURS["ring"]}]
    assert spec["mark"]["point"]["color"] == GREY
    assert ON_DARK[COLOURS["ps"]] in spec["mark"]["color"]["expr"]
    scale = spec["encoding"]["color"]["scale"]
    at = scale["domain"].index(COLOURS["ring"])
    assert ON_DARK[COLOURS["ring"]] in scale["range"][at]["expr"]
    assert spec["encoding"]["shape"]["scale"] is None
