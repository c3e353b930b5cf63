"""Settings of the digits, and their four profiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pydantic import Field

from vflops.config.training import TrainSettings, WorkloadSettings


class DigitsSettings(WorkloadSettings):
    """The settings besides ``train`` and ``data``."""

    target: float | None = Field(default=0.8, gt=0, lt=1)
    samples: int = Field(default=2000, ge=10)
    validation: int = Field(default=500, ge=10)
    noise: float = Field(default=0.2, ge=0)
    hidden: int = Field(default=128, ge=1)


def _sized(samples: int, hidden: int, epochs: int) -> DigitsSettings:
    train = TrainSettings(epochs=epochs, batch=50, optimizer="adam", learning_rate=0.01)
    return DigitsSettings(samples=samples, validation=samples // 4, hidden=hidden, train=train)


PROFILES: dict[str, Callable[[], DigitsSettings]] = {
    "tiny": partial(_sized, 2000, 128, 6),
    "laptop": partial(_sized, 20_000, 256, 6),
    "gpu": partial(_sized, 100_000, 1024, 6),
    "reference": partial(_sized, 100_000, 4096, 20),
}
