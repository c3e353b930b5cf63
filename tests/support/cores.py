"""Tests that need two cores: on one core, vflops refuses two models or workers at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

_REASON = "two models or workers at a time need two cores"


def _has_two_cores() -> bool:
    return len(os.sched_getaffinity(0)) >= 2


def skip_if_refused(options: Sequence[str]) -> None:
    """Skip a test that starts ``--models 2`` or ``--workers 2`` on a machine of one core."""
    here = not {"--on", "--waves"}.intersection(options)
    two = tuple(options[:2]) in (("--models", "2"), ("--workers", "2"))
    if here and two and not _has_two_cores():
        pytest.skip(_REASON)


needs_two_cores = pytest.mark.skipif(not _has_two_cores(), reason=_REASON)
