"""Traffic: the bytes on the page are the engine's, and what the sentence claims of them holds."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from app_pages.race import LATENCIES, RATES, SIZES
from app_pages.traffic import MAX_GPUS, build
from simcore.__main__ import main
from simcore.algorithms import find_algorithm
from simcore.schedule import chunk_sizes
from simcore.units import parse_bytes, parse_rate, parse_time
from tests.test_app import open_page, words
from views.comparison import binary_bytes
from views.text import LANGUAGES, load_text
from views.traffic import (
    IN_PIECES,
    SERVER_PIECES,
    TrafficSetting,
    all_traffic,
    bars_html,
    headline,
    optimum_s,
)

MIB = 2**20
CELL = re.compile(r'<td class="(in|out)( hot)?">.*?width:([\d.]+)%.*?<b>(.*?)</b></td>')


def by_name(setting: TrafficSetting):
    return {traffic.name: traffic for traffic in all_traffic(setting)}


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 11, MAX_GPUS])
def test_totals_and_balance_are_as_the_sentence_says(n):
    for servers in (1, n, MAX_GPUS):
        for size in (65536, 25 * MIB):  # of which many n do not divide the elements
            setting = TrafficSetting(n, size, 25e6, servers=servers)
            found = by_name(setting)
            ring, server, extra = (found[name] for name in ("ring", "ps", "ps-dedicated"))
            assert server.total_bytes == ring.total_bytes == 2 * (n - 1) * size
            assert server.busiest_bytes == (n - 1) * size
            assert ring.busiest_bytes == pytest.approx(2 * (n - 1) * size / n, abs=8)
            assert extra.total_bytes == 2 * n * size
            assert extra.busiest_bytes == max(size, n * -(-size // 4 // servers) * 4)
            shards = found["ps-sharded"]
            assert shards.total_bytes == ring.total_bytes
            if servers >= n:
                assert shards.busiest_bytes == pytest.approx(ring.busiest_bytes, abs=4 * n)
            sentence = headline(list(found.values()), setting, load_text("en"))
            assert binary_bytes(server.busiest_bytes) in sentence
            assert ("but the server's port" in sentence) == (n > 2)


def test_every_ranks_bytes_are_what_the_algorithm_states():
    for n in (2, 3, 7, 16):
        for traffic in all_traffic(TrafficSetting(n, 25 * MIB, 25e6, 1e-5, servers=3)):
            schedule = traffic.schedule
            if traffic.name == IN_PIECES:
                continue  # a training step's communication: held to the whole one's below
            stated = find_algorithm(traffic.name).stated_bytes
            sizes = chunk_sizes(25 * MIB // 4, schedule.chunks) * 4
            sent, received = stated(schedule.n, sizes, **schedule.flags)
            assert traffic.trace.sent_bytes.tolist() == sent.tolist(), traffic.name
            assert traffic.trace.received_bytes.tolist() == received.tolist(), traffic.name


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (
            TrafficSetting(4, 8 * MIB, 25e6, servers=4),
            "64 MiB, 2n times the buffer, and are still faster than the ring's 503.3 ms: 356.5 ms",
        ),
        (TrafficSetting(8, 65536, 12.5e9, 1e-3, 8), "still faster than the ring's 14.01 ms: 17.01"),
        (
            TrafficSetting(2, 65536, 50e9, 1e-3, servers=2),
            "are not faster than the ring's 2.001 ms",
        ),
        (TrafficSetting(4, 8 * MIB, 25e6, servers=1), "1 extra server moves more, 64 MiB"),
        (TrafficSetting(4, 8 * MIB, 25e6, servers=4), "BytePS's optimum, the best that these GPUs"),
    ],
)
def test_extra_servers_are_compared_as_they_are(setting, says):
    assert says in headline(all_traffic(setting), setting, load_text("en"))


@pytest.mark.parametrize(("n", "servers"), [(2, 2), (4, 4), (16, 16), (4, 16)])
def test_in_pieces_extra_servers_come_near_the_optimum_and_beat_the_ring(n, servers):
    """As many servers as GPUs: S/B and one piece more, for the bytes of the whole exchange."""
    setting = TrafficSetting(n, 8 * MIB, 25e6, servers=servers)
    found = by_name(setting)
    pieces, whole, ring = (found[name] for name in (IN_PIECES, "ps-dedicated", "ring"))
    least_s = optimum_s(setting)
    assert least_s == pytest.approx(8 * MIB / 25e6)
    assert pieces.trace.time_s == pytest.approx(least_s * (1 + 1 / SERVER_PIECES), rel=1e-4)
    assert pieces.trace.sent_bytes.sum() == whole.trace.sent_bytes.sum()
    assert (pieces.trace.time_s < ring.trace.time_s) == (n > 2)
    assert pieces.total_bytes > ring.total_bytes


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("n", "servers", "size", "rate", "latency"),
    [
        (4, 4, "8MiB", "200Mbit/s", "0us"),
        (2, 1, SIZES[0], RATES[-1], LATENCIES[-1]),
        (MAX_GPUS, MAX_GPUS, SIZES[-1], RATES[0], LATENCIES[0]),
    ],
)
def test_the_page_shows_the_engines_numbers(language, n, servers, size, rate, latency):
    query = {"n": str(n), "servers": str(servers), "size": size, "rate": rate, "latency": latency}
    app = open_page("traffic", **query, lang=LANGUAGES[language])
    assert not app.exception
    assert not app.info
    setting = TrafficSetting(n, parse_bytes(size), parse_rate(rate), parse_time(latency), servers)
    found = all_traffic(setting)
    assert headline(found, setting, load_text(language)) in words(app)
    bars = app.get("html")[-1].proto.body
    assert bars == bars_html(found, load_text(language))
    panels = bars.split("<section")[1:]
    largest = max(traffic.busiest_bytes for traffic in found)
    for traffic, panel in zip(found, panels, strict=True):
        cells = CELL.findall(panel)
        for way, column in (
            ("in", traffic.trace.received_bytes.tolist()),
            ("out", traffic.trace.sent_bytes.tolist()),
        ):
            shown = [cell for cell in cells if cell[0] == way]
            assert [cell[3] for cell in shown] == [binary_bytes(nbytes) for nbytes in column]
            assert [float(cell[2]) for cell in shown] == pytest.approx(
                [100 * nbytes / largest for nbytes in column], rel=1e-3
            )
        assert any(cell[1] for cell in cells) == (traffic.name in hot_names(n, servers))


def hot_names(n: int, servers: int) -> set[str]:
    if n == 2:
        return {"ps-dedicated", IN_PIECES}  # one server, two buffers
    if n == 4:
        return {"ps", "dp"}  # a tree's and a double tree's busiest are half of the ports
    return {"ps", "dp", "tree"}


@pytest.mark.parametrize("bad", [{"n": "1"}, {"servers": "17"}, {"size": "8"}, {"rate": ""}])
def test_a_bad_value_falls_back_with_a_notice(bad):
    app = open_page("traffic", **bad)
    assert not app.exception
    (notice,) = app.info
    assert notice.value.startswith(f"In the address, `{next(iter(bad))}=")
    assert "move the same 48 MiB in all" in words(app)


def test_files_and_commands_reproduce_the_page(capsys):
    page = build(5, 3, "1MiB", "1Gbit/s", "20us", "en")
    found = by_name(TrafficSetting(5, MIB, 125e6, 2e-5, 3))
    rows = list(csv.DictReader(io.StringIO(page.exports.files["csv"])))
    document = json.loads(page.exports.files["json"])
    assert [{k: str(v) for k, v in row.items()} for row in document["rows"]] == rows
    for name, traffic in found.items():
        sent = [int(row["sent_bytes"]) for row in rows if row["algorithm"] == name]
        assert sent == traffic.trace.sent_bytes.tolist()
    reproduced = set()
    for line in page.exports.commands.splitlines():
        assert main([*line.removeprefix("python -m simcore ").split(), "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        for run in answer.get("algorithms", [answer]):
            wanted = found[run["algorithm"]]
            if run.get("flags", wanted.schedule.flags) == wanted.schedule.flags:
                assert run["time_s"] == pytest.approx(wanted.trace.time_s)
                assert run["sent_bytes"] == wanted.trace.sent_bytes.tolist()
                reproduced.add(run["algorithm"])
    assert reproduced == set(found) - {IN_PIECES}  # which has no command of its own


def test_controls_are_in_both_languages():
    for language in LANGUAGES:
        app = open_page("traffic", lang=LANGUAGES[language])
        text = load_text(language)
        assert app.slider(key="servers").label == text("traffic.servers")
        app.slider(key="servers").set_value(1).run()
        assert not app.exception
        found = all_traffic(TrafficSetting(4, 8 * MIB, 25e6, servers=1))
        setting = TrafficSetting(4, 8 * MIB, 25e6, servers=1)
        assert headline(found, setting, text) in words(app)
        assert f"| {text.strategy(IN_PIECES)}" in words(app)
