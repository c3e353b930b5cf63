"""The definition of a task: everything that decides the quality and the work per sample.

Every setting of a workload belongs to the definition unless ``NOT_IN_THE_TASK`` lists it with the
reason. A new setting is therefore part of the task until someone decides otherwise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from vflops.config.profiles import PUBLISHED_PROFILES
from vflops.config.training import EIGHT_BIT_PRECISIONS, WorkloadSettings
from vflops.record.formats.job import DataFacts, Goal, JobRecord
from vflops.results.task.drawn_data import is_as_drawn
from vflops.results.task.published_data import PUBLISHED_DATA, data_fault
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.spec import WorkloadSpec
from vflops.workloads.contract.validated_settings import (
    ValidatedSettings,
    validated_settings,
    with_section,
)

VERSION = 1
"""The version of the definition; it is part of the digest."""
DIGEST_CHARACTERS = 12

_SCALE = "the size of the system, which the benchmark measures"
_PLACE = "where the same arithmetic is done"
_SAVING = "how training is saved and resumed"
_DATA = "part of the data, which is in the definition"
NOT_IN_THE_TASK: dict[str, str] = {
    "models": "the number of base models M is the size of the system in HPC AI500 V3.0",
    "train.ranks": _SCALE,
    "train.batch_per_rank": "train.batch follows from it",
    "train.device": _PLACE,
    "train.framework": "who does the same arithmetic; table 2 of HPC AI500 V3.0 has several",
    "train.parallel": _PLACE,
    "train.communication.mode": "the route of the gradients; their mean is the same",
    "train.communication.algorithm": "the route of the gradients; their mean is the same",
    "train.communication.near": "the route of the gradients; their mean is the same",
    "train.accumulate": "how many parts of a batch fit into memory; the batch is the same",
    "train.evaluate_every": "how often the model is evaluated; it is trained the same way",
    "train.readers": "threads that read; the samples are the same",
    "train.compile": _PLACE,
    "train.deterministic": _PLACE,
    "train.checkpoint_s": _SAVING,
    "train.checkpoint_share": _SAVING,
    "train.commit_every": _SAVING,
    "train.segments": _SAVING,
    "search.workers": _SCALE,
    "search.ahead": "proposals in reserve, so that no worker waits",
    "search.turn_s": "how long workers wait for one that is silent",
    "search.order": "repeatable or without waiting; depends on the number of workers",
    "target": "the goal has it, together with the target of synthetic data",
    "synthetic.target": "the goal has it",
    "data": "a path; the definition has the kind and the checksum of the data instead",
    "unreadable": _DATA,
    "faulty": _DATA,
    "years": _DATA,
    "box_order": _DATA,
    "tokenizer": _DATA,
    "held_out": _DATA,
    "vocabulary": _DATA,
}
"""Settings that describe how a machine runs a task, or that the definition states otherwise.

