"""Profiles a few steps after training: the time spent in each kind of kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vflops.machine.telemetry.kernels import kernel_shares
from vflops.record.formats.job_events import KernelsProfiled, KernelTime
from vflops.train.backends.backend import Backend
from vflops.workloads.contract.workload import Inputs

_STEPS = 3


def profile_steps(backend: Backend, parts: Sequence[Inputs]) -> KernelsProfiled:
    """Profile steps with the same batch; this overwrites the weights."""
    device = backend.device
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type != "cpu":
        activities = [torch.profiler.ProfilerActivity.CUDA]
    backend.take_step(parts, 0.0)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(_STEPS):
            backend.take_step(parts, 0.0)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
    shares = kernel_shares(profiler)
    return KernelsProfiled(
        steps=_STEPS,
        kernels=tuple(
            KernelTime(kind=share.kind, time_s=share.time_s, share=share.share, calls=share.calls)
            for share in shares
        ),
    )
