"""Sizes and budgets as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from lowtide.errors import UnitError
from lowtide.units import MAX_BYTES, align_up, count_of, format_bytes, parse_budget, parse_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("512 bytes", 512),
        ("512KB", 512_000),
        ("512kib", 524_288),
        ("1.5 GiB", 1_610_612_736),
        (" 2 MB ", 2_000_000),
        ("1_000", 1000),
        ("0.1 KB", 100),
        ("1.0009KB", 1000),
        ("8191TiB", 8191 * 1024**4),
    ],
)
def test_sizes_are_read(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GiB",
        "-1",
        "1e6",
        "1,5GB",
        "1.5.2",
        "12 XB",
        "1 GiB extra",
        "nan",
        "inf",
        "1" * 100,
        "٣",
        "1.GB",
        "1__0",
        "1_",
        "1_GB",
        "1_.5GB",
        "_1",
    ],
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_bytes(text)
    assert "is no size: write a number with KB, MB, GB (1000) or KiB, MiB, GiB (1024)" in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_size_that_is_too_large_is_refused() -> None:
    assert parse_bytes(str(MAX_BYTES)) == MAX_BYTES
    with pytest.raises(UnitError, match=r"^size '9000TiB' exceeds the largest size that is read, \d+ bytes$"):
        parse_bytes("9000TiB")


@pytest.mark.parametrize(
    ("budget", "size_bytes"),
    [
        (2048, 2048),
        ("2048", 2048),
        ("1.5GiB", 1_610_612_736),
        ("60 bytes", 60),
        ("60%", 600),
        ("33.33%", 333),  # floor of the exact fraction
        ("0.1 %", 1),
        ("110%", 1100),
    ],
)
def test_budgets_are_read(budget: int | str, size_bytes: int) -> None:
    assert parse_budget(budget, baseline_peak_bytes=1001 if budget == "0.1 %" else 1000) == size_bytes


def test_percentages_are_exact_where_floats_are_not() -> None:
    peak_bytes = 2**53 - 1
    assert parse_budget("70%", baseline_peak_bytes=peak_bytes) == peak_bytes * 7 // 10


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (1.5, "budget 1.5 is a float: give whole bytes, text such as '1.5GiB', or '60%'"),
        (True, "budget True is a bool: give whole bytes, text such as '1.5GiB', or '60%'"),
        (None, "budget None is a NoneType: give whole bytes, text such as '1.5GiB', or '60%'"),
        (60, "budget 60 bytes? For a share of the plain peak write '60%'"),
        ("60", "budget 60 bytes? For a share of the plain peak write '60%'"),
        (0, "budget 0 is not above 0 bytes: give bytes, '1.5GiB', or '60%'"),
        (-5, "budget -5 is not above 0 bytes: give bytes, '1.5GiB', or '60%'"),
        ("0%", "budget '0%' must be above 0% and at most 1000% of the plain peak"),
        ("1001%", "budget '1001%' must be above 0% and at most 1000% of the plain peak"),
        (2**53, f"budget 9007199254740992 exceeds the largest size that is read, {MAX_BYTES} bytes"),
        ("1__0", "'1__0' is no size: write a number with KB, MB, GB (1000) or KiB, MiB, GiB (1024)"),
        ("1__0.5", "'1__0.5' is no size: write a number with KB, MB, GB (1000) or KiB, MiB, GiB (1024)"),
        ("much", "'much' is no size: write a number with KB, MB, GB (1000) or KiB, MiB, GiB (1024)"),
    ],
)
def test_budgets_that_are_none_say_so(budget: Any, said: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_budget(budget, baseline_peak_bytes=1000)
    assert str(caught.value) == said


def test_small_bare_numbers_are_read_for_graphs_in_abstract_units() -> None:
    assert parse_budget(60, baseline_peak_bytes=100, smallest_bytes=1) == 60
    assert parse_budget("60", baseline_peak_bytes=100, smallest_bytes=1) == 60


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (10 * 1024, "10.0 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (int(1.5 * 1024**3), "1.50 GiB"),
        (2048 * 1024**3, "2.00 TiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_sizes_are_written(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(0, "op", "0 ops"), (1, "search", "1 search"), (2, "search", "2 searches"), (3, "byte", "3 bytes")],
)
def test_numbers_of_things_are_written(number: int, noun: str, text: str) -> None:
    assert count_of(number, noun) == text


@pytest.mark.parametrize(("size_bytes", "aligned"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_rounding_up_to_the_alignment(size_bytes: int, aligned: int) -> None:
    assert align_up(size_bytes, 64) == aligned
