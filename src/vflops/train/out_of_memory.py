"""Finds the largest batch that fits after a job ran out of memory."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from vflops.machine.probe import AbsentError
from vflops.machine.system.cpu_info import CpuInfo
from vflops.train.rank_device import device_memory
from vflops.train.step import RecordedStep, Step
from vflops.workloads.contract.workload import Inputs, Workload

_USABLE = 0.95
"""Share of the memory that can be used; fragmentation takes the rest."""


def device_name(device: torch.device) -> str:
    """Return the product name of a device, as reported by the driver or the system."""
    if device.type == "cpu":
        try:
            return CpuInfo.read(Path("/")).model()
        except AbsentError:
            return platform.machine()
    module = torch.get_device_module(device)
    return str(module.get_device_name(device))


def fitting_batch(
    step: Step | RecordedStep, workload: Workload, device: torch.device, batch: int
) -> int | None:
    """Return the largest batch that would fit; None if no batch fits.

    This tries steps with half of ``batch``, a quarter, and so on, until two sizes fit: the memory
    of a step grows linearly with the batch, so these determine the largest one. It overwrites the
    weights.
    """
    peaks: list[tuple[int, int]] = []
    size = batch // 2
    while size >= 1 and len(peaks) < 2:
        step.optimizer.zero_grad(set_to_none=True)
        peak = peak_bytes(step, workload, device, size)
        if peak is not None:
            peaks.append((size, peak))
        size //= 2
    if not peaks:
        return None
    if len(peaks) == 1:
        return peaks[0][0]
    (large, high), (small, low) = peaks
    per_sample = max((high - low) / (large - small), 1.0)
    total = device_memory(device)
    fits = int((total * _USABLE - (low - per_sample * small)) / per_sample)
    multiple = 8 if batch >= 16 else 1
    return max(min(fits, batch - 1) // multiple * multiple, large)


def peak_bytes(
    step: Callable[[Sequence[Inputs], float], Tensor],
    workload: Workload,
    device: torch.device,
    size: int,
) -> int | None:
    """Return the peak memory of a step with ``size`` samples; None if they do not fit."""
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats(device)
    try:
        step([_zero_inputs(workload, device, size)], 0.0)
        torch.accelerator.synchronize(device)
    except RuntimeError:
        return None
    return int(torch.accelerator.max_memory_allocated(device))


def _zero_inputs(workload: Workload, device: torch.device, size: int) -> Inputs:
    tensors: list[Tensor] = []
    for spec in workload.input_specs():
        dtype = getattr(torch, spec.dtype)
        tensors.append(torch.zeros((size, *spec.shape), dtype=dtype, device=device))
    return tuple(tensors)
