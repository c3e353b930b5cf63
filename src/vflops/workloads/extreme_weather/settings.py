"""Settings of extreme weather analytics, and its four profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from vflops.config.section import Section
from vflops.config.training import TrainSettings, WorkloadSettings
from vflops.data.climate.box_rows import Order
from vflops.data.climate.year_split import parse_years
from vflops.models.detection.detector_design import DetectorDesign


class SyntheticSettings(Section):
    """The frames that are generated if the user gives none."""

    height: int = Field(default=96, ge=32, le=4096)
    """The height of a frame, in pixels."""
    width: int = Field(default=144, ge=32, le=4096)
    """The width of a frame, in pixels."""
    train: int = Field(default=400, ge=1)
    """The number of frames to train on."""
    validation: int = Field(default=80, ge=1)
    """The number of frames to evaluate on during training."""
    test: int = Field(default=40, ge=1)
    """The number of frames to evaluate on at the end."""
    seed: int = Field(default=1, ge=0, lt=2**63)
    """The seed of the frames only: repeated training runs use the same frames."""
    target: float = Field(default=0.7, gt=0, lt=1)
    """The mAP that the profile's network reaches within its epochs."""


def _parse_year_values(value: Any) -> Any:
    """Convert ``1990``, ``"1979-1983"`` and lists of both to years."""
    if isinstance(value, str):
        return parse_years(value)
    if isinstance(value, list | tuple):
        return tuple(year for part in value for year in _parse_year_values(part))
    return (value,)


_Years = Annotated[tuple[int, ...], BeforeValidator(_parse_year_values)]


class YearSettings(Section):
    """The years for training, validation and test; if all are empty, the reference split."""

    train: _Years = ()
    """The years to train on, such as ``1979-1983`` or a list."""
    validation: _Years = ()
    """The years to evaluate on during training."""
    test: _Years = ()
    """The years to evaluate on at the end."""

    @property
    def is_set(self) -> bool:
        """Whether the user has chosen a split."""
        return bool(self.train or self.validation or self.test)


class WeatherSettings(WorkloadSettings):
    """Extreme weather analytics."""

    target: float | None = Field(default=None, gt=0, lt=1)
    """The mAP at IoU 0.5 to reach; None for that of the synthetic frames."""
    years: YearSettings = YearSettings()
    """How to split a folder of HDF5 years; packed data is already split."""
    box_order: Order | None = None
    """The columns of the boxes in HDF5 years, c for class; None to infer them from the values."""
    faulty: Literal["fail", "skip"] = "fail"
    """What to do about frames that contain NaN, and boxes outside their frame."""
    network: DetectorDesign = DetectorDesign()
    synthetic: SyntheticSettings = SyntheticSettings()

    @model_validator(mode="after")
    def _check_consistency(self) -> WeatherSettings:
        if self.data is None and (self.years.is_set or self.box_order is not None):
            name = "years" if self.years.is_set else "box_order"
            raise ValueError(
                f"{name} is for your own years, but without --data frames are synthetic: give "
                "--data DIR, or leave it out"
            )
        return self


def _small_network() -> DetectorDesign:
    """A quarter of a million parameters, for frames of about 100 pixels."""
    return DetectorDesign(
        blocks=(2, 2),
        width=16,
        stages=(1, 2),
        pooled=False,
        channels=48,
        hidden=96,
        anchors=(((12, 12), (18, 18), (14, 28)), ((24, 24), (30, 30), (19, 40))),
        anchor_samples=64,
        candidates=150,
        proposals=48,
        regions=48,
        region_size=5,
        region_scale=48,
    )


def tiny() -> WeatherSettings:
    """Takes half a minute on two cores: learns to detect some of the events."""
    return WeatherSettings(
        network=_small_network(),
        synthetic=SyntheticSettings(
            height=96, width=144, train=128, validation=32, test=8, target=0.32
        ),
        train=TrainSettings(epochs=10, batch=4, optimizer="adam", learning_rate=4e-3),
    )


def laptop() -> WeatherSettings:
    """Takes a minute on two cores: a small network on small frames."""
    return WeatherSettings(
        network=_small_network(),
        synthetic=SyntheticSettings(target=0.71),
        train=TrainSettings(
            epochs=8, batch=4, optimizer="adam", learning_rate=3e-3, warmup_epochs=1
        ),
    )


def gpu() -> WeatherSettings:
    """Takes minutes on one accelerator: the published network on frames of half the size."""
    return WeatherSettings(
        synthetic=SyntheticSettings(
            height=384, width=576, train=800, validation=80, test=40, target=0.75
        ),
        train=TrainSettings(
            epochs=12,
            batch=16,
            optimizer="adam",
            learning_rate=2e-4,
            warmup_epochs=1,
            precision="mixed-bf16",
            compile="record",  # compiling takes minutes and makes these 20 s a quarter shorter
            readers=8,
        ),
    )


def reference() -> WeatherSettings:
    """The published rules: all years, 50 epochs, mAP at IoU 0.5 of 0.35."""
    return WeatherSettings(
        target=0.35,
        synthetic=SyntheticSettings(
            height=768, width=1152, train=1460 * 24, validation=1460, test=1460, target=0.35
        ),
        train=TrainSettings(
            epochs=50,
            batch=8,  # by estimate, fp32 activations of 8 frames fit an accelerator of 32 GB
            batch_per_rank=8,
            learning_rate=0.16,
            linear_scaling=True,
            weight_decay=1e-4,
            warmup_epochs=1,
            precision="mixed-fp16",
            segments=50,
            readers=8,
        ),
    )


PROFILES: dict[str, Callable[[], WeatherSettings]] = {
    "tiny": tiny,
    "laptop": laptop,
    "gpu": gpu,
    "reference": reference,
}
