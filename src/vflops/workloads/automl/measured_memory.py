"""Measures the memory of training steps of the network that a search starts from."""

from __future__ import annotations

import gc

import torch

from vflops.record.formats.job import DataFacts
from vflops.train.backends.torch_backend import TorchBackend
from vflops.train.context import JobContext
from vflops.train.out_of_memory import peak_bytes
from vflops.train.parallel.factory import SingleRank
from vflops.train.precision import Precision
from vflops.train.rank_device import rank_device
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.module_builder import build
from vflops.workloads.automl.architecture.step_memory import StepMemory
from vflops.workloads.automl.candidate import CandidateTraining
from vflops.workloads.automl.proposer import first_network, limits_of
from vflops.workloads.automl.settings import AutomlSettings

_SMALL, _LARGE = 32, 64
"""The batches of the measured steps: memory grows linearly with the batch."""
_GRADIENT_BYTES = 4
"""Bytes per parameter of the buffers in which ranks exchange gradients."""


def step_memory(context: JobContext, worker: int, usable_bytes: int) -> StepMemory:
    """Return the memory of a step: measured on an accelerator, else the sum of what it keeps.

    One rank takes two steps without exchanging gradients; the buffers for that are added.
    """
    settings = AutomlSettings.model_validate(context.record.settings)
    device = rank_device(settings.train.device, context.local_rank)
    summed = StepMemory(worker=worker, usable_bytes=usable_bytes)
    if device.type == "cpu":
        return summed
    peaks = _peaks(settings, context.record.data, device)
    gc.collect()
    torch.accelerator.empty_cache()
    if peaks is None:
        return summed
    low, high = peaks
    network = first_network(settings, context.record.data)
    value_bytes = limits_of(settings).bytes_per_value
    per_sample = (high - low) / (_LARGE - _SMALL)
    factor = per_sample / architecture_cost.activation_bytes(network, 1, value_bytes)
    if factor <= 0:
        return summed
    fixed = low - per_sample * _SMALL - architecture_cost.parameter_bytes(network)
    if context.record.ranks > 1:
        fixed += _GRADIENT_BYTES * network.parameters
    return summed.model_copy(
        update={"measured": True, "factor": factor, "fixed_bytes": max(int(fixed), 0)}
    )


def _peaks(
    settings: AutomlSettings, data: DataFacts, device: torch.device
) -> tuple[int, int] | None:
    """Return the peak memory of a small and of a larger step; None if they do not fit."""
    train = settings.train
    changes: dict[str, object] = {
        "ranks": 1,
        "accumulate": 1,
        "ghosts": 1,
        "batch": _LARGE,
        "compile": "off" if train.compile == "off" else "record",
    }
    alone = settings.model_copy(update={"train": train.model_copy(update=changes)})
    network = first_network(settings, data)
    before = torch.accelerator.memory_allocated(device)
    workload = CandidateTraining(alone, data, build(network), network)
    precision = Precision.named(train.precision, device)
    backend = TorchBackend(alone.train, workload, SingleRank(), precision, device, seed=0)
    small = peak_bytes(backend.take_step, workload, device, _SMALL)
    large = peak_bytes(backend.take_step, workload, device, _LARGE)
    return None if small is None or large is None else (small - before, large - before)
