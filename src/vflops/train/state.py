"""The state of training: the model in its backend, and the progress."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from vflops.errors import RunFailed
from vflops.metrics.quality import Better
from vflops.train.backends.backend import Backend
from vflops.train.checkpoint import CheckpointRecord, Checkpoints
from vflops.workloads.contract.workload import Inputs

Result = TypeVar("Result")


@dataclass
class TrainState:
    """A model in training and its progress."""

    backend: Backend
    checkpoints: Checkpoints
    step: int = 0
    best: float | None = None
    """The best quality so far, or the lowest loss with ``train.stop_by=loss``."""
    worse: int = 0
    """Number of evaluations since the best one."""
    _taken: int = field(default=0, init=False)
    _judged: int | None = field(default=None, init=False)
    """The step of the last evaluation in this process."""
    _before: tuple[float | None, int] = field(default=(None, 0), init=False)
    """``best`` and ``worse`` before that evaluation."""

    @property
    def warm(self) -> bool:
        """Whether this process has taken all the steps that include compilation."""
        return self._taken >= self.backend.warm_steps

    def take_step(self, parts: Sequence[Inputs], learning_rate: float) -> Tensor:
        """Take one step; return its loss, still on the device."""
        loss = self.backend.take_step(parts, learning_rate)
        self.step += 1
        self._taken += 1
        return loss

    def evaluate(self, evaluation: Callable[[Callable[..., Tensor | None]], Result]) -> Result:
        """Call ``evaluation`` with the model in evaluation mode; return its result."""
        with self.backend.evaluating():
            return evaluation(self.backend.predict)

    def since_best(self, quality: float, better: Better) -> int:
        """Return the number of evaluations since the best one, after one that gave ``quality``.

        The loss on the validation set may take the place of the quality.
        """
        self._before, self._judged = (self.best, self.worse), self.step
        is_best = self.best is None or (
            quality > self.best if better == "higher" else quality < self.best
        )
        self.best, self.worse = (quality, 0) if is_best else (self.best, self.worse + 1)
        return self.worse

    def contents(self) -> dict[str, Any] | None:
        """Return the state for a checkpoint or a commitment, on the rank that leads; else None.

        It is the state before an evaluation of this step, which is repeated after resuming. All
        ranks call it, unless the backend has ``commits_alone``.
        """
        contents = self.backend.collect()
        if contents is None:
            return None
        is_judged = self._judged == self.step
        best, worse = self._before if is_judged else (self.best, self.worse)
        return contents | {"step": self.step, "best": best, "worse": worse}

    def require_finite(self) -> None:
        """Raise ``RunFailed`` if a weight is not finite; all ranks call it."""
        if not self.backend.is_finite():
            raise RunFailed(
                f"the weights are not finite after step {self.step}; the last good checkpoint is "
                f"{self.checkpoints.latest()}",
                hint="start again with a smaller --set train.learning_rate",
            )

    def restore(
        self,
        on_bad: Callable[[str, str], None],
        committed: Collection[tuple[int, str]] | None = None,
    ) -> CheckpointRecord | None:
        """Load the newest readable checkpoint; return its record, or None if there is none.

        Raise ``RunFailed`` if its step and hash are not in ``committed``, or if it holds the state
        of another step.
        """
        checkpoint = self.checkpoints.load(on_bad, committed)
        if checkpoint is None:
            return None
        record, contents = checkpoint
        self.backend.restore(contents)
        self.step = record.step
        self.best, self.worse = contents["best"], contents["worse"]
        return record

    def weights_hash(self) -> str | None:
        """Return the SHA-256 of all weights and buffers on the first rank; None on the others."""
        state = self.backend.weights()
        if state is None:
            return None
        digest = hashlib.sha256()
        for name, tensor in sorted(state.items()):
            digest.update(name.encode())
            plain = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(plain.view(torch.uint8).numpy().data)
        return digest.hexdigest()
