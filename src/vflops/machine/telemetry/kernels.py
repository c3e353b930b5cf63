"""The shares of kernel time in training steps by kind, from torch's profiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vflops.machine.telemetry.kernel_names import KINDS, Kind, kind_of
from vflops.record.files.document import Data

if TYPE_CHECKING:
    from torch.profiler import profile

__all__ = ["KINDS", "KernelShare", "Kind", "kernel_shares", "kind_of"]

_TOP = 3
_NAME_LENGTH = 200  # template arguments can have thousands of characters


class KernelShare(Data):
    """The share of one kind of kernel in all kernel time."""

    kind: Kind
    time_s: float
    share: float
    calls: int
    top: tuple[str, ...]
    """The slowest kernels of this kind, the slowest first."""


@dataclass
class _Sum:
    time_us: float = 0.0
    calls: int = 0
    by_name: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, time_us: float) -> None:
        self.time_us += time_us
        self.calls += 1
        self.by_name[name] = self.by_name.get(name, 0.0) + time_us

    def top(self) -> tuple[str, ...]:
        names = sorted(self.by_name, key=lambda name: -self.by_name[name])
        return tuple(name[:_NAME_LENGTH] for name in names[:_TOP])


def kernel_shares(profiler: profile) -> list[KernelShare]:
    """Return every kind that ran, the longest first: device time, or operators' self time on a CPU.

    Kernels of concurrent streams are added up: the shares are of kernel time, not of wall time. The
    list is empty if nothing was profiled.
    """
    events = list(profiler.events() or ())
    sums: dict[Kind, _Sum] = {}
    for name, kind, time_us in list(_on_device(events)) or _on_cpu(events):
        sums.setdefault(kind, _Sum()).add(name, time_us)
    whole_us = sum(total.time_us for total in sums.values())
    shares = [
        KernelShare(
            kind=kind,
            time_s=total.time_us / 1e6,
            share=total.time_us / whole_us if whole_us else 0.0,
            calls=total.calls,
            top=total.top(),
        )
        for kind, total in sums.items()
    ]
    return sorted(shares, key=lambda share: (-share.time_s, KINDS.index(share.kind)))


def _on_device(events: list[Any]) -> Iterator[tuple[str, Kind, float]]:
    for event in events:
        # A range that the user named contains kernels, which are events themselves.
        if event.device_type.name != "CPU" and not event.is_user_annotation:
            yield event.name, kind_of(event.name), event.time_range.elapsed_us()


def _on_cpu(events: list[Any]) -> Iterator[tuple[str, Kind, float]]:
    """Yield operators with their self time, so that nothing is counted twice."""
    for event in events:
        if event.is_user_annotation or getattr(event, "is_python_function", False):
            continue
        kind: Kind = "optimizer" if _in_optimizer(event) else kind_of(event.name)
        yield event.name, kind, event.self_cpu_time_total


def _in_optimizer(event: Any) -> bool:
    """Whether an optimizer's step called it: on a CPU that is a loop of plain arithmetic."""
    parent = event.cpu_parent
    while parent is not None:
        if parent.name.startswith("Optimizer.step"):
            return True
        parent = parent.cpu_parent
    return False
