"""Data parallelism: ranks that share a batch train as one rank that has the whole of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from train_runs import evaluations, losses, planned, run_ranks

from vflops.record.events import Log


def trained(place: Path, *assignments: str, ranks: int = 1) -> Log:
    # Small steps: with large ones a rounding that turns a ReLU on or off grows tenfold in a few.
    short = ("train.epochs=1", "train.warmup_epochs=0", "train.learning_rate=0.01")
    folder = planned(place, f"train.ranks={ranks}", *short, *assignments)
    return run_ranks(folder, ranks)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """One rank, the whole batch, plain batch norm."""
    return trained(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def ghosts(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """One rank, batch norm over each half of the batch."""
    return trained(tmp_path_factory.mktemp("ghosts"), "train.ghosts=2")


def agree(one: Log, other: Log) -> bool:
    """Whether losses are the same to float tolerance, and qualities up to two samples."""
    assert len(losses(one)) == len(losses(other)) == 8
    assert all(each.evaluated == 60 for each in evaluations(one))
    qualities = [[each.quality for each in evaluations(log)] for log in (one, other)]
    return near(one, other) and qualities[0] == pytest.approx(qualities[1], abs=2 / 60)


def near(one: Log, other: Log) -> bool:
    """Whether the losses agree; rounding doubles with every step."""
    return losses(one) == pytest.approx(losses(other), rel=1e-3)


def test_two_ranks_with_synchronised_batch_norm_train_as_one(alone: Log, tmp_path: Path) -> None:
    assert agree(trained(tmp_path, "train.batch_norm=synchronised", ranks=2), alone)


def test_two_ranks_with_local_batch_norm_train_as_one_with_ghosts(
    ghosts: Log, tmp_path: Path
) -> None:
    assert agree(trained(tmp_path, ranks=2), ghosts)


def test_accumulation_trains_as_one_batch_with_ghosts(ghosts: Log, tmp_path: Path) -> None:
    """Each part of a batch has its own statistics, as a ghost has."""
    assert near(trained(tmp_path, "train.accumulate=2"), ghosts)


def test_ghosts_are_not_the_whole_batch(alone: Log, ghosts: Log) -> None:
    """Else the tests above would hold whatever batch norm did."""
    assert not near(ghosts, alone)
