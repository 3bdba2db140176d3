"""Ring, step by step: the numbers in the chunk table are the reference's at every moment."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from app_pages.ring import LATENCIES, MAX_GPUS, MAX_NUMBERS, RATES, usual_numbers
from simcore import parse_slow_link, reference
from simcore.__main__ import main
from simcore.explain import idle_s
from simcore.schedule import chunk_bounds
from simcore.trace import Trace
from simcore.units import format_time, parse_rate, parse_time
from tests.support import require
from tests.test_app import open_page, player_data, words
from tests.test_player import placeholders
from views.detail import unpacked
from views.player import PlayerLane, payload, player_script
from views.ring import RingRun, RingSetting, arithmetic_rows, bytes_rows, headline, ring_run
from views.text import LANGUAGES, load_text

SETTINGS = [
    RingSetting(2, 1, 12.5e6),
    RingSetting(3, 24, 1.25e6, 5e-6),
    RingSetting(4, 8, 12.5e6),
    RingSetting(5, 8, 12.5e6, 2e-7),
    RingSetting(8, 3, 1.25e9, 1e-6),  # fewer numbers than chunks
    RingSetting(8, 21, 12.5e6),
    RingSetting(16, 24, 12.5e6, 2e-7),
]


def lane_of(run: RingRun) -> PlayerLane:
    return PlayerLane(
        "ring",
        run.schedule,
        run.setting.cluster(),
        run.simulation.trace,
        run.simulation.lower_bound_s,
        inputs=run.setting.inputs(),
    )


def test_the_untouched_page_teaches():
    app = open_page("ring")
    assert not app.exception
    run = ring_run(RingSetting(4, 8, 12.5e6))
    assert headline(run, load_text("en")) in words(app)
    assert app.title[0].value == "How does a ring add everything up in 2(n-1) steps?"
    data = player_data(app)
    assert data["view"] == "steps"
    assert 0 < data["poster_s"] < run.time_s
    (lane,) = data["lanes"]
    assert lane["cells"]["start"][1] == [[8, 3], [7, 2], [6, 1], [5, 9]]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("n", "numbers", "rate", "latency"),
    [
        (2, 1, RATES[0], LATENCIES[-1]),
        (MAX_GPUS, 1, RATES[-1], LATENCIES[0]),
        (5, 8, "1Gbit/s", "1us"),
        (MAX_GPUS, MAX_NUMBERS, RATES[-1], LATENCIES[-1]),
    ],
)
def test_settings_in_the_url_give_the_references_numbers(language, n, numbers, rate, latency):
    app = open_page(
        "ring", n=str(n), numbers=str(numbers), rate=rate, latency=latency, lang=LANGUAGES[language]
    )
    assert not app.exception
    assert not app.info
    setting = RingSetting(n, numbers, parse_rate(rate), parse_time(latency))
    run = ring_run(setting)
    assert headline(run, load_text(language)) in words(app)
    (component,) = app.get("bidi_component")
    assert len(component.proto.json.encode()) < 100_000
    (lane,) = player_data(app)["lanes"]
    assert lane["time_s"] == run.time_s
    final = reference.run(run.schedule, setting.inputs())
    bounds = chunk_bounds(numbers, n)
    held = {}
    dsts, chunks = (unpacked(lane["transfers"][name]) for name in ("dst", "chunk"))
    columns = (dsts, chunks, lane["cells"]["values"])
    for dst, chunk, values in zip(*columns, strict=True):
        held[dst, chunk] = values
    for rank in range(n):
        for chunk in range(min(n, numbers)):  # the others are empty, and never sent
            part = slice(bounds[chunk], bounds[chunk + 1])
            assert held[rank, chunk] == final[rank, part].tolist()
            assert held[rank, chunk] == setting.inputs().sum(axis=0)[part].tolist()


@pytest.mark.parametrize(
    "bad", [{"n": "17"}, {"n": "x`<b>\n"}, {"numbers": "0"}, {"rate": "1"}, {"latency": "-1us"}]
)
def test_a_bad_value_falls_back_with_a_notice(bad):
    app = open_page("ring", **bad)
    assert not app.exception
    ((key, value),) = bad.items()
    (notice,) = app.info
    assert f"`{key}=" in notice.value
    assert value.isprintable() is (value in notice.value)
    assert headline(ring_run(RingSetting(4, 8, 12.5e6)), load_text("en")) in words(app)
    app.run()
    assert not app.info, "said once"


def test_the_command_and_the_files_reproduce_the_page(capsys):
    app = open_page("ring", n="5", numbers="7", latency="1us")
    command = app.code[0].value
    run = ring_run(RingSetting(5, 7, 12.5e6, 1e-6))
    assert main([*command.removeprefix("python -m simcore ").split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["time_s"] == pytest.approx(run.time_s)


def test_exported_json_is_the_trace():
    from app_pages.ring import build

    files = build(3, 5, "1Gbit/s", "1us", "en").exports.files
    trace = ring_run(RingSetting(3, 5, 125e6, 1e-6)).simulation.trace
    assert Trace.from_json(files["json"]).to_json() == trace.to_json()
    assert files["csv"].count("\n") == 1 + len(trace.spans)
    assert json.loads(files["perfetto"])["otherData"]["time_s"] == trace.time_s


@pytest.mark.parametrize("n", range(2, MAX_GPUS + 1))
def test_exact_bytes_hold_for_every_length(n):
    for numbers in range(1, MAX_NUMBERS + 1):
        run = ring_run(RingSetting(n, numbers, 12.5e6))
        chunks, size = run.chunk_bytes, run.setting.size_bytes
        sent = run.simulation.trace.sent_bytes
        rank = np.arange(n)
        assert (sent == 2 * size - chunks[(rank + 1) % n] - chunks[(rank + 2) % n]).all()
        assert sent.sum() == 2 * (n - 1) * size
        for row, nbytes in zip(bytes_rows(run), sent.tolist(), strict=True):
            assert row[-1] == f"{nbytes} B"
            terms = row[-2].removesuffix(" B").split(" − ")
            assert 2 * int(terms[0].removeprefix("2·")) - int(terms[1]) - int(terms[2]) == nbytes


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_sentence_gives_the_reason(setting):
    run = ring_run(setting)
    for language in LANGUAGES:
        sentence = headline(run, load_text(language))
        assert "{" not in sentence
        assert f"{run.schedule.n_steps}" in sentence
    english = headline(run, load_text("en"))
    assert ("no algorithm is faster" in english) == (
        run.time_s <= run.simulation.lower_bound_s * (1 + 1e-9)
    )
    if run.formula:
        assert run.formula.time_s == pytest.approx(run.time_s)
        assert run.formula.numbers in str(arithmetic_rows(run, load_text("en")))


SCRIPT = """
import { readFileSync } from "node:fs";
import { arrivalsIn, captionAt, cellsAt, eventTimes, listNumbers, prepareLane, stateAt, waitsOf }
  from "./player.mjs";
