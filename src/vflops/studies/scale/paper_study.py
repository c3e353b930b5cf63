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
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.config.settings import Settings
from vflops.config.training import CEILING_PRECISIONS
from vflops.errors import Interrupted, VflopsError
from vflops.record.files import atomic
from vflops.record.files.lock import locked
from vflops.record.formats.job import DataFacts
from vflops.record.readout.contents import Contents
from vflops.run.continued import existing_run, run_to_end
from vflops.run.observer import RunObserver
from vflops.studies.scale import variant_choice
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.experiment import Experiment, changed, is_complete, layout_settings
from vflops.studies.scale.kinds import KINDS, sizes
from vflops.studies.scale.node_shares import NodeShares, node_shares, placed
from vflops.studies.scale.papers import Paper, PaperFigure
from vflops.studies.scale.scale_result import Scale, Size, Variant

if TYPE_CHECKING:
    from vflops.run.training_cost import Estimate

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
    """The number of nodes on which its ranks are placed."""
    time_s: float | None = None
    """The estimated time with its ceilings; None if it is not known, or nothing is to be run."""
    time_is_least: bool = False
    """Whether the time is a lower bound, computed from measured ceilings."""

    @property
    def ranks(self) -> int:
        """The ranks of all its models: with accelerators, each rank has one."""
        return self.size.jobs * self.size.ranks

    @property
    def node_hours(self) -> float | None:
        """Estimated hours of all nodes together."""
        return None if self.time_s is None else self.time_s * self.nodes / _HOUR_S


