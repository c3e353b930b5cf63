"""The kernel time of training steps by kind of kernel, from torch's profiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vflops.machine.telemetry.kernel_names import KINDS, Kind, kind_of
from vflops.record.files.document import Data

if TYPE_CHECKING:
    from torch.profiler import profile

__all__ = ["KINDS", "KernelShare", "Kind", "kernel_shares", "kind_of"]

_TOP_COUNT = 3
_MAX_NAME_LENGTH = 200  # template arguments can have thousands of characters


class KernelShare(Data):
    """The share of one kind of kernel in all kernel time."""

    kind: Kind
    time_s: float
    share: float
    calls: int
    top: tuple[str, ...]
    """Names of the kernels of this kind with the longest total time, longest first."""


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
        return tuple(name[:_MAX_NAME_LENGTH] for name in names[:_TOP_COUNT])


def kernel_shares(profiler: profile) -> list[KernelShare]:
    """Return the time of each kind of kernel, longest first; empty if nothing was profiled.

    On a CPU it is the self time of operators. The times of concurrent streams are added up, so the
    shares are of kernel time, not of wall time.
    """
    events = list(profiler.events() or ())
    sums: dict[Kind, _Sum] = {}
    for name, kind, time_us in list(_on_device(events)) or _on_cpu(events):
        sums.setdefault(kind, _Sum()).add(name, time_us)
    total_us = sum(total.time_us for total in sums.values())
    shares = [
        KernelShare(
            kind=kind,
            time_s=total.time_us / 1e6,
            share=total.time_us / total_us if total_us else 0.0,
            calls=total.calls,
            top=total.top(),
        )
        for kind, total in sums.items()
    ]
    return sorted(shares, key=lambda share: (-share.time_s, KINDS.index(share.kind)))


def _on_device(events: list[Any]) -> Iterator[tuple[str, Kind, float]]:
    for event in events:
        # A range that the user named contains kernels, which are separate events.
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
    """Whether an optimizer step called the operator; on a CPU the step is plain arithmetic."""
    parent = event.cpu_parent
    while parent is not None:
        if parent.name.startswith("Optimizer.step"):
            return True
        parent = parent.cpu_parent
    return False
