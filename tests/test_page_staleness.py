"""Async and staleness: what the page says is what the runs did, in both languages."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from app_pages.staleness import (
    COMPUTES,
    JITTERS,
    LEARNING_RATES,
    MAX_BOUND,
    MAX_WORKERS,
    SIZES,
    STRAGGLERS,
    build,
)
from simcore.trace import Lane
from simcore.training.learning import stability_limit
from simcore.units import format_time
from tests.test_app import ROOT, open_app, open_page, words
from views.staleness.chart import COLOURS, DASHES, SHAPES, age_chart, loss_chart
from views.staleness.lanes import lanes_html, window_s
from views.staleness.modes import MODES, SCALINGS, StalenessSetting, all_modes, headline, loss_text
from views.staleness.numbers import export_rows, table_rows
from views.text import LANGUAGES, load_text

BASE = StalenessSetting(
    *(MODES, 8, 2, 2.0, 0.1, 0.1, 25 * 2**20, 3.125e9, "least-squares", 1.0, "lr/n")
)
EN = load_text("en")


@cache
def modes_of(**changes):
    """By name."""
    return {mode.name: mode for mode in all_modes(replace(BASE, **changes))}


def sentence(**changes) -> str:
    return headline(list(modes_of(**changes).values()), EN)


def specs(app) -> list[dict]:
    found = app.get("vega_lite_chart") or app.get("arrow_vega_lite_chart")
    return [json.loads(element.proto.spec) for element in found]


# -- the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_untouched_page_says_what_the_runs_did(language):
    app = open_page("staleness", lang=LANGUAGES[language])
    assert not app.exception
    assert not app.info
    text, found = load_text(language), list(modes_of().values())
    assert headline(found, text) in words(app)
    for row in table_rows(found, text):
        assert f"| {' | '.join(row)} |" in words(app)
    assert len(specs(app)) == 2 + len(MODES)
    assert len(app.get("download_button")) == 5


def test_the_page_stands_in_the_apps_list():
    app = open_app()
    assert not app.exception
    for language in LANGUAGES:
        assert load_text(language)("page.staleness")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "query",
    [
        {"n": "2", "s": "0", "lr": LEARNING_RATES[0], "slow": STRAGGLERS[0], "jitter": JITTERS[0],
         "compute": COMPUTES[0], "size": SIZES[-1], "rate": "100Mbit/s", "scale": "lr"},
        {"n": str(MAX_WORKERS), "s": str(MAX_BOUND), "lr": LEARNING_RATES[-1], "jitter": "50",
         "slow": STRAGGLERS[-1], "compute": COMPUTES[-1], "size": SIZES[0], "rate": "400Gbit/s",
         "scale": "lr/(1+age)", "problem": "softmax"},
        {"mode": "async", "n": "7"},
        {"mode": "ssp", "scale": "lr"},
    ],
)  # fmt: skip
def test_the_page_at_its_extremes(language, query):
    app = open_page("staleness", lang=LANGUAGES[language], **query)
    assert not app.exception
    assert not app.info
    assert "{" not in app.markdown[0].value
    assert app.markdown[0].value.endswith((".", "。"))
    for spec in specs(app):
        assert len(json.dumps(spec)) < 120_000
        assert "Infinity" not in json.dumps(spec)
        assert "NaN" not in json.dumps(spec)


def test_the_address_holds_every_choice():
    query = {"n": "3", "s": "4", "lr": "0.5", "scale": "lr", "slow": "4",
             "jitter": "30", "compute": "30ms", "size": "8MiB", "rate": "1Gbit/s",
             "problem": "softmax"}  # fmt: skip
    app = open_page("staleness", mode="async", **query)
    assert not app.exception
    assert app.slider(key="n").value == 3
    assert app.slider(key="s").value == 4
    for key in ("lr", "slow", "jitter", "compute", "size", "rate"):
        assert app.select_slider(key=key).value == query[key]
    setting = StalenessSetting(
        *(("async",), 3, 4, 4.0, 0.3, 0.03, 8 * 2**20, 125e6, "softmax", 0.5, "lr")
    )
    assert headline(all_modes(setting), EN) in words(app)


@pytest.mark.parametrize(
    "bad", [{"n": "17"}, {"s": "-1"}, {"lr": "9"}, {"mode": "asnyc"}, {"scale": "lr*n"}]
)
def test_a_bad_value_falls_back_with_a_notice(bad):
    app = open_page("staleness", **bad)
    assert not app.exception
    ((key, value),) = bad.items()
    assert app.info[0].value.startswith(f"In the address, `{key}={value}` is not")
    assert sentence() in words(app)


# -- sentences -----------------------------------------------------------------------------------


def test_the_sentence_holds_the_runs_own_numbers():
    found = modes_of()
    sync, free = found["sync"], found["async"]
    said = sentence()
    assert f"get through 400 gradients in {format_time(free.run.time_s)}" in said
    assert f"the synchronous server needs {format_time(sync.run.time_s)}" in said
    assert free.run.time_s < 0.6 * sync.run.time_s
    assert f"after {format_time(free.reached_s)} instead of {format_time(sync.reached_s)}" in said
    assert said.count("here training is faster") == 1
    ssp = found["ssp"]
    assert f"The bound s = 2 in between: {format_time(ssp.run.time_s)}" in said


def test_divergence_is_said_because_the_loss_rose_and_not_because_a_formula_says_so():
    found = modes_of(scaling="lr")
    said = sentence(scaling="lr")
    free = found["async"].curve
    assert free.loss[-1] > free.loss[0]
    assert f"the loss goes up, from 1 to {loss_text(free.loss[-1])}" in said
    assert not found["sync"].curve.diverged
    # Steps just above the theory's limit for the mean age, which uneven ages do survive.
    limit = stability_limit(7)
    above = {"learning_rate": 8 * 1.02 * limit, "jitter": 0.5}
    assert not modes_of(**above)["async"].curve.diverged
    assert "goes up" not in sentence(**above)


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"learning_rate": 2.2, "scaling": "lr"}, "Neither learns: with this learning rate"),
        (
            {"learning_rate": 2.2, "workers": 2, "straggler": 1.0, "jitter": 0.5},
            "Here the synchronous server is the one that fails",
        ),
        ({"learning_rate": 0.05}, "Neither gets the loss down to 0.01"),
        ({"learning_rate": 0.1, "scaling": "lr"}, "does not get there and ends at"),
        (
            {"problem": "softmax", "scaling": "lr", "straggler": 1.0, "jitter": 0.0},
            "is never down to 0.305",
        ),
        (
            {"problem": "softmax", "scaling": "lr", "workers": 2, "learning_rate": 2.2},
            "training is slower",
        ),
        ({"straggler": 1.0, "jitter": 0.0, "bytes_per_s": 50e9}, "about as long as"),
    ],
)
def test_every_outcome_has_its_sentence(changes, phrase):
    changes = {"modes": ("sync", "async")} | changes
    assert phrase in sentence(**changes)


@pytest.mark.parametrize("language", LANGUAGES)
def test_sentences_of_all_kinds_are_whole_in_both_languages(language):
    text = load_text(language)
    for modes in (MODES, ("sync", "ssp"), ("ssp", "async"), *((mode,) for mode in MODES)):
        for rate in (0.05, 1.0, 2.2):
            for scaling in SCALINGS:
                found = modes_of(modes=modes, learning_rate=rate, scaling=scaling, workers=4)
                said = headline(list(found.values()), text)
                assert "{" not in said
                assert said.endswith((".", "。"))
    phrases = [text.phrases[k] for k in text.phrases if k.startswith("staleness.")]
    assert len(phrases) > 80


def test_every_phrase_of_the_page_is_used():
    """A phrase that nothing shows would be forgotten when the page changes."""
    sources = "".join(
        (ROOT / file).read_text(encoding="utf-8")
        for file in (
            *("app.py", "app_pages/staleness.py", "views/staleness/modes.py"),
            *(f"views/staleness/{part}.py" for part in ("chart", "lanes", "numbers", "figure")),
        )
    )
    patterns = {
        re.sub(r"\\\{.*?\\\}", ".+", re.escape(key))
        for key in re.findall(r"\"(staleness\.[^\"]+)\"", sources)
    }
    used = [re.compile(f"{pattern}$") for pattern in patterns]
    for key in EN.phrases:
        if key.startswith("staleness."):
            assert any(pattern.match(key) for pattern in used), key


# -- pictures ------------------------------------------------------------------------------------


def test_the_loss_charts_are_the_curves_and_mark_where_the_target_is_reached():
    found = list(modes_of().values())
    for axis in ("time", "gradients"):
        target, lines, points, labels = loss_chart(found, axis, EN)["layer"]
        assert target["data"]["values"] == [{"target": found[0].target}]
        for mode in found:
            rows = [r for r in lines["data"]["values"] if r["mode"] == mode.title(EN)]
            curve = mode.curve
            assert rows[-1]["loss"] == pytest.approx(curve.loss[-1], rel=1e-3)
            assert rows[-1][axis] == pytest.approx(getattr(curve, f"{axis}_s" if axis == "time"
                                                           else axis)[-1], rel=1e-4)  # fmt: skip
            for row in rows:
                at = int(np.flatnonzero(curve.gradients == row["gradients"])[0])
                assert row["loss"] == pytest.approx(curve.loss[at], rel=1e-3)
                assert row["time"] == pytest.approx(curve.time_s[at], rel=1e-4, abs=1e-9)
        assert len(points["data"]["values"]) == len(labels["data"]["values"]) == 3
        if axis == "time":
            assert {r["label"] for r in labels["data"]["values"]} == {
                format_time(mode.reached_s) for mode in found
            }


def test_a_diverging_line_leaves_the_picture_and_the_rest_can_be_read():
    found = list(modes_of(scaling="lr").values())
    spec = loss_chart(found, "time", EN)
    low, high = spec["encoding"]["y"]["scale"]["domain"]
    assert high < 100
    assert low < found[0].target
    lines = spec["layer"][1]
    assert lines["mark"]["clip"]
    assert max(row["loss"] for row in lines["data"]["values"]) > high


def test_histograms_hold_every_gradient_on_one_scale():
    found = list(modes_of(straggler=10.0).values())
    charts = [age_chart(mode, found, EN) for mode in found]
    domains = {json.dumps([c["encoding"][a]["scale"]["domain"] for a in "xy"]) for c in charts}
    assert len(domains) == 1
    for mode, spec in zip(found, charts, strict=True):
        rows = spec["data"]["values"]
        assert sum(row["share"] for row in rows) == pytest.approx(1)
        ages = mode.run.updates.staleness
        for row in rows:
            inside = (ages > row["from"]) & (ages < row["to"])
            assert row["share"] == pytest.approx(inside.mean())


def test_every_mode_has_a_colour_a_dash_and_a_shape_of_its_own():
    for styles in (COLOURS, DASHES, SHAPES):
        assert set(styles) == set(MODES)
        assert len({str(style) for style in styles.values()}) == len(MODES)


def test_the_lanes_are_the_trace():
    """The bars of a worker, back in seconds, are its spans of the middle of the run."""
    found = list(modes_of().values())
    length_s, html = window_s(found), lanes_html(found, EN)
    for mode in found:
        panel = re.search(rf'data-mode="{mode.name}".*?</section>', html, re.S)[0]
        lanes = re.findall(r'<div class="lane">.*?</div></div>', panel)
        assert len(lanes) == mode.setting.workers
        begin_s, spans = (mode.run.time_s - length_s) / 2, mode.run.trace.spans
        bar = r'<i class="(\w+)" style="left:([\d.]+)%;width:([\d.]+)%">'
        for rank, lane in enumerate(lanes):
            bars = [
                (kind, float(left), float(width)) for kind, left, width in re.findall(bar, lane)
            ]
            computed = sum(width for kind, _, width in bars if kind == "compute") / 100 * length_s
            mine = (spans.rank == rank) & (spans.lane == Lane.COMPUTE)
            inside = np.clip(spans.end_s[mine] - begin_s, 0, length_s) - np.clip(
                spans.start_s[mine] - begin_s, 0, length_s
            )
            assert computed == pytest.approx(inside.sum(), abs=1e-3 * length_s)
            assert sum(width for _, _, width in bars) == pytest.approx(100, abs=0.5)
            assert all(0 <= left <= 100 for _, left, _ in bars)
        assert f'aria-label="{mode.title(EN)}, ' in panel
    waits = {m.name: html.split(f'data-mode="{m.name}"')[1].split("</section>")[0].count(
        'class="wait"') for m in found}  # fmt: skip
    assert waits["async"] == 0 < waits["sync"]


def test_shares_of_time_add_up_and_asynchronous_workers_never_wait():
    found = modes_of()
    for mode in found.values():
        assert mode.shares.sum() == pytest.approx(1)
    assert found["async"].shares[2] < 0.01
    assert found["sync"].shares[2] > 0.2
    assert found["sync"].shares[0] < found["async"].shares[0]


# -- files ---------------------------------------------------------------------------------------


def test_files_and_the_command_reproduce_the_page():
    setting = replace(BASE, workers=3, problem="softmax", learning_rate=0.5, scaling="lr/(1+age)")
    page, found = build(setting, "en"), all_modes(setting)
    rows = list(csv.DictReader(io.StringIO(page.exports.files["csv"])))
    assert rows == [{k: str(v) for k, v in row.items()} for row in export_rows(found)]
    assert len(rows) == 3 * setting.gradients == 3 * 402
    for mode in found:
        mine = [row for row in rows if row["mode"] == mode.run.case.name]
        losses = [float(row["loss"]) for row in mine if row["loss"]]
        assert losses == mode.curve.loss[1:].tolist()
        assert [int(row["staleness"]) for row in mine] == mode.run.updates.staleness.tolist()
    document = json.loads(page.exports.files["json"])
    assert document["setting"]["workers"] == 3
    assert len(document["rows"]) == len(rows)
    events = json.loads(page.exports.files["perfetto"])["traceEvents"]
    assert {e["pid"] for e in events} == set(range(3 * 4))
    printed: list[list[object]] = []
    exec(page.exports.snippet, {"print": lambda *words, sep: printed.append([*words])})
    assert [line[:2] for line in printed] == [
        [m.run.case.name, format_time(m.run.time_s)] for m in found
    ]


def test_the_files_of_a_run_that_is_given_up_have_no_loss_after_it():
    (mode,) = all_modes(replace(BASE, modes=("async",), scaling="lr"))
    rows = export_rows([mode])
    assert len(rows) == 400 > len(mode.curve.loss)
    assert rows[-1]["loss"] == ""
    assert rows[len(mode.curve.loss) - 2]["loss"] == mode.curve.loss[-1]
    assert math.isinf(mode.curve.loss[-1]) or mode.curve.loss[-1] > 1e9
