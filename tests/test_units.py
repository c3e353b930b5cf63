"""Quantities as text for people."""

from __future__ import annotations

import pytest

from vflops.units import count, quantity, seconds


@pytest.mark.parametrize(("number", "text"), [(1, "1 box"), (0, "0 boxes"), (1200, "1,200 boxes")])
def test_one_is_not_many(number: int, text: str) -> None:
    assert count(number, "box", "boxes") == text
    assert count(number, "seed") == text.replace("boxes", "seeds").replace("box", "seed")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 W"),
        (0.9996, "1.00 W"),
        (999.4, "999 W"),
        (999.6, "1.00 kW"),
        (999_999, "1.00 MW"),
        (-999_999, "-1.00 MW"),
        (1234.0, "1.23 kW"),
        (9.996, "10.0 W"),
        (0.01234, "0.0123 W"),
    ],
)
def test_a_quantity_has_the_prefix_of_what_is_shown(value: float, text: str) -> None:
    assert quantity(value, "W") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (0.0009996, "1 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (245.2, "4 min 05 s"),
    ],
)
def test_a_duration_has_the_unit_of_what_is_shown(value: float, text: str) -> None:
    assert seconds(value) == text
