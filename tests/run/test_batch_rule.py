"""The batch of a profile with several ranks, the same in run, plan and scale."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflops.errors import UsageError
from vflops.run.validate import check_batch
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.experiment import Experiment
from vflops.studies.scale.scale_result import Size
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import load, profile, workload_settings


@pytest.mark.parametrize(
    ("name", "profile_name", "batch", "rate"),
    [
        ("image-classification", "laptop", 64, 0.1),
        ("image-classification", "gpu", 512, 0.512),
        ("image-classification", "reference", 8 * 256, 2.048),
        ("extreme-weather", "reference", 8 * 8, 0.04),
        ("automl", "aiperf", 8 * 448, 0.1),
    ],
)
def test_eight_ranks_have_the_same_batch_and_rate_in_run_and_scale(
    tmp_path: Path, name: str, profile_name: str, batch: int, rate: float
) -> None:
    base = profile(profile_name, [name])
    run = workload_settings(load(base, None, ["train.ranks=8"]))[name].train
    axis = axis_of("workers" if name == "automl" else "weak")
    kept = load(base, None, [], keep_batch_per_rank=True)
    point = Experiment(tmp_path, name, axis, (Size(1, 8),), kept).point_settings(Size(1, 8))
    scaled = workload_settings(point)[name].train
    assert (run.batch, scaled.batch) == (batch, batch)
    assert (run.peak_rate, scaled.peak_rate) == pytest.approx((rate, rate))
    assert run.batch_per_rank is scaled.batch_per_rank is None


@pytest.mark.parametrize(
    ("name", "profile_name", "ranks", "samples", "said", "hint"),
    [
        ("image-classification", "laptop", 16, 4000, "16 ranks leave 4 samples a rank", "ranks 8 "),
        ("extreme-weather", "gpu", 4, 800, "4 ranks leave 4 samples a rank", "ranks 2 "),
        ("extreme-weather", "reference", 256, 35040, "256 ranks leave 17 steps", "ranks 219 "),
    ],
)
def test_a_batch_that_many_ranks_do_not_suit_is_refused_with_the_ranks_that_do(
    name: str, profile_name: str, ranks: int, samples: int, said: str, hint: str
) -> None:
    settings = load(profile(profile_name, [name]), None, [f"train.ranks={ranks}"])
    with pytest.raises(UsageError, match=said) as error:
        check_batch(settings, workload(name), workload_settings(settings)[name].train, samples)
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize(
    ("name", "profile_name", "changes"),
    [
        ("image-classification", "laptop", ["train.ranks=8"]),
        ("image-classification", "laptop", ["train.ranks=16", "train.batch=128"]),  # the user's
        ("extreme-weather", "laptop", ["train.ranks=2"]),  # fewer than 8 with one rank, too
        ("image-classification", "reference", ["train.ranks=16"]),
    ],
)
def test_other_batches_are_accepted(name: str, profile_name: str, changes: list[str]) -> None:
    settings = load(profile(profile_name, [name]), None, changes)
    train = workload_settings(settings)[name].train
    check_batch(settings, workload(name), train, 1_281_167)
