"""Data parallelism: every rank trains the whole model on its share of each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from vflops.config.parallel import CommunicationSettings
from vflops.config.training import TrainSettings
from vflops.record.files.document import Data
from vflops.train.communication import Exchange, Sent, connect, exchange_gradients
from vflops.train.normalisation import average_buffers, convert
from vflops.train.objective import Objective
from vflops.train.parallel.group import GroupPlan
from vflops.workloads.contract.workload import Inputs

_BUCKETS = 12
"""A step averages its gradients in about so many messages, of at least `_BUCKET_MB` each."""
_BUCKET_MB = 25.0


class DataParallel(GroupPlan):
    """Every rank has the whole model and a share of each batch; gradients are averaged."""

    commits_alone = has_whole_model = True
    steps_before_recording = 11
    """DDP times its first ten steps with events that cannot be recorded."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        device: torch.device,
        store: str,
        communication: CommunicationSettings,
    ) -> None:
        super().__init__(rank, ranks, device, store, communication.algorithm)
        self._communication = communication
        self._exchange: Exchange | None = None
        self._replayed = Sent()
        self.mesh = init_device_mesh(device.type, (ranks,), mesh_dim_names=("data",))

    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """Convert batch norm to use the rank's share, parts of it, or the shares of all ranks."""
        if settings.batch_norm == "synchronised":
            return convert(model, "synchronised")
        return convert(model, "ghost", ghosts=settings.ghosts) if settings.ghosts > 1 else model

    def wrap(self, objective: Objective) -> nn.Module:
        """Return the objective in torch's DDP; buffers differ between ranks until synchronised."""
        ids = None if self._device.type == "cpu" else [self._device]
        wrapped = DistributedDataParallel(
            objective,
            device_ids=ids,
            device_mesh=self.mesh,
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
            bucket_cap_mb=_bucket_mb(objective),
        )
        if self._exchange is None:
            self._exchange = exchange_gradients(
                wrapped, self._communication, None, self._local_ranks
            )
        else:  # that of the previous candidate of a search
            self._exchange.restart()
            connect(wrapped, self._exchange)
        return wrapped

    def backward(
        self, wrapped: nn.Module, parts: Sequence[Inputs], scale: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Compute the gradients, after passing the loss scale to the exchange."""
        if self._exchange is not None:
            self._exchange.begin(scale)
        return super().backward(wrapped, parts, scale)

    def local_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """Return a context in which DDP does not exchange gradients."""
        assert isinstance(wrapped, DistributedDataParallel)
        return wrapped.no_sync()

    def maximum(self, value: Tensor) -> Tensor:
        """Return ``value``, which is the same on every rank since gradients are averaged."""
        return value

    def synchronise_buffers(self, model: nn.Module) -> None:
        """Average the running statistics, which gives those of ghost batch norm on one rank."""
        average_buffers(model, None)

    @property
    def can_be_recorded(self) -> bool:
        """Whether the exchange of gradients never waits for the device."""
        return self._communication.precision != "powersgd"

    @contextmanager
    def counting_replays(self) -> Iterator[None]:
        """Count the traffic of the step that is recorded in the block; each replay repeats it."""
        assert self._exchange is not None
        before = self._exchange.sent()
        yield
        self._replayed = self._exchange.sent() - before

    def count_replay(self) -> None:
        """Count the traffic of the recorded step once more."""
        assert self._exchange is not None
        self._exchange.count_sent(self._replayed)

    def report(self) -> list[tuple[str, Data]]:
        """Return the traffic of the gradient exchange."""
        if self._exchange is None or not self._exchange.steps:
            return []
        return [("exchange", self._exchange.report(None, self._device))]

    def close(self) -> None:
        """Close the exchange and leave the group."""
        if self._exchange is not None:
            self._exchange.close()
        super().close()


def _bucket_mb(objective: Objective) -> float:
    """Return the size of a bucket of gradients.

    A compiled model is cut at the boundaries of buckets, each of which costs a little speed and
    much time to compile; so a large model has larger buckets instead of more of them.
    """
    sizes = (parameter.nbytes for parameter in objective.parameters() if parameter.requires_grad)
    return max(_BUCKET_MB, sum(sizes) / _BUCKETS / 2**20)
