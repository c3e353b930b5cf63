"""Where a rank computes: its device, and its share of the processor's cores."""

from __future__ import annotations

import os

import torch

from vflops.launch.core_binding import BINDING
from vflops.machine import host
from vflops.machine.devices import pick


def rank_device(name: str, local_rank: int) -> torch.device:
    """The device of a rank: the named one, or that accelerator whose number is the rank's."""
    place = pick(name, "train.device").torch_device
    if place.type == "cpu":
        return place
    if name == "auto" or ":" not in name:
        place = torch.device(place.type, local_rank)
    torch.accelerator.set_device_index(place.index)
    return place


def use_threads(device: torch.device, ranks: int) -> int:
    """Give each of a node's ranks its share of the cores; how many threads that are."""
    cores = len(host.usable_cores())
    if "SLURM_CPUS_PER_TASK" in os.environ:  # an agent's; not every site binds it to them
        cores = min(cores, int(os.environ["SLURM_CPUS_PER_TASK"]))
    # A rank that is bound sees its own cores only.
    count = max(cores // ranks, 1) if BINDING not in os.environ else len(host.usable_cores())
    if device.type == "cpu":
        torch.set_num_threads(count)
    return count
