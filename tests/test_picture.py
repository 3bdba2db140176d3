"""A frame drawn in Python: its numbers are the engine's, and the player's own."""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageSequence

from simcore import ALGORITHMS, build_schedule, reference, simulate, uniform
from simcore.units import format_time, parse_bytes
from tests.support import require
from views.fork import fork
from views.lanes import hub_of, lane_of, lanes_of
from views.pictures import fonts
from views.pictures import gif as picture_gif
from views.pictures.fonts import CHINESE_FONTS, INSTEAD, chinese_font, font_of, has, legible
from views.pictures.frame import Picture, frame_svg
from views.pictures.gif import race_gif
from views.pictures.lane import layout
from views.pictures.shapes import HOT, Arc, Line, Rect, Words, width_of
from views.pictures.state import Moves
from views.player import Mark, payload, player_script
from views.race import Setting, race
from views.text import LANGUAGES, load_text
from views.whatif.troubles import (
    Base,
    FanIn,
    HalfDuplex,
    SlowLink,
    Straggler,
    Uplink,
    what_if,
)

MIB = 2**20
ENGLISH = load_text("en")
SVG = "{http://www.w3.org/2000/svg}"
NOTE = re.compile(r"GPU (\d+): (sent|received) ([\d.]+) (\w+)")


def lanes(n: int = 4, latency_s: float = 0.0, language: str = "en"):
    return lanes_of(
        race(Setting(n, 8 * MIB, 25e6, latency_s, True), ("ps", "dp", "ring")), load_text(language)
    )


def stepwise(n: int = 4, elements: int = 8):
    run = simulate(build_schedule("ring", n), uniform(n, 12.5e6), elements)
    inputs = np.arange(n * elements).reshape(n, elements) % 10
    return lane_of(run, ENGLISH, inputs=inputs), inputs


def troubled():
    """Lanes of *What if*: a slow link and port, uplinks, half-duplex ports, a GPU that stalls."""
    base = Base(8, 8 * MIB, 25e6)
    troubles = (
        (SlowLink(1, 2, 0.1), ("ring", "ps-sharded")),
        (SlowLink(0, None, 0.1), ("ring", "ps")),
        (Uplink(4, 8), ("ring", "ps", "hierarchical")),
        (HalfDuplex(), ("ps", "ring")),
        (FanIn(12, 4), ("ps", "ring")),
    )
    runs = [pair.after for trouble, lines in troubles for pair in what_if(base, trouble, lines)]
    stall = fork([runs[0]], ["gpu2:0@0.2s..0.5s"], ENGLISH).after
    return [lane_of(run, ENGLISH) for run in (*runs, *stall)]


def counters(svg: str):
    """Way -> the bars of every lane's GPUs in turn: bytes as written, width and height."""
    found: dict[str, list[tuple[float, ...]]] = {"sent": [], "received": []}
    for rect in ET.fromstring(svg).iter(f"{SVG}rect"):
        for title in rect.iter(f"{SVG}title"):
            _, way, number, unit = NOTE.fullmatch(title.text).groups()
            nbytes = float(number) * parse_bytes(f"1{unit}")
            found[way].append((nbytes, float(rect.get("width")), float(rect.get("height"))))
    return found


@pytest.mark.parametrize("n", [2, 3, 4, 16, 17, 64])
def test_every_counter_is_the_engines(n):
    shown = lanes(n, latency_s=1e-3)
    total_s = max(lane.trace.time_s for lane in shown)
    largest = max(lane.trace.sent_bytes.max() for lane in shown)
    for share in (0.0, 0.07, 0.31, 0.5, 0.83, 1.0):
        t_s = share * total_s
        found = counters(frame_svg(shown, t_s, ENGLISH))
        for number, way in enumerate(("sent", "received")):
            exact = np.concatenate([lane.trace.bytes_at(t_s)[number] for lane in shown])
            written, wide, tall = np.array(found[way]).T
            assert np.abs(written - exact).max() <= 0.006 * MIB
            drawn, full = (tall, 46) if n > 16 else (wide, 86)
            assert np.allclose(drawn, full * exact / largest, atol=1e-3)


def test_numbers_beside_the_bars_and_the_totals_behind_them():
    shown = lanes()
    t_s = 0.4 * shown[2].trace.time_s
    frame = Picture(shown, ENGLISH).at(t_s)
    texts = [shape.text for shape in frame.moving if isinstance(shape, Words)]
    for lane in shown:
        for nbytes in np.concatenate(lane.trace.bytes_at(t_s)):
            assert f"{nbytes / MIB:.2f}" in texts
    totals = [s for s in frame.still if isinstance(s, Rect) and s.height == 8 and s.width <= 86]
    ends = np.concatenate([[*la.trace.sent_bytes, *la.trace.received_bytes] for la in shown])
    assert np.allclose([bar.width for bar in totals], 86 * ends / ends.max())


