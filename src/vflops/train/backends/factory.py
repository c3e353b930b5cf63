"""Creates the backend of the framework in the settings, and joins its ranks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from vflops.config.frameworks import FRAMEWORKS
from vflops.config.training import TrainSettings
from vflops.errors import UsageError
from vflops.extensions import import_object
from vflops.train.backends.array_backend import ArrayBackend, Recipe
from vflops.train.backends.availability import require_framework, require_one_node
from vflops.train.backends.backend import Backend
from vflops.train.backends.torch_backend import TorchBackend
from vflops.train.context import JobContext
from vflops.train.parallel.factory import SingleRank, parallel_plan
from vflops.train.parallel.group import ConnectedRanks
from vflops.train.parallel.rank_group import RankGroup
from vflops.train.precision import Precision
from vflops.workloads.contract.registry import workload as find
from vflops.workloads.contract.workload import Workload

_BACKENDS = {
    "jax": "vflops.train.backends.jax_backend:JaxBackend",
    "tensorflow": "vflops.train.backends.tensorflow_backend:TensorFlowBackend",
    "mindspore": "vflops.train.backends.mindspore_backend:MindSporeBackend",
}
"""The subclasses of ``ArrayBackend``, imported on demand."""


@contextmanager
def joined_backend(
    context: JobContext,
    settings: TrainSettings,
    workload: Workload,
    precision: Precision,
    device: torch.device,
) -> Iterator[tuple[RankGroup, Backend]]:
    """Yield the ranks of a job and this rank's backend; leave the ranks at the end.

    After an error they are not left: that may wait for the other ranks, and the error must be
    written first.
    """
    record = context.record
    if settings.framework == "pytorch":
        plan = parallel_plan(context.rank, record.ranks, device, context.store, settings)
        backend = TorchBackend(settings, workload, plan, precision, device, record.seed)
        yield plan, backend
        backend.close()
        plan.close()
        return
    require_framework(settings.framework)
    _require_first_accelerator(settings.framework, record.ranks, device)
    group = _ranks(context)
    yield group, _array_backend(context, settings, workload, group, precision)
    group.close()


def _ranks(context: JobContext) -> RankGroup:
    """Return the ranks of a framework that averages gradients itself: torch sends messages only."""
    ranks = context.record.ranks
    if ranks == 1:
        return SingleRank()
    return ConnectedRanks(context.rank, ranks, torch.device("cpu"), context.store)


def _array_backend(
    context: JobContext,
    settings: TrainSettings,
    workload: Workload,
    group: RankGroup,
    precision: Precision,
) -> ArrayBackend:
    record, device = context.record, precision.device
    spec = find(record.workload)
    weights = workload.initial_weights(record.seed)
    if spec.classifier is None or weights is None:
        raise UsageError(
            f"{spec.name} is trained with PyTorch only, not with "
            f"{FRAMEWORKS[settings.framework].title}",
            hint="--framework pytorch",
        )
    local_ranks = context.local_ranks or group.ranks
    require_one_node(settings.framework, group.ranks, local_ranks)
    recipe = Recipe(
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
        precision=settings.precision,
        emulated=precision.emulated,
        device=device.type,
        index=device.index or 0,
        threads=torch.get_num_threads(),
        rank=group.rank,
        ranks=group.ranks,
        local_ranks=local_ranks,
        addresses=_addresses(group, local_ranks) if group.ranks > 1 else (),
    )
    classifier = import_object(spec.classifier)(
        spec.settings.model_validate(record.settings), record.data
    )
    backend: ArrayBackend = import_object(_BACKENDS[settings.framework])(
        classifier, recipe, weights
    )
    return backend


def _require_first_accelerator(framework: str, ranks: int, device: torch.device) -> None:
    """Raise ``UsageError`` for other accelerators than the first.

    Each process would see all of them and compute on the first one.
    """
    if device.type != "cpu" and (device.index or ranks > 1):
        raise UsageError(
            f"{FRAMEWORKS[framework].title} is offered on the first accelerator with one rank, "
            f"not on {device} with {ranks}",
            hint="--framework pytorch, or let each job see one accelerator (CUDA_VISIBLE_DEVICES)",
        )


def _addresses(group: RankGroup, local_ranks: int) -> tuple[str, ...]:
    """Return ``host:port`` at which each rank can listen, the same on every rank."""
    host = "127.0.0.1" if local_ranks == group.ranks else socket.gethostname()
    with socket.socket() as listener:
        listener.bind(("", 0))
        address = f"{host}:{listener.getsockname()[1]}".encode()
    gathered = group.gather({"address": np.frombuffer(address, dtype=np.uint8)})
    return tuple(
        np.asarray(rank["address"], dtype=np.uint8).tobytes().decode() for rank in gathered
    )
