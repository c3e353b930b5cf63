"""The device under test: its name, timing of calls, and its memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass

import torch

from vflops.errors import UsageError, unknown_name
from vflops.machine import host
from vflops.machine.nvml import decode, nvml_session
from vflops.machine.probe import AbsentError
from vflops.machine.system import cpu_share
from vflops.machine.visible_devices import cuda_devices

_ASSUMED_CACHE_BYTES = 64 << 20
"""Assumed for devices that do not report the size of their last-level cache; larger than most."""


@dataclass(frozen=True)
class Device:
    """The CPU or one accelerator."""

    torch_device: torch.device

    @property
    def name(self) -> str:
        """The name in settings and records: ``cpu``, ``cuda:0``."""
        return str(self.torch_device)

    @property
    def is_cpu(self) -> bool:
        """Whether the device is the CPU, where calls return only when their work is done."""
        return self.torch_device.type == "cpu"

    @property
    def accelerators(self) -> int:
        """The number of devices of this kind; 0 for the CPU."""
        return 0 if self.is_cpu else torch.accelerator.device_count()

    def thread_counts(self) -> list[int | None]:
        """Return the thread counts to measure a CPU with: all threads, and fewer.

        If another process occupies a core, all threads wait for the thread on that core, and one
        thread fewer is faster. If cores run two threads each, one per core may be faster. For an
        accelerator the only entry is None.
        """
        if not self.is_cpu:
            return [None]
        count = cpu_share.cpu_threads().count
        fewer = {count - 1, cpu_share.physical_cores()}
        return [count, *sorted((n for n in fewer if 0 < n < count), reverse=True)]

    def current(self) -> AbstractContextManager[object]:
        """Make this accelerator torch's current device for the duration of a block."""
        return (
            nullcontext()
            if self.is_cpu
            else torch.accelerator.device_index(self.torch_device.index)
        )

    def time_s(self, call: Callable[[], object], calls: int = 1, *, warm_calls: int = 0) -> float:
        """Return the mean seconds of ``calls`` consecutive calls, timed by the device if possible.

        They directly follow ``warm_calls`` calls that are not timed.
        """
        for _ in range(warm_calls):
            call()
        if self.is_cpu:
            start_s = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - start_s) / calls
        start = torch.Event(self.torch_device, enable_timing=True)
        end = torch.Event(self.torch_device, enable_timing=True)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / calls

    def synchronize(self) -> None:
        """Wait until the device has finished all work."""
        if not self.is_cpu:
            torch.accelerator.synchronize(self.torch_device)

    def free_bytes(self) -> int:
        """Return the free memory in bytes, after emptying torch's cache."""
        if self.is_cpu:
            return host.free_memory_bytes()
        self.release()
        return torch.accelerator.get_memory_info(self.torch_device)[0]

    def release(self) -> None:
        """Return unused memory in torch's cache to the device."""
        if not self.is_cpu:
            torch.accelerator.empty_cache()

    def cache_bytes(self) -> int:
        """Return the size of the last-level cache, or a large estimate if it is not known."""
        if self.is_cpu:
            return host.last_level_cache_bytes() or _ASSUMED_CACHE_BYTES
        return self._property("L2_cache_size") or _ASSUMED_CACHE_BYTES

    def multiprocessors(self) -> int | None:
        """Return the number of multiprocessors; None if it is not known."""
        return None if self.is_cpu else self._property("multi_processor_count")

    def _property(self, name: str) -> int | None:
        module = torch.get_device_module(self.torch_device)
        value = getattr(module.get_device_properties(self.torch_device), name, None)
        return int(value) if value else None


def pick(name: str, setting: str = "micro.device") -> Device:
    """Return the device called ``name``, or raise ``UsageError`` with the available devices."""
    names = available()
    if names == ["cpu"] and name != "cpu":
        _refuse_hidden_gpus(setting)
    if name == "auto":
        return Device(torch.device((names[1:] or names)[0]))
    kind, _, index = name.partition(":")
    if name in names:
        return Device(torch.device(name))
    if f"{name}:0" in names:
        return Device(torch.device(f"{name}:0"))
    if any(known.startswith(f"{kind}:") for known in names) and index.isdigit():
        count = len(names) - 1
        raise UsageError(
            f"device {name!r} is not available: the number of accelerators is {count}",
            hint=_device_hint(names, setting),
        )
    if kind in ("cuda", "xpu", "mps", "hpu", "mtia", "npu"):
        seen = f"torch sees {names[1]}" if len(names) > 1 else "torch sees no accelerator"
        raise UsageError(
            f"device {name!r} is not available: {seen}", hint=_device_hint(names, setting)
        )
    raise unknown_name("device", name, ["auto", *names])


def _refuse_hidden_gpus(setting: str) -> None:
    """Raise if there are GPUs that torch does not see, so that none is left idle by mistake."""
    found = None
    with suppress(AbsentError), nvml_session() as nvml:
        devices = cuda_devices()
        number = nvml.nvmlDeviceGetCount() if devices is None else len(devices)
        driver = decode(nvml.nvmlSystemGetDriverVersion())
        found = f"the NVIDIA driver {driver} shows {number} GPU{'s' * (number > 1)}"
        found = found if number else None
    given = os.environ.get("SLURM_GPUS_ON_NODE", "0") if "SLURM_STEP_GPUS" in os.environ else "0"
    if found is None and given.isdigit() and int(given):
        found = f"SLURM gave this job {given} GPU{'s' * (given != '1')}"
    if found is None:
        return
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for CPUs only"
    raise UsageError(
        f"{found}, but torch {torch.__version__}, which was built {built}, sees none",
        hint="install a torch that was built for this driver (https://pytorch.org), or update the"
        f" driver; to use the CPU all the same: --set {setting}=cpu",
    )


def available() -> list[str]:
    """Return the names of the available devices: the CPU, then every accelerator."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return ["cpu"]
    count = torch.accelerator.device_count()
    return ["cpu", *(f"{accelerator.type}:{index}" for index in range(count))]


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch use ``count`` CPU threads for the duration of a block; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether ``error`` means that torch ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error message; torch appends paragraphs of advice."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _device_hint(names: list[str], setting: str) -> str:
    return f"set {setting} to one of: {', '.join(['auto', *names])}"
