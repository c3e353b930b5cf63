"""Profiles: plain functions that return a whole configuration.

``vflops list`` shows the first line of their docstrings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from vflops.config.settings import CountSettings, MicroSettings, Settings
from vflops.config.training import CEILING_PRECISIONS, WorkloadSettings
from vflops.errors import unknown_name

_ONE_BUDGET_S = 12.0
"""Budget for the few ceilings that one workload needs."""
_SIDE_BY_SIDE = 2
"""Base models of the suite's ensemble on a laptop, and workers of its search; a core each."""


def tiny() -> Settings:
    """For tests and a first look: half a minute per workload on two cores."""
    return Settings(profile="tiny", micro=MicroSettings(budget_s=5))


def laptop() -> Settings:
    """The default without an accelerator: three to four minutes on two cores."""
    return Settings(profile="laptop", micro=MicroSettings(budget_s=36))


def gpu() -> Settings:
    """The default with an accelerator: minutes on one of them."""
    return Settings(
        profile="gpu", count=CountSettings(batch=256), micro=MicroSettings(budget_s=150)
    )


def reference() -> Settings:
    """The papers' full size: days on one accelerator, ten minutes for the ceilings."""
    return Settings(
        profile="reference", count=CountSettings(batch=256), micro=MicroSettings(budget_s=600)
    )


PROFILES: dict[str, Callable[[], Settings]] = {
    "tiny": tiny,
    "laptop": laptop,
    "gpu": gpu,
    "reference": reference,
}


def check_profile_name(name: str) -> None:
    """Raise a ``UsageError`` unless ``name`` is a profile."""
    if name not in PROFILES:
        raise unknown_name("profile", name, PROFILES)


def with_workloads(name: str, workloads: Mapping[str, WorkloadSettings]) -> Settings:
    """Return the profile ``name`` with the settings of these workloads."""
    check_profile_name(name)
    sections = {key: section.model_dump(mode="json") for key, section in workloads.items()}
    return PROFILES[name]().model_copy(update={"workloads": sections})


def for_suite(settings: Settings) -> Settings:
    """Return the settings of the whole suite; on a laptop with two models and two workers."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if settings.profile != "laptop" or cores < _SIDE_BY_SIDE:
        return settings
    workloads = dict(settings.workloads)
    if (ensemble := workloads.get("image-classification")) is not None:
        workloads["image-classification"] = {**ensemble, "models": _SIDE_BY_SIDE}
    if (search := workloads.get("automl")) is not None:
        shared = {**search["search"], "workers": _SIDE_BY_SIDE}
        workloads["automl"] = {**search, "search": shared}
    return settings.model_copy(update={"workloads": workloads})


def for_single_workload(settings: Settings) -> Settings:
    """Return the settings of one workload: only the ceilings that bound it, unless others are set.

    Its FLOPS are compared with these ceilings; the models of the suite are not counted.
    """
    default = PROFILES[settings.profile]()
    changes: dict[str, object] = {}
    if settings.count == default.count:
        changes["count"] = CountSettings(models=())
    if settings.launch.on != "local":  # training happens on another machine
        changes["micro"] = settings.micro.model_copy(update={"benchmarks": ()})
    else:
        changes["micro"] = _bounding(settings, default.micro)
    return settings.model_copy(update=changes)


def _bounding(settings: Settings, default: MicroSettings) -> MicroSettings:
    """Return the ceilings that bound the workloads; precisions even if other settings differ."""
    micro, sections = settings.micro, [section["train"] for section in settings.workloads.values()]
    narrowed: dict[str, object] = {}
    if micro.precisions == default.precisions:
        wanted = {CEILING_PRECISIONS[section["precision"]] for section in sections}
        narrowed["precisions"] = tuple(sorted(wanted))
    if micro == default:
        devices = {section["device"] for section in sections}
        narrowed["device"] = devices.pop() if len(devices) == 1 else "auto"
        narrowed["budget_s"] = min(default.budget_s, _ONE_BUDGET_S)
        narrowed["benchmarks"] = ("gemm", "convolution", "memory")
    return micro.model_copy(update=narrowed)