The keys are names or prefixes of settings.
"""

ADDED_SETTINGS: dict[str, object] = {
    "search.tuning": "pooled",
    "search.end": "time",
    "search.least_s": 3600.0,
    "train.power": 2.0,
    "train.end_rate": 0.0,
    "train.schedule_epochs": None,
    "train.stop_by": "quality",
    "train.betas": [0.9, 0.999],
}
"""Settings that version 1 did not have, with the value of all tasks before them. With this value
they do not enter the digest, so that earlier results stay comparable."""

LEFT_TO_THE_PAPERS: dict[str, dict[str, str]] = {
    "image-classification": {"train.precision": "rule precision"},
    "extreme-weather": {"train.precision": "rule precision"},
    "automl": {
        "train.precision": "rule precision",
        "search.duration_s": "rule duration: an hour or more",
        "search.end": "rule ended: as planned, or converged",
        "search.least_s": "rule duration: an hour or more",
        "search.error": "rule error: at most the paper's limit",
        **dict.fromkeys(
            (
                "search.v1",
                "search.inherit",
                "search.searcher",
                "search.tune_from",
                "search.tuning",
                "search.batches",
                "train.epochs",
                "train.batch",
                "train.optimizer",
                "train.learning_rate",
                "train.linear_scaling",
                "train.schedule",
                "train.momentum",
                "train.nesterov",
                "train.power",
                "train.end_rate",
                "train.schedule_epochs",
                "train.stop_by",
                "train.warmup_epochs",
                "label_smoothing",
                "search.kernels",
                "train.communication.precision",
            ),
            "rule table-iv: fails for what AIPerf fixes, and lists differences from its defaults",
        ),
        **dict.fromkeys(
            (
                "train.weight_decay",
                "train.betas",
                "train.milestones",
                "train.batch_norm",
                "train.ghosts",
                "augment",
                "crop_area",
                "resize",
            ),
            "AIPerf leaves it open",
        ),
    },
}
"""By workload: settings that are not in tasks on the published data, because the papers' rule sets
judge them, with the reason."""

REFERENCE = "reference"
"""The profile with the tasks of HPC AI500."""
_DATA_SEED = "synthetic.seed"
SYNTHETIC, PUBLISHED = "synthetic data", "the published data"


@dataclass(frozen=True)
class TaskDefinition:
    """The definition of a task, with the values by name."""

    workload: str
    values: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """A short hash, equal for equal tasks on any machine."""
        values = {
            name: value
            for name, value in self.values.items()
            if name not in ADDED_SETTINGS or value != ADDED_SETTINGS[name]
        }
        content = {"version": VERSION, "workload": self.workload, "values": values}
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


def job_definition(record: JobRecord, data_seed: int | None = None) -> TaskDefinition:
    """Return the task of a job.

    Synthetic data may be drawn with ``data_seed`` instead of the seed of the profiles, which is the
    same task: samples of the same distribution, which nobody knows before the challenge is issued.
    Raise ``UsageError`` if its workload is not installed, ``ValidationError`` if its settings are
    not those of the workload.
    """
    spec = workload(record.workload)
    validated = validated_settings(spec.settings, record.settings)
    bag = record.bag
    bootstrap = "with replacement"
    if bag is not None and bag.bootstrap not in ("poisson", "multinomial"):
        bootstrap = bag.bootstrap
    if bag is not None and bag.twins:
        bootstrap = f"{bootstrap}, shared by twins"
    data = _data_kind(spec, validated.settings, record.data, record.settings.get("data"))
    definition = _definition(record.workload, validated, record.goal, data, bootstrap)
    if data_seed is None or definition.values.get(_DATA_SEED) != data_seed:
        return definition
    values = {**definition.values, _DATA_SEED: _default_data_seed(validated.settings)}
    return TaskDefinition(record.workload, values)


def _default_data_seed(settings: WorkloadSettings) -> object:
    """Return the seed with which synthetic data is drawn unless it is set."""
    section, name = _DATA_SEED.split(".")
    return type(getattr(settings, section)).model_fields[name].default


def profile_definition(
    spec: WorkloadSpec, profile: str, settings: WorkloadSettings
) -> TaskDefinition:
    """Return the task of a profile with these settings; papers' profiles have published data."""
    data = PUBLISHED if profile in PUBLISHED_PROFILES else SYNTHETIC
    validated = with_section(settings)
    section = validated.section
    goal = Goal(
        quality=spec.quality.name,
        better=spec.quality.better,
        exponent=spec.quality.exponent,
        target=section["target"] or section["synthetic"]["target"],
    )
    return _definition(spec.name, validated, goal, data, "with replacement")


@lru_cache(maxsize=1024)
def is_in_the_task(setting: str) -> bool:
    """Whether a setting of a workload, by its dotted name, belongs to the definition."""
    parts = setting.split(".")
    return not any(".".join(parts[:size]) in NOT_IN_THE_TASK for size in range(1, len(parts) + 1))


@lru_cache(maxsize=64)
def _definition(
    name: str, validated: ValidatedSettings, goal: Goal, data: str, bootstrap: str
) -> TaskDefinition:
    values: dict[str, Any] = {
        "target": goal.target,
        "quality": goal.quality,
        "better": goal.better,
        "exponent": goal.exponent,
        "data": data,
        "bagging.bootstrap": bootstrap,
        **{key: value for key, value in validated.flat.items() if is_in_the_task(key)},
    }
    is_8_bit = values["train.precision"] in EIGHT_BIT_PRECISIONS
    values["train.precision"] = "8 bits" if is_8_bit else "16 bits or more"
    if values.get("search.ledger") is not None:  # a path
        values["search.ledger"] = "a replay"
    omitted = set()
    if values["train.linear_scaling"]:  # the recipe itself adapts to the batch, as published
        omitted |= {"train.batch", "search.batches"}
    if data == PUBLISHED:
        omitted |= LEFT_TO_THE_PAPERS.get(name, {}).keys()
    if data == SYNTHETIC:
        values["synthetic.generator"] = _generator_version(name)
    else:
        omitted |= {key for key in values if key.startswith("synthetic.")}
    return TaskDefinition(name, {key: values[key] for key in values if key not in omitted})


def _data_kind(
    spec: WorkloadSpec, settings: WorkloadSettings, data: DataFacts, path: str | None
) -> str:
    """Return the name of the data: synthetic, published, or the user's own with its checksum."""
    checksum = data.fingerprint[:DIGEST_CHARACTERS]
    if path is None and data.synthetic:
        if is_as_drawn(spec, settings, data):
            return SYNTHETIC
        return f"changed synthetic data {checksum}"
    published = PUBLISHED_DATA.get(spec.name)
    if published is not None and data_fault(data, published) is None:
        return PUBLISHED
    return f"own data {checksum}"


def _generator_version(name: str) -> int:
    """Return the version of the program that draws the synthetic data of a workload."""
    if name == "extreme-weather":
        from vflops.data.climate import weather

        return weather.VERSION
    if name == "language-model":
        from vflops.data.text import text_recipe

        return text_recipe.VERSION
    from vflops.data.images import drawing

    return drawing.VERSION
