"""The highest qualities that can be believed, by workload and data.

On published data, the limit is the best published quality plus a margin. On the synthetic data of a
profile, it lies four standard deviations or more above the mean of honest runs, where several seeds
were run; ensembles have a limit of their own, which is an estimate. The labels of synthetic images
and weather are exact, so no limit can be derived for them: a network that is large enough may come
close to 1. Synthetic text has a limit that follows from its source.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from vflops.data.text.floor import Floor, floor_of_recipe
from vflops.data.text.text_recipe import TextRecipe
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Ensembled, Evaluated
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.task.closed_tasks import tasks
from vflops.results.task.published_data import PUBLISHED_DATA, data_fault
from vflops.results.task.task import Task


@dataclass(frozen=True)
class QualityLimit:
    """The highest believable quality of one model and of an ensemble, and where it is from."""

    model: float
    ensemble: float
    source: str


_CLOSED: dict[tuple[str, str], QualityLimit] = {
    ("image-classification", "reference"): QualityLimit(
        0.80,
        0.83,
        "ResNet-50 on ImageNet at 224 pixels reaches 0.781 in 100 epochs (Wightman, Touvron and "
        "Jégou, 2021, procedure A3), and ensembles gain up to 0.03",
    ),
    ("extreme-weather", "reference"): QualityLimit(
        0.45,
        0.50,
        "the best published mAP@0.5 on this data is about 0.36 (HPC AI500 V2.0, whose target is "
        "0.35; Racah et al., 2017, report less)",
    ),
    ("image-classification", "tiny"): QualityLimit(
        0.95, 0.98, "the best of 10 honest runs reached 0.883, with a deviation of 0.02"
    ),
    ("image-classification", "laptop"): QualityLimit(
        0.95, 0.97, "the best of 4 honest runs reached 0.903, with a deviation of 0.007"
    ),
    ("extreme-weather", "tiny"): QualityLimit(
        0.52, 0.62, "the best of 8 honest runs reached 0.422, with a deviation of 0.03"
    ),
    ("extreme-weather", "laptop"): QualityLimit(
        0.90, 0.92, "the best of 13 honest runs reached 0.805, and ten models together 0.832"
    ),
    ("extreme-weather", "gpu"): QualityLimit(
        0.88, 0.92, "4 honest runs with one seed reached 0.777"
    ),
}
"""The limits of closed tasks. Image classification in the profile ``gpu`` may reach 1: its target
is 0.98, so that the quality factor is at most 1.11."""

_PUBLISHED: dict[str, QualityLimit] = {
    "image-classification": QualityLimit(
        0.88, 0.90, "the best network that was trained on ImageNet alone reaches 0.867 (MaxViT-L)"
    ),
    "automl": QualityLimit(
        0.88, 0.90, "the best network that was trained on ImageNet alone reaches 0.867 (MaxViT-L)"
    ),
    "extreme-weather": QualityLimit(
        0.60, 0.65, "the best published mAP@0.5 on this data is about 0.36 (HPC AI500 V2.0)"
    ),
}
"""The limits of any network on the published data."""

_SYNTHETIC: dict[str, QualityLimit] = {
    "extreme-weather": QualityLimit(
        0.97, 0.98, "the weakest storms hardly stand out, so that no detector finds all of them"
    ),
}
"""The limits of any network on synthetic data."""
MIN_SAMPLES = 32
"""On fewer samples, chance may lead to any quality."""
_CHANCE = 1e-12
"""The probability that an honest evaluation exceeds the limit of synthetic text."""
_ROUNDING = 1e-6
"""The largest difference between two records of the same figure that counts as equal."""
_MAX_LOSS = 700.0
"""exp(−loss) is 0 beyond it."""


def quality_limit(record: JobRecord, task: Task) -> QualityLimit | None:
    """Return the limit for a job; None for data that nobody else has trained on."""
    name, data = record.workload, record.data
    if name == "language-model":
        return _text_limit(record) if data.synthetic else None
    if data.validation < MIN_SAMPLES or record.goal.better != "higher":
        return None
    if task.kind == "closed" and (name, task.profile) in _CLOSED:
        return _CLOSED[name, task.profile]
    if data.synthetic:
        return _SYNTHETIC.get(name)
    published = PUBLISHED_DATA.get(name)
    is_published = published is not None and data_fault(data, published) is None
    return _PUBLISHED.get(name) if is_published else None


def _text_limit(record: JobRecord) -> QualityLimit | None:
    """Return the probability that the source itself gives the next token, with a margin for chance.

    The text is drawn again, from the settings or from the recipe that was recorded for synthetic
    text in a folder of the user. Older runs have no such recipe; theirs is the recorded floor. A
    mean of several models is a model too. Experts have no limit: whether a token finds a
    place depends on later tokens, which the argument excludes.
    """
    settings, tokens = record.settings, record.data.validation * record.settings["context"]
    if not tokens or settings["network"]["experts"]:
        return None
    floor = _drawn_floor(record)
    if floor is None and isinstance(recorded := record.data.facts.get("floor"), float):
        floor = Floor(recorded, 0.0, tokens)
    if floor is None:
        return None
    most = math.exp(floor.margin(_CHANCE) - floor.loss)
    source = (
        f"the source of this text itself has a loss of {floor.loss:.4f} on these {tokens:,} tokens"
    )
    return QualityLimit(most, most, source)


def _drawn_floor(record: JobRecord) -> Floor | None:
    """Return the floor of the synthetic text of a job, drawn again; None if it cannot be."""
    recipe = _recipe(record)
    tokens = record.data.validation * record.settings["context"]
    return None if recipe is None or not tokens else _floor(recipe, tokens)


def _recipe(record: JobRecord) -> TextRecipe | None:
    """Return what the synthetic text of a job was drawn from; None if it is not recorded."""
    if record.settings["data"] is not None:
        return TextRecipe.from_facts(record.data.facts)
    synthetic = record.settings["synthetic"]
    return TextRecipe(vocabulary=synthetic["vocabulary"], seed=synthetic["seed"])


def undrawn_floors(contents: Contents) -> list[int]:
    """Return the jobs whose recorded floor cannot be computed again from a recorded recipe."""
    return [
        job.record.job
        for job in contents.training_jobs
        if job.record.workload == "language-model"
        and "floor" in job.record.data.facts
        and _recipe(job.record) is None
    ]


@lru_cache(maxsize=16)
def _floor(recipe: TextRecipe, tokens: int) -> Floor:
    return floor_of_recipe(recipe, "val", tokens)


def _floor_fault(event: Event, record: JobRecord) -> Iterator[tuple[Event, str]]:
    """Yield an evaluation if the floor that reports show for it is not that of the text."""
    floor = _drawn_floor(record) if record.workload == "language-model" else None
    if floor is None:
        return
    recorded = record.data.facts.get("floor")
    if not isinstance(recorded, float) or abs(recorded - floor.loss) > _ROUNDING:
        yield event, f"the floor of the text is {floor.loss:.6f}, but {recorded} is recorded"


def _loss_faults(job: TrainedJob) -> Iterator[tuple[Event, str]]:
    """Yield the evaluations whose quality does not follow from their loss, though it should."""
    if job.record.goal.of_loss is None:
        return
    for event in (event for log in job.logs for event in log.events):
        if event.kind != "evaluation":
            continue
        evaluated = event.payload(Evaluated)
        if evaluated.loss is not None and not math.isclose(
            evaluated.quality, math.exp(-min(evaluated.loss, _MAX_LOSS)), rel_tol=_ROUNDING
        ):
            follows = f"exp(−{evaluated.loss:.6g})"
            yield event, f"the {job.record.goal.quality} is {evaluated.quality:.6g}, not {follows}"


def quality_faults(contents: Contents) -> Iterator[tuple[Event, str]]:
    """Yield the evaluations of models and ensembles whose quality cannot be believed.

    It is above its limit, or it does not follow from the loss that was recorded with it.
    """
    for job in contents.training_jobs:
        yield from _loss_faults(job)
    by_job = contents.once(tasks)
    limits = {
        job.record.job: (job.record, limit)
        for job in (*contents.training_jobs, *contents.workers)
        if (limit := quality_limit(job.record, by_job[job.record.job]))
    }
    for job in (*contents.training_jobs, *contents.workers):
        if job.record.job not in limits:
            continue
        record, limit = limits[job.record.job]
        for event in (event for log in job.logs for event in log.events):
            if event.kind == "evaluation":
                quality = event.payload(Evaluated).quality
                yield from _fault(event, record, quality, limit.model, limit.source)
                yield from _floor_fault(event, record)
    for event in contents.history.events("ensemble"):
        ensemble = event.payload(Ensembled)
        known = [limits[job] for job in ensemble.jobs if job in limits]
        for record, limit in known[:1]:
            for quality in ensemble.qualities:
                yield from _fault(event, record, quality, limit.ensemble, limit.source)


def _fault(
    event: Event, record: JobRecord, quality: float, most: float, source: str
) -> Iterator[tuple[Event, str]]:
    if quality > most:
        stated = f"the {record.goal.quality} is {quality:.4g}"
        yield event, f"{stated}, but at most {most:g} can be believed: {source}"
