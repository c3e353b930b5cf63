"""Runs an experiment: every point an ordinary run folder, what is complete is not run again.

DIR/<M>x<P>/<run>/   the run folder of a point
DIR/scale.json       the figures of all points
DIR/scale.html       the same as a page with curves
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vflops import suite
from vflops.config.settings import Settings, load
from vflops.errors import Interrupted, UsageError
from vflops.record import atomic
from vflops.record.folder import RunFolder, latest
from vflops.record.lock import held
from vflops.scale.result import Kind, Pair, Point, Scale, figures
from vflops.suite import Watch

SameBatch = Literal["model", "rank"]


def pairs(kind: Kind, scales: Sequence[int], ranks: int = 1) -> list[Pair]:
    """The points of an experiment, fewest slots first; of a trade-off the one scale's divisors."""
    if kind == "weak":
        return [Pair(models, ranks) for models in scales]
    if kind == "bagging-vs-data":
        both = [pair for scale in scales for pair in (Pair(scale, 1), Pair(1, scale))]
        return list(dict.fromkeys(both))
    (scale,) = scales
    return [Pair(scale // p, p) for p in range(1, scale + 1) if scale % p == 0]


@dataclass(frozen=True)
class Experiment:
    """One workload at several points, on slots of one size."""

    folder: Path
    workload: str
    kind: Kind
    pairs: tuple[Pair, ...]
    settings: Settings
    """Of all points, but for models, ranks and batch."""
    same_batch: SameBatch = "rank"

    @property
    def page_file(self) -> Path:
        """Where the page goes."""
        return self.folder / "scale.html"

    @classmethod
    def of(
        cls,
        folder: Path,
        workload: str,
        kind: Kind,
        points: Sequence[Pair],
        settings: Settings,
        same_batch: SameBatch = "rank",
    ) -> Experiment:
        """An experiment whose every point fits; slots are as large as the largest one allows."""
        if settings.bagging.waves:
            raise UsageError(
                "bagging.waves = true: models that wait for others say nothing about scaling",
                cure="leave it out",
            )
        largest = max(points, key=lambda pair: pair.slots)
        if settings.launch.on == "local" and settings.launch.cores_per_rank is None:
            each = _share(settings.workloads[workload]["train"]["device"], largest.slots)
            settings = load(settings, None, [f"launch.cores_per_rank={each}"])
        made = cls(folder, workload, kind, tuple(points), settings, same_batch)
        made._check()
        return made

    def point_settings(self, pair: Pair) -> Settings:
        """The settings of the run of one point."""
        train = self.settings.workloads[self.workload]["train"]
        batch = train["batch"]
        if self.same_batch == "rank":
            batch = batch // train["ranks"] * pair.ranks
        changes = {
            "bagging.models": pair.models,
            "models": pair.models,
            "train.ranks": pair.ranks,
            "train.batch": batch,
        }
        return load(self.settings, None, [f"{key}={value}" for key, value in changes.items()])

    def run(self, watch: Watch) -> Scale:
        """Run what is missing, and write the figures and the page after every point."""
        from vflops.scale.page import write_page

        atomic.make_folder(self.folder)
        with held(self.folder / ".lock", self.folder):
            for number, pair in enumerate(self.pairs, start=1):
                watch.step(f"point {number} of {len(self.pairs)}: {_words(pair)}")
                self._run(pair, watch)
                scale = self.result()
                scale.write(self.folder / "scale.json")
                write_page(scale, self.page_file)
        return scale

    def result(self) -> Scale:
        """What the run folders say, as far as they have come."""
        points = tuple(self._point(pair) for pair in self.pairs)
        goal = next(self._goals(), (None, None))
        return Scale(
            workload=self.workload,
            kind=self.kind,
            profile=self.settings.profile,
            on=self.settings.launch.on,
            cores_per_rank=self.settings.launch.cores_per_rank,
            same_batch=self.same_batch,
            quality_name=goal[0],
            target=goal[1],
            points=points,
        ).with_efficiency()

    def _run(self, pair: Pair, watch: Watch) -> None:
        folder = self._folder_of(pair)
        try:
            if folder is None:
                parent = self.folder / str(pair)
                folder = suite.start(parent, self.workload, self.point_settings(pair), watch)
            elif not folder.history().state.complete:
                suite.resume(folder, watch)
            if not all(path.is_file() for path in folder.conclusions):
                suite.conclude(folder, watch)
        except Interrupted as error:
            raise Interrupted(
                error.message, cure="go on with it: the same command again; what is done is kept"
            ) from error

    def _point(self, pair: Pair) -> Point:
        folder = self._folder_of(pair)
        run = None if folder is None else str(folder.path.relative_to(self.folder))
        done = folder is not None and all(path.is_file() for path in folder.conclusions)
        complete = done and folder is not None and folder.history().state.complete
        return Point(
            models=pair.models,
            ranks=pair.ranks,
            run=run,
            figures=figures(folder, pair) if folder and complete else None,
        )

    def _goals(self) -> Iterator[tuple[str, float]]:
        """What judges the models, and the target, of the first point that has them."""
        from vflops.record.training import JobRecord

        for pair in self.pairs:
            folder = self._folder_of(pair)
            if folder is not None and folder.job_file(1).is_file():
                goal = JobRecord.read(folder.job_file(1)).goal
                yield goal.quality, goal.target

    def _folder_of(self, pair: Pair) -> RunFolder | None:
        path = latest(self.folder / str(pair))
        return RunFolder.open(path) if path else None

    def _check(self) -> None:
        """Refuse, before anything runs, what a later point would be refused for."""
        from vflops.admission import check_launch
        from vflops.bagging.plan import plan
        from vflops.launch.choose import room

        launch = self.settings.launch
        check_launch(launch)
        device = self.settings.workloads[self.workload]["train"]["device"]
        for pair in self.pairs:
            wanted = self.point_settings(pair)
            if launch.on in ("local", "slurm"):  # of other schedulers the nodes are not known
                places = room(launch, device, pair.ranks)
                plan(places, pair.models, pair.ranks, may_wait=False)
            before = self._folder_of(pair)
            if before is not None and before.record.settings != wanted:
                raise UsageError(
                    f"{before.path} is a point of an experiment with other settings",
                    cure="give the settings of that one to go on with it, or another --out",
                )
        known = self.folder / "scale.json"
        if known.is_file():
            other = Scale.read(known)
            if (other.workload, other.kind) != (self.workload, self.kind):
                raise UsageError(
                    f"{self.folder} holds another experiment: {other.kind} of {other.workload}",
                    cure="give another --out",
                )


def _share(device: str, slots: int) -> int:
    """Cores of one slot, the same at every point: of the largest point, or of a device."""
    from vflops.train.placement import here, usable_cores

    count, devices = here(device)
    return max(len(usable_cores()) // (count if devices else slots), 1)


def _words(pair: Pair) -> str:
    from vflops.score.words import count

    return f"{count(pair.models, 'model')} × {count(pair.ranks, 'rank')}"
