"""What if…: before and after without a browser, and sentences that hold for every setting."""

from __future__ import annotations

import json
import re
from itertools import product

import numpy as np
import pytest

from app_pages.whatif import FACTORS, LATE, OVER, RATES, SCENARIOS, SERVER, SIZES, build
from simcore.__main__ import main
from simcore.explain import critical_path
from simcore.trace import Lane
from simcore.units import format_time
from tests.test_app import open_page, player_data, player_json, words
from tests.test_exports import printed
from views.fork import fork
from views.text import LANGUAGES, load_text
from views.whatif.troubles import (
    LINES,
    NODE_LINES,
    Base,
    FanIn,
    HalfDuplex,
    SlowLink,
    Straggler,
    Uplink,
    what_if,
)
from views.whatif.words import headline, why

EN, ZH = (load_text(language) for language in LANGUAGES)
MIB = 2**20
BASE = Base(4, 8 * MIB, 25e6)
DEFAULTS = {
    "straggler": (BASE, Straggler(1, 0.2)),
    "slow-link": (BASE, SlowLink(1, 2, 0.1)),
    "uplink": (Base(8, 8 * MIB, 25e6), Uplink(4, 4.0)),
    "half-duplex": (BASE, HalfDuplex()),
    "fan-in": (BASE, FanIn(12, 1.0)),
}
SHOWN = dict.fromkeys(SCENARIOS, ("ps", "ring", "ps-sharded")) | {
    "uplink": ("ring", "ring-scattered", "ps")
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("what", SCENARIOS)
def test_every_trouble_as_it_opens(what, language):
    app = open_page("whatif", what=what, lang=LANGUAGES[language])
    assert not app.exception
    assert not app.info
    base, scenario = DEFAULTS[what]
    pairs = what_if(base, scenario, SHOWN[what])
    text = load_text(language)
    assert headline(base, scenario, pairs, text) in words(app)
    lanes = player_data(app)["lanes"]
    assert [(lane["ghost"]["time_s"], lane["time_s"]) for lane in lanes] == [
        pair.times_s for pair in pairs
    ]
    for lane, pair in zip(lanes, pairs, strict=True):
        assert lane["name"] == pair.name
        assert lane["ghost"]["label"] == text("whatif.before")
        assert sum(lane["sent_bytes"]) == pair.after.trace.sent_bytes.sum()
    shown_reasons = "".join(line for line in words(app).splitlines() if line.startswith("- **"))
    rows = [line for line in words(app).splitlines() if line.startswith("| ")][2:]
    for row, pair in zip(rows, pairs, strict=True):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[:3] == [text(f"strategy.{pair.name}"), *map(format_time, pair.times_s)]
        assert why(base, scenario, pair, text) in shown_reasons


ENDS = {
    "straggler": ({"gpu": "0", "late": LATE[0]}, {"gpu": "15", "late": LATE[-1]}),
    "slow-link": (
        {"src": "0", "dst": "0", "factor": FACTORS[0]},
        {"src": "15", "dst": "0", "factor": FACTORS[-1]},
    ),
    "uplink": (
        {"nodes": "2", "per_node": "2", "over": OVER[0]},
        {"nodes": "4", "per_node": "4", "over": OVER[-1]},
    ),
    "half-duplex": ({}, {}),
    "fan-in": ({"to": "2", "server": SERVER[0]}, {"to": "16", "server": SERVER[-1]}),
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("what", "last"), list(product(SCENARIOS, (0, 1))))
def test_every_trouble_at_its_ends_with_all_lines(what, last, language):
    query = {"what": what, "size": SIZES[-last], "rate": RATES[last - 1]} | ENDS[what][last]
    lines = NODE_LINES if what == "uplink" else LINES
    if what != "uplink":
        query["n"] = ("2", "16")[last]
    key = "node_lines" if what == "uplink" else "lines"
    app = open_page("whatif", **query, lang=LANGUAGES[language], **{key: list(lines)})
    assert not app.exception
    assert not app.info
    data = player_json(app)
    assert len(data.encode()) < 500_000
    lanes = json.loads(data)["lanes"]
    assert [lane["name"] for lane in lanes] == list(lines)
    assert all(0 < lane["time_s"] < np.inf for lane in lanes)
    assert "{" not in words(app).split("import")[0]


def test_bad_values_become_defaults_with_a_notice():
    app = open_page("whatif", what="flood", late="yesterday", n="99")
    assert not app.exception
    assert sorted(notice.value.split("=")[0] for notice in app.info) == [
        "In the address, `late",
        "In the address, `n",
        "In the address, `what",
    ]
    base, scenario = DEFAULTS["straggler"]
    pairs = what_if(base, scenario, SHOWN["straggler"])
    assert headline(base, scenario, pairs, EN) in words(app)


def test_the_trouble_is_chosen_above_everything_and_stands_in_the_address():
    app = open_page("whatif")
    app.radio(key="what").set_value("half-duplex").run()
    assert not app.exception
    assert app.query_params["what"] == "half-duplex"
    base, scenario = DEFAULTS["half-duplex"]
    pairs = what_if(base, scenario, SHOWN["half-duplex"])
    assert headline(base, scenario, pairs, EN) in words(app)
    app.segmented_control(key="lang").set_value("中文").run()
    assert headline(base, scenario, pairs, ZH) in words(app)
    app.radio(key="what").set_value("straggler").run()
    assert "what" not in app.query_params


@pytest.mark.parametrize("page", ["whatif", "race"])
def test_changes_in_the_address_are_made(page):
    asked = ["gpu2:0@0.1s..0.3s", "gpu1->gpu2:0.5@0.4s.."]
    app = open_page(page, change=asked)
    plain = open_page(page)
    assert not app.exception
    assert not app.info
    data, before = player_data(app), player_data(plain)
    assert [change["spelt"] for change in data["fork"]["changes"]] == asked
    assert data["fork"]["setting"] == before["fork"]["setting"]
    assert data["poster_s"] == before["poster_s"]
    for now, old in zip(data["lanes"], before["lanes"], strict=True):
        assert now["ghost"]["time_s"] == pytest.approx(old["time_s"], rel=1e-12)
        assert now["ghost"]["bars"][0][0] == 0.1
        assert now["marks"] == []
    assert any(now["time_s"] > now["ghost"]["time_s"] for now in data["lanes"])


@pytest.mark.parametrize("page", ["whatif", "race"])
def test_what_cannot_be_changed_is_told_and_the_page_is_as_without(page):
    app = open_page(page, change=["gpu1:0@0.1s..", "gpu7:0@1s..2s", "`<b>"])
    assert not app.exception
    assert len(app.info) == 3
    data = player_data(app)
    assert data["fork"]["changes"] == []
    assert [lane["time_s"] for lane in data["lanes"]] == [
        lane["time_s"] for lane in player_data(open_page(page))["lanes"]
    ]


def test_commands_and_program_reproduce_both(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = ("gpu1:0@0.1s..0.3s",)
    for what, (base, scenario) in DEFAULTS.items():
        lines = NODE_LINES if what == "uplink" else LINES
        pairs = what_if(base, scenario, lines)
        forked = fork([pair.after for pair in pairs], changes, EN)
        exports = build(base, scenario, lines, changes, "en").exports
        typed = exports.commands.splitlines()
        if typed[0].startswith("echo"):
            content = typed.pop(0).removeprefix("echo '").split("' > ")
            (tmp_path / content[1]).write_text(content[0])
        if what == "fan-in":
            assert f"--gpus {scenario.gpus} " in typed[0]
        for line, run in zip(typed, forked.after, strict=True):
            arguments = line.removeprefix("python -m simcore ").replace("'", "").split()
            assert main([*arguments, "--json"]) == 0
            document = json.loads(capsys.readouterr().out)
            assert document["time_s"] == pytest.approx(run.trace.time_s)
        monkeypatch.undo()
        shown = printed(exports.snippet)
        monkeypatch.chdir(tmp_path)
        times = [f"{p.name}; {'; '.join(map(format_time, p.times_s))}" for p in pairs]
        times += [
            f"{pair.name}; {format_time(run.trace.time_s)}"
            for pair, run in zip(pairs, forked.after, strict=True)
        ]
        assert shown == times


# -- the sentences, against the simulation -------------------------------------------------------


def cases():
    for n in (2, 3, 4, 5, 8, 16):
        base = Base(n, 8 * MIB, 25e6)
        for gpu, late_s in product({0, 1, n - 1}, (1e-3, 0.2, 2.0, 20.0)):
            yield base, Straggler(gpu, late_s), LINES
        for link, factor in product([(0, 1), (1, 0), (n - 1, 0), (1, None)], (0.01, 0.5, 0.9)):
            yield base, SlowLink(*link, factor), LINES
        yield base, HalfDuplex(), LINES
        for after, factor in product({2, n, 12}, (0.25, 1.0, 10.0)):
            yield base, FanIn(after, factor), LINES
    for nodes, per_node, over in product((2, 3, 4), (2, 4), (1.0, 4.0, 16.0)):
        yield Base(nodes * per_node, 8 * MIB, 25e6), Uplink(per_node, over), NODE_LINES


CASES = list(cases())


@pytest.mark.parametrize("part", range(8))
def test_the_sentence_names_whom_it_hits_most_and_least(part):
    for base, scenario, lines in CASES[part::8]:
        pairs = what_if(base, scenario, lines)
        paragraphs = headline(base, scenario, pairs, EN).split("\n\n")
        assert headline(base, scenario, pairs, ZH).count("\n\n") == len(paragraphs) - 1
        factors = {pair.name: pair.after.trace.time_s / pair.before.trace.time_s for pair in pairs}
        most, least = max(factors.values()), min(factors.values())
        said = {part.split(":**")[0].strip("*"): part for part in paragraphs[1:]}
        if most < 1.01 and least > 1 / 1.01:
            assert [key.split(".**")[0] for key in said] == ["Nobody notices"]
            continue
        if most < 1.01 * least:
            assert list(said) == ["All that are shown alike"]
            continue
        expected = {"Hit hardest": most} if most >= 1.01 else {}
        if least < 1 / 1.01:
            expected["Gains"] = least
        elif least < 1.01:
            expected["Not hit"] = least
        else:
            expected["Hit least"] = least
        if most < 1.01:
            expected["Gains least" if most < 1 / 1.01 else "Not hit"] = most
        assert sorted(said) == sorted(expected), (base, scenario)
        for key, factor in expected.items():
            clause = re.split(r"(?<=\w)\. |\.$", said[key], maxsplit=1)[0]
            for name, its in factors.items():
                named = re.search(rf"{EN(f'strategy.{name}.inline')}(?= and|,)", clause)
                clearly = max(its, factor) < 1.009 * min(its, factor)
                apart = max(its, factor) > 1.011 * min(its, factor)
                if name == "ring" and "ring in scattered" in clause:
                    continue
                assert not clearly or named, (clause, name)
                assert not apart or not named, (clause, name)
            if times := re.search(r"([\d.]+) times as (long|fast)", clause):
                value = float(times[1]) if times[2] == "long" else 1 / float(times[1])
                assert value == pytest.approx(factor, rel=0.02)
            else:
                assert factor == pytest.approx(1, rel=0.0101)


def cases_of(kind):
    for base, scenario, lines in CASES:
        if isinstance(scenario, kind):
            for pair in what_if(base, scenario, lines):
                yield base, scenario, pair, why(base, scenario, pair, EN).replace("\u00a0", " ")


def test_reasons_of_a_straggler():
    kinds = set()
    for base, scenario, pair, reason in cases_of(Straggler):
        before_s, after_s = pair.times_s
        passed_on = (after_s - before_s) / scenario.late_s
        moved = pair.after.trace.bytes_at(scenario.late_s)[0].sum()
        share = 100 * moved / pair.after.trace.sent_bytes.sum()
        shown = float(re.search(r"([\d.]+) % of", reason)[1])
        assert shown == pytest.approx(share, rel=0.06, abs=0.6)
        if reason.startswith("Until"):
            kinds.add("whole")
            assert passed_on == pytest.approx(1, abs=0.011)
            chain = int(re.search(r"then on (\d+) messages", reason)[1])
            assert 1 <= chain <= pair.after.steps
        elif reason.startswith("It loses nothing"):
            kinds.add("nothing")
            assert passed_on < 0.01
        else:
            kinds.add("partly")
            assert 0.01 <= passed_on < 1
        assert base.gpus > scenario.gpu
    assert kinds == {"whole", "nothing", "partly"}


def test_reasons_of_a_slow_link():
    kinds = set()
    for base, scenario, pair, reason in cases_of(SlowLink):
        spans = pair.after.trace.spans
        sends = spans.lane == Lane.SEND
        if scenario.dst is None:
            on = sends & ((spans.rank == scenario.src) | (spans.peer == scenario.src))
        else:
            on = sends & (spans.rank == scenario.src) & (spans.peer == scenario.dst)
        if reason == "It sends nothing over this link.":
            kinds.add("unused")
            assert not on.any()
            assert pair.factor == pytest.approx(1)
            continue
        used, steps = map(int, re.search(r"in (\d+) of (\d+) steps", reason, re.I).groups())
        assert (used, steps) == (len(np.unique(spans.step[on])), pair.after.steps)
        if "only" in reason:
            kinds.add("slack")
            assert pair.factor < 1.01
            before = pair.before.trace.spans
            rows = [
                row
                for row in np.flatnonzero(before.lane == Lane.SEND)
                if scenario.src in (before.rank[row], before.peer[row])
                and scenario.dst in (None, before.peer[row])
            ]
            rates = before.nbytes[rows] / (before.end_s[rows] - before.start_s[rows])
            assert max(rates) <= 1.02 * scenario.factor * base.bytes_per_s
        elif "long enough" in reason:
            assert pair.factor < 1.01
        else:
            kinds.add("waited")
            assert pair.factor >= 1.01
            share = float(re.search(r"up ([\d.]+) %", reason)[1])
            waited_s = sum(
                part.duration_s
                for part in critical_path(pair.after.trace)
                if part.kind == "transfer"
                and scenario.src in (part.rank, part.peer)
                and scenario.dst in (None, part.peer)
            )
            assert share == pytest.approx(100 * waited_s / pair.after.trace.time_s, rel=0.06, abs=1)
            assert share > 0
    assert kinds == {"unused", "slack", "waited"}


def test_reasons_of_an_uplink():
    kinds = set()
    for base, _, pair, reason in cases_of(Uplink):
        run = pair.after
        uplinks = [i for i, name in enumerate(run.network.names) if name.startswith("node")]
        most = run.link_bytes[uplinks].max()
        assert float(re.search(r"([\d.]+)× the buffer", reason)[1]) == pytest.approx(
            most / base.size_bytes, rel=0.01
        )
        kinds.add("no longer" in reason)
        assert ("no longer" in reason) == (pair.factor < 1.01)
        if "no longer" not in reason:
            assert float(re.search(r"up ([\d.]+) %", reason)[1]) > 0
    assert kinds == {True, False}


def test_reasons_of_half_duplex():
    """What overlapped before is what it takes longer now."""
    for base, _, pair, reason in cases_of(HalfDuplex):
        if "never" in reason:
            assert pair.factor == pytest.approx(1)
        else:
            share = float(re.search(r"([\d.]+) %", reason)[1])
            assert 1 < pair.factor <= 2.01
            if share == 100:
                assert pair.factor == pytest.approx(2, rel=0.01)
        assert base.gpus >= 2


def test_reasons_of_fan_in():
    one_by_one = 0
    for base, _, pair, reason in cases_of(FanIn):
        if reason.startswith("No port"):
            one_by_one += 1
            continue
        times, before_times = map(float, re.findall(r"([\d.]+)×", reason.replace(",", "")))
        for run, shown in ((pair.before, before_times), (pair.after, times)):
            link = int(run.link_busy.argmax())
            assert shown == pytest.approx(run.link_bytes[link] / base.size_bytes, rel=0.01)
    assert one_by_one
