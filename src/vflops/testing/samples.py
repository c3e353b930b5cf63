"""Conformance tests for the data of a workload: its samples, its splits and its inputs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from vflops.data.batch_memory import BatchMemory
from vflops.data.sampler import uniforms
from vflops.record.formats.job import DataFacts
from vflops.testing.specs import SpecConformance
from vflops.workloads.contract.workload import Inputs, Split, Workload

SEED = 3
"""The seed of draws and weights."""
_MAX_COMPARED = 4096
"""Samples of a split that are compared with those of another; more would take long. Half of them
are its first ones, the others are spread evenly over the split."""
Indices = np.ndarray[Any, np.dtype[np.int64]]


class SampleConformance(SpecConformance):
    """Tests for the samples of a workload in its profile ``tiny``."""

    batch: ClassVar[int] = 8
    """The batch size of the tests."""
    max_shared_share: ClassVar[float] = 0.01
    """The share of validation samples that may also be training samples, by coincidence."""

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
        return self._create(facts)

    def test_its_data_is_reproducible(
        self, facts: DataFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every machine and every rank trains on the same samples."""
        first = self._batch(self._create(facts), None)
        monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))
        second = self._prepare_data()
        assert second.fingerprint == facts.fingerprint
        assert (second.train, second.validation) == (facts.train, facts.validation)
        assert facts.train > 0 and facts.validation > 0
        for a, b in zip(first, self._batch(self._create(second), None), strict=True):
            assert torch.equal(a, b), (
                "data with the same fingerprint has other samples: draw them from a fixed seed, "
                "and compute the fingerprint from the samples"
            )

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

    @pytest.mark.parametrize("split", ["train", "validation"])
    def test_samples_are_copies(self, workload: Workload, split: Split) -> None:
        """A batch stays as it is while others are read, and changing it leaves the data alone."""
        samples = workload.samples(split)
        for count in (1, min(self.batch, len(samples))):
            indices = np.arange(count, dtype=np.int64)
            first, second = (samples.read(indices, BatchMemory()) for _ in range(2))
            for number, (a, b) in enumerate(zip(first, second, strict=True)):
                assert not _overlap(a, b), (
                    f"tensor {number} of two batches is the same memory: read() returns a view of "
                    "the data or a buffer of its own; copy the samples into memory.buffer(…)"
                )

    def test_no_sample_is_in_two_splits(self, workload: Workload, facts: DataFacts) -> None:
        """Samples that a model was trained on say nothing about its quality."""
        training_digests = list(self._digests(workload, "train"))
        trained, size = set(training_digests), len(workload.samples("train"))
        others: tuple[Split, ...] = ("validation", "test") if facts.test else ("validation",)
        for split in others:
            digests = list(self._digests(workload, split))
            shared = sum(digest in trained for digest in digests)
            assert shared <= self.max_shared_share * len(digests), (
                f"{shared} of {len(digests)} {split} samples are also training samples "
                f"({len(training_digests)} of {size} were compared): draw every split with its own "
                "seed"
            )

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

    def test_inputs_do_not_change_the_batch(self, workload: Workload) -> None:
        """The same batch gives the same inputs again."""
        batch = workload.samples("train").read(self._indices(workload), BatchMemory())
        for draws in (self._draws(workload), None):
            first = [tensor.clone() for tensor in workload.inputs(batch, draws, torch.float32)]
            second = workload.inputs(batch, draws, torch.float32)
            for number, (a, b) in enumerate(zip(first, second, strict=True)):
                assert torch.equal(a, b), (
                    f"input {number} differs when the same batch is prepared again: inputs() "
                    "changes the batch in place, or is random; it must be a pure function"
                )

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

    def _prepare_data(self) -> DataFacts:
        code, settings = self.spec.load_code(), self.spec.profile("tiny")
        facts: DataFacts = code.prepare_data(settings, lambda text, done, whole: None)
        return facts

    def _create(self, facts: DataFacts) -> Workload:
        created: Workload = self.spec.load_code().create(self.spec.profile("tiny"), facts)
        return created

    def _indices(self, workload: Workload) -> Indices:
        return np.arange(self.batch, dtype=np.int64) * 7 % len(workload.samples("train"))

    def _draws(self, workload: Workload) -> Tensor | None:
        if not workload.draws:
            return None
        return torch.from_numpy(uniforms(SEED, 0, self.batch, workload.draws))

    def _inputs(
        self,
        workload: Workload,
        indices: Indices,
        split: Split,
        draws: Tensor | None = None,
    ) -> Inputs:
        batch = workload.samples(split).read(indices, BatchMemory())
        return workload.inputs(batch, draws, torch.float32)

    def _batch(self, workload: Workload, draws: Tensor | None) -> Inputs:
        return self._inputs(workload, self._indices(workload), "train", draws)

    def _digests(self, workload: Workload, split: Split) -> Iterator[bytes]:
        """Yield the bytes that the model is given of each sample, without augmentation."""
        compared = compared_indices(len(workload.samples(split)))
        for indices in np.array_split(compared, -(-len(compared) // 64)):
            given = self._inputs(workload, indices, split)[: workload.model_inputs]
            for sample in zip(*given, strict=True):
                yield b"".join(tensor.contiguous().numpy().tobytes() for tensor in sample)


def compared_indices(size: int) -> Indices:
    """Return the indices of the samples to compare in a split of ``size`` samples."""
    if size <= _MAX_COMPARED:
        return np.arange(size, dtype=np.int64)
    first = np.arange(_MAX_COMPARED // 2, dtype=np.int64)
    spread = np.linspace(len(first), size - 1, _MAX_COMPARED - len(first)).astype(np.int64)
    return np.concatenate([first, spread])


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors share memory."""
    a, b = one.untyped_storage(), other.untyped_storage()
    first, second = a.data_ptr(), b.data_ptr()
    return first < second + b.nbytes() and second < first + a.nbytes()
