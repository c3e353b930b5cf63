"""The figures of a score, each with its label, unit, direction and subject.

The keys differ from the fields of score.json, whose names are those of the first version: the
figure ``vflops`` is the field ``vflops_capped``, with a quality factor of at most 1, and the figure
``vflops_published`` is the field ``vflops``, equation 7 of the papers. Likewise, ``quality_factor``
is the field ``penalty_capped``, ``quality_factor_published`` is ``penalty``, and
``vflops_per_watt`` is ``vflops_capped_per_watt``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from vflops.metrics import mean
from vflops.results.score.figure_text import AS_PUBLISHED, OPEN_VFLOPS, number, rate
from vflops.results.score.score_file import EnsembleScore, Score, SearchScore, TrainingScore
from vflops.results.task.task import TaskKind
from vflops.units import percent, quantity, seconds

MODELS = "models"
"""The unit of counted models, which are shown without decimals."""
Better = Literal["higher", "lower"]
Kind = Literal["result", "ceiling"]
SubjectKind = Literal["training", "base model", "ensemble", "search", "ceiling"]
Key = Literal[
    "vflops",
    "vflops_published",
    "open_vflops",
    "flops",
    "regulated",
    "throughput",
    "unit_throughput",
    "quality",
    "target",
    "quality_factor",
    "quality_factor_published",
    "time_to_quality",
    "mfu",
    "power",
    "energy",
    "vflops_per_watt",
    "open_vflops_per_watt",
    "ops_per_watt",
    "wall_time",
    "work_time",
    "samples_trained",
    "epochs",
    "bytes_per_step",
    "candidates",
    "ceiling",
]


@dataclass(frozen=True)
class FigureName:
    """The identity of a figure across runs: figures with equal names can be compared."""

    subject: str
    """The workload, with the number of models of an ensemble; the benchmark of a ceiling."""
    name: str
    unit: str | None
    better: Better
    depends_on_seed: bool = False
    """Whether the value depends on the seed, so that only repeats with different seeds count."""
    kind: Kind = "result"
    depends_on_goal: bool = False
    """Whether the value depends on the target, so that it is only comparable for equal tasks."""
    counts_operations: bool = False
    """Whether it is a number of operations, so that it is only comparable for equal networks."""
    is_quality: bool = False
    """Whether it is the achieved quality."""

    @property
    def title(self) -> str:
        """The subject and the name, for lists of several subjects."""
        return f"{self.subject}: {self.name}"


class Subject(NamedTuple):
    """What a figure describes: a training job, an ensemble, a search or a ceiling."""

    kind: SubjectKind
    workload: str
    """The name of the workload; for a ceiling, that of the benchmark."""
    complete: bool
    """False for a training job that did not finish, and for an ensemble with missing models."""
    seed: int = 0
    """The seed of the first model of an ensemble; 0 for a ceiling."""
    repeat: int = 0
    job: int | None = None
    """None if several jobs produced the figures together."""
    models: int | None = None
    """The planned number of base models of an ensemble."""
    task: TaskKind | None = None
    """Whether the task is closed, so that VFLOPS are comparable; None for a ceiling."""

    @property
    def name(self) -> str:
        """The workload, with the number of models of an ensemble."""
        models = "" if self.models is None else f", {self.models} models"
        return f"{self.workload}{models}"


@dataclass(frozen=True)
class Figure:
    """One figure of a score."""

    subject: Subject
    key: Key
    label: str
    unit: str | None
    better: Better | None
    """None if neither direction is better, as for a target."""
    value: float | None
    """None if it was not measured."""
    depends_on_seed: bool = False
    """Whether the value depends on the seed."""
    shared: bool = False
    """Whether the value includes other jobs, as power does if jobs share sensors."""

    @property
    def text(self) -> str:
        """The value with its unit, or a dash."""
        return "—" if self.value is None else format_value(self.unit, self.value)

    @property
    def name(self) -> FigureName:
        """The name under which figures of several runs are compared."""
        kind: Kind = "ceiling" if self.key == "ceiling" else "result"
        better = self.better or "higher"
        return FigureName(
            self.subject.name,
            self.label,
            self.unit,
            better,
            self.depends_on_seed,
            kind,
            self.key in _DEPENDS_ON_GOAL,
            self.key in _COUNTS_OPERATIONS,
            self.key == "quality",
        )


Figures = dict[Key, Figure]
"""The figures of one subject."""


class Sample(NamedTuple):
    """One repeat of a figure."""

    seed: int
    value: float


Samples = dict[FigureName, list[Sample]]


class _Definition(NamedTuple):
    label: str
    unit: str | None
    better: Better | None
    depends_on_seed: bool = False


_DEPENDS_ON_GOAL: frozenset[Key] = frozenset(
    {
        "vflops",
        "vflops_published",
        "open_vflops",
        "quality_factor",
        "quality_factor_published",
        "time_to_quality",
        "vflops_per_watt",
        "open_vflops_per_watt",
    }
)
_COUNTS_OPERATIONS: frozenset[Key] = frozenset(
    {
        "vflops",
        "vflops_published",
        "open_vflops",
        "flops",
        "regulated",
        "vflops_per_watt",
        "open_vflops_per_watt",
        "ops_per_watt",
    }
)

_DEFINITIONS: dict[Key, _Definition] = {
    "vflops": _Definition("VFLOPS", "VFLOPS", "higher", True),
    "vflops_published": _Definition(f"VFLOPS {AS_PUBLISHED}", "VFLOPS", "higher", True),
    "open_vflops": _Definition(OPEN_VFLOPS, "VFLOPS", "higher", True),
    "flops": _Definition("FLOPS", "FLOPS", "higher"),
    "regulated": _Definition("regulated score", "OPS", "higher", True),
    "throughput": _Definition("throughput", "samples/s", "higher"),
    "unit_throughput": _Definition("throughput", None, "higher"),
    "quality": _Definition("quality", None, "higher", True),
    "target": _Definition("target", None, None),
    "quality_factor": _Definition("quality factor", None, "higher", True),
    "quality_factor_published": _Definition(f"quality factor {AS_PUBLISHED}", None, "higher", True),
    "time_to_quality": _Definition("time to quality", "s", "lower", True),
    "mfu": _Definition("MFU", "share", "higher"),
    "power": _Definition("power", "W", "lower"),
    "energy": _Definition("energy", "J", "lower"),
    "vflops_per_watt": _Definition("VFLOPS per watt", "VFLOPS/W", "higher", True),
    "open_vflops_per_watt": _Definition(f"{OPEN_VFLOPS} per watt", "VFLOPS/W", "higher", True),
    "ops_per_watt": _Definition("OPS per watt", "OPS/W", "higher"),
    "wall_time": _Definition("wall time", "s", "lower"),
    "work_time": _Definition("work time", "s", "lower"),
    "samples_trained": _Definition("samples trained", "samples", None),
    "epochs": _Definition("epochs", None, None),
    "bytes_per_step": _Definition("traffic per step", "B", "lower"),
    "candidates": _Definition("candidates trained", MODELS, "higher", True),
}
_COMPARED: dict[SubjectKind, tuple[Key, ...]] = {
    "training": (
        "vflops",
        "flops",
        "throughput",
        "unit_throughput",
        "quality",
        "time_to_quality",
        "mfu",
        "power",
        "vflops_per_watt",
        "open_vflops",
        "open_vflops_per_watt",
    ),
    "ensemble": (
        "vflops",
        "flops",
        "quality",
        "time_to_quality",
        "wall_time",
        "power",
        "vflops_per_watt",
        "open_vflops",
        "open_vflops_per_watt",
    ),
    "search": ("flops", "regulated", "quality", "candidates", "power", "ops_per_watt"),
    "ceiling": ("ceiling",),
}
"""The figures that comparisons and histories show, in this order."""


def figures(score: Score) -> Iterator[Figures]:
    """Yield the figures of each training job, ensemble, search and ceiling, in that order."""
    yield from (training_figures(training) for training in score.trainings)
    yield from (ensemble_figures(score, ensemble) for ensemble in score.ensembles)
    yield from (search_figures(search) for search in score.searches)
    yield from _ceiling_figures(score)


def samples(score: Score) -> Samples:
    """Return the values of the compared figures of all complete subjects, one per repeat.

    Figures that were not measured are left out. So are base models, because their ensemble has
    figures.
    """
    repeats: Samples = {}
    for by_key in figures(score):
        subject = next(iter(by_key.values())).subject
        for key in _COMPARED.get(subject.kind, ()) if subject.complete else ():
            figure = by_key[key]
            if figure.value is not None and not figure.shared:
                sample = Sample(subject.seed, figure.value)
                repeats.setdefault(figure.name, []).append(sample)
    return repeats


def mean_of(repeats: Sequence[Figures], key: Key) -> float | None:
    """Return the mean of one figure over ``repeats``; None unless all of them have it."""
    values = [by_key[key].value if key in by_key else None for by_key in repeats]
    known = [value for value in values if value is not None]
    return mean(known) if known and len(known) == len(values) else None


def training_figures(training: TrainingScore) -> Figures:
    """Return the figures of one training job, which may train a base model of an ensemble."""
    speed, quality = training.speed, training.quality
    subject = Subject(
        "training" if training.model is None else "base model",
        training.workload,
        training.complete,
        training.seed,
        training.repeat,
        training.job,
        task=training.task,
    )
    values: dict[Key, float | None] = {
        **_valid_flops(training, speed.vflops if speed else None),
        "flops": speed.flops if speed else None,
        "throughput": speed.samples_per_s if speed else None,
        "unit_throughput": speed.units_per_s if speed else None,
        "quality": quality.achieved,
        "target": quality.target,
        "quality_factor": quality.factor,
        "quality_factor_published": quality.penalty,
        "time_to_quality": quality.time_to_quality_s,
        "mfu": training.mfu.value,
        "power": training.power.power_w,
        "energy": training.power.energy_j,
        "wall_time": training.wall_s,
        "work_time": training.work_s,
        "samples_trained": training.samples_trained,
        "epochs": training.epochs,
        "bytes_per_step": training.shared.bytes if training.shared else None,
    }
    definitions: dict[Key, _Definition] = {
        "quality": _Definition(quality.name, None, quality.better, True)
    }
    if training.unit is not None:
        unit = f"{training.unit.name}/s"
        definitions["unit_throughput"] = _Definition("throughput", unit, "higher")
    return _figures(subject, values, definitions, bool(training.power.shared_with))


def ensemble_figures(score: Score, ensemble: EnsembleScore) -> Figures:
    """Return the figures of one ensemble of ``score``."""
    repeat = ensemble.workload, ensemble.repeat
    members = [
        training for training in score.trainings if (training.workload, training.repeat) == repeat
    ]
    seed = min(member.seed for member in members)
    subject = Subject(
        "ensemble",
        ensemble.workload,
        not ensemble.partial,
        seed,
        ensemble.repeat,
        models=ensemble.planned,
        task=ensemble.task,
    )
    values: dict[Key, float | None] = {
        **_valid_flops(ensemble, ensemble.vflops),
        "flops": ensemble.flops,
        "quality": ensemble.achieved,
        "target": ensemble.target,
        "quality_factor": ensemble.factor,
        "quality_factor_published": ensemble.penalty,
        "time_to_quality": ensemble.time_to_quality_s,
        "wall_time": ensemble.window_s,
        "power": ensemble.power.power_w,
        "energy": ensemble.power.energy_j,
    }
    definitions: dict[Key, _Definition] = {
        "quality": _Definition(ensemble.quality_name, None, members[0].quality.better, True),
        "wall_time": _Definition("time of all models", "s", "lower"),
    }
    return _figures(subject, values, definitions)


def _valid_flops(
    scored: TrainingScore | EnsembleScore, published: float | None
) -> dict[Key, float | None]:
    """Return VFLOPS as figures; those of an open task have other names, and are not ranked."""
    is_open = scored.task == "open"
    return {
        "vflops": None if is_open else scored.capped_vflops,
        "vflops_published": None if is_open else published,
        "vflops_per_watt": None if is_open else scored.capped_vflops_per_watt,
        "open_vflops": scored.capped_vflops if is_open else None,
        "open_vflops_per_watt": scored.capped_vflops_per_watt if is_open else None,
    }


def search_figures(search: SearchScore) -> Figures:
    """Return the figures of one search. Its quality is the error of the best candidate."""
    subject = Subject("search", search.workload, True, search.seed, search.repeat, task=search.task)
    values: dict[Key, float | None] = {
        "flops": search.ops_per_s,
        "regulated": search.regulated,
        "quality": search.error,
        "target": search.error_limit,
        "candidates": sum(candidate.state == "trained" for candidate in search.candidates),
        "wall_time": search.duration_s,
        "power": search.power.power_w,
        "energy": search.power.energy_j,
        "ops_per_watt": search.ops_per_watt,
    }
    definitions: dict[Key, _Definition] = {
        "flops": _Definition("OPS", "OPS", "higher"),
        "quality": _Definition("best error", None, "lower", True),
    }
    return _figures(subject, values, definitions)


def format_value(unit: str | None, value: float) -> str:
    """Return ``value`` with its unit, as text for people."""
    if unit == "s":
        return seconds(value)
    if unit == "share":
        return percent(value)
    if unit == MODELS:
        return f"{number(value)} {unit}"
    if unit is not None and unit.endswith("s/s"):  # samples/s and tokens/s have no SI prefix
        return rate(value, unit)
    return quantity(value, unit) if unit else number(value)


def _figures(
    subject: Subject,
    values: Mapping[Key, float | None],
    definitions: Mapping[Key, _Definition],
    shared_power: bool = False,
) -> Figures:
    """Return ``values`` as figures; ``definitions`` take precedence over the default ones."""
    defined = {**_DEFINITIONS, **definitions}
    return {
        key: Figure(
            subject,
            key,
            defined[key].label,
            defined[key].unit,
            defined[key].better,
            value,
            defined[key].depends_on_seed,
            shared_power and key in ("power", "energy"),
        )
        for key, value in values.items()
    }


def _ceiling_figures(score: Score) -> Iterator[Figures]:
    """Yield one figure per ceiling, because samples of a measurement are not independent repeats.

    The device is not part of the name, so that machines with and without an accelerator can be
    compared. The kind of node is, if there are several.
    """
    several = len({ceiling.kind for ceiling in score.ceilings} - {None}) > 1
    for ceiling in score.ceilings:
        kind = f"on {ceiling.kind}" if several and ceiling.kind else None
        label = " ".join(filter(None, (ceiling.case, ceiling.precision, kind)))
        subject = Subject("ceiling", ceiling.benchmark, True)
        figure = Figure(subject, "ceiling", label, ceiling.unit, "higher", ceiling.value)
        yield {"ceiling": figure}
