"""Bounds as text: one unit, no exponent, enough digits."""

from __future__ import annotations

import pytest

from vflops.studies.accept.bounds_text import bounds_text


@pytest.mark.parametrize(
    ("unit", "low", "high", "text"),
    [
        ("s", 0.0, 35.9, "0 … 35.9 s"),
        ("s", 0.012, 0.0135, "12.0 … 13.5 ms"),
        ("s", 300.0, 1500.0, "5.0 … 25.0 min"),
        ("VFLOPS", 4.53e8, 1.2e9, "0.45 … 1.20 GVFLOPS"),
        ("FLOPS", 0.0, 2e12, "0 … 2.00 TFLOPS"),
        ("FLOPS", 9.962e11, 1.0004e12, "0.996 … 1.000 TFLOPS"),
        ("B/s", 1.2345e11, 1.241e11, "123.5 … 124.1 GB/s"),
        ("samples/s", 8123.0, 91234.5, "8.1 … 91.2 ksamples/s"),
        ("share", 0.4321, 0.5, "43.2 … 50.0 %"),
        ("", 0.8612, 0.871, "0.861 … 0.871"),
        ("", -0.25, 0.5, "-0.250 … 0.500"),
        ("W", 0.0, 0.0, "0 … 0 W"),
    ],
)
def test_both_bounds_have_one_unit_and_no_exponent(
    unit: str, low: float, high: float, text: str
) -> None:
    assert bounds_text(unit, low, high) == text
