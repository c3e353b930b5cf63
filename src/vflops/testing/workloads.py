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
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from vflops.config.settings import CountSettings, MicroSettings
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.data.batch_memory import BatchMemory
from vflops.data.sampler import uniforms
from vflops.extensions import import_object
from vflops.metrics import time_to_quality
from vflops.record.formats.job import DataFacts
from vflops.record.readout.contents import Contents
from vflops.results.score.training_score import training_scores
from vflops.run import pipeline
from vflops.testing.specs import SpecConformance
from vflops.workloads.contract.registry import workloads
from vflops.workloads.contract.run_settings import load, profile
from vflops.workloads.contract.workload import Inputs, Split, Workload

__all__ = ["SpecConformance", "WorkloadConformance"]

_SEED = 3
_Indices = np.ndarray[Any, np.dtype[np.int64]]


class WorkloadConformance(SpecConformance):
    """Tests for workloads that vflops trains itself, with their profile ``tiny``."""

    batch: ClassVar[int] = 8
    """The batch size of the tests."""
    overfit_steps: ClassVar[int] = 30
    overfit_rate: ClassVar[float] = 0.01
    """The learning rate of Adam when overfitting one batch."""
    shorter: ClassVar[tuple[str, ...]] = ()
    """Settings, as for ``--set``, that shorten the complete run if it would take long."""

    def perfect(self, inputs: Inputs) -> Tensor | None:
        """Return the predictions of a perfect model; None if they are not known."""
        return None

    @pytest.fixture
    def cache(
        self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> Path:
        """The data cache of all tests, separate from the user's."""
        folder = os.environ.get("VFLOPS_CACHE") or tmp_path_factory.getbasetemp() / "vflops-cache"
        monkeypatch.setenv("VFLOPS_CACHE", str(folder))
        return Path(folder)

    @pytest.fixture
    def facts(self, cache: Path) -> DataFacts:
        """The data of profile tiny."""
        return self._prepare_data()

    @pytest.fixture
    def workload(self, facts: DataFacts) -> Workload:
        """The workload with its data opened."""
        created: Workload = self.spec.load_code().create(self.spec.profile("tiny"), facts)
        return created

    def test_its_data_is_reproducible(
        self, facts: DataFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every machine trains on the same samples."""
        monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))
        second = self._prepare_data()
        assert second.fingerprint == facts.fingerprint
        assert (second.train, second.validation) == (facts.train, facts.validation)
        assert facts.train > 0 and facts.validation > 0

    @pytest.mark.parametrize("split", ["train", "validation"])
    def test_a_sample_does_not_depend_on_the_batch(
        self, workload: Workload, facts: DataFacts, split: Split
    ) -> None:
        """Indices may be in any order, repeated and read-only, like those of the sampler."""
        size = len(workload.samples(split))
        assert size == (facts.train if split == "train" else facts.validation)
        indices = np.array([size - 1, 0, size // 2, 0], dtype=np.int64)
        indices.flags.writeable = False
        together = self._inputs(workload, indices, split)
        for row, index in enumerate(indices):
            alone = self._inputs(workload, np.array([index], dtype=np.int64), split)
            for batched, single in zip(together, alone, strict=True):
                torch.testing.assert_close(batched[row], single[0])

    def test_inputs_are_as_specified(self, workload: Workload) -> None:
        """Inputs have the shapes and types of ``input_specs``, and a batch dimension."""
        specs = workload.input_specs()
        assert 1 <= workload.model_inputs <= len(specs)
        for draws in (self._draws(workload), None):
            inputs = self._batch(workload, draws)
            assert len(inputs) == len(specs)
            for tensor, spec in zip(inputs, specs, strict=True):
                assert tuple(tensor.shape) == (self.batch, *spec.shape)
                assert str(tensor.dtype) == f"torch.{spec.dtype}"
                assert not tensor.is_floating_point() or tensor.isfinite().all()

    def test_augmentation_depends_only_on_the_draws(self, workload: Workload) -> None:
        """Augmentation is the same after resuming, and whichever rank has a sample."""
        draws = self._draws(workload)
        if draws is None:
            pytest.skip("the workload does not augment its samples")
        torch.manual_seed(1)
        first = self._batch(workload, draws)
        torch.manual_seed(2)
        second = self._batch(workload, draws)
        for a, b in zip(first, second, strict=True):
            assert torch.equal(a, b)
        indices, half = self._indices(workload), self.batch // 2
        part = self._inputs(workload, indices[half:], "train", draws[half:])
        for whole, tail in zip(first, part, strict=True):
            torch.testing.assert_close(whole[half:], tail)
        moved = self._batch(workload, (draws + 0.37) % 1)
        changed = any(not torch.equal(a, b) for a, b in zip(first, moved, strict=True))
        assert changed, f"none of the {workload.draws} draws per sample has an effect"

    def test_its_weights_depend_only_on_the_seed(self, workload: Workload) -> None:
        """All ranks start with the same model."""
        one, other = self._model(workload), self._model(workload)
        for name, weight in one.state_dict().items():
            assert torch.equal(weight, other.state_dict()[name]), name

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
        predictions = self._predict(workload, inputs, _SEED)
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
        folder = pipeline.start(tmp_path, self.spec.name, settings, pipeline.RunObserver())
        assert folder.history(0).state.complete
        (score,) = training_scores(Contents(folder))
        assert score.complete and score.samples_trained > 0
        assert score.speed is not None and score.speed.vflops is not None
        assert sum(score.phases.values()) == pytest.approx(score.wall_s)

    def _prepare_data(self) -> DataFacts:
        code, settings = self.spec.load_code(), self.spec.profile("tiny")
        facts: DataFacts = code.prepare_data(settings, lambda text, done, whole: None)
        return facts

    def _indices(self, workload: Workload) -> _Indices:
        return np.arange(self.batch, dtype=np.int64) * 7 % len(workload.samples("train"))

    def _draws(self, workload: Workload) -> Tensor | None:
        if not workload.draws:
            return None
        return torch.from_numpy(uniforms(_SEED, 0, self.batch, workload.draws))

    def _inputs(
        self,
        workload: Workload,
        indices: _Indices,
        split: Split,
        draws: Tensor | None = None,
    ) -> Inputs:
        batch = workload.samples(split).read(indices, BatchMemory())
        return workload.inputs(batch, draws, torch.float32)

    def _batch(self, workload: Workload, draws: Tensor | None) -> Inputs:
        return self._inputs(workload, self._indices(workload), "train", draws)

    def _model(self, workload: Workload, seed: int = _SEED) -> torch.nn.Module:
        torch.manual_seed(seed)
        return workload.model().train()

    def _loss(self, workload: Workload, model: torch.nn.Module, inputs: Inputs) -> Tensor:
        return workload.loss(model(*inputs[: workload.model_inputs]), inputs)

    def _predict(self, workload: Workload, inputs: Inputs, seed: int) -> Tensor:
        model = self._model(workload, seed).eval()
        with torch.no_grad():
            return workload.predict(model(*inputs[: workload.model_inputs]))

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
