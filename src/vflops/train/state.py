"""All that training changes: the model, the optimizer, the scaler, the step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from vflops.errors import RunFailed
from vflops.metrics.quality import Better
from vflops.record.formats.job_events import Checkpointed
from vflops.train.checkpoint import Checkpoints
from vflops.train.parallel.factory import ParallelPlan
from vflops.train.parallel.optimizer_state import local
from vflops.train.step import RecordedStep, Step
from vflops.workloads.contract.workload import Inputs

Result = TypeVar("Result")

_PATIENCE = ("best", "worse", "judged")


@dataclass
class TrainState:
    """A model in training, and how far it is."""

    model: nn.Module
    take: Step | RecordedStep
    predict: Callable[..., Tensor | None]
    checkpoints: Checkpoints
    step: int = 0
    best: float | None = None
    """The best quality so far."""
    worse: int = 0
    """Evaluations since."""
    judged: int | None = None
    """The step of the newest evaluation: one that is repeated after a resume counts once."""
    _taken: int = field(default=0, init=False)

    @property
    def warm(self) -> bool:
        """Whether the steps that compile are behind us, in this process."""
        return self._taken >= self.take.warm_steps

    def take_step(self, parts: Sequence[Inputs], learning_rate: float) -> Tensor:
        """One step; its loss, still on the device."""
        loss = self.take(parts, learning_rate)
        self.step += 1
        self._taken += 1
        return loss

    def evaluate(self, evaluation: Callable[[Callable[..., Tensor | None]], Result]) -> Result:
        """What ``evaluation`` finds; training goes on as if nothing had happened."""
        self.model.eval()
        try:
            return evaluation(self.predict)
        finally:
            self.model.train()

    def since_best(self, quality: float, better: Better) -> int:
        """Evaluations since the best one, this one of ``quality`` included."""
        if self.judged != self.step:
            is_best = self.best is None or (
                quality > self.best if better == "higher" else quality < self.best
            )
            self.best, self.worse = (quality, 0) if is_best else (self.best, self.worse + 1)
            self.judged = self.step
        return self.worse

    def save(self, plan: ParallelPlan) -> Checkpointed | None:
        """Keep a checkpoint; weights that are not finite are not worth one.

        All ranks call it; what the rank that writes it kept, None on the others.
        """
        finite = torch.stack([local(each).isfinite().all() for each in self.model.parameters()])
        if plan.worst(1.0 - finite.all().float()) > 0:
            raise RunFailed(
                f"the weights are not finite after step {self.step}; the last good checkpoint is "
                f"{self.checkpoints.latest()}",
                hint="start again with a smaller --set train.learning_rate",
            )
        contents = plan.collect(self.model, self.take.optimizer)
        if contents is None:
            return None
        contents |= {"scaler": self.take.scaler.state_dict(), "step": self.step}
        contents |= {name: getattr(self, name) for name in _PATIENCE}
        return self.checkpoints.save(self.step, contents)

    def restore(self, plan: ParallelPlan, on_bad: Callable[[str, str], None]) -> str | None:
        """Go back to the newest good checkpoint; its name, or None when there is none."""
        found = self.checkpoints.load(on_bad)
        if found is None:
            return None
        name, contents = found
        plan.spread(contents, self.model, self.take.optimizer)
        self.take.scaler.load_state_dict(contents["scaler"])
        self.step = contents["step"]
        for each in _PATIENCE:
            setattr(self, each, contents[each])
        return name

    def weights_hash(self, plan: ParallelPlan) -> str | None:
        """The SHA-256 of all weights and buffers, by name; None on ranks that do not lead."""
        whole = plan.whole(self.model)
        if whole is None:
            return None
        digest = hashlib.sha256()
        for name, tensor in sorted(whole.items()):
            digest.update(name.encode())
            plain = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(plain.view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def peak_memory_bytes(self) -> int | None:
        """The most memory of the accelerator that was in use; None on a CPU."""
        device = next(self.model.parameters()).device
        if device.type == "cpu":
            return None
        return int(torch.accelerator.max_memory_allocated(device))
