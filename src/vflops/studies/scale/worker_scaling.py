"""Scaling experiments with the workers of a search, as in figure 4 of AIPerf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vflops.config.settings import Settings
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score import search_text
from vflops.results.score.figure_text import number
from vflops.results.score.node_usage import NodeUsage, node_usage
from vflops.results.score.score_file import Score
from vflops.results.score.search_workers import WorkerTimeline, search_history
from vflops.studies.scale import scale_charts, usage_view
from vflops.studies.scale.axis import Axis, checks_failed, marks
from vflops.studies.scale.point_figures import SearchFigures
from vflops.studies.scale.scale_charts import Curve, HorizontalAxis, Moment, Row
from vflops.studies.scale.scale_result import Point, Scale, Size
from vflops.units import count, percent, quantity
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.contract.run_settings import workload_settings

_CONVERGED = {None: "cannot tell", True: "yes", False: "no"}


@dataclass(frozen=True)
class Workers(Axis):
    """An axis along which the number of workers grows; all searches have one duration and seed."""

    job = "worker"

    def common_settings(
        self, settings: Settings, workload: str, sizes: Sequence[Size]
    ) -> dict[str, Any]:
        """Return the order of the search, because ``auto`` may differ between points."""
        workers = max(size.jobs for size in sizes)
        section = settings.workloads[workload]
        search = {**section["search"], "workers": workers}
        ordered = AutomlSettings.model_validate({**section, "search": search}).ordered
        return {"search.order": "ordered" if ordered else "free"}

    def changes(self, section: dict[str, Any], size: Size) -> dict[str, Any]:
        """Return the number of workers, and the ranks of each."""
        return {"search.workers": size.jobs, "train.ranks": size.ranks, **self.settings_for(size)}

    def check_size(self, settings: Settings, workload: str, size: Size) -> None:
        """Raise the errors of ``vflops run``: too many workers, repeats, base models."""
        from vflops.run.validate import check
        from vflops.workloads.contract.registry import workload as find

        check(settings, find(workload), workload_settings(settings)[workload])

    def goal(self, record: JobRecord) -> tuple[str, float]:
        """Return the name of the measure, ``error``, and the largest valid error."""
        return "error", record.settings["search"]["error"]

    def figures(self, folder: RunFolder, size: Size) -> SearchFigures:
        """Return the figures of the search from ``score.json``."""
        contents = Contents(folder)
        (score,) = Score.read(folder.score_file).searches
        jobs = [worker.record.job for worker in contents.workers]
        return SearchFigures(
            partial=not all(contents.history.ended(job) for job in jobs),
            attempts=max(len(worker.logs) for worker in contents.workers),
            checks_failed=checks_failed(folder),
            usage=_usage(contents.workers),
            window_s=score.duration_s,
            ops_per_s=score.ops_per_s,
            regulated=score.regulated,
            error=score.error,
            architectures=len({candidate.digest for candidate in score.candidates}),
            idle_share=score.idle_share,
            converged=score.converged,
            broken=search_text.aiperf_reasons(score),
            deviations=tuple(search_text.deviations(score)),
            moments=score.moments,
        )

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Return both scores for every number of workers, and the figures behind them."""
        first = "workers" if _single(scale) else "workers × ranks"
        names = ("OPS", "efficiency", "regulated", "efficiency", "error", "tried", "idle")
        rows: list[Sequence[str]] = [(first, *names, "converged")]
        for point in scale.points:
            figures = point.figures
            size = str(point.jobs) if _single(scale) else f"{point.jobs} × {point.ranks}"
            if not isinstance(figures, SearchFigures):
                rows.append((size, *("—",) * 7, "not complete"))
                continue
            rows.append(
                (
                    size,
                    quantity(figures.ops_per_s, "OPS"),
                    percent(figures.efficiency),
                    _regulated(figures),
                    percent(figures.efficiency_valid),
                    "—" if figures.error is None else number(figures.error),
                    str(figures.architectures),
                    percent(figures.idle_share),
                    _CONVERGED[figures.converged] + marks(figures),
                )
            )
        return rows

    def curves(self, scale: Scale) -> list[Curve]:
        """Return charts of both scores over workers and over time, and of the error."""
        done = list(scale.completed(SearchFigures))
        if not done:
            return []
        ranks, jobs = scale.base.ranks, tuple(point.jobs for point in scale.points)
        across = HorizontalAxis("workers" if ranks == 1 else f"workers of {ranks} ranks", jobs)
        curves = []
        for score in _SCORES:
            rows = [Row(point.jobs, score.final(figures)) for point, figures in done]
            rows += scale_charts.ideal(scale, score.figure, max(jobs), ranks)
            drawn = scale_charts.lines(rows, across, score.axis, form=scale_charts.SI)
            curves.append(Curve(score.id, f"{score.name} over workers", drawn))
            courses = {
                count(point.jobs, self.job): score.course(figures) for point, figures in done
            }
            over = scale_charts.over_time(courses, score.axis)
            if over:
                curves.append(Curve(f"{score.id}-time", f"{score.name} over time", over))
        errors = [Row(point.jobs, figures.error) for point, figures in done]
        limit = None if scale.target is None else ("valid up to", scale.target)
        drawn = scale_charts.lines(errors, across, "error", target=limit, zero=True)
        return [
            *curves,
            Curve("error", "Error of the best model", drawn),
            *usage_view.usage_curves(scale, self._name),
            *usage_view.bandwidth_curve(
                scale, across, lambda point: point.jobs, lambda point: [scale_charts.MEASURED]
            ),
        ]

    def usage_table(self, scale: Scale) -> list[Sequence[str]]:
        """Return how every search used its nodes."""
        return usage_view.usage_table(scale, self._name, "workers")

    def _name(self, point: Point) -> str:
        return count(point.jobs, self.job)

    def note(self, scale: Scale) -> str:
        """Return an explanation of the columns of the table."""
        return (
            "OPS: operations so far divided by seconds so far, the largest of all samples that"
            " count. Regulated: the largest −ln(error of the best model so far) × OPS. Efficiency:"
            f" OPS (regulated score) per worker relative to {self.words(scale.base.size)}. Tried:"
            " the number of different architectures. Idle: the share of the workers’ time between"
            " candidates. Converged: OPS varies by less than 2 % in the last fifth of the time. In"
            " the charts over time, dashed samples do not count."
        )

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """Return the searches that are not valid by AIPerf's rules, each with the reasons."""
        broken = [
            (
                self._name(point),
                f"not a valid result by AIPerf's rules: {'; '.join(figures.broken)}",
            )
            for point, figures in scale.completed(SearchFigures)
            if figures.broken
        ]
        return [*broken, *usage_view.usage_remarks(scale, self._name)]

    def deviations(self, scale: Scale) -> list[str]:
        """Return the deviations from AIPerf's table IV, each once."""
        done = scale.completed(SearchFigures)
        return list(dict.fromkeys(line for _, figures in done for line in figures.deviations))


