"""Searches with different seeds against replays of the first: figure 2 of HPC AI500 V3.0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Literal

from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.metrics.statistics import coefficient_of_variation, mean, stdev
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.score.figure_text import number
from vflops.results.score.score_file import Score
from vflops.results.score.search_target import target_reached
from vflops.results.score.search_workers import search_history
from vflops.studies.scale import scale_charts, usage_view
from vflops.studies.scale.axis import marks
from vflops.studies.scale.point_figures import SearchFigures
from vflops.studies.scale.scale_charts import Curve, Moment, Row
from vflops.studies.scale.scale_result import GroupFigure, Point, Scale, Size
from vflops.studies.scale.worker_scaling import Workers
from vflops.units import count, percent, quantity, seconds

DEFAULT_SEEDS = 5
SEARCH, REPLAY = "search", "replay"
NOT_REACHED = "not reached"
_ROUNDING = 1e-9
"""An error of 1 − 0.7 is 0.30000000000000004, and meets a target of 0.3."""


def variation_sizes(seeds: int, workers: int, ranks: int) -> list[Size]:
    """Return the points: searches and replays in turn, so that background load affects both."""
    names = [f"{what}-{k}" for k in range(1, seeds + 1) for what in (SEARCH, REPLAY)]
    return [Size(workers, ranks, name) for name in names]


@dataclass(frozen=True)
class SearchVariation(Workers):
    """An axis along which the seed of a search changes; every search is followed by a replay."""

    named_columns = 1

    def words(self, size: Size) -> str:
        """Return a point as text, such as ``search 1 (2 workers × 1 rank)``."""
        return f"{_name(size)} ({super().words(size)})"

    def follows(self, size: Size) -> Size | None:
        """Return the first search, whose ledger a replay needs; None for searches."""
        return None if _group(size) == SEARCH else size._replace(variant=f"{SEARCH}-1")

    def final_settings(
        self, settings: Settings, size: Size, previous: RunFolder | None
    ) -> Settings:
        """Return the settings of a search with its seed, or those of a replay of ``previous``."""
        if previous is None:
            return settings.model_copy(update={"seed": settings.seed + _number(size) - 1})
        from vflops.workloads.automl.replay import SearchLedger

        ledger = SearchLedger.find(previous.path)
        if not ledger.candidates:
            duration = seconds(ledger.settings["search"]["duration_s"])
            raise UsageError(
                f"the first search trained no candidate in {duration}: there is nothing to replay",
                hint="search for longer: use a longer --for and another --out",
            )
        replay = ledger.replay_settings(previous.path, {}, [])
        return settings.model_copy(update={"seed": replay.seed, "workloads": replay.workloads})

    def goal(self, record: JobRecord) -> tuple[str, float]:
        """Return the name of the measure, ``error``, and the target error."""
        name, limit = super().goal(record)
        return name, limit if self.error is None else self.error

    def figures(self, folder: RunFolder, size: Size) -> SearchFigures:
        """Return the figures of a search, with those until it reached the target."""
        contents = Contents(folder)
        _, target = self.goal(contents.workers[0].record)
        reached = target_reached(search_history(contents.workers), target + _ROUNDING)
        (score,) = Score.read(folder.score_file).searches
        return (
            super()
            .figures(folder, size)
            .model_copy(
                update={
                    "seed": score.seed,
                    "candidates": len(score.candidates),
                    "ops": score.ops,
                    "ops_to_target": reached.ops if reached else None,
                    "time_to_target_s": round(reached.time_s, 6) if reached else None,
                }
            )
        )

    def groups(self, points: Sequence[Point]) -> tuple[GroupFigure, ...]:
        """Return mean and variation of every figure, for searches and for replays."""
        return tuple(
            _group_figure(points, group, figure)
            for figure in _FIGURES
            for group in (SEARCH, REPLAY)
        )

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Return one row per run: what it took to the target, and in total."""
        to = "to target" if scale.target is None else f"to {scale.target:g}"
        names = ("seed", "candidates", f"OP {to}", f"time {to}", "error", "operations", "time")
        rows: list[Sequence[str]] = [("run", *names, "speed")]
        for point in scale.points:
            figures = point.figures
            if not isinstance(figures, SearchFigures):
                rows.append((_name(point.size), *("—",) * 7, "not complete"))
                continue
            rows.append(
                (
                    _name(point.size),
                    str(figures.seed),
                    str(figures.candidates),
                    *(_FIGURES[name].text(_FIGURES[name].of(figures)) for name in _TO_TARGET),
                    "—" if figures.error is None else number(figures.error),
                    quantity(figures.ops, "OP"),
                    seconds(figures.window_s),
                    quantity(figures.mean_ops_per_s, "OPS") + marks(figures),
                )
            )
        return rows

    def summary_table(self, scale: Scale) -> list[Sequence[str]]:
        """Return mean, standard deviation and variation of the figures of both groups."""
        rows: list[Sequence[str]] = [
            ("", "runs", "mean", "standard deviation", "coefficient of variation")
        ]
        for group in scale.groups:
            figure = _FIGURES[group.figure]
            rows.append(
                (
                    f"{figure.title(scale)}, {'searches' if group.group == SEARCH else 'replays'}",
                    f"{group.known} of {group.planned}",
                    NOT_REACHED
                    if group.mean is None and _lacks(group)
                    else figure.text(group.mean),
                    "—" if group.stdev is None else figure.text(group.stdev),
                    percent(group.variation, digits=2),
                )
            )
        return rows

    def curves(self, scale: Scale) -> list[Curve]:
        """Return a chart of each figure with one bar per run, and of the error over time."""
        done = list(scale.completed(SearchFigures))
        if not done:
            return []
        curves = [
            Curve(name.replace("_", "-"), figure.title(scale).capitalize(), figure.chart(done))
            for name, figure in _FIGURES.items()
        ]
        courses = {
            _name(point.size): [
                Moment(moment.time_s, moment.error, moment.counts)
                for moment in figures.moments
                if moment.error is not None
            ]
            for point, figures in done
        }
        over = scale_charts.over_time(
            courses, "error of the best network so far", form=scale_charts.PLAIN
        )
        if over:
            curves.append(Curve("error-time", "Error over time", over))
        return curves

    def usage_table(self, scale: Scale) -> list[Sequence[str]]:
        """Return how every run used its nodes."""
        return usage_view.usage_table(scale, lambda point: _name(point.size), "run")

    def note(self, scale: Scale) -> str:
        """Return an explanation of the columns of the table."""
        return (
            f"A search reaches the target with the first evaluation whose error is at most"
            f" {scale.target:g}; operations and time {_to_target(scale)} are those of all workers"
            " until then. Runs that did not reach it are not part of its mean. Replays train the"
            " networks of search 1 again, without the candidates that its end cut off. Speed: all"
            " operations divided by all seconds."
        )

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """Return which runs missed the target, and that runs are not valid by AIPerf's rules."""
        done = list(scale.completed(SearchFigures))
        missed = [_name(point.size) for point, own in done if own.ops_to_target is None]
        broken = [(point, own) for point, own in done if own.broken]
        remarks = []
        if missed:
            remarks.append((", ".join(missed), f"error {scale.target:g} was {NOT_REACHED}"))
        if broken:
            point, own = broken[0]
            remarks.append(
                (
                    count(len(broken), "run"),
                    "not a valid result by AIPerf's rules; the reasons of"
                    f" {_name(point.size)}: {'; '.join(own.broken)}",
                )
            )
        return [*remarks, *usage_view.usage_remarks(scale, lambda point: _name(point.size))]

    def next_step(self, scale: Scale, folder: Path) -> str | None:
        """Return what to do about runs that missed the target, or about the variation."""
        done = list(scale.completed(SearchFigures))
        missed = sum(own.ops_to_target is None for _, own in done)
        if missed:
            worst = max((own.error for _, own in done if own.error is not None), default=1.0)
            reached_by_all = ceil(1000 * worst) / 1000
            return (
                f"{missed} of {count(len(done), 'run')} did not reach error {scale.target:g}:"
                f" --error {reached_by_all:g} evaluates these runs again with a target that all"
                " reached; to search for longer, use a longer --for and another --out"
            )
        run = scale.points[0].run
        return f"compare machines by fixed work: vflops replay {folder / run}" if run else None


