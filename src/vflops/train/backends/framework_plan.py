"""Plans for frameworks that average gradients themselves.

torch's process group only carries the messages of the loop: agreement, gathered qualities and
barriers. The state of a checkpoint is that of the backend, named as PyTorch names it.
"""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vflops.config.training import TrainSettings
from vflops.metrics.traffic import bytes_sent
from vflops.record.files.document import Data
from vflops.record.formats.job_events import Exchanged
from vflops.train.backends.array_backend import ArrayBackend
from vflops.train.objective import Objective
from vflops.train.parallel.group import GroupPlan
from vflops.train.parallel.parallel_plan import ParallelPlan, SingleRank


class FrameworkModule(nn.Module):
    """Stands for the model of a backend; its only parameter is empty and names the device."""

    def __init__(self, backend: ArrayBackend, device: torch.device) -> None:
        super().__init__()
        self.backend = backend
        self.place = nn.Parameter(torch.empty(0, device=device))


class _BackendState(ParallelPlan):
    """The part of a plan that saves and restores the state of a backend."""

    def collect(self, model: nn.Module, optimizer: object) -> dict[str, Any] | None:
        """Return the state of model and optimizer on the leading rank."""
        return _backend(model).collect()

    def restore(self, contents: dict[str, Any], model: nn.Module, optimizer: object) -> None:
        """Load the state of any framework."""
        _backend(model).restore(contents)

    def full_state(self, model: nn.Module) -> dict[str, Tensor] | None:
        """Return the tensors of the model on the leading rank."""
        return _backend(model).weights()

    def synchronise_buffers(self, model: nn.Module) -> None:
        """Do nothing: a backend averages running statistics at every step."""


class FrameworkRank(_BackendState, SingleRank):
    """One rank."""


class FrameworkGroup(_BackendState, GroupPlan):
    """Every rank has the whole model and a share of each batch."""

    commits_alone = True

    def __init__(self, rank: int, ranks: int, store: str, framework: str) -> None:
        super().__init__(rank, ranks, torch.device("cpu"), store)
        self._framework = framework
        self._steps = self._parameters = 0

    def addresses(self) -> tuple[str, ...]:
        """Return ``host:port`` at which each rank can listen, the same on every rank."""
        host = "127.0.0.1" if self._local_ranks == self.ranks else socket.gethostname()
        with socket.socket() as listener:
            listener.bind(("", 0))
            address = f"{host}:{listener.getsockname()[1]}".encode()
        gathered = self._gathered(np.frombuffer(address, dtype=np.uint8))
        return tuple(np.asarray(text, dtype=np.uint8).tobytes().decode() for text in gathered)

    def averaged(self, steps: int, parameters: int) -> None:
        """Note how often gradients of so many parameters were averaged, for ``report``."""
        self._steps, self._parameters = steps, parameters

    def report(self) -> list[tuple[str, Data]]:
        """Return the traffic that a ring needs for these gradients: the framework does not say."""
        if not self._steps:
            return []
        sent = bytes_sent("all-reduce", "fp32", self.ranks, self._local_ranks, self._parameters)
        exchange = Exchanged(
            mode="all-reduce",
            precision="fp32",
            ranks=self.ranks,
            near=self._local_ranks,
            backend=self._framework,
            algorithm=None,
            reason=f"{self._framework} does not report it; the bytes are those of a ring",
            bytes_near=self._steps * sent.near,
            bytes_far=self._steps * sent.far,
            steps=self._steps,
            elements=self._steps * self.ranks * self._parameters,
        )
        return [("exchange", exchange)]

    def maximum(self, value: Tensor) -> Tensor:
        """Return ``value``, which is the same on every rank since gradients are averaged."""
        return value

    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """Never called: the backend has the model."""
        raise NotImplementedError

    def wrap(self, objective: Objective) -> nn.Module:
        """Never called: the backend has the model."""
        raise NotImplementedError

    def local_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """Never called: the backend has the model."""
        raise NotImplementedError


def framework_plan(rank: int, ranks: int, store: str, framework: str) -> ParallelPlan:
    """Return the plan of a rank."""
    return FrameworkRank() if ranks == 1 else FrameworkGroup(rank, ranks, store, framework)


def _backend(model: nn.Module) -> ArrayBackend:
    assert isinstance(model, FrameworkModule)
    return model.backend
