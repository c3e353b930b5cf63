"""The device of a rank, and its number of CPU threads."""

from __future__ import annotations

import os

import torch

from vflops.launch.core_binding import BINDING
from vflops.launch.rehearsal import SharedMachine
from vflops.machine.devices import pick
from vflops.machine.system.cpu_share import cpu_threads


def rank_device(name: str, local_rank: int) -> torch.device:
    """Return the device called ``name``, or the accelerator with index ``local_rank``.

    In a rehearsal the ranks take turns if there are fewer accelerators.
    """
    device = pick(name, "train.device").torch_device
    if device.type == "cpu":
        return device
    named, shared = ":" in name, SharedMachine.of()
    count = 1 if named else torch.accelerator.device_count()
    if shared is not None:
        shared.prepare_nccl(count)
    if not named:
        index = local_rank if shared is None else local_rank % count
        device = torch.device(device.type, index)
    if shared is not None:
        os.environ["LOCAL_RANK"] = str(device.index)  # which torch takes for that of the device
    torch.accelerator.set_device_index(device.index)
    return device


def device_memory(device: torch.device) -> int:
    """Return the bytes of an accelerator or, in a rehearsal, a rank's share of them."""
    total = torch.accelerator.get_memory_info(device)[1]
    shared = SharedMachine.of()
    sharers = 1 if shared is None else -(-shared.at_once // torch.accelerator.device_count())
    return total // max(sharers, 1)


def use_threads(device: torch.device, ranks: int) -> int:
    """Set the number of CPU threads of one of this node's ranks; return the number."""
    count = cpu_threads(ranks, bound=BINDING in os.environ).count
    if device.type == "cpu":
        torch.set_num_threads(count)
    return count
