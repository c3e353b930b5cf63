"""Sharded data parallelism: ranks that keep a part of the model each train as one that has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from divided_runs import all_losses, differs, trained

from vflops.record.folder import RunFolder

SHARDED = "train.parallel.mode=sharded"
TWENTY = (
    "synthetic.train=160",
    "synthetic.validation=40",
    "train.batch=16",
    "train.epochs=2",
    "train.evaluate_every=2",
)
"""20 steps, and an evaluation of five batches for two ranks."""


@pytest.fixture(scope="module")
def ghosts(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """One rank, batch norm over each half of the batch."""
    return trained(tmp_path_factory.mktemp("ghosts"), "train.ghosts=2")


def test_two_ranks_with_local_batch_norm_train_as_one_with_ghosts(
    ghosts: RunFolder, tmp_path: Path
) -> None:
    shared = trained(tmp_path, SHARDED, ranks=2)
    assert differs(shared, ghosts) is None
    whole = trained(tmp_path / "whole")
    assert str(differs(shared, whole)).startswith("losses")  # else batch norm would not matter


def test_twenty_steps_of_two_ranks_with_synchronised_batch_norm_are_those_of_one(
    tmp_path: Path,
) -> None:
    alone = trained(tmp_path / "alone", *TWENTY)
    shared = trained(tmp_path / "two", SHARDED, "train.batch_norm=synchronised", *TWENTY, ranks=2)
    assert differs(shared, alone, steps=20) is None


def test_parts_of_a_batch_add_up_before_they_are_exchanged(tmp_path: Path) -> None:
    """In pure fp16, where batch norm keeps fp32: two kinds of weights in every block."""
    told = ("train.accumulate=2", "train.precision=fp16")
    one = trained(tmp_path / "one", "train.ghosts=2", *told)
    two = trained(tmp_path / "two", SHARDED, *told, ranks=2)
    assert all_losses(two) == pytest.approx(all_losses(one), rel=5e-3)


def test_the_norm_of_a_layer_is_that_of_all_its_parts(tmp_path: Path) -> None:
    told = ("train.optimizer=lamb", "train.nesterov=false")
    alone = trained(tmp_path / "alone", *told)
    shared = trained(tmp_path / "two", SHARDED, "train.batch_norm=synchronised", *told, ranks=2)
    assert differs(shared, alone) is None


def test_a_detector_is_sharded_too(tmp_path: Path) -> None:
    """Its pyramid and heads are called by the model's own methods, not only block after block."""
    told = ("train.batch=8", "synthetic.train=16", "synthetic.validation=8")
    ddp = trained(tmp_path / "data", *told, ranks=2, workload="extreme-weather")
    shared = trained(tmp_path / "sharded", SHARDED, *told, ranks=2, workload="extreme-weather")
    assert differs(shared, ddp, steps=2) is None
