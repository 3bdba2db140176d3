"""The player as one HTML file that needs no server, no network and no Python."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from simcore.units import format_time
from views.player import player_script, source_text

# The browser itself refuses whatever would leave this file.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 16px; max-width: 1240px; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: clamp(17px, 4.6vw, 22px); line-height: 1.3; margin: 0 0 16px; }
noscript svg { display: block; max-width: 100%; height: auto; }
"""

_START = """
const component = {
  data: JSON.parse(document.getElementById("data").textContent),
  parentElement: document.querySelector("main"),
};
mount(component);
matchMedia("(prefers-color-scheme: dark)").onchange = () => mount(component);
"""


def html_page(data: dict[str, Any], title: str, picture: str = "") -> str:
    """A document that plays ``payload``'s data; ``picture`` is an SVG for where scripts are off.

    >>> from simcore import build_schedule, simulate, uniform
    >>> from views.lanes import lanes_of
    >>> from views.player import payload
    >>> from views.text import load_text
    >>> text = load_text("en")
    >>> run = simulate(build_schedule("ring", 3), uniform(3, 1e6), elements=3000)
    >>> page = html_page(payload(lanes_of(run, text), text, 0.0), "A ring of three")
    >>> page.splitlines()[1], page.count("</script>")
    ('<html lang="en">', 2)
    """
    numbers = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    numbers = numbers.replace("<", r"\u003c")  # nothing in a string ends the element
    return f"""<!doctype html>
<html lang="{escape(data["lang"])}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{_STYLE}{source_text("player.css")}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<noscript>{picture}{_outcome(data)}</noscript>
<div class="player" tabindex="0" data-testid="player"></div>
</main>
<script type="application/json" id="data">{numbers}</script>
<script type="module">{player_script()}{_START}</script>
</body>
</html>
"""


def _outcome(data: dict[str, Any]) -> str:
    """Every lane's end in a sentence."""
    done = data["text"]["done"]
    lanes = (
        (lane["title"], done.format(time=format_time(lane["time_s"]))) for lane in data["lanes"]
    )
    rows = (f"<dt>{escape(title)}</dt><dd>{escape(words)}</dd>" for title, words in lanes)
    return f"<dl>{''.join(rows)}</dl>"
