"""Static figures: what they plot is the engine's, in letters that exist, in both languages."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from app_pages.figure_downloads import draw, figure_file
from simcore import build_schedule, simulate, uniform
from simcore.measured.records import load_records
from simcore.trace import Lane
from tests.support import require
from views import figure_words
from views.figure_words import chinese_family, png, svg, writable
from views.figures import all_ports, gantt, heat_map, pair_bytes, volumes
from views.line_styles import COLOURS
from views.race import Setting
from views.scaling.curves import Scaling, place, stretches
from views.scaling.figures import pieces_curve, scaling_curves, winner_map
from views.scaling.pieces import Pieces
from views.scaling.rows import measured_points
from views.scaling.winners import Winners, cells, rows
from views.scaling.winners_regions import bands
from views.staleness.chart import ages
from views.staleness.figure import staleness_figure
from views.staleness.modes import MODES, StalenessSetting, all_modes
from views.step.chart import lane_of
from views.step.figure import STYLES, step_figure
from views.step.memory import parts_of
from views.step.runs import StepChoice, run_step
from views.step.words import fullest
from views.text import LANGUAGES, load_text
from views.traffic import TrafficSetting, all_traffic

MIB = 2**20
CURVES = Scaling("gpus", ("ring", "ps", "double-tree"), Setting(4, 8 * MIB, 25e6, frames=True))
MAP = Winners("size", "gpus", ("ring", "ps", "tree"), Setting(8, 0, 3.125e9, 20e-6))
PIECES = Pieces(Setting(8, 8 * MIB, 3.125e9, 20e-6))
TRAFFIC = TrafficSetting(4, 8 * MIB, 25e6, servers=2)


def run(name: str = "ring", n: int = 4, **flags: int):
    return simulate(build_schedule(name, n, **flags), uniform(n, 1e6), elements=6000).trace


def axes_of(draw_on, *args):
    axes = Figure().subplots()
    draw_on(*args, axes)
    return axes


DRAWN = {
    "gantt": lambda axes, text: gantt(run(), axes, text),
    "volumes": lambda axes, text: volumes([run(), run("ps")], axes, text),
    "heat map": lambda axes, text: heat_map(run("halving-doubling", 8), axes, text),
    "curves": lambda axes, text: scaling_curves(
        CURVES, axes, measured_points(CURVES, load_records()), text
    ),
    "map": lambda axes, text: winner_map(MAP, axes, text),
    "pieces": lambda axes, text: pieces_curve(PIECES, axes, text),
}
CHOICE = StepChoice("resnet18", "V100 16GB", 64, 4)
TRAINING = StalenessSetting(MODES, 3, 2, 2.0, 0.1, 0.1, 2**20, 3.125e9, "least-squares", 1.0, "lr")
WHOLE = {
    "step": lambda text: step_figure(
        CHOICE, [run_step(CHOICE, "ddp"), run_step(CHOICE, "dp")], text
    ),
    "staleness": lambda text: staleness_figure(all_modes(TRAINING), text),
}


@pytest.fixture
def no_chinese_font(monkeypatch):
    monkeypatch.setattr(figure_words, "chinese_family", lambda: None)


def words_of(figure: Figure) -> str:
    from matplotlib.text import Text

    return "\n".join(label.get_text() for label in figure.findobj(Text) if label.get_visible())


def needs_chinese_font():
    found = chinese_family()
    require("fonts", None if found else "no font with Chinese letters: apt install fonts-noto-cjk")


@pytest.mark.parametrize("what", DRAWN)
def test_chinese_is_written_where_a_font_has_it(what):
    """Matplotlib warns of every letter that a font lacks, and a warning is a failure here."""
    needs_chinese_font()
    figure = Figure()
    axes = figure.subplots()
    DRAWN[what](axes, load_text("zh"))
    png(figure)
    shown = words_of(figure)
    assert any("\u4e00" <= letter <= "\u9fff" for letter in shown), shown
    ElementTree.fromstring(svg(figure))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("what", DRAWN)
@pytest.mark.usefixtures("no_chinese_font")
def test_without_a_chinese_font_the_words_are_english(what, language):
    figures = Figure(), Figure()
    for figure, spoken in zip(figures, (language, "en"), strict=True):
        DRAWN[what](figure.subplots(), load_text(spoken))
        png(figure)
    assert words_of(figures[0]) == words_of(figures[1])
    assert words_of(figures[0]).isprintable() or "\n" in words_of(figures[0])
    assert not any("\u4e00" <= letter <= "\u9fff" for letter in words_of(figures[0]))


def test_a_font_that_matplotlib_has_not_listed_is_found_among_the_files(monkeypatch):
    needs_chinese_font()
    listed = font_manager.fontManager.ttflist
    path = next(font.fname for font in listed if font.name == chinese_family())
    without = [font for font in listed if font.fname != path]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", without)
    monkeypatch.setattr(figure_words, "CHINESE", ())
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: ["/nowhere/msyh.ttf", path])
    chinese_family.cache_clear()
    try:
        found = chinese_family()
        assert found is not None
        assert found in {font.name for font in font_manager.fontManager.ttflist}
        monkeypatch.setattr(font_manager, "findSystemFonts", lambda: ["/nowhere/msyh.ttf"])
        chinese_family.cache_clear()
        assert chinese_family() is None
        assert writable(load_text("zh")).language == "en"
    finally:
        chinese_family.cache_clear()


def test_a_listed_font_whose_file_is_gone_is_not_used(monkeypatch):
    gone = [font_manager.FontEntry(fname="/nowhere/simhei.ttf", name="SimHei")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", gone)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    chinese_family.cache_clear()
    try:
        assert chinese_family() is None
    finally:
        chinese_family.cache_clear()


def test_the_gantt_s_bars_are_the_trace_s_spans():
    trace = run("ps")
    axes = axes_of(gantt, trace)
    bars = [(bar.get_x() / 1e3, bar.get_width() / 1e3) for bar in axes.patches]
    spans = trace.spans
    assert np.array(bars) == pytest.approx(np.array([spans.start_s, spans.end_s - spans.start_s]).T)
    hatched = [bool(bar.get_hatch()) for bar in axes.patches]
    assert hatched == (spans.op == 0).tolist()


def test_volumes_are_the_trace_s_bytes():
    traces = [run(), run("ps")]
    axes = axes_of(volumes, traces)
    heights = [round(bar.get_height() * 2**10) for bar in axes.patches]
    assert heights == [*traces[0].sent_bytes.tolist(), *traces[1].sent_bytes.tolist()]


@pytest.mark.parametrize("name", ["ring", "halving-doubling", "ps"])
def test_the_heat_map_holds_each_pair_s_bytes(name):
    trace = run(name)
    counted = np.zeros((4, 4), np.int64)
    for row in np.flatnonzero(trace.spans.lane == Lane.RECEIVE):
        counted[trace.spans.peer[row], trace.spans.rank[row]] += trace.spans.nbytes[row]
    assert pair_bytes(trace).tolist() == counted.tolist()
    axes = axes_of(heat_map, trace)
    (image,) = axes.images
    assert np.asarray(image.get_array()) * 2**10 == pytest.approx(counted)
    assert len(axes.texts) == np.count_nonzero(counted)


def test_curves_are_the_page_s_lines_bounds_and_borders():
    axes = Figure().subplots()
    points = measured_points(CURVES, load_records())
    scaling_curves(CURVES, axes, points)
    text = load_text("en")
    by_label = {line.get_label(): line for line in axes.lines}
    for name in CURVES.lines:
        line = by_label[text(f"strategy.{name}")]
        assert line.get_xdata().tolist() == list(CURVES.xs)
        assert line.get_ydata().tolist() == [CURVES.time_s(name, x) for x in CURVES.xs]
        assert to_hex(line.get_color()).upper() == COLOURS[name]
    dots = [
        (line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if "◆" in line.get_label()
    ]
    dots = [
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in axes.lines
        if line.get_label() in ("_replayed", "_vendor")
    ]
    assert points
    assert dots == [(point.x, point.record.median_s) for point in points]
    ends = [part.end for part in stretches(CURVES)[:-1]]
    assert [label.get_text() for label in axes.texts] == [place("gpus", end) for end in ends]
    (bound,) = axes.collections
    edge = {(x, y) for x, y in bound.get_paths()[0].vertices}
    assert {(x, CURVES.bound_s(x)) for x in map(float, CURVES.xs)} <= edge


def test_the_map_s_rectangles_are_its_bands():
    axes = axes_of(winner_map, MAP)
    drawn = [(p.get_x(), p.get_x() + p.get_width(), p.get_y(), p.get_hatch()) for p in axes.patches]
    wanted = list(bands(MAP, rows(MAP)))
    assert len(drawn) == len(wanted)
    for patch, band in zip(drawn, wanted, strict=True):
        assert patch[:3] == pytest.approx((band.begin, band.end, band.low))
    assert len(axes.texts) == len({cell.names for cell in cells(MAP)})


def test_the_pieces_are_the_formula_s():
    axes = axes_of(pieces_curve, PIECES)
    by_label = {line.get_label(): line for line in axes.lines}
    text = load_text("en")
    for key, part in (
        ("total", PIECES.time_s),
        ("sends", PIECES.sends_s),
        ("waits", PIECES.waits_s),
    ):
        line = by_label[text(f"pieces.{key}")]
        assert line.get_ydata().tolist() == part(line.get_xdata()).tolist()
    assert PIECES.best in by_label[text("pieces.total")].get_xdata()


@pytest.mark.parametrize("what", WHOLE)
def test_whole_figures_are_written_in_chinese_or_else_in_english(what, monkeypatch):
    needs_chinese_font()
    drawn = [WHOLE[what](load_text(language)) for language in LANGUAGES]
    for figure in drawn:
        png(figure)  # a letter without a picture is a warning, which fails
    assert any("\u4e00" <= letter <= "\u9fff" for letter in words_of(drawn[1]))
    assert not any("\u4e00" <= letter <= "\u9fff" for letter in words_of(drawn[0]))
    monkeypatch.setattr(figure_words, "chinese_family", lambda: None)
    fallback = WHOLE[what](load_text("zh"))
    png(fallback)
    assert words_of(fallback) == words_of(drawn[0])


def test_the_step_s_bars_are_its_rows_and_its_memory():
    results = [run_step(CHOICE, "ddp"), run_step(CHOICE, "dp")]
    *timelines, memory = step_figure(CHOICE, results).axes
    for result, axes in zip(results, timelines, strict=True):
        lane = lane_of(result)
        rows = [row for gpu in lane.gpus for row in gpu.rows]
        assert len(axes.get_yticks()) == len(rows)
        for at, row in enumerate(rows):
            bars = [b for b in axes.patches if round(b.get_y() + b.get_height() / 2) == at]
            drawn = [(to_hex(b.get_facecolor()), b.get_x(), b.get_width()) for b in bars]
            for kind in {bar.kind for bar in row.bars}:
                colour = STYLES[kind][0]
                shown_ms = sum(width for face, _, width in drawn if face == colour)
                kinds = [k for k in STYLES if STYLES[k][0] == colour]
                wanted_s = sum(bar.duration_s for bar in row.bars if bar.kind in kinds)
                assert shown_ms == pytest.approx(1e3 * wanted_s, rel=0.01)
    held = [nbytes for r in results for nbytes in parts_of(fullest(r)[1]).values() if nbytes]
    assert [round(bar.get_width()) for bar in memory.patches] == held


def test_the_step_s_colours_are_those_of_its_style_sheet():
    sheet = (Path(__file__).parent.parent / "views/step/step.css").read_text(encoding="utf-8")
    light = sheet.split('data-scheme="dark"')[0] + sheet.split("/* Memory */")[1]
    for kind, (face, lines, hatch) in STYLES.items():
        if kind in ("held", "wait", "served"):  # the page's own ground and quiet ink
            continue
        names = {"activations": "hidden", "data": "copy"}
        found = re.findall(rf"--{names.get(kind, kind)}(?:-line)?: (#\w+)", light)
        found += re.findall(rf"\.{kind} \{{ (?:fill|stroke): (#\w+)", light)
        assert face in found, kind
        assert lines in (*found, face) or kind == "activations", kind
        assert hatch or lines == face


def test_the_losses_are_the_curves_and_the_bars_their_ages():
    found = all_modes(TRAINING)
    by_time, by_gradients, *histograms = staleness_figure(found).axes
    for axes, name in ((by_time, "time_s"), (by_gradients, "gradients")):
        lines = {line.get_label(): line for line in axes.lines}
        for mode in found:
            line = lines[mode.title(load_text("en"))]
            assert line.get_xdata().tolist() == getattr(mode.curve, name).tolist()
            kept = np.isfinite(mode.curve.loss)
            assert line.get_ydata()[kept].tolist() == mode.curve.loss[kept].tolist()
            mark = lines.get(f"_{mode.name}")
            assert (mark is None) == (mode.reached_s is None)
            if mark is not None and name == "time_s":
                assert mark.get_xdata().tolist() == [mode.reached_s]
    for axes, shares in zip(histograms, ages(found)[2], strict=True):
        assert [bar.get_height() for bar in axes.patches] == shares.tolist()


def test_ports_are_traffic_s_bytes_and_the_busiest_is_marked():
    found = all_traffic(TRAFFIC)
    figure = all_ports(found)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) == len(found)
    for traffic, axes in zip(found, panels, strict=True):
        n = traffic.trace.n
        widths = [round(bar.get_width() * 2**20) for bar in axes.patches]
        assert widths[:n] == (-traffic.trace.received_bytes).tolist()
        assert widths[n:] == traffic.trace.sent_bytes.tolist()
        hot = [to_hex(bar.get_facecolor()) == "#d55e00" for bar in axes.patches]
        assert hot.count(True) == (2 if traffic.name in ("ps", "dp") else hot.count(True))
        assert not any(hot) or traffic.busiest_bytes > traffic.quietest_bytes


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "what", [CURVES, MAP, PIECES, TRAFFIC], ids=lambda what: type(what).__name__
)
def test_the_page_s_file_is_an_svg_and_always_the_same(what, language):
    text = load_text(language)
    files = figure_file(what, text)
    picture = files["figure"]()
    assert files["png"]()[:4] == b"\x89PNG"
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert picture == svg(draw(what, text))
    loads = re.findall(r'(?:href|src)="(?!#)[^"]*"|url\((?!#)[^)]*\)', picture)
    assert loads == [], "the file must not ask for anything from outside"


def test_without_matplotlib_there_is_no_button(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert figure_file(CURVES, load_text("en")) == {}


def test_the_pages_start_without_matplotlib():
    code = "import sys, app_pages.scaling, app_pages.traffic; print('matplotlib' in sys.modules)"
    root = Path(__file__).parent.parent
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert told.stdout.split()[-1] == "False"
