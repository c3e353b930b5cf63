"""Charts: what the tests see of a fault that a page would hide."""

from __future__ import annotations

import altair as alt
import pytest
from altair.utils.schemapi import debug_mode
from jsonschema import ValidationError

from vflops.publish.pages.chart_style import apply_style, data, with_style


def chart(width: object) -> alt.Chart:
    with debug_mode(False):
        drawn: alt.Chart = alt.Chart(data([{"a": 1}])).mark_line().properties(width=width)
        return drawn


def test_a_chart_that_is_no_vega_lite_fails_a_test() -> None:
    with pytest.raises(ValidationError):
        apply_style(chart("wide"))


def test_a_checked_chart_is_the_one_of_a_page() -> None:
    unchecked = chart(100).to_dict(validate=False)
    assert apply_style(chart(100)) == with_style(unchecked)
