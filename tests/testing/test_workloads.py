"""The conformance suite finds what is wrong with a workload: each fault by its test."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict
from torch import Tensor, nn

from vflops.config.training import WorkloadSettings
from vflops.counting.capture import InputSpec
from vflops.data.batch_memory import BatchMemory
from vflops.errors import UsageError
from vflops.record.formats.job import DataFacts
from vflops.testing.samples import compared_indices
from vflops.testing.workloads import WorkloadConformance
from vflops.workloads.contract.code import Progress
from vflops.workloads.contract.registry import workload as find
from vflops.workloads.contract.spec import Quality
from vflops.workloads.contract.workload import Indices, Inputs, Meter, Samples, Split, Summary
from vflops.workloads.image_classification.data import ImageSamples
from vflops.workloads.image_classification.quality import Top1Meter
from vflops.workloads.image_classification.settings import ImageSettings
from vflops.workloads.image_classification.workload import ImageClassification

GOOD = find("image-classification")
HERE = "tests.testing.test_workloads"


class IdleLayer(ImageClassification):
    """A layer that nothing uses."""

    def model(self) -> nn.Module:
        model = super().model()
        model.idle = nn.Linear(2, 2)
        return model


class InfiniteLoss(ImageClassification):
    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        return super().loss(outputs, inputs) / 0


class WrongLabels(ImageClassification):
    """Learns nothing: the loss does not depend on what the model says of each class."""

    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        return super().loss(outputs * 1e-12, inputs)


class OwnRandomness(ImageClassification):
    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        images, labels = super().inputs(batch, draws, dtype)
        return images + torch.randn_like(images), labels


class IdleDraws(ImageClassification):
    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        return super().inputs(batch, None, dtype)


class OwnSeed(ImageClassification):
    def model(self) -> nn.Module:
        torch.seed()
        return super().model()


class WrongShape(ImageClassification):
    def input_specs(self) -> Sequence[InputSpec]:
        return InputSpec((3, 20, 20)), InputSpec((), "int64")


class WrongType(ImageClassification):
    def input_specs(self) -> Sequence[InputSpec]:
        return InputSpec((3, 16, 16)), InputSpec((), "int32")


class NewData(ImageClassification):
    @classmethod
    def prepare_data(cls, settings: WorkloadSettings, progress: Progress) -> DataFacts:
        facts = super().prepare_data(settings, progress)
        return facts.model_copy(update={"fingerprint": os.urandom(32).hex()})


class MeanOfMeans(ImageClassification):
    def quality(self, summaries: Sequence[Summary]) -> float:
        return sum(float(s["right"]) / float(s["seen"]) for s in summaries) / len(summaries)


class CountsAll(Top1Meter):
    def update(self, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        super().update(predictions, inputs, torch.ones_like(valid))


class CountsFillers(ImageClassification):
    def meter(self, device: torch.device) -> Meter:
        return CountsAll(device)


class SummedLoss(ImageClassification):
    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        return super().loss(outputs, inputs) * len(inputs[1])


class IgnoredLabels(ImageClassification):
    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        return super().loss(outputs, (inputs[0], torch.zeros_like(inputs[1])))


class OwnBuffer:
    """Samples in a buffer that the next batch overwrites."""

    def __init__(self, samples: Samples) -> None:
        self._samples, self._memory = samples, BatchMemory()

    def __len__(self) -> int:
        return len(self._samples)

    def read(self, indices: Indices, memory: BatchMemory) -> tuple[Tensor, ...]:
        return self._samples.read(indices, self._memory)


class Overwritten(ImageClassification):
    def samples(self, split: Split) -> Samples:  # type: ignore[override]
        return OwnBuffer(super().samples(split))


class Views(OwnBuffer):
    """Samples as views of the data, which is all in memory."""

    def read(self, indices: Indices, memory: BatchMemory) -> tuple[Tensor, ...]:
        first, last = int(indices[0]), int(indices[-1])
        images, labels = self._all
        return images[first : last + 1], labels[first : last + 1]

    @cached_property
    def _all(self) -> tuple[Tensor, Tensor]:
        return torch.rand(len(self), 3, 16, 16), torch.zeros(len(self), dtype=torch.int64)


class ReturnsViews(ImageClassification):
    def open_samples(self, split: Split) -> Any:
        return Views(super().open_samples(split))


class TrainsOnValidation(ImageClassification):
    """Validation drawn like training: the first samples of one are those of the other."""

    def samples(self, split: Split) -> ImageSamples:
        return super().samples("train")


class InPlace(ImageClassification):
    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        batch[0].add_(1)
        return super().inputs(batch, draws, dtype)


class Drops(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x)  # by default also in evaluation


class DropsInEvaluation(ImageClassification):
    def model(self) -> nn.Module:
        return nn.Sequential(super().model(), Drops())


class BatchStatistics(ImageClassification):
    def model(self) -> nn.Module:
        model = super().model()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean = module.running_var = None
        return model


class OtherSamples(ImageClassification):
    """Samples that no seed determines, though the fingerprint says so."""

    @cached_property
    def _offset(self) -> float:
        return float(np.random.default_rng().random())

    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        images, labels = super().inputs(batch, draws, dtype)
        return images + self._offset, labels


class Lenient(ImageSettings):
    model_config = ConfigDict(extra="ignore")


def first(predictions: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return predictions[0]


def double(predictions: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return 2 * predictions[0]


def suite_of(code: type[ImageClassification] = ImageClassification, **changes: Any) -> Any:
    """The conformance suite of image classification with a fault in it."""

    class Suite(WorkloadConformance):
        spec = replace(GOOD, code=f"{HERE}:{code.__name__}", **changes)

        def perfect(self, inputs: Inputs) -> Tensor:
            return nn.functional.one_hot(inputs[1], 4).float()

    return Suite()


@pytest.fixture
def facts() -> DataFacts:
    return ImageClassification.prepare_data(GOOD.profile("tiny"), lambda text, done, whole: None)


@pytest.mark.parametrize(
    ("code", "test"),
    [
        (IdleLayer, "test_every_parameter_has_a_gradient"),
        (InfiniteLoss, "test_every_parameter_has_a_gradient"),
        (WrongLabels, "test_it_overfits_a_batch"),
        (OwnRandomness, "test_augmentation_depends_only_on_the_draws"),
        (IdleDraws, "test_augmentation_depends_only_on_the_draws"),
        (OwnSeed, "test_its_weights_depend_only_on_the_seed"),
        (WrongShape, "test_inputs_are_as_specified"),
        (WrongType, "test_inputs_are_as_specified"),
        (MeanOfMeans, "test_quality_does_not_depend_on_how_samples_are_split"),
        (CountsFillers, "test_quality_does_not_depend_on_how_samples_are_split"),
    ],
)
def test_a_fault_of_the_code_is_found(
    code: type[ImageClassification], test: str, facts: DataFacts
) -> None:
    check: Callable[..., None] = getattr(suite_of(code), test)
    with pytest.raises(AssertionError):
        check(code.create(GOOD.profile("tiny"), facts))
    check(ImageClassification.create(GOOD.profile("tiny"), facts))  # without the fault it passes


@pytest.mark.parametrize(
    ("code", "test", "message"),
    [
        (SummedLoss, "test_the_loss_is_a_mean", "a mean over the samples, not a sum"),
        (IgnoredLabels, "test_training_depends_on_the_targets", "the loss ignores them"),
        (InPlace, "test_inputs_do_not_change_the_batch", "changes the batch in place"),
        (
            DropsInEvaluation,
            "test_predictions_depend_only_on_the_sample",
            "predictions are random in evaluation",
        ),
        (
            BatchStatistics,
            "test_predictions_depend_only_on_the_sample",
            "statistics in evaluation",
        ),
    ],
)
def test_a_quiet_fault_is_found_and_named(
    code: type[ImageClassification], test: str, message: str, facts: DataFacts
) -> None:
    with pytest.raises(AssertionError, match=message):
        getattr(suite_of(code), test)(code.create(GOOD.profile("tiny"), facts))


@pytest.mark.parametrize("code", [Overwritten, ReturnsViews])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_samples_that_are_not_copies_are_found(
    code: type[ImageClassification], split: Split, facts: DataFacts
) -> None:
    faulty = code.create(GOOD.profile("tiny"), facts)
    with pytest.raises(AssertionError, match=r"is the same memory.*copy the samples"):
        suite_of(code).test_samples_are_copies(faulty, split)


def test_validation_samples_that_were_trained_on_are_found(facts: DataFacts) -> None:
    faulty = TrainsOnValidation.create(GOOD.profile("tiny"), facts)
    with pytest.raises(AssertionError, match="validation samples are also training samples"):
        suite_of(TrainsOnValidation).test_no_sample_is_in_two_splits(faulty, facts)


def test_large_splits_are_compared_at_their_start_and_throughout() -> None:
    assert compared_indices(3).tolist() == [0, 1, 2]
    indices = compared_indices(1_000_000)
    assert len(set(indices.tolist())) == len(indices) == 4096
    assert indices[2047] == 2047 and indices[-1] == 999_999
    assert np.diff(indices).max() < 500


def test_samples_that_change_behind_their_fingerprint_are_found(
    facts: DataFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError, match="the same fingerprint has other samples"):
        suite_of(OtherSamples).test_its_data_is_reproducible(facts, tmp_path, monkeypatch)


def test_unknown_counting_rules_are_found() -> None:
    with pytest.raises(UsageError, match="no-such-rules"):
        suite_of(rules="no-such-rules").test_its_counting_rules_are_installed()


def test_data_that_changes_is_found(
    facts: DataFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError):
        suite_of(NewData).test_its_data_is_reproducible(facts, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["first", "double"])
def test_a_combination_that_is_none_is_found(name: str, facts: DataFacts) -> None:
    whole = ImageClassification.create(GOOD.profile("tiny"), facts)
    with pytest.raises(AssertionError):
        suite_of(combine=f"{HERE}:{name}").test_predictions_combine(whole)


def test_the_wrong_direction_is_found(facts: DataFacts) -> None:
    whole = ImageClassification.create(GOOD.profile("tiny"), facts)
    upside_down = suite_of(quality=Quality("top-1 accuracy", "lower", 5))
    with pytest.raises(AssertionError):
        upside_down.test_a_perfect_model_reaches_the_target(whole)


def test_a_description_that_needs_torch_is_found() -> None:
    with pytest.raises(AssertionError, match="imports torch"):
        suite_of(
            combine="vflops.workloads.contract.workload:x"
        ).test_its_description_does_not_import_torch()


@pytest.mark.parametrize(
    ("changes", "test"),
    [
        ({"settings": Lenient}, "test_its_settings_survive_a_round_trip"),
        ({"name": "My Workload"}, "test_it_has_a_name_and_a_title"),
        ({"quality": Quality("accuracy", "higher", 0)}, "test_its_quality_is_valid"),
    ],
)
def test_a_fault_of_the_description_is_found(changes: dict[str, Any], test: str) -> None:
    check = getattr(suite_of(**changes), test)
    with pytest.raises(AssertionError):
        check(*(["tiny"] if "settings" in test else []))


def test_settings_that_ignore_a_misspelling_are_found() -> None:
    lenient = suite_of(settings=Lenient, profiles={"tiny": Lenient})
    with pytest.raises(pytest.fail.Exception):
        lenient.test_an_unknown_setting_is_refused()


def test_what_is_not_installed_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="not installed"):
        suite_of(name="nobody-has-it").test_it_trains_and_scores(tmp_path, tmp_path)
