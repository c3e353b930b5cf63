"""The device of a rank, and its number of CPU threads."""

from __future__ import annotations

import os

import torch

from vflops.launch.core_binding import BINDING
from vflops.machine import host
from vflops.machine.devices import pick


def rank_device(name: str, local_rank: int) -> torch.device:
    """Return the device called ``name``, or the accelerator with index ``local_rank``."""
    device = pick(name, "train.device").torch_device
    if device.type == "cpu":
        return device
    if name == "auto" or ":" not in name:
        device = torch.device(device.type, local_rank)
    torch.accelerator.set_device_index(device.index)
    return device


def use_threads(device: torch.device, ranks: int) -> int:
    """Set the number of CPU threads to a rank's share of the cores; return the number."""
    cores = host.usable_cpus()
    if "SLURM_CPUS_PER_TASK" in os.environ:  # not every site binds a task to its cores
        cores = min(cores, int(os.environ["SLURM_CPUS_PER_TASK"]))
    count = max(cores // ranks, 1)
    if BINDING in os.environ:  # the rank sees only its own cores, but a quota is for all ranks
        quota = host.quota_cpus()
        bound = len(host.usable_cores())
        count = bound if quota is None else min(bound, max(quota // ranks, 1))
    if device.type == "cpu":
        torch.set_num_threads(count)
    return count
