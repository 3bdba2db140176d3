"""The app without a browser: every setting, both languages, and the numbers that it shows."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app_pages import race as page
from app_pages.race import LATENCIES, RATES, SIZES
from simcore.__main__ import main
from simcore.measured.records import Record, load_records
from simcore.trace import Trace
from simcore.units import format_time, parse_bytes, parse_rate, parse_time
from views.comparison import measured, measured_rows
from views.detail import unpacked
from views.race import LINES, STRATEGIES, Setting, headline, race
from views.text import LANGUAGES, load_text

ROOT = Path(__file__).parent.parent
WAIT_S = 120  # how long a failure takes on a busy machine


def open_app(**query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=WAIT_S)
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def open_page(name: str, **query: str) -> AppTest:
    """One page alone, with the language switch."""
    script = (
        f"from app_pages import {name}\n"
        "from app_pages.language import choose_language\n"
        f"{name}.show(choose_language())\n"
    )
    app = AppTest.from_string(script, default_timeout=WAIT_S)
    for key, value in query.items():
        app.query_params[key] = value
    return app.run()


def words(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.title, *app.markdown, *app.caption))


def player_json(app: AppTest) -> str:
    (found,) = (c.proto.json for c in app.get("bidi_component") if '"lanes"' in c.proto.json)
    return found


def player_data(app: AppTest) -> dict:
    return json.loads(player_json(app))


def test_the_untouched_page_shows_the_default_race():
    app = open_app()
    assert not app.exception
    setting = Setting(4, 8 * 2**20, 25e6)
    runs = race(setting)
    shown = words(app)
    assert headline(runs, setting, load_text("en")) in shown
    for run in runs:
        assert run.formula is not None
        assert run.formula.numbers in shown
        assert format_time(run.time_s) in shown
    data = player_data(app)
    assert [lane["time_s"] for lane in data["lanes"]] == [run.time_s for run in runs]
    assert 0 < data["poster_s"] < min(lane["time_s"] for lane in data["lanes"])
    assert [lane["bottleneck"] for lane in data["lanes"]] == [0, 0, None, None]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("n", "size", "rate", "latency", "lines"),
    [
        ("2", SIZES[0], RATES[-1], LATENCIES[-1], STRATEGIES),
        ("2", SIZES[-1], RATES[0], LATENCIES[0], LINES),
        ("3", "25MiB", "10Gbit/s", "20us", ("ring",)),
        ("16", SIZES[0], RATES[-1], LATENCIES[-1], ("tree", "halving-doubling")),
        ("49", SIZES[0], RATES[0], LATENCIES[1], STRATEGIES),
        ("64", SIZES[-1], RATES[0], LATENCIES[0], LINES),
    ],
)
def test_settings_in_the_url_give_the_engines_numbers(language, n, size, rate, latency, lines):
    query = {"n": n, "size": size, "rate": rate, "latency": latency, "lines": list(lines)}
    app = open_app(**query, lang=LANGUAGES[language])
    assert not app.exception
    assert not app.info
    setting = Setting(int(n), parse_bytes(size), parse_rate(rate), parse_time(latency))
    runs = race(setting, lines)
    assert headline(runs, setting, load_text(language)) in words(app)
    assert len(player_json(app).encode()) < 500_000
    for lane, run in zip(player_data(app)["lanes"], runs, strict=True):
        assert lane["time_s"] == run.time_s
        assert lane["sent_bytes"] == run.trace.sent_bytes.tolist()
        assert sum(unpacked(lane["transfers"]["nbytes"])) == run.trace.sent_bytes.sum()
    assert f"--gpus {n} --size {size} --network {rate}" in app.code[0].value
    assert app.code[1].value.count("python -m simcore simulate") == len(lines)


@pytest.mark.parametrize(
    "bad",
    [
        {"n": "999"},
        {"n": "-1"},
        {"n": "four"},
        {"size": "8"},
        {"rate": "0"},
        {"latency": "nan"},
        {"lang": "xx"},
        {"frames": "maybe"},
        {"unknown": "1"},
        {"n": "", "size": "", "rate": "", "latency": "", "lang": ""},
    ],
)
def test_a_bad_value_in_the_url_becomes_the_default(bad):
    app = open_app(**bad)
    assert not app.exception
    assert "the ring finished in 503.3 ms; the central server and DataParallel took" in words(app)
    notices = sorted(re.split("[=`]", notice.value)[1] for notice in app.info)
    assert notices == sorted(bad)
    assert not app.query_params, "the address is clean"
    app.run()
    assert not app.info, "said once"


def record(source: str, name: str, median_s: float, simulated_s: float) -> Record:
    sent = (24 * 2**20, *(8 * 2**20,) * 3) if name in ("ps", "dp") else (12 * 2**20,) * 4
    runs_s = (0.98 * median_s, median_s, 1.01 * median_s)
    environment = {"versions": {}, "machine": "m", "command": "c", "date": "d"}
    simulated = {"time_s": simulated_s, "sent_bytes": list(sent), "cluster": "shaped-200mbit"}
    config = ("gloo", "200Mbit/s", 4, 8 * 2**20, "float32", runs_s, median_s)
    return Record(source, name, *config, *(sent,) * 4, simulated, environment)


@pytest.fixture
def records(monkeypatch):
    """Measured runs at 4 GPUs, 8 MiB, 200 Mbit/s, with times that appear nowhere else."""
    rows = (
        record("replayed", "ps", 2.222, 2.111),
        record("replayed", "ring", 0.5555, 0.5111),
        record("vendor", "torch.all_reduce", 0.5888, 0.5111),
    )
    monkeypatch.setattr(page, "load_records", lambda: rows)
    page.build.clear()
    yield rows
    page.build.clear()


def table_row(app: AppTest, label: str) -> list[str]:
    line = next(line for line in words(app).splitlines() if line.startswith(f"| {label}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_measured_runs_of_these_settings_stand_beside_and_on_the_axis(records):
    app = open_app()
    assert not app.exception
    assert load_text("en")("race.same_config") in words(app)
    assert table_row(app, "◆ Replayed")[0] == "2.222 s, median of 3 runs"
    assert table_row(app, "◆ Replayed")[1] == "–"
    assert table_row(app, "Simulated against replayed")[0] == "−5.0\u00a0%"
    assert table_row(app, "◇ Vendor's own")[3] == "588.8 ms, median of 3 runs"
    assert table_row(app, "Simulated against vendor's")[3] == "−13.2\u00a0%"
    marks = [[m["source"] for m in lane["marks"]] for lane in player_data(app)["lanes"]]
    assert marks == [["replayed"], [], [], ["replayed", "vendor"]]


@pytest.mark.parametrize(
    "other", [{"n": "5"}, {"size": "25MiB"}, {"rate": "1Gbit/s"}, {"latency": "20us"}]
)
def test_measured_runs_of_other_settings_are_compared_with_their_own_simulation(records, other):
    app = open_app(**other)
    assert not app.exception
    shown = words(app)
    assert load_text("en")("race.same_config") not in shown
    assert "No measured run has exactly these settings." in shown
    assert table_row(app, "Measured with")[0] == "4 GPUs, 8 MiB, 200Mbit/s"
    assert table_row(app, "Simulated for that")[0] == "2.111 s"
    assert table_row(app, "Simulated against replayed")[0] == "−5.0\u00a0%"
    assert [lane["marks"] for lane in player_data(app)["lanes"]] == [[]] * 4


def test_without_records_the_page_says_so(monkeypatch):
    monkeypatch.setattr(page, "load_records", lambda: ())
    page.build.clear()
    app = open_app()
    page.build.clear()
    assert not app.exception
    assert load_text("en")("race.no_records") in words(app)
    assert not re.search("Replayed", words(app))


def test_controls_change_the_race():
    app = open_app()
    app.slider(key="n").set_value(8).run()
    app.toggle(key="frames").set_value(True).run()
    app.pills(key="lines").set_value(["tree", "ps"]).run()
    assert not app.exception
    assert app.query_params["lines"] == ["ps", "tree"]
    setting, lines = Setting(8, 8 * 2**20, 25e6, frames=True), ("ps", "tree")
    assert headline(race(setting, lines), setting, load_text("en")) in words(app)
    app.segmented_control(key="lang").set_value("中文").run()
    assert not app.exception
    assert headline(race(setting, lines), setting, load_text("zh")) in words(app)


def test_files_and_commands_reproduce_the_race(capsys):
    setting = Setting(5, 2**20, 125e6, 5e-5)
    lines = ("ps", "dp", "ring", "hierarchical")
    runs = race(setting, lines)
    exports, files = page.build(setting, lines, "en").exports, page.files(setting, lines)
    for run, line in zip(runs, exports.commands.splitlines(), strict=True):
        assert main([*line.removeprefix("python -m simcore ").split(), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["time_s"] == pytest.approx(run.time_s)
    traces = [Trace.from_json(json.dumps(part)) for part in json.loads(files["json"]())]
    assert [trace.to_json() for trace in traces] == [run.trace.to_json() for run in runs]
    rows = list(csv.DictReader(io.StringIO(files["csv"]())))
    for run in runs:
        sent = [row for row in rows if row["algorithm"] == run.name and row["lane"] == "send"]
        assert sum(int(row["bytes"]) for row in sent) == run.trace.sent_bytes.sum()
    events = json.loads(files["perfetto"]())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names) == list(range(20))
    assert names[5] == "dp, rank 0 (simulated)"
    ends = [(e["ts"] + e["dur"]) / 1e6 for e in events if e["ph"] == "X"]
    assert max(ends) == pytest.approx(max(run.time_s for run in runs))


def test_the_app_starts_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from streamlit.testing.v1 import AppTest\n"
        f"app = AppTest.from_file({str(ROOT / 'app.py')!r}, default_timeout={WAIT_S}).run()\n"
        "assert not app.exception, app.exception\n"
        "assert 'real_gpu' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_vendor_s_run_without_a_simulation_is_compared_with_that_of_our_own_schedule():
    """The shipped record holds none; where configurations differ there is no row."""
    records = load_records()
    text = load_text("en")

    def rows(gpus: int) -> dict[str, list[str]]:
        setting = Setting(gpus, 8 * 2**20, 25e6)
        found = [measured(name, setting, records) for name in ("ps", "dp", "ring")]
        return {row[0]: row[1:] for row in measured_rows(found, text)}

    ring = measured("ring", Setting(4, 8 * 2**20, 25e6), records)
    assert ring.vendor
    assert ring.vendor.simulated is None
    error = 100 * (ring.replayed.simulated["time_s"] / ring.vendor.median_s - 1)
    shown = f"{error:+.1f}\u00a0%".replace("-", "−")
    assert rows(4)[text("race.row_vendor_error")] == ["–", "–", shown]
    assert text("race.row_vendor_error") not in rows(2)


@pytest.mark.parametrize("page_name", ["race", "whatif"])
def test_what_is_said_at_the_top_is_what_the_changed_future_shows(page_name):
    """And the table; what would have been without the change is said as such."""
    asked = "gpu1:0@0.3s..1.2s"
    plain, app = (open_page(page_name, **query) for query in ({}, {"change": asked}))
    assert not app.exception
    assert not app.info
    top, before = (one.markdown[0].value for one in (app, plain))
    changed, without = top.split("\n\n", 1)
    assert changed.startswith("**With what you changed:**")
    assert without == f"**Without it:** {before}"
    times = {lane["name"]: format_time(lane["time_s"]) for lane in player_data(app)["lanes"]}
    assert times["ring"] in changed
    assert times["ring"] not in before
    table = next(m.value for m in app.markdown if "ith what you changed |" in m.value)
    assert all(time in table for time in times.values())


@pytest.mark.parametrize("page_name", ["race", "whatif"])
def test_a_change_that_cannot_be_made_leaves_the_address(page_name):
    app = open_page(page_name, change=["abc", "gpu1:0@0.2s..0.3s", "gpu1:0@0.2s.."])
    assert not app.exception
    assert len(app.info) == 2
    assert app.query_params["change"] == "gpu1:0@0.2s..0.3s"
    app.run()
    assert not app.info, "said once"


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_phrase_becomes_a_link_or_a_tag(language):
    """Markdown makes an address of ``0.1@0.2s``: examples stand in backticks."""
    for key, phrase in load_text(language).phrases.items():
        outside = re.sub(r"`[^`]*`", "", phrase)
        assert not re.search(r"\w@\w|<\w|://", outside), key
        assert outside.replace("**", "").count("*") == 0, key
