"""What the player is given equals the trace, and what it makes of it equals the trace's own."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import shutil
import string
import subprocess
from pathlib import Path

import numpy as np
import pytest

from simcore.algorithms import build_schedule
from simcore.cluster import uniform
from simcore.engine import simulate
from simcore.units import format_rate, format_time
from tests.support import require
from views.detail import unpacked
from views.lanes import with_phases
from views.player import PlayerLane, payload, player_script
from views.race import HUBS, LINES, Setting, headline, race
from views.text import LANGUAGES, load_text

MIB = 2**20


def lane(name: str, n: int, elements: int, latency_s: float = 0.0, starts_s=None) -> PlayerLane:
    cluster = uniform(n, 25e6, latency_s)
    schedule = build_schedule(name, n)
    run = simulate(schedule, cluster, elements, starts_s=starts_s)
    return PlayerLane(
        name, schedule, cluster, run.trace, run.lower_bound_s, hub=HUBS.get(schedule.name)
    )


LANES = [
    lane(name, n, elements, latency_s)
    for name in ("ps", "dp", "ring")
    for n, elements, latency_s in [
        (2, 1000, 0.0),
        (3, 1001, 1e-3),
        (4, 2 * MIB, 0.0),
        (16, 7, 1e-4),
    ]
] + [lane("ps", 4, 100_000, 1e-3, starts_s=np.arange(4) * 7e-3)]


@pytest.mark.parametrize(
    "module",
    [
        "text",
        "detail",
        "player",
        "race",
        "comparison",
        "tables",
        "ring",
        "traffic",
        "scaling.curves",
        "scaling.chart",
    ],
)
def test_the_examples_in_docstrings_run(module):
    result = doctest.testmod(importlib.import_module(f"views.{module}"))
    assert result.failed == 0


def test_every_transfer_has_both_its_spans():
    for given in LANES:
        trace, sent = given.trace, payload([given], load_text("en"), 0.0)["lanes"][0]
        columns = {name: unpacked(column) for name, column in sent["transfers"].items()}
        assert len(trace.spans) == 2 * len(columns["step"])
        assert np.bincount(columns["src"], columns["nbytes"], given.trace.n).tolist() == (
            trace.sent_bytes.tolist()
        )
        lengths = np.subtract(columns["send_end_s"], columns["send_start_s"])
        assert np.allclose(
            lengths, np.subtract(columns["receive_end_s"], columns["receive_start_s"])
        )
        assert max(columns["receive_end_s"]) == pytest.approx(trace.time_s, rel=1e-12)
        assert max(columns["contributions"]) == trace.n


def placeholders(phrase: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(phrase) if name}


def test_languages_have_the_same_phrases_with_the_same_placeholders():
    english, chinese = (load_text(language).phrases for language in LANGUAGES)
    assert list(english) == list(chinese)
    for key, phrase in english.items():
        assert placeholders(phrase) == placeholders(chinese[key]), key
        assert phrase.strip()
        assert chinese[key].strip()


def _family(name: str) -> str:
    """A regular expression for the keys that a name with ``{…}`` in it can make."""
    parts = re.split(r"\$?\{[^}]*\}", name)
    return "[a-z0-9_.-]+".join(map(re.escape, parts))


def _says_something(name: str) -> bool:
    """Not `race.{key}`, which would stand for every phrase of the page."""
    literal = re.sub(r"\$?\{[^}]*\}", "", name).strip("._")
    return name.startswith(("strategy.", "phase.", "common.")) or "." in literal


def test_every_phrase_is_used_and_every_used_phrase_is_there():
    root = Path(__file__).parent.parent
    sources = [*root.glob("views/**/*.py"), *root.glob("app_pages/*.py"), root / "app.py"]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    code = code.replace("'", '"')  # a phrase inside an f-string is quoted with the other kind
    script = player_script()
    # `strategy.{name}` in an f-string, and `single_${word}` in a script, stand for a family.
    made = [f"{family}" for family in re.findall(r'f"([a-z]+\.[^"]*\{[^"]*)"', code)]
    made += ["player." + family for family in re.findall(r"`([a-z_]*\$\{[^`]*)`", script)]
    # Made of two parts, or with a quote inside.
    made += [f"whatif.{how}_{{}}" for how in ("longer", "shorter", "same")] + ["step.needs_{}"]
    made += [f"player.{how}_{{}}" for how in ("each", "many", "some", "spread")]
    families = [re.compile(_family(name)) for name in made if _says_something(name)]
    for key in load_text("en").phrases:
        short = key.removeprefix("player.")
        used = f'"{key}"' in code or (short != key and f'"{short}"' in script)
        in_list = f'"{key.partition(".")[2]}"' in code
        icon = short in ("idle_one", "restart", "back", "forward", "end") and short in script
        assert used or in_list or icon or any(f.fullmatch(key) for f in families), key
    for key in re.findall(r'\btext\("([a-z_.]+)"', code):
        assert key in load_text("en").phrases


def test_chinese_and_latin_do_not_touch():
    assert load_text("zh")("fork.took_same", name="环形 all-reduce", after="5 ms") == (
        "环形 all-reduce 用时 5 ms，与原来相同"
    )


@pytest.mark.parametrize(
    ("setting", "starts", "holds"),
    [
        (Setting(4, 8 * MIB, 25e6), "Shards on the GPUs and the ring finished", "3 times each way"),
        (Setting(2, 8 * MIB, 25e6), "Shards on the GPUs and the ring finished", "both directions"),
        (Setting(8, 65536, 12.5e9, 1e-3), "Shards on the GPUs finished first of", "14 messages"),
        (Setting(2, 65536, 50e9, 1e-3), "All 4 finished in about 2.001 ms: nearly all", "latency"),
    ],
)
def test_the_sentence_is_right_where_the_ring_wins_and_where_it_loses(setting, starts, holds):
    runs = race(setting)
    sentence = headline(runs, setting, load_text("en"))
    assert sentence.startswith(starts), sentence
    assert holds in sentence, sentence
    assert re.search("[\u4e00-\u9fff]", headline(runs, setting, load_text("zh")))


@pytest.mark.parametrize(
    ("lines", "setting", "says"),
    [
        (("ring",), Setting(4, 8 * MIB, 25e6), "The ring ran alone and finished in 503.3 ms: with"),
        (
            ("ring", "pairwise"),
            Setting(4, 8 * MIB, 25e6),
            "Both finished in about 503.3 ms: the bu",
        ),
        (("tree", "ring"), Setting(8, 8 * MIB, 25e6), "carries the buffer 3 times one way, the fa"),
        (("ps", "dp"), Setting(4, 65536, 25e6, 4e-3), "copies go one after"),
        (
            ("ps", "ring", "tree"),
            Setting(4, 8 * MIB, 25e6),
            "first of 3, in 503.3 ms; the slowest,",
        ),
        (LINES, Setting(4, 8 * MIB, 25e6), "Shards on the GPUs, the ring and 3 others finished"),
    ],
)
def test_the_sentence_is_right_for_any_lines(lines, setting, says):
    assert says in headline(race(setting, lines), setting, load_text("en"))


@pytest.mark.parametrize("n", [2, 3, 4, 8, 15, 16])
def test_the_sentence_names_the_fastest_and_the_reason_everywhere(n):
    en = load_text("en")
    for size_bytes in (65536, 1024 * MIB):
        for bytes_per_s in (12.5e6, 1.25e9, 50e9):
            for latency_s in (0.0, 2e-4, 1e-3):
                setting = Setting(n, size_bytes, bytes_per_s, latency_s)
                every = race(setting, LINES)
                for runs in (every[:4], every, every[3:6]):
                    fastest, slowest = (f(runs, key=lambda r: r.time_s) for f in (min, max))
                    sentence = headline(runs, setting, en)
                    if slowest.time_s < 1.01 * fastest.time_s:
                        assert latency_s * slowest.schedule.n_steps > 0.9 * slowest.time_s
                        assert sentence.startswith(f"All {len(runs)} finished")
                        continue
                    first, reason = sentence.split(" took ")
                    name = en(f"strategy.{fastest.name}.inline")
                    assert name.lower() in first.lower() or "others finished" in first
                    assert format_time(slowest.time_s) in reason
                    on_ports = "latency, not" not in reason and "copies go" not in reason
                    lost_s = slowest.time_s - fastest.time_s
                    assert on_ports == (slowest.wire_s - fastest.wire_s >= lost_s / 2)


RATES = [0.5, 999.96, 12_345.6, 25e6, 23.9123456e6, 3.125e9, 999.951e6, 5e10]
SCRIPT = """
import { readFileSync } from "node:fs";
import { captionAt, eventTimes, formatRate, prepareLane, stateAt } from "./player.mjs";
const given = JSON.parse(readFileSync(0, "utf8"));
const { data, times } = given;
const lanes = data.lanes.map(prepareLane);
const states = lanes.map((lane, i) => times[i].map((t) => {
  const state = stateAt(lane, t);
  return { ...state, caption: captionAt(lane, state, data.text) };
}));
const rates = given.rates.map(formatRate);
console.log(JSON.stringify({ states, events: eventTimes(lanes), rates }));
"""


def in_node(tmp_path: Path, lanes: list[PlayerLane], times: list[list[float]]):
    require(
        "browser", None if shutil.which("node") else "node is not installed; install Node.js 18+"
    )
    (tmp_path / "player.mjs").write_text(player_script(), encoding="utf-8")
    (tmp_path / "run.mjs").write_text(SCRIPT, encoding="utf-8")
    data = payload(lanes, with_phases(load_text("en"), lanes), 0.0)
    given = json.dumps({"data": data, "times": times, "rates": RATES})
    done = subprocess.run(
        ["node", "run.mjs"],
        cwd=tmp_path,
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_scripts_bytes_and_loads_equal_the_traces(tmp_path):
    rng = np.random.default_rng(7)
    times = [
        [0.0, *rng.uniform(0, 1.02 * given.trace.time_s, 12).tolist(), given.trace.time_s]
        for given in LANES
    ]
    answer = in_node(tmp_path, LANES, times)
    assert any(len(given.trace.pieces) for given in LANES), "one lane has rates that change"
    for given, moments, states in zip(LANES, times, answer["states"], strict=True):
        for t_s, state in zip(moments, states, strict=True):
            sent, received = given.trace.bytes_at(t_s)
            assert np.allclose(state["sent"], sent, rtol=1e-9, atol=1e-6)
            assert np.allclose(state["received"], received, rtol=1e-9, atol=1e-6)
            assert max(state["sending"] + state["receiving"]) <= 1 + 1e-6
            assert state["finished"] == (t_s >= given.trace.time_s)
            assert state["caption"]
            assert "{" not in state["caption"]
            assert "undefined" not in state["caption"]


def test_captions_say_what_happens(tmp_path):
    lanes = [lane(name, 4, 2 * MIB) for name in ("ps", "dp", "ring", "tree")]
    times = [[0.25 * run.trace.time_s, 0.75 * run.trace.time_s, run.trace.time_s] for run in lanes]
    times[2][0] = 0.4 * lanes[2].trace.time_s  # the ring's third step
    times[3] = [share * lanes[3].trace.time_s for share in (0.1, 0.3, 0.6, 0.9)]
    server, copies, ring, tree = (
        [state["caption"] for state in states]
        for states in in_node(tmp_path, lanes, times)["states"]
    )
    full = " Its {} port is full: 33\u00a0% of it for each."
    wait = " The other 2 GPUs wait."
    added = " sends its buffer to GPU 0, which adds it"
    assert server == [
        "Step 1 of 2: GPUs 1–3 push to GPU 0 at once." + full.format("receiving"),
        "Step 2 of 2: GPUs 1–3 pull the sum from GPU 0 at once." + full.format("sending"),
        "Done: after 2.013 s every GPU holds the sum.",
    ]
    assert copies[:2] == [
        "Step 2 of 6: GPU 2 sends its buffer to GPU 0, which adds it (3 of 4 contributions)."
        + wait,
        "Step 5 of 6: GPU 0 sends the sum to GPU 2." + wait,
    ]
    assert ring[0] == (
        "Step 3 of 6: every GPU passes a chunk on. GPU 0 sends chunk 2 to GPU 1, "
        "which adds it (4 of 4 contributions)."
    )
    assert tree == [
        f"Step 1 of 4: 2 messages at once. GPU 1{added} (2 of 4 contributions).",
        f"Step 2 of 4: GPU 2{added} (4 of 4 contributions).{wait}",
        "Step 3 of 4: GPU 0 sends the sum to GPU 2." + wait,
        "Step 4 of 4: 2 messages at once. GPU 0 sends the sum to GPU 1.",
    ]


def test_steps_stop_where_something_starts_or_arrives(tmp_path):
    lanes = [lane(name, 5, 12_345, 1e-4) for name in ("ps", "dp", "ring")]
    events = in_node(tmp_path, lanes, [[], [], []])["events"]
    spans = [run.trace.spans for run in lanes]
    expected = np.unique(np.concatenate([[0.0], *(np.r_[s.start_s, s.end_s] for s in spans)]))
    assert events == sorted(events)
    assert events[-1] == pytest.approx(max(run.trace.time_s for run in lanes))
    assert np.isin(np.round(events, 12), np.round(expected, 12)).all()


def test_a_long_run_is_exact_where_its_marks_end(tmp_path):
    """64 GPUs: two steps in a mark. The counters are the trace's at every end of a block."""
    given = lane("ring", 64, 64 * 4096)
    data = payload([given], load_text("en"), 0.0)["lanes"][0]
    blocks, trace = data["blocks"], given.trace
    assert blocks[:3] == [0, 2, 4]
    assert [phase["first"] for phase in data["phases"]] == [0, blocks.index(63)]
    step_s = trace.time_s / 126
    times = [0.0, *(step_s * end for end in blocks[1:])]
    inside = step_s * 2.5
    (states,) = in_node(tmp_path, [given], [[*times, inside]])["states"]
    for t_s, state in zip(times, states, strict=False):
        sent, received = trace.bytes_at(t_s)
        assert np.allclose(state["sent"], sent, rtol=1e-9)
        assert np.allclose(state["received"], received, rtol=1e-9)
    assert states[-1]["caption"] == (
        "Steps 3–4 of 126: 64 of 64 GPUs are passing chunks on. GPU 0 sends 2 chunks to GPU 1, "
        "which adds them (up to 5 of 64 contributions)."
    )
    assert max(states[-1]["sending"]) == pytest.approx(1)


def test_rates_are_written_as_in_python(tmp_path):
    assert in_node(tmp_path, [], [])["rates"] == [format_rate(rate) for rate in RATES]
