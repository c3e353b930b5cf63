"""The device under test: chosen by name, timed by its own clock, asked for its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from vflops.errors import UsageError, unknown_name
from vflops.machine import host

_ASSUMED_CACHE_BYTES = 64 << 20
"""Where a device does not tell the size of its last cache; larger than most."""


@dataclass(frozen=True)
class Device:
    """The CPU or one accelerator."""

    place: torch.device

    @property
    def name(self) -> str:
        """As settings and records write it: ``cpu``, ``cuda:0``."""
        return str(self.place)

    @property
    def is_cpu(self) -> bool:
        """Whether calls return when their work is done."""
        return self.place.type == "cpu"

    @property
    def accelerators(self) -> int:
        """How many devices of this kind there are; 0 for the CPU."""
        return 0 if self.is_cpu else torch.accelerator.device_count()

    def thread_counts(self) -> list[int | None]:
        """How many threads a CPU is measured with: all, and one less for who else uses it.

        Where a core is taken by others, all threads wait for the one that shares it. None for an
        accelerator, whose speed does not depend on them.
        """
        if not self.is_cpu:
            return [None]
        everyone = torch.get_num_threads()
        return [everyone, everyone - 1] if everyone > 1 else [1]

    def current(self) -> AbstractContextManager[object]:
        """A context in which this accelerator is torch's current one."""
        return nullcontext() if self.is_cpu else torch.accelerator.device_index(self.place.index)

    def time_s(self, call: Callable[[], object], calls: int = 1, *, warm_calls: int = 0) -> float:
        """Mean seconds of ``calls`` calls in a row, on the device's own clock where it has one.

        ``warm_calls`` come before, untimed and without a gap.
        """
        for _ in range(warm_calls):
            call()
        if self.is_cpu:
            start_s = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - start_s) / calls
        start = torch.Event(self.place, enable_timing=True)
        end = torch.Event(self.place, enable_timing=True)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / calls

    def synchronize(self) -> None:
        """Wait until all work is done."""
        if not self.is_cpu:
            torch.accelerator.synchronize(self.place)

    def free_bytes(self) -> int:
        """Memory that can still be taken, that of torch's own cache included."""
        if self.is_cpu:
            return host.free_memory_bytes()
        self.release()
        return torch.accelerator.get_memory_info(self.place)[0]

    def release(self) -> None:
        """Give memory that no tensor uses back to the device."""
        if not self.is_cpu:
            torch.accelerator.empty_cache()

    def cache_bytes(self) -> int:
        """Size of the last-level cache, a large guess where it cannot be read."""
        if self.is_cpu:
            return host.last_level_cache_bytes() or _ASSUMED_CACHE_BYTES
        return self._property("L2_cache_size") or _ASSUMED_CACHE_BYTES

    def multiprocessors(self) -> int | None:
        """How many units a kernel's tiles are spread over, where the accelerator tells."""
        return None if self.is_cpu else self._property("multi_processor_count")

    def _property(self, name: str) -> int | None:
        module = torch.get_device_module(self.place)
        value = getattr(module.get_device_properties(self.place), name, None)
        return int(value) if value else None


def pick(name: str, setting: str = "micro.device") -> Device:
    """The device that ``name`` stands for, or an error that names those that are here."""
    names = available()
    if name == "auto":
        return Device(torch.device((names[1:] or names)[0]))
    kind, _, index = name.partition(":")
    if name in names:
        return Device(torch.device(name))
    if f"{name}:0" in names:
        return Device(torch.device(f"{name}:0"))
    if any(here.startswith(f"{kind}:") for here in names) and index.isdigit():
        count = len(names) - 1
        raise UsageError(
            f"device {name!r} is not here: there are {count}", hint=_choice(names, setting)
        )
    if kind in ("cuda", "xpu", "mps", "hpu", "mtia", "npu"):
        seen = f"torch sees {names[1]}" if len(names) > 1 else "torch sees no accelerator"
        raise UsageError(f"device {name!r} is not here: {seen}", hint=_choice(names, setting))
    raise unknown_name("device", name, ["auto", *names])


def available() -> list[str]:
    """The devices that can be named: the CPU, then every accelerator."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return ["cpu"]
    count = torch.accelerator.device_count()
    return ["cpu", *(f"{accelerator.type}:{index}" for index in range(count))]


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """A context in which torch computes with ``count`` CPU threads; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether ``error`` is torch's way to say that memory ran out."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def first_line(error: BaseException) -> str:
    """What ``error`` says, without torch's paragraphs of advice."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _choice(names: list[str], setting: str) -> str:
    return f"set {setting} to one of: {', '.join(['auto', *names])}"


def rank_capacity(name: str, cores_per_rank: int | None = None) -> tuple[int, bool]:
    """Return how many ranks this machine has room for, and whether they compute on accelerators."""
    cores = len(host.usable_cores())
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
