"""Workloads by name: the built-in ones and those that other packages offer."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache

from vflops.errors import unknown_name
from vflops.extensions import extension_errors, load_extensions
from vflops.workloads.contract.spec import WorkloadSpec

ENTRY_POINTS = "vflops.workloads"
"""The entry point group in which other packages offer a ``WorkloadSpec``."""

_PACKAGE = "vflops.workloads"
_BUILT_IN: dict[str, WorkloadSpec] = {}


def register(describe: Callable[[], WorkloadSpec]) -> Callable[[], WorkloadSpec]:
    """Register the workload that ``describe`` returns; the decorator of built-in workloads."""
    spec = describe()
    _BUILT_IN[spec.name] = spec
    return describe


@cache
def workloads() -> Mapping[str, WorkloadSpec]:
    """Return all workloads, built-in ones first."""
    package = importlib.import_module(_PACKAGE)
    for module in pkgutil.iter_modules(package.__path__):
        if module.ispkg:  # every folder is a workload, which registers itself when imported
            importlib.import_module(f"{_PACKAGE}.{module.name}")
    return {
        **_BUILT_IN,
        **load_extensions(ENTRY_POINTS),
        **_BUILT_IN,
    }  # nothing replaces a built-in one


def workload(name: str) -> WorkloadSpec:
    """Return the workload called ``name``; raise ``UsageError`` if it is unknown."""
    if name not in workloads():
        if name in (errors := extension_errors(ENTRY_POINTS)):
            raise errors[name]
        raise unknown_name("workload", name, workloads())
    return workloads()[name]


def suite() -> list[str]:
    """Return the names of the workloads that the suite consists of."""
    return [spec.name for spec in workloads().values() if spec.in_suite]
