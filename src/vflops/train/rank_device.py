"""The device of a rank, and its number of CPU threads."""

from __future__ import annotations

import os

import torch

from vflops.launch.core_binding import BINDING
from vflops.machine.devices import pick
from vflops.machine.system.cpu_share import cpu_threads


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
    """Set the number of CPU threads of one of this node's ranks; return the number."""
    count = cpu_threads(ranks, bound=BINDING in os.environ).count
    if device.type == "cpu":
        torch.set_num_threads(count)
    return count
