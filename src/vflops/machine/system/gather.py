"""Gathers the description of the system: nine layers of facts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from vflops.machine.probe import absent, reason_of
from vflops.machine.system.accelerator import accelerator_facts
from vflops.machine.system.accelerator_libraries import accelerator_library_facts
from vflops.machine.system.communication_libraries import communication_facts
from vflops.machine.system.cpu import cpu_facts
from vflops.machine.system.framework import framework_facts
from vflops.machine.system.machine import machine_facts
from vflops.machine.system.memory import memory_facts
from vflops.machine.system.network import network_facts
from vflops.machine.system.nvidia import nvidia
from vflops.machine.system.operating_system import operating_system_facts
from vflops.machine.system.programming_model import programming_model_facts
from vflops.machine.system.scheduler import scheduler_facts
from vflops.machine.system.storage import storage_facts
from vflops.machine.system.torch_module import load_torch
from vflops.record.formats.system import Fact, Layer, SystemRecord, Value

Area = tuple[str, Callable[[], list[Fact]]]
"""An area of a layer: its name, which is used only if the area cannot be read, and its reader."""


def gather(
    folder: Path,
    *,
    import_torch: bool = True,
    implementation: Mapping[str, Value] | None = None,
    hyper_parameters: Mapping[str, Value] | None = None,
    problem: Mapping[str, Value] | None = None,
    root: Path = Path("/"),
    environ: Mapping[str, str] = os.environ,
) -> SystemRecord:
    """Return the current description of the system; never raise.

    ``folder`` is the folder of the run, whose file system is described. The last three layers
    describe the workload; a run with a workload passes them as plain values.
    """
    torch = load_torch(import_torch)
    with nvidia(root) as vendor:
        layers: dict[str, tuple[Area, ...]] = {
            "hardware": (
                ("machine", lambda: machine_facts(root)),
                ("cpu", lambda: cpu_facts(root)),
                ("memory", lambda: memory_facts(root)),
                ("accelerators", lambda: accelerator_facts(torch, vendor)),
                ("interfaces", lambda: network_facts(root)),
                ("file system", lambda: storage_facts(folder, root)),
            ),
            "operating system": (
                ("operating system", lambda: operating_system_facts(root, environ)),
                ("scheduler", lambda: scheduler_facts(environ)),
            ),
            "communication libraries": (
                ("communication", lambda: communication_facts(torch, environ)),
            ),
            "accelerator libraries": (
                ("libraries", lambda: accelerator_library_facts(torch, vendor, root, environ)),
            ),
            "framework": (("framework", lambda: framework_facts(torch)),),
            "programming model": (
                ("programming model", lambda: programming_model_facts(torch, root, environ)),
            ),
            "workload implementation": (
                ("implementation", lambda: _workload_facts("implementation", implementation)),
            ),
            "hyper-parameters": (
                ("hyper-parameters", lambda: _workload_facts("hyper-parameters", hyper_parameters)),
            ),
            "problem domain": (("problem", lambda: _workload_facts("problem", problem)),),
        }
        return SystemRecord(
            gathered_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            layers=tuple(_layer(name, areas) for name, areas in layers.items()),
        )


def _layer(name: str, areas: tuple[Area, ...]) -> Layer:
    return Layer(name=name, facts=tuple(fact for area in areas for fact in _facts(*area)))


def _facts(area: str, read: Callable[[], list[Fact]]) -> list[Fact]:
    """Return the facts of an area, or a single absent fact if the area cannot be read."""
    try:
        return read()
    except Exception as error:
        return [absent(area, "vflops", reason_of(error, area))]


def _workload_facts(name: str, values: Mapping[str, Value] | None) -> list[Fact]:
    if not values:
        return [absent(name, "the run", "the run has no workload")]
    return [Fact(name=key, value=value, source="the run") for key, value in values.items()]
