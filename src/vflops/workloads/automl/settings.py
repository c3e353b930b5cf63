"""Settings of the AutoML workload, and its five profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vflops.config.section import Section
from vflops.workloads.image_classification import settings
from vflops.workloads.image_classification.settings import ImageSettings

_ORDERED_BELOW = 16
"""With this many workers or more, the time spent waiting outweighs repeatability."""

_AIPERF_BATCH = 448
"""Samples per accelerator, by default, in AIPerf's table IV."""
_AIPERF_EPOCHS = 60
"""The largest number of epochs in AIPerf's table IV, over which the learning rate falls to 0."""

Kernel = Annotated[int, Field(ge=3, le=7)]


class LimitSettings(Section):
    """The limits of a candidate; None means no limit."""

    parameters: int | None = Field(default=None, ge=1)
    operations: int | None = Field(default=None, ge=1)
    """Operations of training on one sample, by AIPerf's rules."""
    memory_bytes: int | None = Field(default=None, ge=1)
    """Estimated memory of a training step on one rank."""
    depth: int | None = Field(default=None, ge=1)


class SearchSettings(Section):
    """The search for architectures and hyperparameters."""

    workers: int = Field(default=1, ge=1, le=65536)
    duration_s: float = Field(default=3600.0, gt=0, le=30 * 86400)
    """How long each worker searches and trains."""
    end: Literal["time", "converged"] = "time"
    """Whether a search lasts for ``duration_s``, or may end before, after ``least_s`` and once its
    score has converged."""
    least_s: float = Field(default=3600.0, gt=0, le=30 * 86400)
    """How long each worker searches at least before a search that has converged ends."""
    candidates: int | None = Field(default=None, ge=1)
    """Rounds after which a worker ends early; None if it uses all of its time."""
    ledger: str | None = None
    """The ``ledger.json`` of a search to replay: exactly its candidates are trained."""
    searcher: Literal["bayesian", "evolution", "random"] = "bayesian"
    order: Literal["auto", "ordered", "free"] = "auto"
    """``ordered``: proposals depend on results in a fixed order, so that a seed repeats a search;
    ``free``: on all results so far, as published. ``auto``: ordered below 16 workers."""
    turn_s: float = Field(default=300.0, gt=0)
    """In ordered mode: how long to wait for a worker that is silent."""
    inherit: bool = True
    """Whether a candidate starts from its parent's weights instead of new ones."""
    ahead: int = Field(default=2, ge=1, le=64)
    """In free mode: proposals that each worker keeps in the buffer."""
    limits: LimitSettings = LimitSettings()
    tune_from: int = Field(default=5, ge=1)
    """The first round, counted from 1, in which hyperparameters are tuned."""
    tuning: Literal["pooled", "separate"] = "pooled"
    """Whether hyperparameters are tuned from the results of all workers, or as published: from
    those of the worker itself, which then trains only its own proposals."""
    batches: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(), max_length=32)
    """Batch sizes to choose from; if empty, train.batch, half of it and twice as much."""
    kernels: tuple[Kernel, ...] = (3, 5, 7)
    """Kernel sizes to choose from."""
    v1: bool = False
    """Whether the starting network has its strides in the 1×1 convolutions, like the paper's
    ResNet-50 v1; otherwise it is v1.5, as in image classification."""
    error: float = Field(default=0.3, gt=0, lt=1)
    """The largest error of a valid result: 0.3 in the paper's table, 0.35 (the upper limit) in its
    text."""
    score_from_round: int = Field(default=1, ge=1)
    """The first round whose results count; more than 1 leaves out a warm-up."""


