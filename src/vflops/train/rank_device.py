"""Where a rank computes: its device, and its share of the processor's cores."""

from __future__ import annotations

import os

import torch

from vflops.config.launch import LaunchSettings
from vflops.config.training import TrainSettings
from vflops.errors import UsageError
from vflops.launch.core_binding import BINDING
from vflops.launch.placement import Node, plan
from vflops.machine.devices import pick
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


def check_placement(
    settings: TrainSettings, models: int, launch: LaunchSettings, *, waves: bool
) -> None:
    """Refuse more ranks than this machine has devices for, and precisions that they lack."""
    name, ranks = settings.device, settings.ranks
    place = pick(name, "train.device").place
    count, devices = here(name, launch.cores_per_rank)
    what = f"{place.type} devices" if devices else "processor cores"
    if devices and ":" in name:
        what = f"named device, {name}"
    if ranks > count:
        raise UsageError(
            f"{ranks} ranks need a device each: there are {count} {what}",
            hint=f"take --ranks {count}" + (" or fewer" if count > 1 else ""),
        )
    plan([Node("this machine", count)], models, ranks, waves=waves)
    Precision.named(settings.precision, place)


def here(name: str, cores_per_rank: int | None = None) -> tuple[int, bool]:
    """How many ranks can compute on this machine, and whether on devices or on cores."""
    cores = len(usable_cores())
    by_cores = cores // (cores_per_rank or 1)
    if by_cores < 1:
        raise UsageError(
            f"launch.cores_per_rank = {cores_per_rank}: there are {cores} processor cores",
            hint=f"take at most {cores}",
        )
    if pick(name, "train.device").place.type == "cpu":
        return by_cores, False
    devices = 1 if ":" in name else torch.accelerator.device_count()
    return min(devices, by_cores) if cores_per_rank else devices, True


def usable_cores() -> list[int]:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def use_threads(device: torch.device, ranks: int) -> int:
    """Give each of a node's ranks its share of the cores; how many threads that are."""
    cores = len(usable_cores())
    if "SLURM_CPUS_PER_TASK" in os.environ:  # an agent's; not every site binds it to them
        cores = min(cores, int(os.environ["SLURM_CPUS_PER_TASK"]))
    # A rank that is bound sees its own cores only.
    count = max(cores // ranks, 1) if BINDING not in os.environ else len(usable_cores())
    if device.type == "cpu":
        torch.set_num_threads(count)
    return count
