"""Measures every item of the plan within the time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path

from vflops.config.settings import MicroSettings
from vflops.machine.ceilings import (
    allreduce,
    convolution,
    gemm,
    host_transfer,
    memory_bandwidth,
    storage_speed,
)
from vflops.machine.ceilings.ceiling_plan import Item, Key, plan, time_share_s
from vflops.machine.ceilings.deadline import Clock, Deadline
from vflops.machine.ceilings.task import Task
from vflops.machine.devices import Device, first_line, pick, threads
from vflops.record.formats.measurement import Measurement, Trial

GRACE_S = 2.0
"""Maximum time beyond the budget, for the last trial, compilation, or killing a rank."""

_MEASURE: dict[str, Callable[[Task], Measurement]] = {
    "gemm": gemm.measure,
    "convolution": convolution.measure,
    "memory": memory_bandwidth.measure,
    "transfer": host_transfer.measure,
    "all-reduce": allreduce.measure,
    "all-reduce-modes": allreduce.measure_mode,
    "storage": storage_speed.measure,
}
_UNAVAILABLE_REASON: dict[str, Callable[[Device, Item], str | None]] = {
    "gemm": gemm.unavailable_reason,
    "convolution": convolution.unavailable_reason,
    "transfer": host_transfer.unavailable_reason,
    "all-reduce": allreduce.unavailable_reason,
}
"""Checks that run first, so that no time is reserved for items that the device lacks."""


def planned_items(settings: MicroSettings) -> tuple[Item, ...]:
    """Return all items of the plan, in the order in which ``measure`` yields them."""
    return plan(settings, accelerators=pick(settings.device).accelerators)


def measure(
    settings: MicroSettings,
    *,
    seed: int,
    folder: Path,
    done: Collection[Key] = (),
    on_start: Callable[[Item], None] = lambda item: None,
    on_trial: Callable[[Item, Trial], None] = lambda item, trial: None,
    clock: Clock = time.monotonic,
) -> Iterator[Measurement]:
    """Yield a measurement for each planned item that is not in ``done``, as soon as it is ready.

    The time starts when the first measurement is requested, and all end within
    ``settings.budget_s`` plus ``GRACE_S``. ``folder`` is on the storage under test. A device that
    does not exist raises an error immediately.
    """
    device = pick(settings.device)
    items = plan(settings, accelerators=device.accelerators)
    todo = [item for item in items if item.key not in done]

    def measurements() -> Iterator[Measurement]:
        overall_deadline = Deadline(clock() + settings.budget_s, clock)
        reasons = _unavailable_reasons(device, todo)
        for index, item in enumerate(todo):
            on_start(item)
            if item.key in reasons:
                yield item.absent_measurement(device.name, reasons[item.key])
                continue
            rest = [later for later in todo[index:] if later.key not in reasons]
            yield _measure(
                Task(
                    item=item,
                    device=device,
                    deadline=overall_deadline.limited_to(
                        time_share_s(rest, overall_deadline.left_s())
                    ),
                    overall_deadline=overall_deadline,
                    budget_s=settings.budget_s,
                    seed=seed,
                    folder=folder,
                    ranks=settings.ranks,
                    on_trial=partial(on_trial, item),
                )
            )

    return measurements()


def _unavailable_reasons(device: Device, items: Iterable[Item]) -> dict[Key, str]:
    """Return the reasons why items are unavailable on the device, by their keys."""
    known_reasons: dict[tuple[str, str], str | None] = {}
    reasons: dict[Key, str] = {}
    with device.current():
        for item in items:
            if item.benchmark not in _UNAVAILABLE_REASON:
                continue
            cache_key = (item.benchmark, item.precision or item.case)  # same for all directions
            if cache_key not in known_reasons:
                known_reasons[cache_key] = _UNAVAILABLE_REASON[item.benchmark](device, item)
            if reason := known_reasons[cache_key]:
                reasons[item.key] = reason
    return reasons


def _measure(task: Task) -> Measurement:
    """Measure one item; if it fails, return a measurement with the error as the reason."""
    try:
        with task.device.current(), threads(task.device.thread_counts()[0]):
            return _MEASURE[task.item.benchmark](task)
    except (RuntimeError, OSError) as failure:
        return task.absent_measurement(f"it failed: {first_line(failure)}")
    finally:
        task.device.release()