class AutomlSettings(ImageSettings):
    """AutoML on images."""

    search: SearchSettings = SearchSettings()

    @model_validator(mode="after")
    def _check_search(self) -> AutomlSettings:
        kernels = self.search.kernels
        if not kernels or len(set(kernels)) < len(kernels) or any(x % 2 == 0 for x in kernels):
            raise ValueError(
                f"search.kernels {list(kernels)}: expected one or more of 3, 5 and 7, each once"
            )
        if self.search.end == "converged" and self.search.least_s >= self.search.duration_s:
            raise ValueError(
                f"search.end is converged, but search.least_s {self.search.least_s:g} is not less "
                f"than search.duration_s {self.search.duration_s:g}, with which the search ends "
                "anyway: use a longer --for"
            )
        if self.train.parallel.mode != "data":
            raise ValueError(
                f"parallel.mode {self.train.parallel.mode}: the candidates of a search can only be "
                "trained data-parallel: use parallel.mode data"
            )
        smallest = self.train.model_copy(update={"batch": min(self.batches)})
        if self.train.end_rate > smallest.peak_rate:
            raise ValueError(
                f"train.end_rate {self.train.end_rate:g} is more than {smallest.peak_rate:g}, the "
                f"rate that the schedule starts from with a batch of {smallest.batch}: use a "
                "smaller --set train.end_rate"
            )
        parts = self.train.ranks * self.train.accumulate * self.train.ghosts
        for batch in self.batches:
            if batch % parts:
                raise ValueError(
                    f"search.batches contains {batch}, which {self.train.ranks} ranks × "
                    f"{self.train.accumulate} accumulation cannot share evenly"
                )
        return self

    @property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes that tuning chooses from."""
        if self.search.batches:
            return tuple(sorted(set(self.search.batches)))
        parts = self.train.ranks * self.train.accumulate * self.train.ghosts
        half = self.train.batch // 2
        smaller = (half,) if half and half % parts == 0 else ()
        return (*smaller, self.train.batch, self.train.batch * 2)

    @property
    def ordered(self) -> bool:
        """Whether proposals depend on results in a fixed order."""
        if self.search.order == "auto":
            return self.search.workers < _ORDERED_BELOW
        return self.search.order == "ordered"

    @property
    def own_proposals(self) -> bool:
        """Whether a worker trains only the candidates that it proposed itself."""
        return self.ordered or self.search.tuning == "separate"


def _with_search(
    base: ImageSettings, epochs: int, search: SearchSettings, warmup_epochs: float = 0.0
) -> AutomlSettings:
    """Return the settings of image classification with a search, for at most ``epochs`` epochs."""
    train = base.train.model_copy(update={"epochs": epochs, "warmup_epochs": warmup_epochs})
    return AutomlSettings.model_validate(
        {**base.model_dump(), "train": train.model_dump(), "search": search.model_dump()}
    )


def tiny() -> AutomlSettings:
    """Takes seconds: a few candidates of three stages on a few hundred small images."""
    base = settings.tiny()
    base = base.model_copy(
        update={"synthetic": base.synthetic.model_copy(update={"train": 512, "target": 0.5})}
    )
    search = SearchSettings(duration_s=8, limits=LimitSettings(parameters=300_000))
    return _with_search(base, 2, search)


def laptop() -> AutomlSettings:
    """Takes half a minute per worker on one core: small networks on 2,000 images of 32 pixels."""
    base = settings.laptop()
    base = base.model_copy(
        update={
            "network": settings.ResNetSettings(blocks=(1, 1, 1, 1), width=8, stem="small"),
            "synthetic": base.synthetic.model_copy(
                update={"train": 2000, "validation": 500, "target": 0.8}
            ),
        }
    )
    search = SearchSettings(duration_s=30, limits=LimitSettings(operations=60_000_000), turn_s=60)
    return _with_search(base, 4, search)


def gpu() -> AutomlSettings:
    """Takes five minutes on an accelerator: ResNet-50 and its children on ten classes.

    Without warm-up, the 200 steps of the first candidates learn nothing.
    """
    base = settings.gpu()
    train = base.train.model_copy(
        update={"batch": 256, "learning_rate": 0.1, "checkpoint_share": 0.01}
    )
    synthetic = base.synthetic.model_copy(update={"classes": 10, "target": 0.7})
    base = base.model_copy(update={"train": train, "synthetic": synthetic, "augment": "shift"})
    return _with_search(base, 8, SearchSettings(duration_s=300), warmup_epochs=0.5)


def reference() -> AutomlSettings:
    """The published rules: ImageNet, 60 epochs, at least an hour; the recipe of HPC AI500."""
    base = settings.reference()
    train = base.train.model_copy(update={"stop_by": "loss"})
    base = base.model_copy(update={"train": train, "label_smoothing": 0.0})
    return _with_search(base, 60, SearchSettings())


def aiperf() -> AutomlSettings:
    """AIPerf's table IV: ResNet-50 v1 and the paper's recipe, with new weights.

    What the paper leaves open, such as weight decay and augmentation, is as in ``reference``.
    """
    base = settings.reference()
    train = base.train.model_copy(
        update={
            "batch": _AIPERF_BATCH,
            "batch_per_rank": _AIPERF_BATCH,
            "optimizer": "sgd",
            "momentum": 0.9,
            "nesterov": False,
            "learning_rate": 0.1,
            "linear_scaling": False,
            "schedule": "polynomial",
            "power": 1.0,
            "end_rate": 0.0,
            "schedule_epochs": _AIPERF_EPOCHS,
            "stop_by": "loss",
        }
    )
    search = SearchSettings(
        duration_s=3600,
        order="free",
        inherit=False,
        tune_from=5,
        tuning="separate",
        v1=True,
        error=0.3,
    )
    base = base.model_copy(update={"train": train, "label_smoothing": 0.0, "target": 0.7})
    return _with_search(base, _AIPERF_EPOCHS, search)


PROFILES: dict[str, Callable[[], AutomlSettings]] = {
    "tiny": tiny,
    "laptop": laptop,
    "gpu": gpu,
    "reference": reference,
    "aiperf": aiperf,
}
