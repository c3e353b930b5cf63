"""Settings of image classification, and its four profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vflops.config.section import Section
from vflops.config.training import TrainSettings, WorkloadSettings


class ResNetSettings(Section):
    """Depth, width and stem of the network; the defaults are ResNet-50."""

    blocks: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = Field(
        default=(3, 4, 6, 3), min_length=1, max_length=8
    )
    """The number of bottleneck blocks in each stage."""
    width: int = Field(default=64, ge=1, le=4096)
    """The bottleneck width of the first stage, in channels."""
    stem: Literal["imagenet", "small"] = "imagenet"
    """``imagenet``: 7×7/2 and max-pool; ``small``: 5×5/2, for images of few pixels."""


class SyntheticSettings(Section):
    """The images that are generated if the user gives none."""

    classes: int = Field(default=10, ge=2, le=10_000)
    """The number of classes."""
    size: int = Field(default=32, ge=8, le=1024)
    """The side length of an image, in pixels."""
    train: int = Field(default=4000, ge=1)
    """The number of images to train on."""
    validation: int = Field(default=1000, ge=1)
    """The number of images to evaluate on."""
    seed: int = Field(default=1, ge=0, lt=2**63)
    """The seed of the images only: repeated training runs use the same images."""
    target: float = Field(default=0.8, gt=0, lt=1)
    """The accuracy that the profile's network reaches within its epochs."""


class ImageSettings(WorkloadSettings):
    """Image classification."""

    target: float | None = Field(default=None, gt=0, lt=1)
    """The top-1 accuracy to reach; None for that of the synthetic images."""
    size: int = Field(default=224, ge=8, le=1024)
    """The side length of the network's input, in pixels."""
    resize: int = Field(default=256, ge=8, le=2048)
    """The short side of an image in evaluation, before the centre crop."""
    augment: Literal["crop", "shift", "none"] = "crop"
    """``crop``: random area and aspect, then flip; ``shift``: a few pixels, then flip."""
    crop_area: tuple[float, float] = (0.05, 1.0)
    """The smallest and the largest area of a random crop, as shares of the image."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """The share of the label that is spread over all classes."""
    unreadable: Literal["fail", "skip"] = "fail"
    """Images that cannot be read end the packing, or are left out with a line each in the index."""
    network: ResNetSettings = ResNetSettings()
    synthetic: SyntheticSettings = SyntheticSettings()

    @model_validator(mode="after")
    def _check_consistency(self) -> ImageSettings:
        low, high = self.crop_area
        if not 0 < low <= high <= 1:
            raise ValueError(
                f"crop_area {low:g} to {high:g} is not a range within 0 and 1, such as 0.05 to 1"
            )
        if self.resize < self.size:
            raise ValueError(f"resize {self.resize} is less than size {self.size}")
        return self


def tiny() -> ImageSettings:
    """Takes seconds: a network of three stages learns a thousand small images."""
    return ImageSettings(
        size=16,
        resize=16,
        augment="shift",
        network=ResNetSettings(blocks=(1, 1, 1), width=8, stem="small"),
        synthetic=SyntheticSettings(classes=4, size=16, train=1024, validation=256, target=0.78),
        train=TrainSettings(
            epochs=8,
            batch=32,
            learning_rate=0.1,
            nesterov=True,
            warmup_epochs=1,
            weight_decay=5e-4,
        ),
    )


def laptop() -> ImageSettings:
    """Takes a minute on two cores: ResNet-50's depth at an eighth of its width, 32 pixels."""
    return ImageSettings(
        size=32,
        resize=32,
        augment="shift",
        network=ResNetSettings(width=8, stem="small"),
        synthetic=SyntheticSettings(classes=10, size=32, train=4000, validation=1000, target=0.88),
        train=TrainSettings(
            epochs=9,
            batch=64,
            learning_rate=0.1,
            nesterov=True,
            warmup_epochs=1,
            weight_decay=5e-4,
        ),
    )


def gpu() -> ImageSettings:
    """Takes minutes on one accelerator: ResNet-50 itself, on 100 classes of synthetic images."""
    return ImageSettings(
        size=160,
        resize=160,
        crop_area=(0.35, 1.0),
        synthetic=SyntheticSettings(
            classes=100, size=160, train=25_600, validation=5_000, target=0.98
        ),
        train=TrainSettings(
            epochs=16,
            batch=512,
            learning_rate=0.256,
            linear_scaling=True,
            momentum=0.875,
            warmup_epochs=2,
            weight_decay=3.0517578125e-05,
            precision="mixed-bf16",
            readers=8,
        ),
    )


def reference() -> ImageSettings:
    """The published rules: ImageNet, 90 epochs, top-1 0.763."""
    return ImageSettings(
        target=0.763,
        synthetic=SyntheticSettings(
            classes=1000, size=256, train=1_281_167, validation=50_000, target=0.763
        ),
        train=TrainSettings(
            epochs=90,
            batch=256,
            batch_per_rank=256,
            learning_rate=0.256,
            linear_scaling=True,
            momentum=0.875,
            warmup_epochs=8,
            weight_decay=3.0517578125e-05,
            precision="mixed-fp16",
            segments=90,
            readers=8,
        ),
    )


PROFILES: dict[str, Callable[[], ImageSettings]] = {
    "tiny": tiny,
    "laptop": laptop,
    "gpu": gpu,
    "reference": reference,
}
