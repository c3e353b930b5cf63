"""Trainings whose gradients are averaged in other modes and precisions than DDP's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from train_runs import losses, planned, run_ranks

from vflops.metrics.exchange import bytes_sent
from vflops.record.events import Log
from vflops.record.training import Exchanged, JobStarted


def trained(place: Path, *assignments: str, ranks: int) -> Log:
    told = [f"train.{each}" for each in ("warmup_epochs=0", *assignments)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vflops.train.placement.here", lambda *_: (ranks, False))  # cores or not
        folder = planned(place, f"train.ranks={ranks}", *told)
    return run_ranks(folder, ranks)


# Small steps: with large ones a rounding that turns a ReLU on or off grows tenfold in a few.
SHORT = ("epochs=1", "learning_rate=0.002")
"""8 steps."""
LONG = ("epochs=2", "learning_rate=0.01")
"""16 of them."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Two ranks, by DDP's own all-reduce."""
    return trained(tmp_path_factory.mktemp("two"), *LONG, ranks=2)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Four of them."""
    return trained(tmp_path_factory.mktemp("four"), *SHORT, ranks=4)


def exchanged(log: Log) -> Exchanged:
    """What was sent."""
    return next(event.payload(Exchanged) for event in log.events if event.kind == "exchange")


def parameters(log: Log) -> int:
    started = next(event.payload(JobStarted) for event in log.events if event.kind == "job")
    assert started.parameters is not None
    return started.parameters


@pytest.mark.parametrize("mode", ["hierarchical", "torus"])
def test_every_mode_trains_as_all_reduce_does(four: Log, tmp_path: Path, mode: str) -> None:
    log = trained(tmp_path, f"communication.mode={mode}", *SHORT, ranks=4)
    assert len(losses(log)) == 8
    assert losses(log) == pytest.approx(losses(four), rel=1e-4)
    sent, formula = exchanged(log), bytes_sent(mode, "fp32", 4, 2, parameters(log))
    assert (sent.bytes_near, sent.bytes_far) == (8 * formula.near, 8 * formula.far)


@pytest.mark.parametrize(("precision", "share"), [("bf16", 0.5), ("int8", 0.25), ("powersgd", 0.8)])
def test_narrow_gradients_train_nearly_as_well(
    two: Log, tmp_path: Path, precision: str, share: float
) -> None:
    log = trained(tmp_path, f"communication.precision={precision}", *LONG, ranks=2)
    mine, plain = losses(log), losses(two)
    assert mine == pytest.approx(plain, rel=0.05)
    assert mine != plain
    assert sum(mine[-4:]) < sum(mine[:4])
    full = 16 * bytes_sent("all-reduce", "fp32", 2, 2, parameters(log)).all
    assert exchanged(log).bytes_near <= 1.01 * share * full


def test_plain_exchanges_are_counted_too(two: Log) -> None:
    sent, formula = exchanged(two), bytes_sent("all-reduce", "fp32", 2, 2, parameters(two))
    assert (sent.mode, sent.precision, sent.steps) == ("all-reduce", "fp32", 16)
    assert (sent.bytes_near, sent.bytes_far) == (16 * formula.near, 0)
