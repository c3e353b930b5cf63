"""Validation of recorded settings, once for all jobs and runs with the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic_core import from_json, to_json

from vflops.config.flatten import flatten
from vflops.config.training import WorkloadSettings


@dataclass(frozen=True, eq=False)
class ValidatedSettings:
    """The settings of a workload, and the same as JSON data with all defaults.

    They are shared, so they must not be changed. They are compared by identity, and can therefore
    be arguments of functions with a cache.
    """

    settings: WorkloadSettings
    section: Mapping[str, Any]
    flat: Mapping[str, Any]
    """The values by their dotted names."""


def validated_settings(
    kind: type[WorkloadSettings], recorded: Mapping[str, Any]
) -> ValidatedSettings:
    """Return ``recorded``, which was read from JSON, as ``kind``, or raise ``ValidationError``."""
    return _validated(kind, to_json(recorded, inf_nan_mode="constants"))


@lru_cache(maxsize=64)
def _validated(kind: type[WorkloadSettings], text: bytes) -> ValidatedSettings:
    return with_section(kind.model_validate(from_json(text)))


def with_section(settings: WorkloadSettings) -> ValidatedSettings:
    """Return ``settings`` with the same as JSON data."""
    section = settings.model_dump(mode="json")
    return ValidatedSettings(settings, section, flatten(section))