@dataclass(frozen=True)
class PaperStudy:
    """The figures of a paper on the nodes of a machine."""

    paper: Paper
    folder: Path
    shares: Mapping[str, NodeShares]
    """How each workload divides the nodes."""
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
        parts: list[Part] = []
        shares: dict[str, NodeShares] = {}
        for workload, given in settings.items():
            divided = shares[workload] = node_shares(given, ranks)
            own = changed(given, divided.settings)
            chosen = [
                (figure, _variants(figure, workload, own))
                for figure in paper.figures
                if workload in figure.workloads
            ]
            points = [_sizes(figure, divided, variants) for figure, variants in chosen]
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
            shares,
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
        nodes = self.shares[experiment.workload].nodes_of(size)
        if size in experiment.refused:
            return PlannedPoint(part, size, names, "refused", nodes)
        found = existing_run(folder)
        if found is not None and is_complete(found):
            return PlannedPoint(part, size, names, "complete", nodes)
        time_s, is_least = self._time(experiment, size, earlier)
        return PlannedPoint(part, size, names, "to run", nodes, time_s, is_least)

    def _time(
        self, experiment: Experiment, size: Size, earlier: Contents | None
    ) -> tuple[float | None, bool]:
        """Return the time of a point with its ceilings, and whether that is a lower bound.

        A search takes its duration; for trainings it is the estimate of ``vflops plan``.
        """
        settings = experiment.point_settings(size)
        section = settings.workloads[experiment.workload]
        ceilings_s = settings.micro.budget_s if settings.micro.benchmarks else 0.0
        if KINDS[experiment.axis.kind].of_searches:
            return section["search"]["duration_s"] + ceilings_s, False
        earlier = earlier or self._measured(experiment.workload, section["train"]["precision"])
        if earlier is None:
            return None, False
        estimate = _estimate(experiment, size, earlier)
        if estimate.time_s is None:
            return None, False
        return estimate.time_s + ceilings_s, estimate.time_is_least

    def memory_rank_bytes(self, point: PlannedPoint) -> int | None:
        """Return a rank's memory for weights, gradients and optimizer state; None for a search."""
        experiment = point.part.experiment
        if point.state == "refused" or KINDS[experiment.axis.kind].of_searches:
            return None
        return _estimate(experiment, point.size, None).memory_rank_bytes

    def warnings(self, earlier: Contents | None = None) -> list[str]:
        """Return a warning if searches are too short to become valid at the measured speed."""
        from vflops.run.estimate import search_speed
        from vflops.workloads.automl import search_length
        from vflops.workloads.automl.settings import AutomlSettings
        from vflops.workloads.image_classification.expected import expected

        found: dict[str, None] = {}
        for part in self.parts:
            experiment = part.experiment
            if not KINDS[experiment.axis.kind].of_searches:
                continue
            section = experiment.point_settings(experiment.sizes[0]).workloads[experiment.workload]
            search = AutomlSettings.model_validate(section)
            known = earlier or self._measured(experiment.workload, search.train.precision)
            speed = None if known is None else search_speed(search.train, known)
            facts = expected(search).facts
            found |= dict.fromkeys(search_length.warnings(search, facts, speed))
        return [*found]

    def _measured(self, workload: str, precision: str) -> Contents | None:
        """Return a complete point of a workload: the first in this precision, else the first."""
        others = []
        for folder, ((part, size), *_) in self._runs.items():
            if part.experiment.workload != workload or size in part.experiment.refused:
                continue
            found = existing_run(folder)
            if found is None or not is_complete(found) or found.record.settings.launch.rehearse:
                continue
            if found.record.settings.workloads[workload]["train"]["precision"] == precision:
                return Contents(found)
            others.append(found)
        return Contents(others[0]) if others else None

    def run(self, watch: RunObserver) -> None:
        """Run the missing points, and write the figures and the page after each of them.

        A point that fails does not keep the others from running; ``failures`` says why.
        """
        watch.step("checking the data and the settings of all points")
        prepared: dict[str, DataFacts] = {}
        for part in self.parts:
            part.experiment.check_data(watch, prepared)
        atomic.make_folder(self.folder)
        with locked(self.folder / ".lock", self.folder):
            runs = {
                folder: (part.experiment, size)
                for folder, ((part, size), *_) in self._runs.items()
                if size not in part.experiment.refused
            }
            for part in self.parts:
                atomic.make_folder(part.experiment.folder)
            self._write()
            for number, (folder, (experiment, size)) in enumerate(runs.items(), start=1):
                found = existing_run(folder)
                if found is not None and is_complete(found):
                    continue
                watch.step(f"point {number} of {len(runs)}: {_words(experiment, size)}")
                try:
                    settings = experiment.point_settings(size)
                    run_to_end(folder, experiment.workload, settings, watch)
                except Interrupted:
                    raise
                except VflopsError as error:
                    self.failures[folder] = error.message
                    watch.warn(f"{_words(experiment, size)} failed: {error.message}")
                self._write()

    def _write(self) -> None:
        """Write the figures and the page; complete points were derived once and are kept."""
        from vflops.studies.scale.paper_page import write_paper_page

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


def _estimate(experiment: Experiment, size: Size, earlier: Contents | None) -> Estimate:
    """Return what ``vflops plan`` says of a point with trainings."""
    from vflops.run.estimate import estimate_run

    settings = experiment.point_settings(size)
    placement = placed(settings, experiment.workload, size)
    return estimate_run(settings, placement, earlier)[experiment.workload]


def _variants(figure: PaperFigure, workload: str, settings: Settings) -> tuple[Variant, ...]:
    """Return the variants that a figure compares for a workload."""
    precision = settings.workloads[workload]["train"]["precision"]
    if figure.kind == "precisions":
        return variant_choice.default_precisions(precision)
    names = figure.variants.get(workload, ())
    known = {variant.name: variant for variant in variant_choice.optimisations(precision)}
    return tuple(known[name] for name in names)


def _sizes(figure: PaperFigure, shares: NodeShares, variants: Sequence[Variant]) -> list[Size]:
    """Return the points of a figure: so many models, or one model of so many ranks."""
    if figure.kind == "trade-off":
        return sizes(figure.kind, [shares.slots], 1, models=shares.divisors(figure.nodes))
    models = shares.models(figure.nodes)
    if figure.kind in ("data-parallel", "precisions", "kernels"):  # one model with more ranks
        return sizes(figure.kind, [number * shares.ranks for number in models], 1, variants)
    return sizes(figure.kind, models, shares.ranks, variants)


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
