"""Where a rank computes: its device, and its share of the processor's cores."""

from __future__ import annotations

import os

import torch

from vflops.config.training import TrainSettings
from vflops.errors import UsageError
from vflops.micro.device import pick
from vflops.train.precision import Precision


def rank_device(name: str, local_rank: int) -> torch.device:
    """The device of a rank: the named one, or that accelerator whose number is the rank's."""
    place = pick(name, "train.device").place
    if place.type == "cpu":
        return place
    if name == "auto" or ":" not in name:
        place = torch.device(place.type, local_rank)
    torch.accelerator.set_device_index(place.index)
    return place


def check_placement(settings: TrainSettings) -> None:
    """Refuse more ranks than this machine has devices for, and precisions that they lack."""
    name, ranks = settings.device, settings.ranks
    place = pick(name, "train.device").place
    if place.type == "cpu":
        here, what = usable_cores(), "processor cores"
    elif ":" in name:
        here, what = 1, f"named device, {name}"
    else:
        here, what = torch.accelerator.device_count(), f"{place.type} devices"
    if ranks > here:
        raise UsageError(
            f"{ranks} ranks need a device each: there are {here} {what}",
            cure=f"take --ranks {here}" + (" or fewer" if here > 1 else ""),
        )
    Precision.named(settings.precision, place)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(device: torch.device, ranks: int) -> int:
    """Give this rank its share of the cores; how many threads that are."""
    count = max(usable_cores() // ranks, 1)
    if device.type == "cpu":
        torch.set_num_threads(count)
    return count
