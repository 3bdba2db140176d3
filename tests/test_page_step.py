"""One training step: sentences say what the runs say, pictures and tables hold their numbers."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise, product

import pytest

from app_pages.race import LATENCIES
from app_pages.step import BATCHES, CAPS, LAUNCHES, RATES, SLOWER, build, build_wider
from simcore.__main__ import main
from simcore.cluster_file import presets
from simcore.training.buckets import buckets
from simcore.training.catalogue import catalogue_names
from simcore.training.gpus import gpu_names
from simcore.training.plan import Communicate
from simcore.training.strategies import footprint, plan_step
from simcore.units import format_time, parse_time
from tests.test_app import open_page, words
from views.step.chart import KINDS, bar_tip, lane_of, seen_apart, timeline_svg
from views.step.memory import PARTS, fits_words, memory_svg, parts_of
from views.step.rows import all_rows, busiest_rank, rank_rows, shown_from_s
from views.step.runs import NAMES, ONE_SWITCH, StepChoice, impossible, refusal, run_step, work_of
from views.step.shares import shares
from views.step.svg import NARROW, SHEETS, WIDE
from views.step.sweep import CAPS_MB, FLAT, busy_part, now_of, sentence, sweep, sweep_chart
from views.step.tables import (
    bucket_rows,
    commands,
    compare,
    comparison_rows,
    sent_by_busiest,
    timeline_rows,
)
from views.step.tasks import TASK_KEYS, task_key
from views.step.words import (
    LARGE,
    SMALL,
    TIE,
    fullest,
    gigabytes,
    headline,
    name_of,
    tell,
    time_words,
)
from views.text import LANGUAGES, load_text

DEFAULT = StepChoice("resnet50", "V100 16GB", 64, 4)
EN = load_text("en")
# Every strategy can be drawn with these, and something differs in each.
CASES = (
    DEFAULT,
    replace(DEFAULT, backend="gloo", overlap_percent=30, slower=1.5, accumulate=2),
    replace(DEFAULT, network="rtx3090-nvlink-pairs", cap_mb=5.0),
    StepChoice("gpt2", "A100 80GB", 8, 2, rate="400Gbit/s", latency="1us"),
    StepChoice("vgg16", "2-core laptop", 1, 3, rate="100Mbit/s", latency="1ms"),
)


def names_of(choice: StepChoice) -> list[str]:
    return [name for name in NAMES if impossible(choice, name, EN) is None]


def runs_of(choice: StepChoice):
    return [run_step(choice, name) for name in names_of(choice)]


# -- what is drawn ------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", CASES)
def test_red_and_waiting_add_up_to_what_is_exposed(choice):
    for result in runs_of(choice):
        exposed_s = result.exposed_communication_s * result.steps
        assert sum(shares(result).exposed_s.values()) == pytest.approx(exposed_s, abs=1e-12)
        compute, *others = rank_rows(result, busiest_rank(result))
        from_s = shown_from_s(result)
        before_s = sum(
            float(result.run.ended_s[i].max() - result.run.entered_s[i].min())
            for i, task in enumerate(result.run.plan.tasks)
            if not isinstance(task, Communicate) and result.run.ended_s[i].max() <= from_s
        )
        waits_s = sum(bar.duration_s for bar in compute.bars if bar.kind == "wait")
        if before_s == 0:
            assert waits_s == pytest.approx(exposed_s, abs=1e-12)
        for row in others:
            for bar in (bar for bar in row.bars if bar.kind in ("exposed", "hidden")):
                inside = any(
                    wait.start_s <= bar.start_s and bar.end_s <= wait.end_s
                    for wait in compute.bars
                    if wait.kind == "wait"
                )
                assert inside == (bar.kind == "exposed")


@pytest.mark.parametrize("choice", CASES)
def test_bars_of_a_row_do_not_overlap_and_stay_in_the_step(choice):
    for result in runs_of(choice):
        for gpu in all_rows(result):
            assert gpu.rank in gpu.ranks
            for row in gpu.rows:
                bars = sorted(row.bars, key=lambda bar: bar.start_s)
                for one, next_one in pairwise(bars):
                    assert one.end_s <= next_one.start_s + 1e-12
                assert all(bar.kind in KINDS and bar.duration_s > 0 for bar in bars)
                assert bars[0].start_s >= shown_from_s(result) - 1e-12
                assert bars[-1].end_s <= result.run.time_s + 1e-12


def test_every_word_has_a_task():
    for family in ("task", "why"):
        for key in EN.under(f"step.{family}"):
            assert key.removesuffix("_one_by_one") in TASK_KEYS, key


@pytest.mark.parametrize("choice", CASES)
def test_every_task_has_words(choice):
    for name in names_of(choice):
        for task in plan_step(name, choice.setting()).tasks:
            assert task_key(task.label)[0] in TASK_KEYS


def test_who_differs_has_rows_of_its_own():
    ddp, dp = (all_rows(run_step(DEFAULT, name)) for name in ("ddp", "dp"))
    assert [gpu.ranks for gpu in ddp] == [(0, 1, 2, 3)]
    assert [gpu.ranks for gpu in dp] == [(0,), (1, 2, 3)]
    slow = all_rows(run_step(replace(DEFAULT, slower=2.0), "ddp"))
    assert [gpu.ranks for gpu in slow] == [(3,), (0, 1, 2)]
    extra = all_rows(run_step(DEFAULT, "ps-dedicated"))
    assert [gpu.ranks for gpu in extra] == [(0, 1, 2, 3), (4,)]
    assert {bar.kind for row in extra[1].rows for bar in row.bars} == {"served", "optimizer"}


@pytest.mark.parametrize("sheet", SHEETS)
@pytest.mark.parametrize("choice", CASES[:3])
def test_the_timeline_is_an_svg_with_every_bar_and_its_numbers(sheet, choice):
    for name in names_of(choice):
        result = run_step(choice, name)
        lane = lane_of(result)
        svg = ET.fromstring(timeline_svg(sheet, [lane], EN))
        assert timeline_svg(sheet, [lane], EN) == timeline_svg(sheet, [lane_of(result)], EN)
        assert svg.get("role") == "img"
        assert time_words(result.exposed_communication_s) in svg.get("aria-label")
        titles = [title.text for title in svg.iter() if title.tag.endswith("title")]
        scale = sheet.room / lane.shown_s
        rows = [row for gpu in lane.gpus for row in gpu.rows]
        bars = [bar for row in rows for bar in seen_apart(row.bars, scale)]
        assert titles == [bar_tip(bar, lane.from_s, EN) for bar in bars]
        for box in (box for box in svg.iter() if box.tag.endswith("rect") and box.get("x")):
            assert -1 <= float(box.get("x")) <= sheet.width
            assert float(box.get("x")) + float(box.get("width")) <= sheet.width + 1
        assert len(timeline_svg(sheet, [lane], EN)) < 250_000


def test_both_strategies_share_one_time_axis():
    lanes = [lane_of(run_step(DEFAULT, name)) for name in ("ddp", "dp")]
    drawn = timeline_svg(WIDE, lanes, EN)
    ends = [float(x) for x in re.findall(r'class="end" d="M([\d.]+)', drawn)]
    ddp_s, dp_s = (lane.shown_s for lane in lanes)
    assert ends[1] == pytest.approx(WIDE.x(1.0), abs=0.01)
    assert ends[0] == pytest.approx(WIDE.x(ddp_s / dp_s), abs=0.01)


def test_exposed_bars_have_the_accent_and_a_pattern_and_others_do_not():
    drawn = timeline_svg(NARROW, [lane_of(run_step(DEFAULT, "ddp"))], EN)
    for group in re.findall(r'<g class="bar[^>]*><title>(.*?)</title><rect [^>]*?/></g>', drawn):
        assert group
    for title, fill in re.findall(r"<title>([^<]*)</title><rect[^>]*(fill|class)=\"", drawn):
        assert (", exposed" in title) <= (fill == "fill")
    exposed = re.findall(r"<title>[^<]*, exposed</title><rect [^>]*/>", drawn)
    assert exposed
    assert all("url(#narrow-exposed)" in bar for bar in exposed)


# -- what is said -------------------------------------------------------------------------------

PAIRS = (("ddp", "dp"), ("fsdp", "ddp"), ("ps", "zero1"), ("ddp", "ddp"), ("local-sgd", "zero3"))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("choice", "pair"), list(product(CASES, PAIRS)))
def test_the_sentence_says_what_the_runs_say(language, choice, pair):
    text = load_text(language)
    results = [run_step(choice, name) for name in dict.fromkeys(pair)]
    told = headline(replace(choice, first=pair[0], second=pair[1]), results, text)
    assert "{" not in told
    assert told.endswith((".", "。"))
    by_time = sorted(results, key=lambda result: result.time_s)
    fast, slow = by_time[0], by_time[-1]
    for result in results:
        assert time_words(result.time_s) in told
        if result.exposed_communication_s > 5e-4 * result.time_s:
            assert time_words(result.exposed_communication_s) in told
    part = fast.exposed_communication_s / fast.time_s
    filled = f"{(1 - part) * 100:.3g}"
    assert re.search(rf"{re.escape(filled)}[ \u00a0]?%", told)
    if language == "en":
        assert ("The network is not what limits" in told) == (part < SMALL)
        assert ("The network limits" in told) == (part > LARGE)
        alone = slow.time_s <= fast.time_s * (1 + TIE) and fast is not slow
        assert ("no difference" in told) == alone
        exposed = slow.exposed_communication_s > SMALL * slow.time_s
        longer_s = slow.compute_s - fast.compute_s
        computes = not alone and longer_s > (slow.time_s - fast.time_s) / 2 > 0
        assert ("since it computes" in told) == computes
        assert ("above all" in told) == (exposed and not alone and not computes)
        hidden_s = tell(slow).shares.hidden_s
        if "none of it overlaps" in told:
            assert hidden_s < 0.01 * slow.exposed_communication_s * slow.steps
        assert ("sets the pace" in told) == (choice.slower != 1)
    for result in results:
        needs = gigabytes(fullest(result)[1].total)
        over = fullest(result)[1].total > choice.card.memory_bytes
        assert (("does not fit" if language == "en" else "放不下") in told) or not over
        assert needs in told or not over


def test_the_reason_is_the_largest_part_of_what_is_exposed():
    told = headline(DEFAULT, [run_step(DEFAULT, name) for name in ("ddp", "dp")], EN)
    parts = shares(run_step(DEFAULT, "dp")).exposed_s
    main = max(parts, key=lambda key: parts[key])
    assert f"{EN(f'step.why.{main}')} ({time_words(parts[main])})" in told
    gloo = replace(DEFAULT, backend="gloo", gpus=8)
    told = headline(gloo, [run_step(gloo, name) for name in ("ddp", "dp")], EN)
    assert "GPU 0 sending the model to the other 7, one after another" in told
    assert "none of it overlaps with computing" in told
    fast = replace(DEFAULT, rate="3600Gbit/s", latency="0us")
    told = headline(fast, [run_step(fast, name) for name in ("ddp", "zero1")], EN)
    assert "The network is not what limits" in told


# -- tables -------------------------------------------------------------------------------------


def test_the_bucket_table_is_torchs_buckets_with_the_runs_times():
    for choice in (DEFAULT, replace(DEFAULT, cap_mb=35.0)):
        result = run_step(choice, "ddp")
        filled = buckets(choice.workload(), result.setting.options, result.setting.number)
        rows = bucket_rows(choice, EN)
        assert len(rows) == len(filled) == len(result.buckets)
        for row, bucket, times in zip(rows, filled, result.buckets, strict=True):
            assert f"{len(bucket.indices)} parameters" in row[0]
            moments = (times.ready_s, times.start_s, times.end_s)
            assert row[2:] == [format_time(moment) for moment in moments]
    assert len(bucket_rows(replace(DEFAULT, cap_mb=1.0, model="gpt2"), EN)) == 15


def test_the_comparison_holds_every_strategys_numbers_and_the_fastest_first():
    compared = compare(DEFAULT, EN)
    assert [result.strategy for result in compared.results] + [*compared.impossible] != []
    shown = {result.strategy for result in compared.results}
    assert shown | set(compared.impossible) | set(compared.too_long) == set(NAMES)
    assert compared.impossible == {"hsdp": EN("step.no_nodes", n=4)}
    assert compared.too_long == {}
    times = [result.time_s for result in compared.results]
    assert times == sorted(times)
    for row, result in zip(comparison_rows(DEFAULT, compared, EN), compared.results, strict=True):
        assert row[1] == format_time(result.time_s)
        assert row[2] == format_time(result.exposed_communication_s)
        assert row[3] == f"{result.samples_per_s:.4g}"
        assert row[0].startswith("**") == (result.strategy in ("ddp", "dp"))
        held = max(m.total for m in footprint(result.strategy, DEFAULT.setting())[:4])
        assert row[6] == gigabytes(held)
    by_name = {result.strategy: result for result in compared.results}
    assert sent_by_busiest(by_name["local-sgd"]) == pytest.approx(
        sent_by_busiest(by_name["ddp"]) / 8, rel=0.02
    )


def test_too_much_work_is_left_out_with_its_reason_but_what_is_chosen_stays():
    choice = replace(DEFAULT, model="gpt2-xl", gpus=64, first="fsdp", second="local-sgd")
    compared = compare(choice, EN)
    assert {"byteps", "zero-redundancy-optimizer", "ps"} <= set(compared.too_long)
    assert {"fsdp", "local-sgd"} <= {result.strategy for result in compared.results}
    assert refusal(choice, "byteps", EN) is not None
    assert refusal(choice, "fsdp", EN) is None


@pytest.mark.parametrize("choice", CASES)
def test_works_are_told_without_simulating_and_never_too_low(choice):
    for name in names_of(choice):
        result = run_step(choice, name)
        sent = [task for task in result.run.plan.tasks if isinstance(task, Communicate)]
        real = sum(len(step.src) for task in sent for step in task.schedule.steps())
        assert work_of(choice, name).messages >= 0.6 * real


def test_the_timelines_table_holds_its_tasks():
    result = run_step(DEFAULT, "ddp")
    ((title, rows),) = timeline_rows(result, EN)
    assert title == "DDP, every GPU"
    assert [row[0] for row in rows if row[0].startswith("bucket")] == [
        f"bucket {k}" for k in range(len(result.buckets))
    ]
    last = next(row for row in rows if row[0] == "bucket 4")
    assert last[2] == format_time(result.buckets[-1].end_s)


# -- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_memory_bars_are_the_footprint(name):
    choice = replace(DEFAULT, network="dgx-a100", gpus=16, model="resnet18")
    rank, held = fullest(run_step(choice, name))
    everyone = footprint(name, choice.setting())[:16]
    assert held == everyone[rank]
    assert held.total == max(one.total for one in everyone)
    assert sum(parts_of(held).values()) == held.total
    assert set(parts_of(held)) == set(PARTS)


def test_what_does_not_fit_is_said_and_crosses_the_cards_line():
    choice = replace(DEFAULT, model="llama-7b", gpu="H100 SXM", batch=1, rate="400Gbit/s")
    results = [run_step(choice, name) for name in ("ddp", "fsdp")]
    needs = gigabytes(fullest(results[0])[1].total)
    assert fullest(results[0])[1].total > choice.card.memory_bytes
    assert f"DDP does not fit: GPU 0 needs {needs}, the card has 80 GB." in headline(
        choice, results, EN
    )
    assert f"DDP does not fit: GPU 0 needs {needs}" in fits_words(choice, results, EN)
    needs = gigabytes(fullest(run_step(DEFAULT, "ddp"))[1].total)
    told = fits_words(DEFAULT, [run_step(DEFAULT, "ddp")], EN)
    assert told == f"Yes: no GPU needs more than {needs} of its 16 GB."
    drawn = memory_svg(WIDE, choice, results, EN)
    ET.fromstring(drawn)
    assert drawn.count("url(#wide-over)") == sum(
        fullest(result)[1].total > choice.card.memory_bytes for result in results
    )
    assert "url(#wide-over)" not in memory_svg(WIDE, DEFAULT, [run_step(DEFAULT, "ddp")], EN)


# -- the sweep ----------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "choice",
    [
        *CASES[:1],
        *CASES[2:],
        replace(DEFAULT, rate="3600Gbit/s", latency="0us"),
        replace(DEFAULT, overlap_percent=0, latency="0us"),
        replace(DEFAULT, cap_mb=1000.0),
    ],
)
def test_the_sweeps_sentence_agrees_with_its_points(language, choice):
    points = sweep(choice)
    text = load_text(language)
    assert {point.cap_mb for point in points} >= {None, *CAPS_MB}
    for point in points:
        result = run_step(replace(choice, cap_mb=point.cap_mb), "ddp")
        assert (point.time_s, point.buckets) == (result.time_s, len(result.buckets))
    told = sentence(points, choice, text)
    times = [point.time_s for point in points]
    flat = max(times) - min(times) < FLAT * min(times)
    assert told.startswith("No:" if language == "en" else "不会") == flat
    if not flat:
        assert time_words(now_of(points, choice).time_s) in told
        best_s = min(point.time_s for point in points if point.cap_mb)
        if now_of(points, choice).time_s > 1.005 * best_s:
            assert time_words(best_s) in told
    spec = sweep_chart(points, choice, text)
    assert told in spec["description"]
    line, now, _ = spec["layer"]
    assert [row["ms"] for row in line["data"]["values"]] == [
        point.time_s * 1e3 for point in points if point.cap_mb
    ]
    assert now["data"]["values"][0]["ms"] == now_of(points, choice).time_s * 1e3


def test_why_a_sweep_is_flat():
    hidden = replace(DEFAULT, rate="3600Gbit/s", latency="0us")
    assert "nearly all communication is hidden" in sentence(sweep(hidden), hidden, EN)
    busy = replace(DEFAULT, overlap_percent=0, latency="0us")
    assert busy_part(run_step(busy, "ddp")) > 0.95
    assert "has to carry the same bytes" in sentence(sweep(busy), busy, EN)
    assert sweep(replace(DEFAULT, backend="gloo", gpus=64, slower=1.5)) == []


# -- the page -----------------------------------------------------------------------------------


def test_the_untouched_page_answers_its_question():
    app = open_page("step")
    assert not app.exception
    assert not app.info
    results = [run_step(DEFAULT, name) for name in ("ddp", "dp")]
    assert headline(DEFAULT, results, EN) in words(app)
    timeline, memory = (json.loads(part.proto.json) for part in app.get("bidi_component"))
    lanes = [lane_of(result) for result in results]
    assert timeline_svg(WIDE, lanes, EN) in timeline["html"]
    assert timeline_svg(NARROW, lanes, EN) in timeline["html"]
    assert memory_svg(WIDE, DEFAULT, results, EN) in memory["html"]
    assert "46.5 ms to 62.8 ms" in words(app)  # the estimate's uncertainty


EXTREMES = (
    {"n": "64", "model": "gpt2-xl", "gpu": "H100 SXM", "a": "fsdp", "b": "zero2"},
    {"n": "64", "network": "laptop-wifi", "a": "local-sgd", "b": "byteps", "model": "llama-7b"},
    {"n": "2", "batch": "1", "rate": "100Mbit/s", "latency": "1ms", "gpu": "2-core laptop"},
    {"n": "2", "batch": "512", "rate": "3600Gbit/s", "latency": "0us", "a": "dp", "b": "dp"},
    {"n": "5", "accumulate": "16", "overlap": "0", "backend": "gloo", "slower": "3", "cap": "1"},
    {"n": "16", "network": "dgx-h100", "a": "hsdp", "b": "zero-redundancy-optimizer"},
    {"n": "64", "model": "llama-7b", "backend": "gloo", "slower": "3"},
    {"n": "6", "network": "rtx4090-2sockets", "a": "ps-dedicated", "b": "ps", "cap": "1000"},
)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("query", EXTREMES)
def test_the_page_at_its_extremes(language, query):
    app = open_page("step", **query, lang=LANGUAGES[language])
    assert not app.exception
    shown = words(app)
    assert "{" not in shown
    text = load_text(language)
    if query.get("b") == "byteps" or query.get("model") == "llama-7b":  # too much to wait for
        name = query.get("b", "ddp")
        assert app.info[0].value.startswith(name_of(name, text))
    else:
        assert not app.info
        assert name_of(query.get("a", "ddp"), text) in shown


def test_every_choice_is_in_the_address():
    query = {
        "a": "zero3",
        "b": "ps",
        "model": "bert-base",
        "gpu": "A100 80GB",
        "batch": "16",
        "n": "3",
        "rate": "100Gbit/s",
        "latency": "5us",
        "cap": "50",
        "accumulate": "2",
        "overlap": "40",
        "backend": "gloo",
        "slower": "1.5",
    }
    app = open_page("step", **query)
    assert not app.exception
    assert not app.info
    chosen = StepChoice("bert-base", "A100 80GB", 16, 3, rate="100Gbit/s", latency="5us")
    chosen = replace(chosen, first="zero3", second="ps", cap_mb=50.0, accumulate=2)
    chosen = replace(chosen, overlap_percent=40, backend="gloo", slower=1.5)
    results = [run_step(chosen, name) for name in ("zero3", "ps")]
    assert headline(chosen, results, EN) in words(app)
    assert commands(chosen) in [code.value for code in app.code]
    for key, value in query.items():
        assert app.query_params[key] in (value, [value])


def test_replicas_launches_have_a_control_where_dataparallel_is_drawn():
    app = open_page("step", launch="10ms")
    assert not app.exception
    assert not app.info
    results = [run_step(replace(DEFAULT, launch="10ms"), name) for name in ("ddp", "dp")]
    assert headline(DEFAULT, results, EN) in words(app)
    plain = run_step(DEFAULT, "dp")
    assert results[1].time_s > plain.time_s + 0.029  # three replicas after GPU 0's
    assert [box for box in app.selectbox if box.label == EN("step.launch")]
    without = open_page("step", b="fsdp")
    assert not [box for box in without.selectbox if box.label == EN("step.launch")]
    assert parse_time(LAUNCHES[0]) == 0


@pytest.mark.parametrize(
    "bad",
    [
        *("a=ddpp", "model=gpt5", "n=65", "batch=3", "network=x", "cap=-1"),
        *("overlap=101", "gpu=<b>", "slower=0", "backend=mpi"),
    ],
)
def test_a_bad_value_falls_back_with_a_notice(bad):
    key, value = bad.split("=")
    app = open_page("step", **{key: value})
    assert not app.exception
    assert app.info[0].value.startswith(f"In the address, `{key}={value}` is not")
    results = [run_step(DEFAULT, name) for name in ("ddp", "dp")]
    assert headline(DEFAULT, results, EN) in words(app)


def test_what_a_network_cannot_do_is_said_and_something_else_shown():
    app = open_page("step", a="hsdp")
    assert not app.exception
    assert app.info[0].value.startswith("HSDP is not shown: it shards inside nodes")


def test_a_known_machine_brings_its_own_rate():
    app = open_page("step", network="dgx-a100", n="8")
    assert not app.exception
    assert not [slider for slider in app.select_slider if slider.key in ("rate", "latency")]
    assert "`dgx-a100`" in words(app)


def test_choices_are_the_cores_own():
    for options in (RATES, LATENCIES, CAPS, BATCHES, SLOWER, LAUNCHES):
        assert len(set(options)) == len(options)
    for model, gpu in zip(catalogue_names(), gpu_names(), strict=False):
        assert StepChoice(model, gpu, 1, 2).reached[1].typical > 0
    for network in presets():
        assert StepChoice("resnet18", "T4", 1, 8, network).cluster(8).n == 8


# -- files and commands -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choice",
    [
        replace(DEFAULT, gpus=3),
        replace(DEFAULT, network="dgx-a100", gpus=16, first="hsdp", second="zero2"),
        replace(DEFAULT, backend="gloo", overlap_percent=35, slower=1.5, cap_mb=10.0),
        replace(DEFAULT, accumulate=3, first="local-sgd", second="ps-dedicated"),
        replace(DEFAULT, launch="10ms"),
    ],
)
def test_files_and_commands_reproduce_the_page(choice, capsys):
    exports = build_wider(choice, "en").exports
    rows = list(csv.DictReader(io.StringIO(exports.files["csv"])))
    by_name = {row["strategy"]: row for row in rows}
    document = json.loads(exports.files["json"])
    assert [step["strategy"] for step in document["steps"]] == [choice.first, choice.second]
    for line in exports.commands.splitlines():
        assert main([*shlex.split(line)[3:], "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        answers = [answer] if "strategy" in answer else answer["strategies"]
        for one in answers:
            if one["strategy"] in by_name:
                told = by_name[one["strategy"]]
                assert one["time_s"] == pytest.approx(float(told["time_s"]), rel=1e-9)
                exposed_s = float(told["exposed_communication_s"])
                assert one["exposed_communication_s"] == pytest.approx(exposed_s, abs=1e-12)
    events = json.loads(exports.files["perfetto"])["traceEvents"]
    assert {event["ph"] for event in events} >= {"X", "M"}


def test_everything_is_in_the_file_names_language():
    page = build(replace(DEFAULT, network=ONE_SWITCH), "zh")
    assert page.timeline["lang"] == "zh-CN"
    assert "反向" in page.timeline["html"]
