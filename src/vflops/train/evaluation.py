"""Evaluation of a model on a split of the data, which the ranks divide between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflops.train.ensemble.predictions import KEPT_COLUMNS
from vflops.train.loader import Request, loader
from vflops.train.parallel.rank_group import RankGroup
from vflops.workloads.contract.workload import Indices, Inputs, Split, Summary, Workload


@dataclass(frozen=True)
class Outcome:
    """The result of an evaluation."""

    quality: float
    evaluated: int
    """Number of samples evaluated, each counted once."""
    summaries: list[Summary]
    """One summary per rank."""
    loss: float | None = None
    """The mean loss of the samples; None if the workload does not measure it."""

    @property
    def finite_loss(self) -> float | None:
        """The loss if it is a finite number, otherwise None."""
        return self.loss if self.loss is not None and math.isfinite(self.loss) else None


class LoopEvaluation(Protocol):
    """An evaluation during training."""

    def __call__(self, predict: Callable[..., Tensor | None]) -> Outcome:
        """Evaluate the predictions of ``predict``."""

    def first_batch(self, predict: Callable[..., Tensor | None]) -> None:
        """Predict one batch and discard the result."""


class CollectedPredictions:
    """A rank's predictions with the samples' positions and true labels, in host memory."""

    def __init__(self) -> None:
        self._batches: list[tuple[Tensor, ...]] = []
        self.columns = 0
        """Number of class probabilities per sample if only the largest are kept; otherwise 0."""

    @property
    def samples(self) -> int:
        """Number of samples, which is 0 on a rank without any."""
        return sum(len(batch[0]) for batch in self._batches)

    def add(self, positions: Tensor, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        """Add the valid samples of a batch, not its padding."""
        kept = predictions.float()
        if kept.ndim == 2 and kept.shape[1] > KEPT_COLUMNS:
            self.columns = kept.shape[1]
            kept = _largest_columns(kept)
        columns = (positions, kept, *inputs[1:])
        self._batches.append(tuple(column[valid].cpu() for column in columns))

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return positions, predictions and each part of the true labels."""
        return tuple(torch.cat(column).numpy() for column in zip(*self._batches, strict=True))


def _largest_columns(table: Tensor) -> Tensor:
    """Return the columns and values of each row's largest values, descending; ties by column."""
    values, columns = table.sort(dim=1, descending=True, stable=True)
    return torch.stack([columns[:, :KEPT_COLUMNS].float(), values[:, :KEPT_COLUMNS]], -1)


class Evaluation:
    """Evaluates in batches of equal size; the last one is padded, but padding is not counted."""

    def __init__(
        self,
        workload: Workload,
        group: RankGroup,
        device: torch.device,
        prepare: Callable[[tuple[Tensor, ...]], Inputs],
        batch: int,
        split: Split = "validation",
        indices: Indices | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        """``tick`` is called for each batch, as a sign of progress."""
        self._workload, self._group, self._device, self._prepare = workload, group, device, prepare
        self._tick = tick
        self._samples = workload.samples(split)
        self._indices = np.arange(len(self._samples)) if indices is None else indices
        self._batch = min(batch, len(self._indices))
        self._positions = torch.arange(self._batch, device=device)

    def __call__(
        self, predict: Callable[..., Tensor | None], collected: CollectedPredictions | None = None
    ) -> Outcome:
        """Evaluate the predictions of ``predict``, and add them to ``collected``."""
        meter = self._workload.meter(self._device)
        batches = loader(self._samples, self._requests(), self._prepare_batch, self._device)
        try:
            with torch.no_grad():
                for start, inputs in zip(self._starts(), batches, strict=True):
                    self._tick()
                    valid = self._positions < len(self._indices) - start
                    predictions = predict(*inputs)
                    if predictions is None:
                        continue
                    meter.update(predictions, inputs, valid)
                    if collected is not None:
                        collected.add(self._positions + start, predictions, inputs, valid)
        finally:
            batches.close()
        self._tick()
        summaries = self._group.gather(meter.summary())
        self._tick()
        return Outcome(
            self._workload.quality(summaries),
            len(self._indices),
            summaries,
            self._workload.validation_loss(summaries),
        )

    def first_batch(self, predict: Callable[..., Tensor | None]) -> None:
        """Predict one batch and discard the result, so that compilation is not timed later."""
        batches = loader(
            self._samples, itertools.islice(self._requests(), 1), self._prepare_batch, self._device
        )
        try:
            with torch.no_grad():
                for inputs in batches:
                    predict(*inputs)
        finally:
            batches.close()

    def _prepare_batch(self, batch: tuple[Tensor, ...], draws: Tensor | None) -> Inputs:
        return self._prepare(batch)

    def _starts(self) -> range:
        """Return the first positions of this rank's batches; all ranks have as many."""
        step = self._batch * self._group.shares
        first = self._group.share * self._batch
        rounds = -(-len(self._indices) // step)
        return range(first, first + rounds * step, step)

    def _requests(self) -> Iterator[Request]:
        for start in self._starts():
            positions = np.arange(start, start + self._batch, dtype=np.int64)
            yield Request(self._indices[np.minimum(positions, len(self._indices) - 1)], None)
