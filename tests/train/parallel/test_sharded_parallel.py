"""Sharded data parallelism in half precision; test_modes has it in double."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.divided_runs import all_losses, trained


def test_parts_of_a_batch_add_up_before_they_are_exchanged(tmp_path: Path) -> None:
    """In pure fp16, where batch norm keeps fp32: two kinds of weights in every block."""
    told = ("train.accumulate=2", "train.precision=fp16")
    one = trained(tmp_path / "one", "train.ghosts=2", *told)
    two = trained(tmp_path / "two", "train.parallel.mode=sharded", *told, ranks=2)
    assert all_losses(two) == pytest.approx(all_losses(one), rel=5e-3)
