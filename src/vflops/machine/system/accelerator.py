"""The accelerators, as reported by torch and by the vendor's library.

Reading the properties of a CUDA device initialises CUDA in this process. Do not fork workers from
it afterwards: start them with spawn, as torch recommends.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

from vflops.machine.probe import absent, fact
from vflops.machine.system.torch_module import accelerator_kind
from vflops.machine.system.vendor import FIGURES, NoVendor, Vendor
from vflops.record.formats.system import Fact


def accelerator_facts(torch: Any, nvidia: Vendor) -> list[Fact]:
    """Return facts about the accelerators that torch can use, or else that the driver reports."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        usable = fact("accelerators", "torch.accelerator", lambda: _count(torch))
        kind = fact("accelerator kind", "torch.accelerator", lambda: accelerator_kind(torch))
    if kind.reason and warned:
        # If a driver is too old or does not start, torch warns but does not raise.
        kind = absent(kind.name, kind.source, f"{kind.reason}: {warned[0].message}")
    seen = fact("accelerators seen by NVML", nvidia.source, nvidia.count)
    facts = [usable, seen, kind]
    if usable.value:
        for index in range(int(usable.value)):
            facts += _usable_device(torch, nvidia, kind, index)
    elif seen.value:
        for index in range(int(seen.value)):
            facts += nvidia.device_facts(f"accelerator {index}", partial(int, index))
    return facts


def _count(torch: Any) -> int:
    return int(torch.accelerator.device_count())


def _usable_device(torch: Any, nvidia: Vendor, kind: Fact, index: int) -> list[Fact]:
    prefix = f"accelerator {index}"
    vendor: Vendor = nvidia
    if kind.value != "cuda":
        reason = f"vflops does not yet read the vendor's figures of {kind.value}"
        vendor = NoVendor("vendor's library", reason, FIGURES)
    # NVML numbers devices in another order and ignores CUDA_VISIBLE_DEVICES: use the UUID.
    from_vendor = vendor.device_facts(
        prefix, lambda: str(torch.cuda.get_device_properties(index).uuid)
    )
    return _first_known([*from_vendor, *_from_torch(torch, prefix, index)])


def _from_torch(torch: Any, prefix: str, index: int) -> list[Fact]:
    """Return facts from torch's device properties; not every kind of device has all of them."""

    def properties() -> Any:
        kind = torch.accelerator.current_accelerator().type
        return getattr(torch, kind).get_device_properties(index)

    def capability() -> str:
        return f"{properties().major}.{properties().minor}"

    source = "torch"
    return [
        fact(f"{prefix} model", source, lambda: str(properties().name)),
        fact(f"{prefix} memory", source, lambda: int(properties().total_memory), unit="B"),
        fact(f"{prefix} compute capability", source, capability),
        fact(f"{prefix} compute units", source, lambda: int(properties().multi_processor_count)),
        fact(f"{prefix} L2 cache", source, lambda: int(properties().L2_cache_size), unit="B"),
    ]


def _first_known(facts: Iterable[Fact]) -> list[Fact]:
    """Return one fact per name: the first with a value, or else the first."""
    known: dict[str, Fact] = {}
    for candidate in facts:
        earlier = known.get(candidate.name)
        if earlier is None or (earlier.value is None and candidate.value is not None):
            known[candidate.name] = candidate
    return list(known.values())
