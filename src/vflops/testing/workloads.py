"""Conformance tests for workloads, which run on the CPU within seconds.

Subclass ``WorkloadConformance`` and set ``spec``::

    class TestMine(WorkloadConformance):
        spec = my_package.workload()

        def perfect(self, inputs):  # optional: the predictions of a perfect model
            return one_hot(inputs[1])

For a workload with another runner, whose code is not a ``Workload``, subclass ``SpecConformance``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from vflops.config.settings import CountSettings, MicroSettings
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.extensions import import_object
from vflops.metrics import time_to_quality
from vflops.record.formats.job import DataFacts
from vflops.record.readout.contents import Contents
from vflops.results.score.training_score import training_scores
from vflops.run import pipeline
from vflops.run.observer import RunObserver
from vflops.testing.samples import SEED, SampleConformance
from vflops.testing.specs import SpecConformance
from vflops.workloads.contract.registry import workloads
from vflops.workloads.contract.run_settings import load, profile
from vflops.workloads.contract.workload import Inputs, Workload

__all__ = ["SpecConformance", "WorkloadConformance"]


class WorkloadConformance(SampleConformance):
    """Tests for workloads that vflops trains itself, with their profile ``tiny``."""

    overfit_steps: ClassVar[int] = 30
    overfit_rate: ClassVar[float] = 0.01
    """The learning rate of Adam when overfitting one batch."""
    shorter: ClassVar[tuple[str, ...]] = ()
    """Settings, as for ``--set``, that shorten the complete run if it would take long."""

    def perfect(self, inputs: Inputs) -> Tensor | None:
        """Return the predictions of a perfect model; None if they are not known."""
        return None

    def test_its_weights_depend_only_on_the_seed(self, workload: Workload) -> None:
        """All ranks start with the same model."""
        one, other = self._model(workload), self._model(workload)
        for name, weight in one.state_dict().items():
            assert torch.equal(weight, other.state_dict()[name]), name

    def test_initial_weights_fit_the_model(self, workload: Workload) -> None:
        """They are complete, the same for a seed, and None if the model draws its own."""
        weights = workload.initial_weights(1)
        if weights is None:
            assert self.spec.classifier is None, "other frameworks need initial weights"
            return
        workload.model().load_state_dict({n: torch.tensor(array) for n, array in weights.items()})
        again = workload.initial_weights(1)
        assert again is not None
        for name, array in weights.items():
            assert array.tobytes() == again[name].tobytes(), f"{name} differs for the same seed"

    def test_every_parameter_has_a_gradient(self, workload: Workload) -> None:
        """The loss and the gradient of every trainable weight are finite."""
        model = self._model(workload)
        loss = self._loss(workload, model, self._batch(workload, self._draws(workload)))
        assert loss.ndim == 0 and math.isfinite(loss.item())
        loss.backward()
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                assert weight.grad is not None, f"{name} has no gradient"
                assert weight.grad.isfinite().all(), f"the gradient of {name} is not finite"

    def test_the_loss_is_a_mean(self, workload: Workload) -> None:
        """The learning rate and the mean over ranks must not depend on the batch size."""
        inputs = self._batch(workload, None)
        twice = tuple(torch.cat([tensor, tensor]) for tensor in inputs)
        model = self._without_dropout(self._model(workload))
        with torch.no_grad():
            one, two = (self._loss(workload, model, batch).item() for batch in (inputs, twice))
        assert two == pytest.approx(one, rel=0.1), (
            f"the loss is {one:.4g}, but {two:.4g} if every sample is in the batch twice: it must "
            "be a mean over the samples, not a sum"
        )

    def test_training_depends_on_the_targets(self, workload: Workload) -> None:
        """The loss uses the targets, which are among the inputs after the first."""
        inputs = self._batch(workload, None)
        if len(inputs) == 1:
            pytest.skip("the workload has no targets besides the input of the model")
        swapped = (inputs[0], *(tensor.roll(1, 0) for tensor in inputs[1:]))
        first, second = (self._gradient(workload, batch) for batch in (inputs, swapped))
        assert not torch.equal(first, second), (
            "the gradient stays the same if samples swap their targets: the loss ignores them"
        )

    def test_it_overfits_a_batch(self, workload: Workload) -> None:
        """Training on one batch reduces the loss, so loss, model and labels are consistent."""
        model = self._model(workload)
        inputs = self._batch(workload, None)
        optimizer = torch.optim.Adam(model.parameters(), lr=self.overfit_rate)
        losses = []
        for _ in range(self.overfit_steps):
            optimizer.zero_grad()
            loss = self._loss(workload, model, inputs)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert min(losses[-3:]) < 0.9 * losses[0], (
            f"the loss went from {losses[0]:.4g} to {losses[-1]:.4g}"
        )

    def test_its_work_is_counted(self, workload: Workload, facts: DataFacts) -> None:
        """The graph is that of the trained model, and has operations that the score counts."""
        settings = self.spec.profile("tiny")
        graph = type(workload).work(settings, facts, self.spec.name)
        assert (graph.model, graph.batch) == (self.spec.name, settings.train.rank_batch)
        assert count(graph, convention(self.spec.rules)).total.total > 0
        trained = sum(p.numel() for p in workload.model().parameters() if p.requires_grad)
        assert graph.parameter_count == trained

    def test_examples_of_its_model_become_figures(self, workload: Workload) -> None:
        """What ``exhibit_model`` returns is what the function of the spec draws, twice the same."""
        if not workload.exhibits_model:
            return
        assert self.spec.exhibit is not None, "nothing draws the examples"
        model = self._model(workload).eval()
        with torch.no_grad():
            one, again = (
                dict(workload.exhibit_model(model, torch.device("cpu"), SEED)) for _ in range(2)
            )
        assert {name: array.tobytes() for name, array in one.items()} == {
            name: array.tobytes() for name, array in again.items()
        }, "the examples of a model depend on more than the seed"
        assert import_object(self.spec.exhibit)(one)

    def test_predictions_depend_only_on_the_sample(self, workload: Workload) -> None:
        """In evaluation there is no dropout, and no statistics of the batch are used."""
        model = self._model(workload).eval()
        half = self.batch // 2
        samples, others = self._batch(workload, None), self._other_batch(workload)
        mixed = tuple(torch.cat([a[:half], b[half:]]) for a, b in zip(samples, others, strict=True))
        torch.manual_seed(1)
        first = self._predicted(workload, model, samples)
        torch.manual_seed(2)
        second = self._predicted(workload, model, samples)
        message = "predictions are random in evaluation: use dropout only if self.training is set"
        torch.testing.assert_close(second, first, msg=message)
        message = "predictions depend on the other samples of the batch: a layer uses batch "
        message += "statistics in evaluation"
        third = self._predicted(workload, model, mixed)
        torch.testing.assert_close(third[:half], first[:half], rtol=1e-3, atol=1e-4, msg=message)

    def test_predictions_combine(self, workload: Workload) -> None:
        """Combining one model's predictions keeps them, and the order of models does not matter."""
        combine = import_object(self.spec.combine)
        inputs = self._batch(workload, None)
        models = [self._predict(workload, inputs, seed).numpy() for seed in (1, 2, 3)]
        assert len(models[0]) == self.batch
        np.testing.assert_allclose(combine(models[:1]), models[0], rtol=1e-6)
        together = combine(models)
        assert together.shape == models[0].shape
        np.testing.assert_allclose(combine(models[::-1]), together, rtol=1e-5, atol=1e-7)

    def test_quality_does_not_depend_on_how_samples_are_split(self, workload: Workload) -> None:
        """The quality is the same for split batches, several ranks, an empty rank and padding."""
        inputs = self._batch(workload, None)
        predictions = self._predict(workload, inputs, SEED)
        half = self.batch // 3  # unequal parts, to detect a mean of means
        parts = [slice(0, half), slice(half, self.batch)]
        whole = self._quality(workload, predictions, inputs, [[slice(0, self.batch)]])
        assert math.isfinite(whole)
        split = [[part] for part in parts]
        for ranks in ([parts], split, split[::-1], [parts, []]):
            quality = self._quality(workload, predictions, inputs, ranks)
            assert quality == pytest.approx(whole, rel=1e-6), ranks
        first = self._quality(workload, predictions, inputs, [parts[:1]])
        meter = workload.meter(torch.device("cpu"))
        meter.update(predictions, inputs, torch.arange(self.batch) < half)
        padded = workload.quality([meter.summary()])
        assert padded == pytest.approx(first, rel=1e-6), "padding was counted"

    def test_a_perfect_model_reaches_the_target(self, workload: Workload) -> None:
        """Better predictions change the quality in the direction that ``better`` states."""
        inputs = self._batch(workload, None)
        predictions = self.perfect(inputs)
        if predictions is None:
            pytest.skip("the test class does not define `perfect`")
        quality = self._quality(workload, predictions, inputs, [[slice(0, self.batch)]])
        settings = self.spec.profile("tiny")
        better = type(workload).judged_by(settings, self.spec).better
        target = type(workload).target(settings)
        assert time_to_quality([1.0], [quality], target=target, better=better) is not None

    def test_it_trains_and_scores(self, cache: Path, tmp_path: Path) -> None:
        """A complete run with profile tiny, in separate processes."""
        if workloads().get(self.spec.name) is None:
            pytest.skip("not installed: no entry point of group vflops.workloads provides it")
        training_only = {"count": CountSettings(models=()), "micro": MicroSettings(benchmarks=())}
        settings = load(profile("tiny", [self.spec.name]), None, self.shorter)
        settings = settings.model_copy(update=training_only)
        folder = pipeline.start(tmp_path, self.spec.name, settings, RunObserver())
        assert folder.history(0).state.complete
        (score,) = training_scores(Contents(folder))
        assert score.complete and score.samples_trained > 0
        assert score.speed is not None and score.speed.vflops_capped is not None
        assert sum(score.phases.values()) == pytest.approx(score.wall_s)

    def _model(self, workload: Workload, seed: int = SEED) -> torch.nn.Module:
        torch.manual_seed(seed)
        return workload.model().train()

    def _loss(self, workload: Workload, model: torch.nn.Module, inputs: Inputs) -> Tensor:
        return workload.loss(model(*inputs[: workload.model_inputs]), inputs)

    def _gradient(self, workload: Workload, inputs: Inputs) -> Tensor:
        model = self._without_dropout(self._model(workload))
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        loss = self._loss(workload, model, inputs)
        gradients = torch.autograd.grad(loss, weights, allow_unused=True)
        return torch.cat([gradient.flatten() for gradient in gradients if gradient is not None])

    def _predict(self, workload: Workload, inputs: Inputs, seed: int) -> Tensor:
        return self._predicted(workload, self._model(workload, seed).eval(), inputs)

    def _predicted(self, workload: Workload, model: torch.nn.Module, inputs: Inputs) -> Tensor:
        with torch.no_grad():
            return workload.predict(model(*inputs[: workload.model_inputs]))

    def _other_batch(self, workload: Workload) -> Inputs:
        return self._inputs(workload, self._indices(workload)[::-1] + 1, "train")

    def _without_dropout(self, model: torch.nn.Module) -> torch.nn.Module:
        for module in model.modules():
            if isinstance(module, torch.nn.modules.dropout._DropoutNd):
                module.eval()
        return model

    def _quality(
        self, workload: Workload, predictions: Tensor, inputs: Inputs, ranks: list[list[slice]]
    ) -> float:
        summaries = []
        for parts in ranks:
            meter = workload.meter(torch.device("cpu"))
            for part in parts:
                valid = torch.ones(part.stop - part.start, dtype=torch.bool)
                meter.update(predictions[part], tuple(tensor[part] for tensor in inputs), valid)
            summaries.append(meter.summary())
        return workload.quality(summaries)
