"""Runs an experiment: every point is an ordinary run, and complete points are not run again.

DIR/<M>x<P>/<run>/             the run folder of a point
DIR/<variant>/<M>x<P>/<run>/   the run folder of a point of a variant
DIR/scale.json                 the figures of all points
DIR/scale.html                 the same figures as an HTML page with charts
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from vflops.config.flatten import differences, flatten
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.factory import launcher_class
from vflops.record.files import atomic
from vflops.record.files.lock import locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts
from vflops.run.continued import existing_run, run_to_end
from vflops.run.observer import RunObserver
from vflops.studies.scale.axis import Axis
from vflops.studies.scale.node_shares import nodes_of, ranks_per_node
from vflops.studies.scale.point_figures import EnsembleFigures, SearchFigures
from vflops.studies.scale.scale_result import Point, SameBatch, Scale, Size
from vflops.workloads.contract.run_settings import load

_MAX_NAMED = 4
"""The largest number of settings that an error message names."""


@dataclass(frozen=True)
class Experiment:
    """One workload at several points; a slot has the same number of cores at all of them."""

    folder: Path
    workload: str
    axis: Axis
    sizes: tuple[Size, ...]
    settings: Settings
    """The settings of all points, except those that the axis changes."""
    refused: Mapping[Size, str] = field(default_factory=dict)
    """The points that cannot be run here, each with the reason."""
    name: str = "scale"
    """The name of its files, without their ending."""
    shared: Mapping[Size, str] = field(default_factory=dict)
    """The folders of points that are the same run as a point of another experiment."""
    _derived: dict[Path, EnsembleFigures | SearchFigures] = field(
        default_factory=dict, init=False, compare=False
    )
    """The figures of complete points, which are derived once."""

    @property
    def page_file(self) -> Path:
        """The path of ``scale.html``."""
        return self.folder / f"{self.name}.html"

    @property
    def figures_file(self) -> Path:
        """The path of ``scale.json``."""
        return self.folder / f"{self.name}.json"

    @classmethod
    def create(
        cls,
        folder: Path,
        workload: str,
        axis: Axis,
        points: Sequence[Size],
        settings: Settings,
        *,
        name: str = "scale",
    ) -> Experiment:
        """Return an experiment; raise UsageError if its points cannot be run."""
        common = {**axis.common_settings(settings, workload, points)}
        common |= layout_settings(settings, workload, points)
        experiment = cls(
            folder, workload, axis, tuple(points), changed(settings, common), name=name
        )
        refused = experiment.check()
        if len(refused) == len(experiment.sizes):
            raise UsageError(
                f"no point of this experiment can be run here: {next(iter(refused.values()))}",
                hint="choose other variants, sizes or precisions",
            )
        return replace(experiment, refused=refused)

    def point_settings(self, size: Size) -> Settings:
        """Return the settings of one point."""
        changes = self.axis.changes(self.settings.workloads[self.workload], size)
        launch = self.settings.launch
        if launch.nodes is not None and launch.ranks_per_node is not None:
            needed = nodes_of(size, launch.ranks_per_node)
            changes["launch.nodes"] = min(launch.nodes, needed)
        if size == self.sizes[0]:
            changes |= self.axis.base_settings(self.settings)
        earlier = self.axis.follows(size)
        previous = None if earlier is None else self._folder_of(earlier)
        own = load(self.settings, None, _assignments(changes))
        return self.axis.final_settings(own, size, previous)

    def check_data(self, watch: RunObserver, prepared: dict[str, DataFacts] | None = None) -> None:
        """Prepare the data of all points; raise if it does not suit one of them.

        ``prepared`` has the data that other experiments have prepared, and gets that of this one.
        """
        from vflops.run.validate import check_all, check_batch, check_model
        from vflops.workloads.contract.registry import workload
        from vflops.workloads.contract.run_settings import workload_settings

        spec = workload(self.workload)
        prepared = {} if prepared is None else prepared
        for size in self.sizes:
            if size in self.refused or self._must_wait(size):
                continue
            settings = self.point_settings(size)
            check_all(settings)
            (section,) = workload_settings(settings).values()
            key = self.workload + section.model_dump_json(exclude={"train", "models"})
            if key not in prepared:
                prepared[key] = spec.load_code().prepare_data(section, watch.progress)
            check_model(spec, section, prepared[key])
            check_batch(settings, spec, section.train, prepared[key].train)

    def run(self, watch: RunObserver) -> Scale:
        """Run the missing points, and write the figures and the page after each of them."""
        from vflops.studies.scale.scale_page import write_page

        watch.step("checking the data and the settings of all points")
        self.check_data(watch)
        atomic.make_folder(self.folder)
        with locked(self.folder / ".lock", self.folder):
            sizes = [size for size in self.sizes if size not in self.refused]
            for number, size in enumerate(sizes, start=1):
                watch.step(f"point {number} of {len(sizes)}: {self.axis.words(size)}")
                run_to_end(self.parent(size), self.workload, self.point_settings(size), watch)
                scale = self.result()
                scale.write(self.figures_file)
                write_page(scale, self.page_file)
        return scale

    def parent(self, size: Size) -> Path:
        """Return the folder of a point, in which its run folder is."""
        return self.folder / self.shared.get(size, str(size))

    def result(self) -> Scale:
        """Return the result with the figures of all points that are complete so far."""
        points = tuple(self._point(size) for size in self.sizes)
        goal = next(self._goals(), (None, None))
        return Scale(
            workload=self.workload,
            kind=self.axis.kind,
            profile=self.settings.profile,
            on=self.settings.launch.on,
            cores_per_rank=self.settings.launch.cores_per_rank,
            threads_per_rank=self._threads_per_rank(),
            same_batch=self._same_batch,
            quality_name=goal[0],
            target=goal[1],
            variants=self.axis.variants,
            sharing=dict(self.axis.sharing),
            points=points,
            groups=self.axis.groups(points),
            rehearsal=self.settings.launch.rehearse,
        ).with_efficiency()

    @property
    def _same_batch(self) -> SameBatch | None:
        """What has the same batch at all points; tuning chooses the batch of a search."""
        if self.axis.job == "worker":
            return None
        train = self.settings.workloads[self.workload]["train"]
        return "rank" if train.get("batch_per_rank") else "model"

    def _point(self, size: Size) -> Point:
        if size in self.refused:
            return Point(**size._asdict(), refused=self.refused[size], run=None, figures=None)
        folder = self._folder_of(size)
        run = None if folder is None else str(folder.path.relative_to(self.folder))
        figures = self._figures(folder, size) if folder is not None else None
        return Point(**size._asdict(), run=run, figures=figures)

    def _figures(self, folder: RunFolder, size: Size) -> EnsembleFigures | SearchFigures | None:
        """Return the figures of a point; None if it is not complete."""
        if folder.path not in self._derived:
            if not is_complete(folder):
                return None
            self._derived[folder.path] = self.axis.figures(folder, size)
        return self._derived[folder.path]

    def _goals(self) -> Iterator[tuple[str, float]]:
        """Yield the quality measure and its target, from the points that were started."""
        from vflops.record.formats.job import JobRecord

        for size in self.sizes:
            folder = self._folder_of(size)
            if folder is not None and folder.job_file(1).is_file():
                yield self.axis.goal(JobRecord.read(folder.job_file(1)))

    def _threads_per_rank(self) -> int | None:
        """Return the recorded CPU threads of a rank if they are the same at all points so far."""
        from vflops.record.formats.job_events import JobStarted

        folders = [folder for folder in map(self._folder_of, self.sizes) if folder is not None]
        threads = {
            event.payload(JobStarted).threads
            for folder in folders
            for event in folder.history(1).events("job")
        }
        return threads.pop() or None if len(threads) == 1 else None

    def _must_wait(self, size: Size) -> bool:
        """Whether the settings of a point are not known before another one is complete."""
        earlier = self.axis.follows(size)
        previous = None if earlier is None else self._folder_of(earlier)
        return earlier is not None and (previous is None or not is_complete(previous))

    def _folder_of(self, size: Size) -> RunFolder | None:
        return existing_run(self.parent(size))

    def check(self) -> dict[Size, str]:
        """Return the points that cannot be run here, each with the reason.

        Raise the errors that any point would raise, before the first one is run.
        """
        from vflops.run.validate import check_launch

        check_launch(self.settings.launch)
        if self.figures_file.is_file():
            other = Scale.read(self.figures_file)
            if (other.workload, other.kind) != (self.workload, self.axis.kind):
                raise UsageError(
                    f"{self.folder} holds another experiment: {other.kind} of {other.workload}",
                    hint="choose another --out",
                )
        refused: dict[Size, str] = {}
        for size in self.sizes:
            reason = self.axis.unsupported_reason(partial(self.point_settings, size), self.workload)
            if reason is not None:
                refused[size] = reason
                continue
            if self._must_wait(size):
                continue
            settings = self.point_settings(size)
            self.axis.check_size(settings, self.workload, size)
            earlier = self._folder_of(size)
            if earlier is not None:
                _require_same_settings(earlier, settings)
        return refused


def is_complete(folder: RunFolder) -> bool:
    """Whether a run has ended and has its results."""
    has_results = all(path.is_file() for path in folder.result_files)
    return has_results and folder.history(0).state.complete


def _require_same_settings(earlier: RunFolder, settings: Settings) -> None:
    """Raise UsageError if a point was run with other settings."""
    changed = differences(_flat_settings(settings), _flat_settings(earlier.record.settings))
    if not changed:
        return
    lines = [f"{name} is {there} there, {here} here" for name, (here, there) in changed.items()]
    more = [f"{len(lines) - _MAX_NAMED} more"] if len(lines) > _MAX_NAMED else []
    raise UsageError(
        f"{earlier.path} was run with other settings: {'; '.join(lines[:_MAX_NAMED] + more)}",
        hint="use the same settings to continue it, or choose another --out",
    )


def _flat_settings(settings: Settings) -> dict[str, Any]:
    """Return all settings by their names in ``--set``; those of the workload have no prefix."""
    data = settings.model_dump(mode="json")
    flat: dict[str, Any] = {}
    for key, value in data.items():
        for section in value.values() if key == "workloads" else [{key: value}]:
            flat |= flatten(section)
    return flat


def layout_settings(settings: Settings, workload: str, points: Sequence[Size]) -> dict[str, Any]:
    """Return the settings with which a slot is the same at all points.

    On this machine, the largest point determines the number of cores per slot; on a scheduler, the
    nodes determine how many ranks share one.
    """
    if settings.bagging.waves:
        raise UsageError(
            "bagging.waves = true: models that wait for others do not show scaling",
            hint="leave bagging.waves out",
        )
    found: dict[str, Any] = {}
    launch, device = settings.launch, settings.workloads[workload]["train"]["device"]
    alone = launcher_class(launch.on).is_this_machine and not launch.rehearse
    if alone and launch.cores_per_rank is None:
        largest = max(size.slots for size in points)
        found["launch.cores_per_rank"] = _cores_per_slot(device, largest)
    shared = ranks_per_node(settings, points)
    if shared is not None:
        found["launch.ranks_per_node"] = shared
    return found


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return the settings with changes; the batch per rank stays known for further ones."""
    return load(settings, None, _assignments(changes), keep_batch_per_rank=True)


def _assignments(changes: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in changes.items()]


def _cores_per_slot(device: str, slots: int) -> int:
    """Return the cores per slot, which are equal at every point."""
    from vflops.config.launch import LaunchSettings
    from vflops.launch.sizing import local_node, rank_share

    node = local_node(LaunchSettings(), device)
    slots = node.slots if node.accelerated else min(slots, node.slots)
    return rank_share([node], slots, LaunchSettings()).cores
