"""Ranks with some of the layers each train as one that has all: losses, weights, statistics.

The reference is one rank that takes the same parts of a batch (``train.accumulate``) one after the
other. With one thread each they compute the same bits; copies of a model round a mean.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from train_runs import evaluations, losses, planned, run_ranks

from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.training import Exchanged, JobStarted, StagesRun
from vflops.train import placement

SHORT = (
    "synthetic.train=160",
    "synthetic.validation=32",
    "train.batch=16",
    "train.warmup_epochs=0",
    "train.learning_rate=0.001",
)
"""20 steps in two epochs."""
PIPELINE = "train.parallel.mode=pipeline"
MIXED = ("train.parallel.mode=mixed", "train.parallel.mesh=[2,2]")
HALVES, QUARTERS = "train.accumulate=2", "train.accumulate=4"
WEATHER = (
    "synthetic.train=16",
    "synthetic.validation=8",
    "train.epochs=1",
    "train.batch=8",
    HALVES,
)


@pytest.fixture(autouse=True, scope="module")
def four_cores() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "usable_cores", lambda: [0, 1, 2, 3])
        yield


def trained(
    place: Path,
    *told: str,
    ranks: int = 1,
    after: RunFolder | None = None,
    workload: str = "image-classification",
) -> RunFolder:
    """A training that came to its end; ``after``: from that one's checkpoint in the middle."""
    folder = planned(place, f"train.ranks={ranks}", *SHORT, *told, workload=workload)
    if after is not None:
        oldest = min(checkpoints(after).glob("*.pt"))
        checkpoints(folder).mkdir()
        for file in (oldest, oldest.with_suffix(".json")):
            shutil.copy(file, checkpoints(folder))
    run_ranks(folder, ranks, SLURM_CPUS_PER_TASK="1")
    return folder


def checkpoints(folder: RunFolder) -> Path:
    return folder.path / "jobs" / "1" / "checkpoint"


def flat(folder: RunFolder) -> dict[tuple[str, ...], torch.Tensor]:
    """The last weights, statistics and momenta."""
    newest = max(checkpoints(folder).glob("*.pt"))
    contents = torch.load(newest, weights_only=True)
    found: dict[tuple[str, ...], torch.Tensor]
    found = {("model", name): tensor for name, tensor in contents["model"].items()}
    for name, state in contents["optimizer"].items():
        found |= {(name, key): value for key, value in state.items()}
    return found


def agree(one: RunFolder, other: RunFolder, *, steps: int = 20, rounded: bool = False) -> None:
    """Fail where the last ``steps`` losses, or anything in the checkpoints, differ.

    ``rounded``: where sums are taken in another order, and no statistics are compared.
    """
    logs = [folder.history().jobs[1][-1] for folder in (one, other)]
    first, second = (losses(log)[-steps:] for log in logs)
    assert len(first) == len(second) == steps
    assert first == pytest.approx(second, rel=1e-4 if rounded else 1e-6)
    found, most = apart(one, other, statistics=not rounded), 1e-2 if rounded else 1e-5
    assert {name: far for name, far in found.items() if far > most} == {}
    if not rounded:
        qualities = [[each.quality for each in evaluations(log)][-1] for log in logs]
        assert qualities[0] == qualities[1]


def apart(one: RunFolder, other: RunFolder, *, statistics: bool) -> dict[tuple[str, ...], float]:
    """How far the tensors of the last checkpoints are apart, as part of their norm."""
    mine, wanted = flat(one), flat(other)
    assert mine.keys() == wanted.keys()
    return {
        name: float((tensor - wanted[name]).float().norm() / (wanted[name].float().norm() + 1e-3))
        for name, tensor in mine.items()
        if statistics or not name[1].endswith(("running_mean", "running_var", "tracked"))
    }


def stages(folder: RunFolder) -> StagesRun:
    (event,) = folder.history().events("stages", job=1)
    return event.payload(StagesRun)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """One rank, batches in two parts."""
    return trained(tmp_path_factory.mktemp("alone"), HALVES)


