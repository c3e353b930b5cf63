"""JSON with indentation is what the encoder of the standard library writes, to the byte."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflops.record.files.json_layout import indented_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
DATA = st.recursive(
    SCALARS.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


class Word(StrEnum):
    YES = "yes"


def expected(data: Any) -> str:
    return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)


@given(DATA)
def test_the_text_is_that_of_the_standard_library(data: Any) -> None:
    assert indented_json(data) == expected(data)


@pytest.mark.parametrize("data", [{2: "b", 1: Word.YES}, [Word.YES], {"a": {}, "b": [[]]}], ids=str)
def test_unusual_types_are_left_to_the_standard_library(data: Any) -> None:
    assert indented_json(data) == expected(data)


@pytest.mark.parametrize("data", [float("nan"), [float("inf")], {"a": -float("inf")}], ids=str)
def test_what_is_not_a_number_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        indented_json(data)


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        indented_json({"a": object()})
