"""A few more steps under the profiler, after training: where its time goes, by kind of kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vflops.machine.telemetry.kernels import kernel_shares
from vflops.record.formats.job_events import KernelsProfiled, KernelTime
from vflops.train.state import TrainState
from vflops.workloads.contract.workload import Inputs

_STEPS = 3


def profile_steps(
    state: TrainState, parts: Sequence[Inputs], device: torch.device
) -> KernelsProfiled:
    """The share of every kind of kernel; the weights are of no use after this."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type != "cpu":
        activities = [torch.profiler.ProfilerActivity.CUDA]
    state.take(parts, 0.0)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(_STEPS):
            state.take(parts, 0.0)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
    shares = kernel_shares(profiler)
    return KernelsProfiled(
        steps=_STEPS,
        kernels=tuple(
            KernelTime(kind=each.kind, time_s=each.time_s, share=each.share, calls=each.calls)
            for each in shares
        ),
    )
