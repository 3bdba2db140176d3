"""Text to SI numbers and back."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.units import (
    format_bytes,
    format_rate,
    format_time,
    parse_bytes,
    parse_rate,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("0B", 0),
        ("1B", 1),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("8MiB", 8 * 2**20),
        ("8MB", 8 * 10**6),
        ("1GB", 10**9),
        ("1GiB", 2**30),
        ("1TiB", 2**40),
        ("2PB", 2 * 10**15),
        ("0.3MB", 300_000),  # not a whole number in floats
        ("1.5KiB", 1536),
        ("1e3kB", 10**6),
        (" 4 MiB ", 4 * 2**20),
        ("123456789012345678B", 123456789012345678),  # more digits than a float has
    ],
)
def test_sizes(text, nbytes):
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("8bit/s", 1.0),
        ("200Mbit/s", 25e6),
        ("200Mb/s", 25e6),
        ("200Mbps", 25e6),
        ("25Gbit/s", 3.125e9),
        ("25GB/s", 25e9),
        ("1GiB/s", 2.0**30),
        ("1e-3GB/s", 1e6),
    ],
)
def test_rates_tell_bits_from_bytes(text, bytes_per_s):
    assert parse_rate(text) == bytes_per_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("7ns", 7e-9),
        ("5us", 5e-6),
        ("5µs", 5e-6),  # MICRO SIGN
        ("5μs", 5e-6),  # GREEK MU
        ("1.5ms", 1.5e-3),
        (".5s", 0.5),
        ("2min", 120.0),
    ],
)
def test_times(text, seconds):
    assert parse_time(text) == seconds


PARSERS = {parse_bytes: "8MiB", parse_rate: "25GB/s", parse_time: "5us"}


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "number",
    ["", "-1", "-0.5", "nan", "inf", "-inf", "1e400", "1e31", "1e-31", "one", "1_0", "--1"],
)
def test_only_numbers_in_range_are_accepted(parse, number):
    unit = {parse_bytes: "B", parse_rate: "GB/s", parse_time: "s"}[parse]
    with pytest.raises(ValueError, match="accepted: ") as error:
        parse(number + unit)
    message = str(error.value)
    assert repr(number + unit) in message
    assert PARSERS[parse] in message
    assert "\n" not in message


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text", ["8", "8 ", "8X", "8mib", "8M", "8Mbit", "8 s s", "8/s"])
def test_units_are_needed_and_known(parse, text):
    with pytest.raises(ValueError, match="accepted: ") as error:
        parse(text)
    assert repr(text) in str(error.value)


def test_a_bare_rate_is_read_both_ways():
    with pytest.raises(ValueError, match=r"3\.125 GB/s\) or 25GB/s"):
        parse_rate("25")


@pytest.mark.parametrize("text", ["0", "0GB/s", "0.0bit/s"])
def test_a_rate_of_zero_is_none(text):
    with pytest.raises(ValueError, match="above zero"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["0.5B", "1.5B", "0.0001kB"])
def test_bytes_are_whole(text):
    with pytest.raises(ValueError, match="whole bytes"):
        parse_bytes(text)


@given(st.integers(0, 10**15))
def test_a_printed_size_reads_back_to_four_digits(nbytes):
    text = format_bytes(nbytes)
    number, _, unit = text.partition(" ")
    back = float(number) * parse_bytes("1" + unit)
    assert back == pytest.approx(nbytes, rel=5.1e-4)


@given(st.floats(1.0, 1e15))
def test_a_printed_rate_reads_back_to_four_digits(bytes_per_s):
    assert parse_rate(format_rate(bytes_per_s)) == pytest.approx(bytes_per_s, rel=5.1e-4)


@given(st.floats(1e-8, 1e4))
def test_a_printed_time_reads_back_to_four_digits(seconds):
    assert parse_time(format_time(seconds)) == pytest.approx(seconds, rel=5.1e-4)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1.023 kB"), (1024, "1 KiB"), (10**6, "1 MB"), (12 * 2**20, "12 MiB")],
)
def test_sizes_are_printed_in_the_shorter_base(nbytes, text):
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.99996, "1 s"), (0.0005, "500 µs"), (1e-9, "1 ns"), (86400, "86400 s")],
)
def test_times_are_printed_in_the_unit_that_reads_best(seconds, text):
    assert format_time(seconds) == text


def test_formats_at_their_borders():
    """The table that the player is held against, too, in player_core.test.mjs."""
    table = json.loads((Path(__file__).parent / "golden" / "formats.json").read_text("utf-8"))
    assert [format_time(seconds) for seconds, _ in table["times"]] == [w for _, w in table["times"]]
    assert [format_rate(rate) for rate, _ in table["rates"]] == [w for _, w in table["rates"]]