const { data, times } = JSON.parse(readFileSync(0, "utf8"));
const answers = data.map(({ lanes: [given], text }, k) => {
  const lane = prepareLane(given);
  const moments = [...times[k], ...eventTimes([lane])];
  const ranks = Array.from({ length: lane.n }, (_, rank) => rank);
  return {
    moments: moments.map((t) => {
      const state = stateAt(lane, t);
      return { t, cells: cellsAt(lane, state, t), captions: ranks.map((rank) =>
        captionAt(lane, state, text, rank)) };
    }),
    waits: ranks.map((rank) => waitsOf(lane, rank)),
    arrivals: ranks.map((rank) => ranks.map((chunk) => arrivalsIn(lane, rank, chunk).length)),
  };
});
const lists = [[], [1, 2, 3, 4], [1, 2, 3, 4, 5]].map(listNumbers);
console.log(JSON.stringify({ answers, lists }));
"""


@pytest.fixture(scope="module")
def in_node(tmp_path_factory):
    """What the player's pure functions say of every setting, at random moments and at events."""
    found = shutil.which("node")
    require("browser", None if found else "node is not installed; install Node.js 18+")
    folder: Path = tmp_path_factory.mktemp("node")
    (folder / "player.mjs").write_text(player_script(), encoding="utf-8")
    (folder / "run.mjs").write_text(SCRIPT, encoding="utf-8")
    rng = np.random.default_rng(3)
    runs = [ring_run(setting) for setting in SETTINGS]
    given = {
        "data": [payload([lane_of(run)], load_text("en"), 0.0) for run in runs],
        "times": [rng.uniform(0, run.time_s, 8).tolist() for run in runs],
    }
    done = subprocess.run(
        ["node", "run.mjs"],
        cwd=folder,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return runs, json.loads(done.stdout)


def test_the_scripts_cells_are_the_references_at_every_moment(in_node):
    runs, answer = in_node
    for run, got in zip(runs, answer["answers"], strict=True):
        states = list(reference.history(run.schedule, run.setting.inputs()))
        bounds = chunk_bounds(run.setting.numbers, run.schedule.chunks)
        spans, n = run.simulation.trace.spans, run.schedule.n
        for moment in got["moments"]:
            for rank in range(n):
                for chunk in range(n):
                    cell = moment["cells"][rank][chunk]
                    here = (spans.rank == rank) & (spans.chunk == chunk) & (spans.lane == 2)
                    come = here & (spans.end_s <= moment["t"])
                    step = 1 + int(spans.step[come].max()) if come.any() else 0
                    values, who = states[step]
                    part = values[rank, bounds[chunk] : bounds[chunk + 1]]
                    assert cell["values"] == part.tolist()
                    assert cell["who"] == (list(who[rank][chunk]) if part.size else [])
                    under_way = here & (spans.end_s > moment["t"])
                    assert cell["arriving"] is None or under_way.any()


def test_at_an_event_all_of_it_has_happened(in_node):
    """Sums of floats: arrivals that belong together must not be split by the last digit."""
    runs, answer = in_node
    for run, got in zip(runs, answer["answers"], strict=True):
        last = got["moments"][-1]
        assert last["t"] == run.time_s
        n = run.schedule.n
        cells = [cell for row in last["cells"] for cell in row]
        assert all(len(cell["who"]) == (n if cell["values"] else 0) for cell in cells)
        assert all(c.startswith("Done") for c in last["captions"])


def test_waits_add_up_to_the_traces_idle_time(in_node):
    runs, answer = in_node
    for run, got in zip(runs, answer["answers"], strict=True):
        waited = [sum(end - start for start, end in waits) for waits in got["waits"]]
        assert waited == pytest.approx(idle_s(run.simulation.trace), abs=1e-9 * run.time_s)


def test_captions_follow_the_chosen_gpu_and_their_sums_are_right(in_node):
    _, answer = in_node
    sums = 0
    for got in answer["answers"]:
        for moment in got["moments"]:
            for rank, caption in enumerate(moment["captions"]):
                assert "undefined" not in caption
                assert not placeholders(caption)
                if "] + [" not in caption or "…" in caption:
                    continue
                left, total = caption[caption.index("[") :].rstrip(".").split(" = ")
                own, sent = (json.loads(part) for part in left.split(" + "))
                assert np.add(own, sent).tolist() == json.loads(total)
                sums += 1
                here = [cell["arriving"] for cell in moment["cells"][rank]]
                if any(a and a["load"] > 0 for a in here):
                    assert f"to GPU {rank}" in caption
    assert sums > 50
    assert answer["lists"] == ["[]", "[1, 2, 3, 4]", "[1, 2, 3, …]"]


def test_a_chunk_arrives_on_every_gpu_but_one_in_each_half(in_node):
    runs, answer = in_node
    for run, got in zip(runs, answer["answers"], strict=True):
        n = run.schedule.n
        sent = min(n, run.setting.numbers)
        assert sum(map(sum, got["arrivals"])) == 2 * (n - 1) * sent


CHANGES = ["gpu2:0@0.5us..2us", "0->1:0.1@1us..3us"]


@pytest.fixture(scope="module")
def forked():
    return open_page("ring", change=CHANGES)


def test_what_is_changed_on_the_way_is_the_engines(forked):
    setting = RingSetting(4, 8, 12.5e6)
    before = ring_run(setting).simulation
    after = before.fork(5e-7, [parse_slow_link(change) for change in CHANGES])
    data = player_data(forked)
    (lane,) = data["lanes"]
    assert lane["time_s"] == after.trace.time_s > before.trace.time_s
    assert lane["ghost"]["time_s"] == before.trace.time_s
    assert [change["spelt"] for change in data["fork"]["changes"]] == CHANGES
    assert data["poster_s"] == player_data(open_page("ring"))["poster_s"]
    final = setting.inputs().sum(axis=0)
    held = dict(zip(unpacked(lane["transfers"]["chunk"]), lane["cells"]["values"], strict=True))
    assert [number for chunk in range(4) for number in held[chunk]] == final.tolist()


def test_the_command_and_the_program_reproduce_the_changes(forked, capsys):
    command, snippet = (code.value for code in forked.code)
    time_s = player_data(forked)["lanes"][0]["time_s"]
    assert main([*shlex.split(command.removeprefix("python -m simcore ")), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["time_s"] == pytest.approx(time_s)
    exec(compile(snippet, "snippet", "exec"), {})
    assert f"changed; {format_time(time_s)}" in capsys.readouterr().out


def test_a_change_that_cannot_be_is_told_of():
    app = open_page("ring", change=["gpu9:0@1us..2us"])
    assert not app.exception
    (notice,) = app.info
    assert "gpu9" in notice.value


def test_as_many_numbers_as_fill_all_chunks_unless_somebody_chose():
    """The number of numbers follows the GPUs; what was chosen, or stands in the address, stays."""
    app = open_page("ring", n="16")
    assert app.slider(key="numbers").value == 16
    app.slider(key="n").set_value(5).run()
    assert app.slider(key="numbers").value == 10
    assert "numbers" not in app.query_params
    app.slider(key="numbers").set_value(7).run()
    app.slider(key="n").set_value(16).run()
    assert app.slider(key="numbers").value == 7
    assert open_page("ring", n="16", numbers="8").slider(key="numbers").value == 8
    for gpus in range(2, 17):
        assert usual_numbers(gpus) % gpus == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_does_not_divide_are_the_numbers_and_all_of_a_buffer_is_not_one_times(language):
    text = load_text(language)
    said = headline(ring_run(RingSetting(16, 8, 12.5e6)), text)
    assert "8" in said
    assert "32 B" not in said
    twice = headline(ring_run(RingSetting(2, 8, 12.5e6)), text)
    assert text("ring.sends_once", sent="32 B", time="2.56 µs") in twice
