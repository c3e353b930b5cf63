"""Runs the experiments of a paper: every figure is made of points, and figures share points.

DIR/<workload>/<M>x<P>/<run>/             the run folder of a point
DIR/<workload>/<variant>/<M>x<P>/<run>/   the run folder of a point with other settings
DIR/<workload>/<figure>.json              the figures of the points of one figure of the paper
DIR/paper.html                            all figures, with charts, beside the paper's own values
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from pathlib import Path

from vflops.config.settings import Settings
from vflops.config.training import CEILING_PRECISIONS
from vflops.errors import Interrupted, UsageError, VflopsError
from vflops.launch.factory import launcher_class
from vflops.launch.nodes import known_nodes
from vflops.launch.placement import Node, capacity, plan
from vflops.record.files import atomic
from vflops.record.files.lock import locked
from vflops.record.readout.contents import Contents
from vflops.results.score.figure_text import count
from vflops.results.score.unscored import is_rehearsal
from vflops.run.continued import existing_run, run_to_end
from vflops.run.observer import RunObserver
from vflops.run.validate import most_copies
from vflops.studies.scale import variant_choice
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.experiment import Experiment, changed, is_complete, layout_settings
from vflops.studies.scale.kinds import KINDS, sizes
from vflops.studies.scale.papers import Paper, PaperFigure
from vflops.studies.scale.scale_result import Scale, Size, Variant
from vflops.workloads.contract.registry import workload as find_workload
from vflops.workloads.contract.run_settings import workload_settings

_HOUR_S = 3600.0


@dataclass(frozen=True)
class Part:
    """One workload of one figure."""

    figure: PaperFigure
    experiment: Experiment


@dataclass(frozen=True)
class PlannedPoint:
    """A run of the study, which may be a point of several figures."""

    part: Part
    size: Size
    figures: tuple[str, ...]
    state: str
    """``complete``, ``to run`` or ``refused``."""
    nodes: int
    time_s: float | None
    """The estimated time; None if it is not known, or if there is nothing to run."""

    @property
    def node_hours(self) -> float | None:
        """Estimated hours of all nodes together."""
        return None if self.time_s is None else self.time_s * self.nodes / _HOUR_S


@dataclass(frozen=True)
class PaperStudy:
    """The figures of a paper on N nodes, whose models have P ranks on a node."""

    paper: Paper
    folder: Path
    nodes: int
    ranks: int
    parts: tuple[Part, ...]
    failures: dict[Path, str] = field(default_factory=dict)
    """Why points failed, by their folders."""

    @classmethod
    def create(
        cls,
        paper: Paper,
        folder: Path,
        settings: Mapping[str, Settings],
        ranks: int | None,
    ) -> PaperStudy:
        """Return the study; raise UsageError if the settings of a point are not valid."""
        nodes, degree = machine_size(settings, ranks)
        parts: list[Part] = []
        for workload, own in settings.items():
            chosen = [
                (figure, _variants(figure, workload, own))
                for figure in paper.figures
                if workload in figure.workloads
            ]
            points = [_sizes(figure, nodes, degree, variants) for figure, variants in chosen]
            union = [size for each in points for size in each]
            common = layout_settings(own, workload, union)
            owners: dict[str, str] = {}
            for (figure, variants), each in zip(chosen, points, strict=True):
                axis = axis_of(figure.kind, variants)
                every = {**axis.common_settings(own, workload, each), **common}
                experiment = Experiment(
                    folder / workload,
                    workload,
                    axis,
                    tuple(each),
                    changed(own, every),
                    name=figure.key,
                )
                parts.append(Part(figure, _sharing_runs(experiment, owners)))
        order = {figure.key: number for number, figure in enumerate(paper.figures)}
        return cls(
            paper,
            folder,
            nodes,
            degree,
            tuple(sorted(parts, key=lambda part: order[part.figure.key])),
        )

    @property
    def page_file(self) -> Path:
        """The path of the page."""
        return self.folder / "paper.html"

    @property
    def is_trial(self) -> bool:
        """Whether ranks have accelerators but compute on CPUs, as a trial of the layout."""
        experiment = self.parts[0].experiment
        train = experiment.settings.workloads[experiment.workload]["train"]
        return train["device"] == "cpu" and bool(experiment.settings.launch.gpus_per_rank)

    @cached_property
    def _runs(self) -> dict[Path, list[tuple[Part, Size]]]:
        """The folders of all points in the order in which they are run, each with its uses."""
        runs: dict[Path, list[tuple[Part, Size]]] = {}
        for part in self.parts:
            for size in part.experiment.sizes:
                runs.setdefault(part.experiment.parent(size), []).append((part, size))
        return runs

    def planned(self, earlier: Contents | None = None) -> list[PlannedPoint]:
        """Return all points with their state, and the time of those still to run.

        The speed is that of the run ``earlier`` or, without one, of the first complete point of the
        same workload.
        """
        return [self._planned(folder, uses, earlier) for folder, uses in self._runs.items()]

    def _planned(
        self, folder: Path, uses: Sequence[tuple[Part, Size]], earlier: Contents | None
    ) -> PlannedPoint:
        part, size = uses[0]
        experiment = part.experiment
        names = tuple(dict.fromkeys(use.figure.number for use, _ in uses))
        nodes, time_s, state = ceil(size.slots / self.ranks), None, "to run"
        found = existing_run(folder)
        if size in experiment.refused:
            state = "refused"
        elif found is not None and is_complete(found):
            state = "complete"
        else:
            time_s = self._time_s(experiment, size, earlier or self._first(experiment.workload))
        return PlannedPoint(part, size, names, state, nodes, time_s)

    def _first(self, workload: str) -> Contents | None:
        """Return the first complete point of a workload."""
        for folder, uses in self._runs.items():
            if uses[0][0].experiment.workload == workload:
                found = existing_run(folder)
                if found is not None and is_complete(found):
                    contents = Contents(found)
                    return None if is_rehearsal(contents) else contents
        return None

    def _time_s(self, experiment: Experiment, size: Size, earlier: Contents | None) -> float | None:
        """Return the estimate of ``vflops plan``; that of a search is its duration."""
        from vflops.run.estimate import estimate_run

        settings = experiment.point_settings(size)
        section = settings.workloads[experiment.workload]
        if KINDS[experiment.axis.kind].of_searches:
            duration_s: float = section["search"]["duration_s"]
            return duration_s
        if earlier is None:
            return None
        nodes = [Node(f"node {number}", self.ranks) for number in range(1, self.nodes + 1)]
        placement = plan(nodes, size.jobs, size.ranks)
        return estimate_run(settings, placement, earlier)[experiment.workload].time_s

    def run(self, watch: RunObserver) -> None:
        """Run the missing points, and write the figures and the page after each of them.

        A point that fails does not keep the others from running; ``failures`` says why.
        """
        from vflops.studies.scale.paper_page import write_paper_page

        watch.step("checking the data and the settings of all points")
        for part in self.parts:
            part.experiment.check_data(watch)
        atomic.make_folder(self.folder)
        with locked(self.folder / ".lock", self.folder):
            runs = {
                folder: (part.experiment, size)
                for folder, ((part, size), *_) in self._runs.items()
                if size not in part.experiment.refused
            }
            for part in self.parts:
                atomic.make_folder(part.experiment.folder)
            for number, (folder, (experiment, size)) in enumerate(runs.items(), start=1):
                watch.step(f"point {number} of {len(runs)}: {_words(experiment, size)}")
                try:
                    settings = experiment.point_settings(size)
                    run_to_end(folder, experiment.workload, settings, watch)
                except Interrupted:
                    raise
                except VflopsError as error:
                    self.failures[folder] = error.message
                    watch.warn(f"{_words(experiment, size)} failed: {error.message}")
                for part, scale in self.results():
                    scale.write(part.experiment.figures_file)
                write_paper_page(self)

    def results(self) -> Iterator[tuple[Part, Scale]]:
        """Yield the figures of all parts, with the points that are complete so far."""
        for part in self.parts:
            yield part, part.experiment.result()

    def failed_checks(self) -> list[Path]:
        """Return the run folders that break a rule."""
        found = {
            part.experiment.folder / point.run: None
            for part, scale in self.results()
            for point in scale.failed
            if point.run
        }
        return list(found)


def machine_size(settings: Mapping[str, Settings], ranks: int | None) -> tuple[int, int]:
    """Return the number of nodes and the ranks of a model: by default the accelerators of a node.

    Without accelerators a model has one rank. If the batch of a workload does not suit as many
    ranks as there are accelerators, a model has fewer. On CPUs a share of a node is counted as a
    node, and so is each model of ``ranks`` ranks.
    """
    first = next(iter(settings.values()))
    launch = first.launch
    if not launcher_class(launch.on).nodes_reserved() and launch.nodes is None:
        raise UsageError(
            f"--nodes is needed with launch.on = {launch.on}: the size of the machine is not known",
            hint="add --nodes N",
        )
    (section,) = first.workloads.values()
    nodes = known_nodes(launch, section["train"]["device"])
    smallest = min(nodes, key=lambda node: node.slots)
    degree = ranks or (_suited(settings, smallest.slots) if smallest.filled else 1)
    number = capacity(nodes, degree)
    if number == 0:
        raise UsageError(
            f"no model of {count(degree, 'rank')} fits: the nodes take"
            f" {', '.join(str(node.slots) for node in nodes)} ranks",
            hint="use fewer --ranks",
        )
    return (number if launch.nodes is None else min(number, launch.nodes)), degree


def _suited(settings: Mapping[str, Settings], slots: int) -> int:
    """Return the largest number of ranks, up to ``slots``, that the batches of all suit."""
    most = slots
    for name, own in settings.items():
        train = workload_settings(own)[name].train
        copies = most_copies(own.profile, find_workload(name), train) or most
        most = min(most, copies)
        if train.batch_per_rank is None:
            most = max(ranks for ranks in range(1, most + 1) if train.batch % ranks == 0)
    return most


def _variants(figure: PaperFigure, workload: str, settings: Settings) -> tuple[Variant, ...]:
    """Return the variants that a figure compares for a workload."""
    precision = settings.workloads[workload]["train"]["precision"]
    if figure.kind == "precisions":
        return variant_choice.default_precisions(precision)
    names = figure.variants.get(workload, ())
    known = {variant.name: variant for variant in variant_choice.optimisations(precision)}
    return tuple(known[name] for name in names)


def _sizes(figure: PaperFigure, nodes: int, ranks: int, variants: Sequence[Variant]) -> list[Size]:
    """Return the points of a figure on so many nodes."""
    numbers = figure.nodes(nodes)
    if figure.kind == "trade-off":
        models = [m for m in numbers if nodes * ranks % m == 0]
        return sizes(figure.kind, [nodes * ranks], ranks, models=models)
    if figure.kind in ("data-parallel", "precisions", "kernels"):  # one model with more ranks
        numbers = [number * ranks for number in numbers]
    return sizes(figure.kind, numbers, ranks, variants)


def _sharing_runs(experiment: Experiment, owners: dict[str, str]) -> Experiment:
    """Return the experiment with its refused points, and with runs that other figures have, too.

    ``owners`` has the folder of the first point with certain settings, and gets those of this one.
    """
    refused = experiment.check()
    shared: dict[Size, str] = {}
    for size in experiment.sizes:
        if size not in refused:
            settings = experiment.point_settings(size).model_dump_json()
            owner = owners.setdefault(settings, str(size))
            if owner != str(size):
                shared[size] = owner
    return replace(experiment, refused=refused, shared=shared)


def _words(experiment: Experiment, size: Size) -> str:
    return f"{experiment.workload}, {experiment.axis.words(size)}"


def ceiling_precisions(paper: Paper, workload: str, settings: Settings) -> list[str]:
    """Return the precisions of the ceilings, the same at all points of a workload."""
    train = settings.workloads[workload]["train"]
    used = {train["precision"]}
    for figure in paper.figures:
        if workload in figure.workloads:
            variants = _variants(figure, workload, settings)
            used |= {variant.settings.get("train.precision", "") for variant in variants}
    return sorted({CEILING_PRECISIONS[name] for name in used if name})