SCRIPT = """
import { readFileSync } from "node:fs";
import { hotPorts, prepareLane, say, sayPort, stateAt } from "./player.mjs";
const { data, times } = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(data.lanes.map(prepareLane).map((lane, i) => ({
  states: times[i].map((t) => stateAt(lane, t)).map((state) => ({ ...state, hot: [...state.hot],
    ports: hotPorts(lane, state).map((port) => [port.in, port.out]),
    words: state.sending.map((_, rank) => sayPort(lane, state, data.text, rank)) })),
  ends: lane.transfers.step.map((_, row) => ["step", "src", "dst", "chunk"].map(
    (name) => lane.transfers[name][row])),
}))));
"""


def test_loads_and_progress_are_those_of_the_player(tmp_path):
    require("browser", None if shutil.which("node") else "node is not installed")
    starts_s = np.arange(4) * 7e-3
    late = simulate(build_schedule("ps", 4), uniform(4, 25e6, 1e-3), 100_000, starts_s=starts_s)
    shown = [*lanes(4), *lanes(3, 1e-3), lane_of(late, ENGLISH), *troubled()]
    assert len(late.trace.pieces), "one lane has rates that change"
    rng = np.random.default_rng(3)
    times = [(rng.uniform(0, lane.trace.time_s, 9)).tolist() for lane in shown]
    (tmp_path / "player.mjs").write_text(player_script(), encoding="utf-8")
    (tmp_path / "run.mjs").write_text(SCRIPT, encoding="utf-8")
    given_text = json.dumps({"data": payload(shown, ENGLISH, 0.0), "times": times})
    done = subprocess.run(
        ["node", "run.mjs"],
        cwd=tmp_path,
        input=given_text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for lane, moments, answer in zip(shown, times, json.loads(done.stdout), strict=True):
        panel = Picture([lane], ENGLISH).panels[0]
        moves = panel.moves
        ours = np.column_stack([moves.step, moves.src, moves.dst, moves.chunk]).tolist()
        for t_s, theirs in zip(moments, answer["states"], strict=True):
            state = moves.at(t_s)
            for name in ("sending", "receiving"):
                assert np.allclose(getattr(state, name), theirs[name], atol=1e-9), name
            assert np.isclose(state.in_use, theirs["inUse"])
            assert sorted(state.links.hot) == sorted(theirs["hot"])
            hot = panel.hot_ports(state)
            assert hot == [tuple(port) for port in theirs["ports"]]
            assert [panel.port_words(rank, state) for rank in range(lane.trace.n)] == theirs[
                "words"
            ]
            assert state.step == theirs["step"]
            assert state.finished == theirs["finished"]
            columns = (state.active, state.links.own, state.progress)
            mine = [(ours[i], load, p) for i, load, p in zip(*columns, strict=True)]
            active = theirs["active"]
            yours = [(answer["ends"][a["i"]], a["load"], a["progress"]) for a in active]
            for (ends, *values), (their_ends, *their_values) in zip(
                sorted(mine), sorted(yours), strict=True
            ):
                assert ends == their_ends
                assert np.allclose(values, their_values)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("n", [2, 16, 64])
def test_is_well_formed_the_same_every_time_and_stays_inside(language, n):
    shown = lanes(n, language=language)
    text = load_text(language)
    t_s = 0.3 * shown[0].trace.time_s
    svg = frame_svg(shown, t_s, text)
    assert svg == frame_svg(shown, t_s, text)
    root = ET.fromstring(svg)
    left, top, width, height = map(float, root.get("viewBox").split())
    for node in root.iter(f"{SVG}rect"):
        if node.get("x"):
            assert left <= float(node.get("x")) <= left + width
            assert float(node.get("x")) + float(node.get("width")) <= left + width + 1e-6
    for node in root.iter(f"{SVG}text"):
        assert left <= float(node.get("x")) <= left + width
        assert top <= float(node.get("y")) <= top + height
    title, described = root.find(f"{SVG}title").text, root.find(f"{SVG}desc").text
    for lane in shown:
        assert lane.title in title
        assert lane.title in described
    assert "{" not in svg.split("<defs>")[0]
    assert root.get("role") == "img"
    assert root.get("lang") == ("en" if language == "en" else "zh-CN")
    assert not re.search(r"(href|src|url\()\s*=?\s*[\"']?http", svg)


@pytest.mark.parametrize("name", [algorithm.name for algorithm in ALGORITHMS])
def test_draws_every_algorithm_also_where_there_is_nothing_to_send(name):
    for n, elements in itertools.product((1, 2, 5), (0, 1, 1000)):
        schedule = build_schedule(name, n)
        run = simulate(schedule, uniform(schedule.n, 25e6, 1e-3), elements)
        shown = lanes_of(run, ENGLISH)
        for t_s in (0.0, run.trace.time_s / 2, 2 * run.trace.time_s):
            found = counters(frame_svg(shown, t_s, ENGLISH))
            assert len(found["sent"]) == schedule.n
        if (n, elements) == (2, 1):
            assert Image.open(io.BytesIO(race_gif(shown, ENGLISH, frames=2))).format == "GIF"


def test_says_what_happens_and_when_it_is_over():
    shown = lanes()
    picture = Picture(shown, ENGLISH)
    _, server, _, ring = picture.sentences(0.6 * shown[2].trace.time_s)
    assert server == "Central server: 2.105 s in all. Step 1 of 2: push"
    assert ring == "Ring: 526.3 ms in all. Step 4 of 6: all-gather"
    assert picture.sentences(1.0)[3].endswith("Done: after 526.3 ms every GPU holds the sum.")


def test_the_full_port_is_named_and_only_where_one_carries_more():
    picture = Picture(lanes(), ENGLISH)
    words = [s for s in picture.at(0.1).moving if isinstance(s, Words) and s.halo]
    assert [w.text for w in words] == ["in 100\u00a0%"] * 2
    words = [s for s in picture.at(2.0).moving if isinstance(s, Words) and s.halo]
    assert [w.text for w in words] == ["out 100\u00a0%"] * 2


def test_what_arrives_to_be_kept_is_hatched_and_measured_times_are_diamonds():
    (ring,) = lanes()[2:]
    bars = [s for s in Picture([ring], ENGLISH).timeline.still() if isinstance(s, Rect)]
    assert sum(bar.hatched for bar in bars) == 3 + 4 * 2 * 3  # the steps, and every GPU's two rows
    marks = tuple(Mark(source, 0.6, 0.5, 0.7, "") for source in ("replayed", "vendor"))
    plain = frame_svg(lanes(), 0.1, ENGLISH).count("<polygon")
    marked = [*lanes()[:2], replace(ring, marks=marks)]
    svg = frame_svg(marked, 0.1, ENGLISH)
    assert svg.count("<polygon") == plain + 2 + 2  # on the axis, and in the legend
    assert ENGLISH("player.legend_vendor") in svg
    assert ENGLISH("player.legend_vendor") not in frame_svg(lanes(), 0.1, ENGLISH)


@given(n=st.integers(2, 9), elements=st.integers(2, 20), share=st.floats(0, 1))
def test_the_chunk_table_holds_what_the_reference_does(n, elements, share):
    lane, inputs = stepwise(n, elements)
    t_s = share * lane.trace.time_s
    (cells,) = Picture([lane], ENGLISH).cells
    moves = Moves(lane.trace, lane.cluster)
    shapes = cells.moving(t_s, moves.at(t_s))
    words = [s.text for s in shapes if isinstance(s, Words) and s.bold]
    states = list(reference.history(lane.schedule, inputs))
    bounds = cells.bounds
    for rank in range(n):
        for chunk in range(n):
            here = (moves.dst == rank) & (moves.chunk == chunk) & (moves.receive_end_s <= t_s)
            after = int(moves.step[here].max()) + 1 if here.any() else 0
            numbers = states[after][0][rank, bounds[chunk] : bounds[chunk + 1]]
            expected = " ".join(map(str, numbers)) or "–"
            shown = words[rank * n + chunk]
            assert shown == expected or (shown.endswith("…") and expected.startswith(shown[:-1]))


def test_at_the_end_every_cell_is_marked_as_complete():
    lane, inputs = stepwise()
    frame = Picture([lane], ENGLISH).at(lane.trace.time_s)
    words = [shape.text for shape in frame.moving if isinstance(shape, Words)]
    ticks = [s for s in frame.moving if isinstance(s, Line) and s.width == 1.6]
    assert len(ticks) == 2 * 16, "two strokes each"
    sums = inputs.sum(axis=0)
    assert words.count(f"{sums[0]} {sums[1]}") >= 4


@pytest.mark.parametrize("titles", [
    ("Rings in and across nodes, simulated", "Rings in and across nodes, measured"),
    ("分片参数服务器（与 GPU 同机部署）（仿真）", "分片参数服务器（与 GPU 同机部署）（实测）"),
])  # fmt: skip
def test_lanes_that_are_called_alike_can_be_told_apart(titles):
    (one,) = lanes(4)[2:]
    picture = Picture([replace(one, title=title) for title in titles], ENGLISH)
    words = [s.text for s in picture.at(0.0).still if isinstance(s, Words)]
    for title in titles:
        ending = title[-8:] if title.isascii() else title[-4:]
        assert sum(word.endswith(ending) for word in words) == 2, "above its network, on its axis"
    names = [word for word in words if word in picture.timeline.titles]
    assert len(set(names)) == 2
    assert max(width_of(word, 13) for word in picture.timeline.titles) <= picture.timeline.left


def test_a_picture_marks_what_is_full_while_others_wait():
    base = Base(8, 8 * MIB, 25e6)

    def orange(trouble, line):
        (pair,) = what_if(base, trouble, (line,))
        lane = lane_of(pair.after, ENGLISH)
        frame = Picture([lane], ENGLISH).at(0.3 * lane.trace.time_s)
        graph = frame.moving
        lines = [s for s in graph if isinstance(s, Line) and s.colour == HOT]
        arcs = [s for s in graph if isinstance(s, Arc) and s.colour == HOT]
        bars = [
            s.note for s in graph if isinstance(s, Rect) and s.fill == HOT and " " not in s.note
        ]
        labels = [s.text for s in graph if isinstance(s, Words) and s.halo and s.text]
        return len(lines), len(arcs), sorted(bars), labels

    assert orange(SlowLink(1, 2, 0.1), "ring") == (1, 0, [], ["100\u00a0%"])
    assert orange(SlowLink(0, None, 0.1), "ring")[:2] == (0, 2)
    uplinks = ["node0.down", "node0.up", "node1.down", "node1.up"]
    assert orange(Uplink(4, 8), "ring-scattered") == (0, 0, uplinks, ["100\u00a0%"] * 4)
    assert orange(HalfDuplex(), "ps")[1:] == (2, [], ["port 100\u00a0%"])
    assert orange(HalfDuplex(), "ring") == (0, 0, [], [])


def test_nothing_moves_and_the_picture_says_for_whom_all_wait():
    (pair,) = what_if(Base(4, 8 * MIB, 25e6), Straggler(1, 0.2), ("ring",))
    panel = Picture([lane_of(pair.after, ENGLISH)], ENGLISH).panels[0]
    words = panel.caption(panel.moves.at(0.19))
    assert words == "nothing moves: all wait for GPU 1, until 200 ms."


def test_the_playhead_stands_at_the_time():
    shown = lanes()
    picture = Picture(shown, ENGLISH)
    line = picture.timeline
    for t_s in (0.0, 0.2, 1.0, shown[0].trace.time_s):
        head = next(s for s in picture.at(t_s).moving if isinstance(s, Line) and s.width == 1.5)
        share = (head.x1 - line.x(0)) / (line.x(line.end_s) - line.x(0))
        assert share * line.end_s == pytest.approx(t_s)
        clock = next(s.text for s in picture.at(t_s).moving
                     if isinstance(s, Words) and s.text.startswith("t = "))  # fmt: skip
        assert float(clock.split()[2]) == pytest.approx(t_s, abs=6e-5)


@pytest.mark.parametrize("n", [2, 3, 9, 16, 33, 64])
@pytest.mark.parametrize("hub", [None, 0, 1])
def test_no_two_gpus_are_drawn_over_each_other(n, hub):
    places = layout(n, hub)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) + 1e3 * np.eye(n)
    radius = min(15 if n <= 8 else 9, 0.31 * apart.min())
    assert apart.min() > 2 * radius
    assert radius >= 2.5
    assert (places > 5).all()
    assert (places < [315, 243]).all()


