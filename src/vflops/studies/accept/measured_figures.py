"""The figures of a run that a reference can promise, by a stable name and by node.

Names are ``WORKLOAD.FIGURE`` for a training job or a search, ``WORKLOAD.M-models.FIGURE`` for an
ensemble, ``WORKLOAD.model.FIGURE`` for each of its models, and ``BENCHMARK.CASE.PRECISION`` for a
ceiling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from vflops.config.settings import Settings
from vflops.launch.factory import launcher_class
from vflops.machine.ceilings.ceiling_plan import plan
from vflops.metrics.quality import Better
from vflops.record.readout.job_nodes import JobNodes, nodes_by_job
from vflops.results.figures import Figure, Figures, Key, Sample, Subject, SubjectKind, figures
from vflops.results.score.score_file import CeilingScore, PowerScore, Score
from vflops.studies.accept import closed_task
from vflops.studies.compare.run_view import RunView
from vflops.workloads.contract.registry import workload

MACHINE = "machine"
"""The place of a figure that a run does not attribute to a node."""
_PROMISED: dict[SubjectKind, tuple[Key, ...]] = {
    "training": (
        "throughput",
        "time_to_quality",
        "quality",
        "flops",
        "vflops",
        "mfu",
        "power",
        "energy",
        "vflops_per_watt",
    ),
    "base model": ("throughput", "mfu"),
    "ensemble": ("wall_time", "quality", "flops", "vflops", "power", "energy", "vflops_per_watt"),
    "search": ("flops", "regulated", "quality", "power", "energy", "ops_per_watt"),
    "ceiling": ("ceiling",),
}
"""The figures that a reference can promise, in the order of ``--write``."""
_CLOSED_ONLY: dict[Key, tuple[str, Better]] = {
    "time_to_quality": ("s", "lower"),
    "vflops": ("VFLOPS", "higher"),
    "vflops_per_watt": ("VFLOPS/W", "higher"),
}
"""Figures that only a closed task has, with unit and direction."""
NODE_POWER = "node_power"


@dataclass
class MeasuredFigure:
    """One figure of one run."""

    name: str
    unit: str
    """The base unit; empty for a quality."""
    better: Better
    depends_on_seed: bool = False
    kind: SubjectKind = "training"
    by_place: dict[str, list[Sample]] = field(default_factory=dict)
    """The values by node, or part of a node; several if a run has several trainings."""
    reasons: list[str] = field(default_factory=list)
    """Why values are missing."""


MeasuredFigures = dict[str, MeasuredFigure]


def measured_figures(run: RunView, node: str | None = None) -> MeasuredFigures:
    """Return every figure of a run by its name; ``node`` is the only node of the run, if given."""
    nodes = nodes_of_jobs(run)
    only = node or _only_host(run, nodes)
    found: MeasuredFigures = {}
    for by_key, ceiling in _with_ceilings(run.score):
        subject = next(iter(by_key.values())).subject
        if not subject.complete:
            continue
        place = _place(subject, nodes, only, node)
        if ceiling is not None and ceiling.node is not None:
            place = node or ceiling.node
        task = closed_task.task_state(run.score, subject.workload)
        for key in _PROMISED[subject.kind]:
            if key in _CLOSED_ONLY and task is not None and task.kind == "open":
                _add_open(found, subject, key, task.why)
                continue
            if key not in by_key:
                continue
            figure = by_key[key]
            name = figure_name(subject, key, figure.label)
            entry = _entry(found, name, figure, subject.kind)
            reason = (
                _missing_reason(run.score, figure)
                if ceiling is None
                else ceiling.reason or "not measured"
            )
            if figure.value is None or figure.shared:
                entry.reasons.append(reason)
                continue
            entry.by_place.setdefault(place, []).append(Sample(subject.seed, figure.value))
    _add_node_power(found, run.score, node)
    return found


def is_measured(name: str, settings: Settings) -> bool:
    """Whether runs with these settings can have a figure of this name.

    A ceiling's name has the kind of node if there are several; that of a link, numbers of ranks.
    """
    benchmark = name.partition(".")[0]
    if benchmark.startswith("all-reduce"):
        return benchmark in settings.micro.benchmarks
    return name.partition(".on.")[0] in known_names(settings)


def known_names(settings: Settings) -> set[str]:
    """Return the names of the figures that runs with these settings have."""
    names = {".".join(filter(None, item.key)) for item in plan(settings.micro, accelerators=0)}
    for name in settings.workloads:
        models = settings.models_of(name)
        if workload(name).is_search:
            subjects = [Subject("search", name, True)]
            names.add(f"{name}.{NODE_POWER}")
        elif models > 1:
            ensemble = Subject("ensemble", name, True, models=models)
            subjects = [Subject("base model", name, True), ensemble]
            names.add(f"{name}.{models}-models.{NODE_POWER}")
        else:
            subjects = [Subject("training", name, True)]
        names |= {figure_name(item, key) for item in subjects for key in _PROMISED[item.kind]}
    return names


def nodes_of_jobs(run: RunView) -> dict[int, JobNodes]:
    """Return the nodes of every job of a run."""
    return nodes_by_job(run.contents, [*run.contents.training_jobs, *run.contents.workers])


def named_nodes(run: RunView) -> set[str]:
    """Return the names of the nodes that a run used; `MACHINE` if it does not say."""
    return {name for job in nodes_of_jobs(run).values() for name in job.nodes} or {MACHINE}


def recorded_hosts(run: RunView) -> set[str]:
    """Return the host names that a run recorded; empty if it records none."""
    jobs = (*run.contents.training_jobs, *run.contents.workers)
    return {
        node.host for job in jobs for folder in job.folders[-1:] for node in job.nodes_of(folder)
    }


def figure_name(subject: Subject, key: Key, label: str = "") -> str:
    """Return the name of a figure, which is the same in every run; a ceiling has a label."""
    if subject.kind == "ceiling":
        parts = [subject.workload, *label.split()]
    elif subject.kind == "ensemble":
        parts = [subject.workload, f"{subject.models}-models", key]
    elif subject.kind == "base model":
        parts = [subject.workload, "model", key]
    else:
        parts = [subject.workload, key]
    return ".".join(parts)


def _add_open(found: MeasuredFigures, subject: Subject, key: Key, why: str) -> None:
    """Add a figure without a value, because the task is open."""
    name = figure_name(subject, key)
    unit, better = _CLOSED_ONLY[key]
    entry = found.setdefault(name, MeasuredFigure(name, unit, better, True, subject.kind))
    entry.reasons.append(f"the task is open, and its figures are not comparable ({why})")


def _with_ceilings(score: Score) -> Iterator[tuple[Figures, CeilingScore | None]]:
    """Yield the figures of each subject, with the ceiling if it is one."""
    ceilings = iter(score.ceilings)
    for by_key in figures(score):
        yield by_key, next(ceilings) if "ceiling" in by_key else None


def _entry(found: MeasuredFigures, name: str, figure: Figure, kind: SubjectKind) -> MeasuredFigure:
    if name not in found:
        found[name] = MeasuredFigure(
            name, figure.unit or "", figure.better or "higher", figure.depends_on_seed, kind
        )
    return found[name]


def _only_host(run: RunView, nodes: Mapping[int, JobNodes]) -> str | None:
    """Return the host of a run on one machine; None if it is not known or there are several."""
    names = {name for job in nodes.values() for name in job.nodes}
    if not launcher_class(run.record.settings.launch.on).is_this_machine or len(names) != 1:
        return None  # the ceilings were measured where the command ran
    return names.pop()


def _place(
    subject: Subject, nodes: Mapping[int, JobNodes], only: str | None, node: str | None
) -> str:
    """Return where a figure was measured: a node, a part of one, or the whole machine."""
    if subject.job is not None and nodes[subject.job].names and node is None:
        return " and ".join(nodes[subject.job].names)
    return only or MACHINE


def _missing_reason(score: Score, figure: Figure) -> str:
    if figure.shared:
        return "the value includes other jobs on the same machine"
    if figure.key == "time_to_quality":
        return "the target was not reached"
    subject = figure.subject
    for training in score.trainings:
        if training.job == subject.job and figure.key == "mfu":
            return training.mfu.reason or "not measured"
        if training.job == subject.job and figure.key in ("power", "energy", "vflops_per_watt"):
            return training.power.reason or "not measured"
    return "not measured"


def _add_node_power(found: MeasuredFigures, score: Score, node: str | None) -> None:
    """Add the power of every node of an ensemble or a search."""
    for ensemble in score.ensembles:
        prefix = f"{ensemble.workload}.{ensemble.planned}-models"
        for item in ensemble.nodes:
            _add_power(found, prefix, node or item.host, item.power, ensemble.repeat)
    for search in score.searches:
        for item in search.nodes:
            _add_power(found, search.workload, node or item.host, item.power, search.repeat)


def _add_power(
    found: MeasuredFigures, prefix: str, host: str, power: PowerScore, repeat: int
) -> None:
    name = f"{prefix}.{NODE_POWER}"
    entry = found.setdefault(name, MeasuredFigure(name, "W", "lower", kind="ensemble"))
    if power.power_w is None:
        entry.reasons.append(f"{host}: {power.reason or 'not measured'}")
    else:
        entry.by_place.setdefault(host, []).append(Sample(repeat, power.power_w))