@dataclass(frozen=True)
class _Score:
    """One of the two scores, and how it is drawn."""

    id: str
    name: str
    axis: str
    figure: Literal["rate", "valid"]

    def final(self, figures: SearchFigures) -> float | None:
        return figures.rate if self.figure == "rate" else figures.valid

    def course(self, figures: SearchFigures) -> list[Moment]:
        points = []
        for moment in figures.moments:
            value = moment.ops_per_s if self.figure == "rate" else moment.regulated
            if value is not None:
                points.append(Moment(moment.time_s, value, moment.counts))
        return points


_SCORES = (
    _Score("ops", "OPS", "OPS", "rate"),
    _Score("regulated", "Regulated score", "−ln(error) · OPS", "valid"),
)


def _usage(workers: Sequence[TrainedJob]) -> NodeUsage | None:
    """Return the usage of the nodes from the start of the search to its end."""
    span_s = search_history(workers).span_s
    return None if span_s is None else node_usage(WorkerTimeline(workers).parts, span_s)


def _regulated(figures: SearchFigures) -> str:
    return (
        search_text.UNDEFINED_REGULATED
        if figures.regulated is None and figures.error == 0
        else quantity(figures.regulated, "OPS")
    )


def _single(scale: Scale) -> bool:
    return all(point.ranks == 1 for point in scale.points)
