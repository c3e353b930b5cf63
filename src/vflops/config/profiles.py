"""Profiles: plain functions that return a whole configuration."""

from __future__ import annotations

from collections.abc import Callable

from vflops.config.settings import CountSettings, MicroSettings, Settings
from vflops.errors import unknown_name


def tiny() -> Settings:
    """Seconds, on anything: for tests and a first look."""
    return Settings(profile="tiny", micro=MicroSettings(budget_s=5))


def laptop() -> Settings:
    """A minute on two cores; the default without an accelerator."""
    return Settings(profile="laptop", micro=MicroSettings(budget_s=36))


def gpu() -> Settings:
    """Minutes on one accelerator; the default where there is one."""
    return Settings(
        profile="gpu", count=CountSettings(batch=256), micro=MicroSettings(budget_s=150)
    )


def reference() -> Settings:
    """Ten minutes: ceilings with all the time that a search can use."""
    return Settings(
        profile="reference", count=CountSettings(batch=256), micro=MicroSettings(budget_s=600)
    )


PROFILES: dict[str, Callable[[], Settings]] = {
    "tiny": tiny,
    "laptop": laptop,
    "gpu": gpu,
    "reference": reference,
}


def profile(name: str) -> Settings:
    """The configuration that ``name`` stands for."""
    if name not in PROFILES:
        raise unknown_name("profile", name, PROFILES)
    return PROFILES[name]()
