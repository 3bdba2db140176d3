"""The command lines that make *Scaling*'s numbers again: loops along one axis or two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from views.race import FRAME_FACTOR, Setting
from views.scaling.curves import Scaling
from views.scaling.lines import INSIDE_LATENCY, INSIDE_RATE, NODE_GPUS, flags_for
from views.scaling.pieces import Pieces
from views.scaling.winners import Winners

Axes = Mapping[str, tuple[str, Sequence[float]]]  # a loop's variable: its axis and its places


def along(scaling: Scaling) -> str:
    """One loop per group of algorithms that take the same flags."""
    axes = {"x": (scaling.axis, scaling.xs)}
    return _commands(scaling.lines, scaling.base, scaling.network, axes)


def over(winners: Winners) -> str:
    """The same with two variables."""
    axes = {"x": (winners.across, winners.xs), "y": (winners.up, winners.ys)}
    return _commands(winners.lines, winners.base, winners.network, axes)


def of_pieces(pieces: Pieces) -> str:
    """A loop over numbers of pieces."""
    places = " ".join(map(str, sorted({*pieces.pieces, pieces.best})))
    _, case = _case(pieces.at, "flat", {})
    command = f"python -m simcore simulate ring-broadcast {case} --pieces $x"
    return f"for x in {places}; do {command}; done"


def _commands(lines: Sequence[str], base: Setting, network: str, axes: Axes) -> str:
    gpus = next((variable for variable, (axis, _) in axes.items() if axis == "gpus"), "")
    counts: Sequence[float] = axes[gpus][1] if gpus else (base.gpus,)
    groups: dict[tuple[str, tuple[float, ...]], list[str]] = {}
    for name in lines:
        for flags, places in _by_flags(name, counts, network, gpus).items():
            groups.setdefault((flags, tuple(places)), []).append(name)
    return "\n".join(
        _loop(names, flags, base, network, {**axes, gpus: ("gpus", places)} if gpus else axes)
        for (flags, places), names in groups.items()
    )


def _by_flags(
    name: str, counts: Sequence[float], network: str, gpus: str
) -> dict[str, list[float]]:
    """Numbers of GPUs by the flags that the algorithm takes there."""
    found: dict[str, list[float]] = {}
    for count in counts:
        flags = ""
        for flag, value in flags_for(name, round(count), network).items():
            shown = f"${gpus}" if gpus and flag == "servers" else value  # as many as GPUs
            flags += f" --{flag.replace('_', '-')} {shown}"
        found.setdefault(flags, []).append(count)
    return found


def _loop(names: Sequence[str], flags: str, base: Setting, network: str, axes: Axes) -> str:
    words, case = _case(base, network, {axis: variable for variable, (axis, _) in axes.items()})
    command = f"python -m simcore simulate $name {case}{flags}"
    if network == "nodes":
        command = f"{_nodes_file(words)} && {command}"
    heads, ends = [f"for name in {' '.join(names)}; do"], ["done"]
    for variable, (axis, places) in axes.items():
        spelt = " ".join(map(_spellings(base, network)[axis], places))
        heads.append(f"for {variable} in {spelt}; do")
        ends.append("done")
    return f"{' '.join(heads)} {command}; {'; '.join(ends)}"


def _spellings(base: Setting, network: str) -> dict[str, Callable[[float], str]]:
    """Rates are those of the data, without frame headers. In nodes: plain B/s and ns."""
    factor = FRAME_FACTOR if base.frames else 1.0
    nodes = network == "nodes"
    return {
        "gpus": "{:.0f}".format,
        "size": "{:.0f}B".format,
        "bandwidth": lambda rate: f"{rate / factor:.0f}" if nodes else f"{rate / factor:.12g}B/s",
        "latency": lambda time: f"{time * 1e9:.0f}" if nodes else f"{time * 1e6:.12g}us",
    }


def _case(base: Setting, network: str, loops: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Each quantity's word, a loop's variable or a value, and the flags made of them."""
    values = (base.gpus, base.size_bytes, base.bytes_per_s, base.latency_s)
    words = {
        axis: f"${loops[axis]}" if axis in loops else spell(value)
        for (axis, spell), value in zip(_spellings(base, network).items(), values, strict=True)
    }
    shown = ("gpus", "size") if network == "nodes" else tuple(words)
    flags = " ".join(f"--{axis} {words[axis]}" for axis in shown)
    return words, f"{flags} --cluster nodes.json" if network == "nodes" else flags


def _nodes_file(words: Mapping[str, str]) -> str:
    """Writes the cluster: what is inside a node is worked out by the shell."""
    rate, latency = (
        f"${{{word[1:]}}}" if word.startswith("$") else word
        for word in (words["bandwidth"], words["latency"])
    )
    inside = f"$(({rate} * {INSIDE_RATE}))B/s", f"$(({latency} / {1 / INSIDE_LATENCY:.0f}))ns"
    return (
        f'echo "{{\\"bandwidth\\": \\"{inside[0]}\\", \\"latency\\": \\"{latency}ns\\", '
        f'\\"levels\\": [{{\\"name\\": \\"node\\", \\"size\\": {NODE_GPUS}, '
        f'\\"uplink\\": \\"{rate}B/s\\", \\"latency\\": \\"{inside[1]}\\"}}]}}" > nodes.json'
    )
