"""What the log says about each rank of a job: its device and, in a rehearsal, its memory."""

from __future__ import annotations

import resource

import psutil
import torch

from vflops.launch.rehearsal import SharedMachine
from vflops.launch.waiting import node_name
from vflops.machine.system.cpu_share import usable_cores
from vflops.machine.visible_devices import cuda_devices
from vflops.record.formats.job_events import RankPlace, RanksRehearsed
from vflops.train.context import JobContext
from vflops.train.parallel.rank_group import RankGroup


def places(group: RankGroup, device: torch.device) -> tuple[RankPlace, ...]:
    """Return the device and the cores of each rank; every rank calls this."""
    own = RankPlace(
        node=node_name(),
        device=str(device),
        id=_id(device),
        cores=f"{sum(1 << core for core in usable_cores()):x}",
    )
    texts = group.texts(own.model_dump_json())
    return tuple(RankPlace.model_validate_json(text) for text in texts)


def write_memory(context: JobContext, group: RankGroup, device: torch.device) -> None:
    """Write the peak memory of each rank of a rehearsal to the log; every rank calls this."""
    if SharedMachine.of() is None:
        return
    if device.type == "cpu":
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        total = psutil.virtual_memory().total
    else:
        peak = torch.accelerator.max_memory_allocated(device)
        total = torch.accelerator.get_memory_info(device)[1]
    peaks = tuple(int(text) for text in group.texts(str(peak)))
    context.write_event("rehearsed", RanksRehearsed(peak_bytes=peaks, device_bytes=total))


def _id(device: torch.device) -> str | None:
    """Return the UUID of an accelerator, or that of its slice; None if it has none."""
    if device.type == "cpu":
        return None
    shown = cuda_devices()
    entry = shown[device.index] if shown and device.index < len(shown) else None
    if isinstance(entry, str) and entry.startswith("MIG-"):
        return entry
    properties = torch.get_device_module(device).get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    return None if uuid is None else str(uuid)
