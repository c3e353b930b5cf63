"""How many cores the tests may use."""

from __future__ import annotations

import os

import pytest

TOO_FEW = "two models at a time need two cores"


def has_two_cores() -> bool:
    """Whether two models have room at the same time."""
    return len(os.sched_getaffinity(0)) >= 2


needs_two_cores = pytest.mark.skipif(not has_two_cores(), reason=TOO_FEW)
