"""The settings of a run including its workloads: profiles, files and assignments.

``vflops.config`` does not know any workloads; these functions pass it the registered ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vflops.config import profiles
from vflops.config.settings import Settings, SettingsTypes, load_settings, typed_settings
from vflops.config.training import WorkloadSettings
from vflops.errors import UsageError
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.registry import workloads as registered


def profile(name: str, workloads: Sequence[str] = ()) -> Settings:
    """Return the settings of the profile ``name``, including each of ``workloads``."""
    profiles.check_profile_name(name)
    return profiles.with_workloads(name, {key: _profile_of(key, name) for key in workloads})


def _profile_of(name: str, profile: str) -> WorkloadSettings:
    spec = workload(name)
    owners = [owner.name for owner in registered().values() if profile in owner.profiles]
    if profile in spec.profiles or not owners:
        return spec.profile(profile)
    raise UsageError(
        f"{name} has no profile {profile!r}, which is for {' and '.join(owners)} only",
        hint=f"vflops run {owners[0]} --profile {profile}; the profiles of {name} are "
        f"{', '.join(spec.profiles)}",
    )


def load(
    base: Settings,
    file: Path | None,
    assignments: Sequence[str],
    *,
    keep_batch_per_rank: bool = False,
) -> Settings:
    """Return ``base`` changed by a TOML file and then by ``section.key=value`` assignments."""
    return load_settings(
        base, file, assignments, _types(base), keep_batch_per_rank=keep_batch_per_rank
    )


def workload_settings(settings: Settings) -> dict[str, WorkloadSettings]:
    """Return the settings of each workload of the run, validated by its type."""
    return typed_settings(settings, _types(settings))


def _types(settings: Settings) -> SettingsTypes:
    return {name: workload(name).settings for name in settings.workloads}
