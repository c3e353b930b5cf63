"""The backend of PyTorch computes what a plain loop of PyTorch does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.config.training import TrainSettings
from vflops.record.formats.job import DataFacts
from vflops.testing.backends import BackendConformance
from vflops.train.backends.array_backend import Recipe
from vflops.train.backends.torch_backend import TorchBackend
from vflops.train.parallel.parallel_plan import SingleRank
from vflops.train.precision import Precision
from vflops.workloads.contract.classifier import Arrays, Classifier
from vflops.workloads.contract.workload import Inputs
from vflops.workloads.image_classification.settings import ImageSettings, ResNetSettings
from vflops.workloads.image_classification.workload import ImageClassification

CPU = torch.device("cpu")


class Described(ImageClassification):
    """Image classification with the network of a classifier, from given weights."""

    def __init__(self, classifier: Classifier, weights: Arrays) -> None:
        network = ResNetSettings.model_validate(
            {"blocks": classifier.blocks, "width": classifier.width, "stem": classifier.stem}
        )
        settings = ImageSettings(
            size=classifier.size,
            resize=classifier.size,
            network=network,
            label_smoothing=classifier.label_smoothing,
        )
        facts: dict[str, int | float | str] = {"classes": classifier.classes}
        super().__init__(
            settings,
            DataFacts(path="", synthetic=True, fingerprint="", train=0, validation=0, facts=facts),
        )
        self._weights = weights

    def initial_weights(self, seed: int) -> Arrays:
        return self._weights


class DoubleDescribed(Described):
    """The same in double precision: nothing is rounded to float32."""

    def model(self) -> nn.Module:
        return super().model().double()

    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        smoothing = self._settings.label_smoothing
        return functional.cross_entropy(outputs, inputs[1], label_smoothing=smoothing)


class TestConformance(BackendConformance):
    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> TorchBackend:
        settings = TrainSettings(
            momentum=recipe.momentum, nesterov=recipe.nesterov, weight_decay=recipe.weight_decay
        )
        kind = DoubleDescribed if recipe.precision == "fp64" else Described
        precision = Precision.named("fp32", CPU)  # leaves tensors as they are
        workload = kind(classifier, weights)
        return TorchBackend(settings, workload, SingleRank(), precision, CPU, seed=0)


class Divided(SingleRank):
    """A plan in which no rank has the whole model."""

    commits_alone = False
    ranks = 4


def backend(plan: SingleRank) -> TorchBackend:
    workload = ImageClassification(
        ImageSettings(size=8, resize=8, network=ResNetSettings(blocks=(1,), width=4, stem="small")),
        DataFacts(
            path="",
            synthetic=True,
            fingerprint="",
            train=0,
            validation=0,
            facts={"classes": 2},
        ),
    )
    return TorchBackend(TrainSettings(), workload, plan, Precision.named("fp32", CPU), CPU, seed=0)


def test_a_model_is_used_in_evaluation_without_gradients() -> None:
    whole = backend(SingleRank())
    assert whole.no_model_reason is None

    def use(model: nn.Module) -> tuple[bool, bool]:
        return model.training, torch.is_grad_enabled()

    assert whole.use_model(use) == (False, False)
    assert whole.use_model(lambda model: model).training


def test_a_divided_model_is_not_used() -> None:
    assert backend(Divided()).no_model_reason == "the model is divided between 4 ranks"
