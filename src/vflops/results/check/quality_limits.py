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

from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Ensembled, Evaluated
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.text_facts import drawn_floor
from vflops.results.task.closed_tasks import tasks
from vflops.results.task.published_data import PUBLISHED_DATA, data_fault
from vflops.results.task.task import Task
from vflops.workloads.language_model.settings import LanguageSettings


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
        0.96, 0.98, "the best of 56 honest runs reached 0.906, with a deviation of 0.02"
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
_MAX_REVEALED = 0.05
"""The largest share of the floor by which experts move the limit. It is a judgement, not a theorem:
for small batches and for ensembles, the bound that can be proved would allow any loss. No gradient
passes through the places, so training does not learn to encode later tokens in them."""
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
    text in a folder of the user. A mean of several models is a model too. Models with experts are
    allowed more, for what they may learn about later tokens.
    """
    floor = drawn_floor(record)
    if floor is None:
        return None
    revealed = _revealed_by_experts(record) / floor.tokens
    models, most = record.bag.models if record.bag else 1, _MAX_REVEALED * floor.loss
    best = floor.loss - floor.margin(_CHANCE)
    source = (
        f"the source of this text itself has a loss of {floor.loss:.4f} on these "
        f"{floor.tokens:,} tokens"
    )
    if revealed:
        source += ", and experts can learn little about later tokens"
    return QualityLimit(
        math.exp(min(revealed, most) - best), math.exp(min(models * revealed, most) - best), source
    )


def _revealed_by_experts(record: JobRecord) -> float:
    """Return a bound on what the places of experts reveal about later tokens in an evaluation.

    It is the logarithm of the number of ways in which places can be given, in nats. First choices
    get places in the order of the text, so only later choices depend on later tokens. An expert
    takes choices in order until it is full. In a batch, the choice that it stops at therefore has
    one of ``choices + 1`` values per layer and expert. Given these, a token depends on earlier
    tokens only, and Ville's inequality holds for each of the ways, so for all of them with a margin
    that is larger by this logarithm.
    """
    settings = LanguageSettings.model_validate(record.settings)
    network, samples = settings.network, record.data.validation
    if not network.experts:
        return 0.0
    batch = min(settings.train.rank_batch, samples)
    choices = (network.experts_per_token - 1) * batch * settings.context
    ways = min(network.experts * math.log1p(choices), choices * math.log(2))
    return math.ceil(samples / batch) * network.layers * ways


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