@dataclass(frozen=True)
class _Figure:
    """A figure that is compared between searches and replays."""

    words: str
    unit: str
    value: Callable[[SearchFigures], float | None]
    to_target: bool = False

    def of(self, figures: SearchFigures) -> float | None:
        return self.value(figures)

    def text(self, value: float | None) -> str:
        if value is None:
            return NOT_REACHED if self.to_target else "—"
        return seconds(value) if self.unit == "s" else quantity(value, self.unit)

    def title(self, scale: Scale) -> str:
        return f"{self.words} {_to_target(scale)}" if self.to_target else self.words

    def chart(self, done: Sequence[tuple[Point, SearchFigures]]) -> dict[str, object]:
        rows = [
            Row(_name(point.size), self.of(figures), _group(point.size))
            for point, figures in sorted(done, key=lambda item: _group(item[0].size), reverse=True)
        ]
        axis = f"{self.words}, {self.unit}"
        return scale_charts.bars(rows, axis, partial(_Figure.text, self), named=True)


_FIGURES: dict[str, _Figure] = {
    "ops_to_target": _Figure("operations", "OP", lambda own: own.ops_to_target, to_target=True),
    "time_to_target_s": _Figure("time", "s", lambda own: own.time_to_target_s, to_target=True),
    "ops": _Figure("operations in total", "OP", lambda own: own.ops),
    "ops_per_s": _Figure("speed", "OPS", lambda own: own.mean_ops_per_s),
}
_TO_TARGET = ("ops_to_target", "time_to_target_s")


def _group_figure(points: Sequence[Point], group: str, figure: str) -> GroupFigure:
    members = [point for point in points if _group(point.size) == group]
    found = [
        _FIGURES[figure].of(p.figures) for p in members if isinstance(p.figures, SearchFigures)
    ]
    known = [value for value in found if value is not None]
    several = len(known) > 1
    return GroupFigure(
        group="search" if group == SEARCH else "replay",
        figure=figure,
        planned=len(members),
        complete=len(found),
        known=len(known),
        mean=mean(known) if known else None,
        stdev=stdev(known) if several else None,
        variation=coefficient_of_variation(known) if several and mean(known) > 0 else None,
    )


def _lacks(group: GroupFigure) -> bool:
    """Whether runs of the group are complete, but none of them has the figure."""
    return group.complete > 0 and _FIGURES[group.figure].to_target


def _to_target(scale: Scale) -> str:
    return "to the target" if scale.target is None else f"to error {scale.target:g}"


def _group(size: Size) -> Literal["search", "replay"]:
    return "search" if (size.variant or "").startswith(SEARCH) else "replay"


def _number(size: Size) -> int:
    return int((size.variant or "").rpartition("-")[2])


def _name(size: Size) -> str:
    return (size.variant or "").replace("-", " ")