def test_the_hub_is_whoever_is_at_one_end_of_everything():
    for name, root, hub in (("ps", 2, 2), ("dp", 0, 0), ("ring", 0, None), ("tree", 0, None)):
        flags = {"root": root} if root else {}
        assert hub_of(simulate(build_schedule(name, 4, **flags), uniform(4, 1.0), 8).trace) == hub


def frames_of(gif: bytes) -> list[Image.Image]:
    image = Image.open(io.BytesIO(gif))
    return [frame.convert("RGB") for frame in ImageSequence.Iterator(image)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_animation_has_its_frames_and_they_differ(language):
    shown = lanes(3, language=language)
    gif = race_gif(shown, load_text(language), frames=7)
    image = Image.open(io.BytesIO(gif))
    frame = Picture(shown, load_text(language)).at(0.0)
    assert (image.n_frames, image.info["loop"]) == (7, 0)
    assert image.size == (round(frame.width + 28), round(frame.height + 28))
    frames = frames_of(gif)
    assert all(a.tobytes() != b.tobytes() for a, b in itertools.pairwise(frames))
    for picture in frames:
        assert picture.getpixel((0, 0)) == (255, 255, 255)
        assert len(picture.getcolors(128)) > 8
    assert race_gif(shown, load_text(language), frames=7) == gif


def test_the_animation_draws_what_the_svg_says():
    """The busiest counter's bar at the end of the run, pixel by pixel."""
    shown = lanes()
    last = np.asarray(frames_of(race_gif(shown, ENGLISH, frames=3))[-1])
    bars = [s for s in Picture(shown, ENGLISH).at(2.2).moving if isinstance(s, Rect) and s.note]
    for bar in (bars[0], bars[1], bars[-1]):
        row = last[round(bar.y + 4 + 14), round(bar.x + 14) : round(bar.x + 14 + 86)]
        coloured = (row.max(axis=1).astype(int) - row.min(axis=1) > 60).sum()
        assert coloured == pytest.approx(bar.width, abs=1)


BLANK = picture_gif.Stamp(Image.new("L", (1, 1)), 0, 0)


@pytest.fixture
def no_fonts(monkeypatch):
    """A machine on which nobody has installed a font; what was found before is forgotten."""
    found = (fonts.chinese_font, fonts.latin_font, fonts.font_of, fonts.has)
    monkeypatch.setattr(fonts, "LATIN_FONTS", ())
    for each in found:
        each.cache_clear()
    yield
    for each in found:
        each.cache_clear()


def letters_of_pictures(language):
    """All that can be written in a picture: its phrases, titles, numbers and units."""
    text = load_text(language)
    phrases = [
        words
        for key, words in text.phrases.items()
        if key.startswith(("player.", "picture.", "phase.", "strategy.", "whatif.before"))
    ]
    return sorted(set("".join(phrases)) | set("0123456789.,-%/ kMGiBsmn·…–") | {*format_time(5e-6)})


def letters_that_are_boxes(language):
    missing = [c for c in letters_of_pictures(language) if not has(c, language == "zh")]
    return [c for c in missing if "?" in legible(c, language == "zh")]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_letter_of_a_picture_is_in_its_font(language):
    if language == "zh":
        require("browser", None if chinese_font() else "no Chinese font: fonts-noto-cjk")
    assert letters_that_are_boxes(language) == []


def test_without_any_font_of_the_system_too(no_fonts):
    assert letters_that_are_boxes("en") == []
    assert legible(format_time(5e-6), chinese=False) == "5 us"
    assert all(len(legible(words, chinese=False)) >= 1 for words in INSTEAD)


def test_without_a_chinese_font_the_animation_speaks_english(monkeypatch):
    chinese = load_text("zh")
    drawn = []
    draw = picture_gif.Canvas.draw

    def listen(canvas, shapes, under=None):
        drawn.extend(shape.text for shape in shapes if isinstance(shape, Words))
        return draw(canvas, shapes, under)

    monkeypatch.setattr(picture_gif.Canvas, "draw", listen)
    monkeypatch.setattr(picture_gif, "chinese_font", lambda: None)
    race_gif(lanes(3, language="zh"), chinese, frames=2)
    assert "Central server" in drawn
    assert not re.search("[\u4e00-\u9fff]", "".join(drawn))
    drawn.clear()
    monkeypatch.setattr(picture_gif, "chinese_font", lambda: CHINESE_FONTS[0])
    monkeypatch.setattr(picture_gif, "_stamp", lambda *words: BLANK)
    race_gif(lanes(3, language="zh"), chinese, frames=2)
    assert "中心参数服务器" in drawn


def test_the_chinese_font_has_chinese():
    require("browser", None if chinese_font() else "no Chinese font: apt install fonts-noto-cjk")
    font = font_of(40, True)
    shapes = {bytes(font.getmask(letter)) for letter in "环服务器推送"}
    assert len(shapes) == 6, "every character has its own shape, so none is a blank box"
