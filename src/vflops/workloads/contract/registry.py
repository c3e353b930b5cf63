"""Workloads by name: the built-in ones, found by their folders, and those of other packages."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache

from vflops.errors import unknown_name
from vflops.extensions import broken, offered
from vflops.workloads.contract.spec import WorkloadSpec

ENTRY_POINTS = "vflops.workloads"
"""Other packages offer a ``WorkloadSpec`` by an entry point of this group."""

_PACKAGE = "vflops.workloads"
_BUILT_IN: dict[str, WorkloadSpec] = {}


def register(describe: Callable[[], WorkloadSpec]) -> Callable[[], WorkloadSpec]:
    """Make the workload that ``describe`` returns known; the decorator of built-in ones."""
    spec = describe()
    _BUILT_IN[spec.name] = spec
    return describe


@cache
def workloads() -> Mapping[str, WorkloadSpec]:
    """All workloads: built in and installed by others."""
    package = importlib.import_module(_PACKAGE)
    for module in pkgutil.iter_modules(package.__path__):
        if module.ispkg:  # a folder is a workload, and registers itself
            importlib.import_module(f"{_PACKAGE}.{module.name}")
    return {**_BUILT_IN, **offered(ENTRY_POINTS), **_BUILT_IN}  # built-in ones are never replaced


def workload(name: str) -> WorkloadSpec:
    """The workload called ``name``."""
    if name not in workloads():
        if name in (cannot := broken(ENTRY_POINTS)):
            raise cannot[name]
        raise unknown_name("workload", name, workloads())
    return workloads()[name]


def suite() -> list[str]:
    """The names of those that a run of everything includes."""
    return [spec.name for spec in workloads().values() if spec.in_suite]
