"""Profiles: plain functions that return a whole configuration.

``vflops list`` shows the first line of their docstrings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vflops.config.launch import on_this_machine
from vflops.config.settings import CountSettings, MicroSettings, Settings
from vflops.config.training import CEILING_PRECISIONS, WorkloadSettings
from vflops.errors import unknown_name

_SINGLE_WORKLOAD_BUDGET_S = 12.0
"""Time budget for the few ceilings that a single workload needs."""
_NODES_BUDGET_S = 20.0
"""The same on the nodes of a scheduler, where a short measurement on all nodes and the links
between them are added."""
_LAPTOP_CONCURRENCY = 2
"""Base models that the suite trains, and search workers that it runs, at once on a laptop; each
uses one core."""
_SUITE_SEARCH_S = {"laptop": 20.0, "gpu": 75.0}
"""How long the suite searches; a search by itself takes the profile's time."""


def tiny() -> Settings:
    """For tests and a first look: half a minute per workload on two cores."""
    return Settings(profile="tiny", micro=MicroSettings(budget_s=5))


def laptop() -> Settings:
    """The default without an accelerator: four to five minutes on two cores."""
    return Settings(profile="laptop", micro=MicroSettings(budget_s=28))


def gpu() -> Settings:
    """The default with an accelerator: five minutes on one accelerator."""
    return Settings(profile="gpu", count=CountSettings(batch=256), micro=MicroSettings(budget_s=60))


def reference() -> Settings:
    """The papers' full size: days on one accelerator, ten minutes for the ceilings."""
    return Settings(
        profile="reference", count=CountSettings(batch=256), micro=MicroSettings(budget_s=600)
    )


def aiperf() -> Settings:
    """AIPerf's table IV, for automl only: an hour or more on accelerators, ImageNet."""
    return reference().model_copy(update={"profile": "aiperf"})


PROFILES: dict[str, Callable[[], Settings]] = {
    "tiny": tiny,
    "laptop": laptop,
    "gpu": gpu,
    "reference": reference,
    "aiperf": aiperf,
}
SHARED_PROFILES = ("tiny", "laptop", "gpu", "reference")
"""The profiles that every workload has."""
PUBLISHED_PROFILES = ("reference", "aiperf")
"""The profiles that follow the papers, with the published data and rules."""


def check_profile_name(name: str) -> None:
    """Raise a ``UsageError`` unless ``name`` is a profile."""
    if name not in PROFILES:
        raise unknown_name("profile", name, PROFILES)


def with_workloads(name: str, workloads: Mapping[str, WorkloadSettings]) -> Settings:
    """Return the profile ``name`` with the settings of these workloads."""
    check_profile_name(name)
    sections = {key: section.model_dump(mode="json") for key, section in workloads.items()}
    return PROFILES[name]().model_copy(update={"workloads": sections})


def for_suite(settings: Settings, cpus: int) -> Settings:
    """Return the settings for the whole suite on a machine with this many CPUs.

    Its search is shorter than one by itself; on a laptop it has two models and two workers.
    """
    settings = _with_shorter_search(settings)
    if settings.profile != "laptop" or cpus < _LAPTOP_CONCURRENCY:
        return settings
    workloads = dict(settings.workloads)
    if (ensemble := workloads.get("image-classification")) is not None:
        workloads["image-classification"] = {**ensemble, "models": _LAPTOP_CONCURRENCY}
    if (search := workloads.get("automl")) is not None:
        search_settings = {**search["search"], "workers": _LAPTOP_CONCURRENCY}
        workloads["automl"] = {**search, "search": search_settings}
    return settings.model_copy(update={"workloads": workloads})


def _with_shorter_search(settings: Settings) -> Settings:
    search, duration_s = settings.workloads.get("automl"), _SUITE_SEARCH_S.get(settings.profile)
    if search is None or duration_s is None:
        return settings
    shorter = {**search, "search": {**search["search"], "duration_s": duration_s}}
    return settings.model_copy(update={"workloads": {**settings.workloads, "automl": shorter}})


def for_single_workload(settings: Settings, *, here: bool | None = None) -> Settings:
    """Return the settings for a single workload.

    ``here`` says whether its jobs run on this machine; None if that follows from ``launch.on``.

    Unless the user set otherwise, only the ceilings that bound the workload are measured, and the
    operations of the suite's models are not counted.
    """
    default = PROFILES[settings.profile]()
    changes: dict[str, object] = {}
    if settings.count == default.count:
        changes["count"] = CountSettings(models=())
    changes["micro"] = _restrict_ceilings(
        settings, default.micro, on_this_machine(settings.launch.on) if here is None else here
    )
    return settings.model_copy(update=changes)


def _restrict_ceilings(settings: Settings, default: MicroSettings, here: bool) -> MicroSettings:
    """Return ``settings.micro`` restricted to the ceilings that bound the workloads.

    Each setting is restricted unless the user changed it.
    """
    micro, on_nodes = settings.micro, not here
    train_settings = [section["train"] for section in settings.workloads.values()]
    narrowed: dict[str, object] = {}
    if micro.precisions == default.precisions:
        precisions = {CEILING_PRECISIONS[train["precision"]] for train in train_settings}
        narrowed["precisions"] = tuple(sorted(precisions))
    if micro.device == default.device:
        devices = {train["device"] for train in train_settings}
        narrowed["device"] = devices.pop() if len(devices) == 1 else "auto"
    if micro.budget_s == default.budget_s:
        narrowed["budget_s"] = (
            _NODES_BUDGET_S if on_nodes else min(default.budget_s, _SINGLE_WORKLOAD_BUDGET_S)
        )
    if micro.benchmarks == default.benchmarks:
        links = ("all-reduce",) if on_nodes else ()
        narrowed["benchmarks"] = ("gemm", "convolution", "memory", *links)
    return micro.model_copy(update=narrowed)