@pytest.fixture(scope="module")
def piped(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two ranks with a stage each."""
    return trained(tmp_path_factory.mktemp("piped"), HALVES, PIPELINE, ranks=2)


def test_a_pipeline_of_two_trains_as_one(piped: RunFolder, alone: RunFolder) -> None:
    agree(piped, alone)
    run = stages(piped)
    assert len(run.operations) == run.ranks == run.micro_batches == 2
    assert run.schedule == "1f1b" and run.bubble_theory == pytest.approx(1 / 3)
    assert run.bubble is not None and 0 < run.bubble < 1
    assert max(run.operations) < 0.6 * sum(run.operations)


def test_one_rank_goes_on_from_a_pipeline(
    piped: RunFolder, alone: RunFolder, tmp_path: Path
) -> None:
    agree(trained(tmp_path, HALVES, after=piped), alone, steps=10)


def test_an_interleaved_pipeline_goes_on_from_one_rank(alone: RunFolder, tmp_path: Path) -> None:
    told = (PIPELINE, "train.parallel.schedule=interleaved", HALVES)
    going = trained(tmp_path, *told, ranks=2, after=alone)
    agree(going, alone, steps=10)
    assert len(stages(going).operations) == 4


@pytest.mark.parametrize(("mode", "ranks"), [(PIPELINE, 2), ("train.parallel.mode=model", 3)])
def test_stages_that_fill_and_drain_train_as_one(
    mode: str, ranks: int, alone: RunFolder, tmp_path: Path
) -> None:
    """Of three ranks the second reads no samples."""
    told = (mode, "train.parallel.schedule=gpipe", HALVES)
    going = trained(tmp_path, *told, ranks=ranks, after=alone)
    agree(going, alone, steps=10)
    assert len(stages(going).operations) == ranks


@pytest.fixture(scope="module")
def quarters(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """One rank, batches in four parts."""
    return trained(tmp_path_factory.mktemp("quarters"), QUARTERS)


def test_copies_of_a_pipeline_train_as_one(tmp_path: Path, quarters: RunFolder) -> None:
    """Each copy has two quarters; statistics are the mean of the copies' own, as in mode data."""
    mixed = trained(tmp_path / "mixed", *MIXED, HALVES, ranks=4)
    agree(mixed, quarters, rounded=True)
    (sent,) = (e.payload(Exchanged) for e in mixed.history().events("exchange", job=1))
    (began,) = (e.payload(JobStarted) for e in mixed.history().events("job", job=1))
    assert began.parameters is not None
    whole = 20 * 2 * began.parameters  # the stages of all ranks
    assert (sent.ranks, sent.elements, sent.bytes_near + sent.bytes_far) == (2, whole, 4 * whole)
    data = trained(tmp_path / "data", HALVES, ranks=2)
    assert max(apart(mixed, data, statistics=True).values()) < 1e-2


def test_quarters_are_not_halves(alone: RunFolder, quarters: RunFolder) -> None:
    """Else the tests above would hold whatever batch norm did."""
    assert max(apart(alone, quarters, statistics=False).values()) > 0.1


def test_copies_with_synchronised_batch_norm_train_as_ranks_with_it(tmp_path: Path) -> None:
    """Those of mode data, which are tested against one rank: both see two quarters at once."""
    told = ("train.batch_norm=synchronised", "train.epochs=1", HALVES)
    mixed = trained(tmp_path / "mixed", *told, *MIXED, "train.parallel.within=model", ranks=4)
    data = trained(tmp_path / "data", *told, ranks=2)
    agree(mixed, data, steps=10, rounded=True)
    assert max(apart(mixed, data, statistics=True).values()) < 1e-2


def test_a_detector_in_a_pipeline_trains_as_one(tmp_path: Path) -> None:
    """The last stage has the head, and takes the boxes itself."""
    told, name = (*WEATHER, HALVES), "extreme-weather"
    shared = trained(tmp_path / "two", *told, PIPELINE, ranks=2, workload=name)
    agree(shared, trained(tmp_path / "one", *told, workload=name), steps=2)


def test_stages_that_a_model_does_not_have_are_refused_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "usable_cores", lambda: list(range(64)))
    with pytest.raises(UsageError, match="image-classification cannot be cut into 64 stages"):
        planned(tmp_path, "train.ranks=64", "train.parallel.mode=model")
