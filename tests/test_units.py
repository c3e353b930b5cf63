"""Quantities as text for people."""

from __future__ import annotations

import pytest

from vflops.units import count


@pytest.mark.parametrize(("number", "text"), [(1, "1 box"), (0, "0 boxes"), (1200, "1,200 boxes")])
def test_one_is_not_many(number: int, text: str) -> None:
    assert count(number, "box", "boxes") == text
    assert count(number, "seed") == text.replace("boxes", "seeds").replace("box", "seed")
