"""Trainings whose gradients are averaged in other modes and precisions than DDP's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.team_runs import DEEP, Team, Trained
from tests.support.train_runs import losses, planned, run_ranks
from vflops.config.training import TrainSettings
from vflops.launch.placement import THIS_MACHINE, NodeResources
from vflops.metrics.traffic import bytes_sent
from vflops.record.formats.job_events import DataRead, Exchanged, JobStarted
from vflops.record.log.events import Log


def trained(path: Path, *assignments: str, ranks: int, **environment: str) -> Log:
    settings = [f"train.{assignment}" for assignment in ("warmup_epochs=0", *assignments)]
    with pytest.MonkeyPatch.context() as patch:
        # As many ranks as the test wants, however few cores there are.
        machine = NodeResources(THIS_MACHINE, cores=ranks)
        patch.setattr("vflops.launch.sizing.this_machine", lambda device: machine)
        folder = planned(path, f"train.ranks={ranks}", *settings)
    return run_ranks(folder, ranks, **environment)


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
    """Four ranks, in double precision."""
    return trained(tmp_path_factory.mktemp("four"), *SHORT, ranks=4, DOUBLE="1")


def exchanged(log: Log) -> Exchanged:
    """Return what was sent."""
    return next(event.payload(Exchanged) for event in log.events if event.kind == "exchange")


def parameters(log: Log) -> int:
    started = next(event.payload(JobStarted) for event in log.events if event.kind == "job")
    assert started.parameters is not None
    return started.parameters


def test_the_ranks_together_compare_every_sample_with_its_digest(two: Log) -> None:
    (read,) = (event.payload(DataRead) for event in two.events if event.kind == "data-read")
    assert read.leaked == 0
    assert {name: split.compared == split.samples for name, split in read.splits.items()} == {
        "train": True,
        "validation": True,
    }


@pytest.mark.parametrize("mode", ["hierarchical", "torus"])
def test_every_mode_trains_as_all_reduce_does(four: Log, tmp_path: Path, mode: str) -> None:
    log = trained(tmp_path, f"communication.mode={mode}", *SHORT, ranks=4, DOUBLE="1")
    assert len(losses(log)) == 8
    # These modes send the gradients in single precision.
    assert losses(log) == pytest.approx(losses(four), rel=1e-6)
    assert losses(log) != losses(four)
    sent, formula = exchanged(log), bytes_sent(mode, "fp32", 4, 2, parameters(log))
    assert (sent.bytes_near, sent.bytes_far) == (8 * formula.near, 8 * formula.far)


@pytest.mark.parametrize(("precision", "share"), [("bf16", 0.5), ("int8", 0.25), ("powersgd", 0.8)])
def test_narrow_gradients_train_and_send_less(
    two: Log, tmp_path: Path, precision: str, share: float
) -> None:
    log = trained(tmp_path, f"communication.precision={precision}", *LONG, ranks=2)
    mine, plain = losses(log), losses(two)
    assert mine[0] == plain[0]  # before the first exchange; test_average bounds what it rounds
    assert mine != plain
    assert sum(mine[-4:]) < sum(mine[:4])
    full = 16 * bytes_sent("all-reduce", "fp32", 2, 2, parameters(log)).all
    assert exchanged(log).bytes_near <= 1.01 * share * full


def test_plain_exchanges_are_counted_too(two: Log) -> None:
    sent, formula = exchanged(two), bytes_sent("all-reduce", "fp32", 2, 2, parameters(two))
    assert (sent.mode, sent.precision, sent.steps) == ("all-reduce", "fp32", 16)
    assert (sent.bytes_near, sent.bytes_far) == (16 * formula.near, 0)


def copies(mesh: tuple[int, int], communication: dict[str, str], **options: Any) -> dict[str, Any]:
    """Ranks of mode mixed whose copies average as ``communication`` says."""
    parallel = {"mode": "mixed", "mesh": mesh, **options}
    return {"ranks": mesh[0] * mesh[1], "communication": communication, "parallel": parallel}


TENSOR = {"within": "model", "split": "tensor"}
PIPED = {"accumulate": 2, "end_epoch": 3}
NARROW: dict[str, dict[str, Any]] = {
    "bf16": {**copies((2, 2), {"precision": "bf16"}), **PIPED},
    "int8": {**copies((2, 2), {"precision": "int8"}, schedule="interleaved"), **PIPED},
    "powersgd": {**copies((2, 2), {"precision": "powersgd"}, **TENSOR), "end_epoch": 6},
}
INDIRECT: dict[str, dict[str, Any]] = {
    "hierarchical": {**copies((4, 2), {"mode": "hierarchical"}, within="model"), "end_epoch": 2},
    "torus": {**copies((4, 2), {"mode": "torus"}, **TENSOR), "end_epoch": 2},
}


def test_copies_that_several_ranks_have_average_in_every_precision(tmp_path: Path) -> None:
    """In mode mixed: by stages, and by channels. PowerSGD begins after 8 of the 12 steps."""
    team = Team(tmp_path, *DEEP, "train.learning_rate=0.002", precision="single")
    trainings = team.train({name: (team.way(**way),) for name, way in NARROW.items()})
    width = {name: bytes_of_one(mine) for name, (mine, _) in trainings.items()}
    averaged = {
        name: sum(item["elements"] for item in between(mine))
        for name, (mine, _) in trainings.items()
    }
    state = trainings["int8"][0].state
    weights = sum(item.numel() for (_, key), item in state.items() if key == "momentum_buffer")
    assert averaged["bf16"] == averaged["int8"] == 6 * 2 * weights  # those of all stages, once
    assert width["bf16"] == 2
    assert 1 < width["int8"] < 1.1
    assert 2 < width["powersgd"] < 4
    for name, (mine, alone) in trainings.items():
        # Rounded gradients change the weights by the learning rate times the rounding.
        assert 1e-7 < mine.losses_far(alone) < 1e-3, name


def test_copies_that_several_ranks_have_average_in_every_mode(tmp_path: Path) -> None:
    """Over rows of copies, in double precision; only the gradients are sent in single precision."""
    team = Team(tmp_path, *DEEP, "train.learning_rate=0.002")
    trainings = team.train({name: (team.way(**way),) for name, way in INDIRECT.items()})
    for mine, alone in trainings.values():
        assert bytes_of_one(mine) == 2 * 3 / 4 * 4
        # Messages and sums are rounded by 6e-8 each, and so are the losses that are recorded.
        assert mine.far(alone) < 1e-6
        assert mine.losses_far(alone) < 1e-6


def between(run: Trained) -> list[dict[str, Any]]:
    """Return what copies sent each other; ranks of one copy average nothing."""
    return [item for item in run.all("exchange") if item["elements"]]


def bytes_of_one(run: Trained) -> float:
    """Return the bytes that a rank sends to its copies per number."""
    every = sum(item["bytes_near"] + item["bytes_far"] for item in between(run))
    return float(every / sum(item["elements"] for item in between(run)))


def test_rows_of_too_few_copies_are_refused_with_what_would_do() -> None:
    with pytest.raises(ValidationError, match=r"2 copies .* equal rows .* 4, 6, 8 … copies"):
        TrainSettings.model_validate(copies((2, 2), {"mode": "hierarchical"}, within="model"))
