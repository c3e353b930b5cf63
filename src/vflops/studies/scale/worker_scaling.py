"""Searches with more and more workers: AIPerf's figure 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vflops.config.settings import Settings
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.score import search_text
from vflops.results.score.figure_text import count, number
from vflops.results.score.score_file import Score
from vflops.studies.scale import scale_charts
from vflops.studies.scale.axis import Axis, checks_failed, marks
from vflops.studies.scale.scale_charts import Across, Curve, Moment, Row
from vflops.studies.scale.scale_result import Kind, Scale, SearchFigures, Size
from vflops.units import percent, quantity
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.contract.run_settings import workload_settings

_CONVERGED = {None: "cannot tell", True: "yes", False: "no"}


@dataclass(frozen=True)
class Workers(Axis):
    """More workers, the time and the seed of each search the same."""

    kind: Kind = "workers"
    job: str = "worker"
    sharing: Mapping[str, str] = field(default_factory=dict)

    def shared(self, settings: Settings, workload: str, sizes: Sequence[Size]) -> dict[str, Any]:
        """One order of search: `auto` would make the large points free and the small ordered."""
        most = max(size.jobs for size in sizes)
        section = settings.workloads[workload]
        search = {**section["search"], "workers": most}
        ordered = AutomlSettings.model_validate({**section, "search": search}).ordered
        return {"search.order": "ordered" if ordered else "free"}

    def changes(self, section: dict[str, Any], size: Size) -> dict[str, Any]:
        """Workers, and the ranks of each."""
        return {"search.workers": size.jobs, "train.ranks": size.ranks, **self.own(size)}

    def refuse(self, settings: Settings, workload: str, size: Size) -> None:
        """Refuse what `vflops run` would: workers without a place, repeats, base models."""
        from vflops.run.validate import check
        from vflops.workloads.contract.registry import workload as find

        check(settings, find(workload), workload_settings(settings)[workload])

    def goal(self, record: JobRecord) -> tuple[str, float]:
        """The error of the best model, and the largest that is valid."""
        return "error", record.settings["search"]["error"]

    def figures(self, folder: RunFolder, size: Size) -> SearchFigures:
        """What `score.json` says of the search."""
        contents = Contents(folder)
        (score,) = Score.read(folder.score_file).searches
        jobs = [worker.record.job for worker in contents.workers]
        return SearchFigures(
            partial=not all(contents.history.ended(job) for job in jobs),
            attempts=max(len(worker.logs) for worker in contents.workers),
            checks_failed=checks_failed(folder),
            window_s=score.duration_s,
            ops_per_s=score.ops_per_s,
            regulated=score.regulated,
            error=score.error,
            architectures=len({each.digest for each in score.candidates}),
            idle_share=score.idle_share,
            converged=score.converged,
            broken=score.aiperf.reasons,
            deviations=tuple(search_text.deviations(score)),
            moments=score.moments,
        )

    @property
    def title(self) -> str:
        """What it shows."""
        return "Score against workers"

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Both scores of every number of workers, and what they rest on."""
        first = "workers" if _single(scale) else "workers × ranks"
        names = ("OPS", "efficiency", "regulated", "efficiency", "error", "tried", "idle")
        found: list[Sequence[str]] = [(first, *names, "converged")]
        for point in scale.points:
            own = point.figures
            size = str(point.jobs) if _single(scale) else f"{point.jobs} × {point.ranks}"
            if not isinstance(own, SearchFigures):
                found.append((size, *("—",) * 7, "not complete"))
                continue
            found.append(
                (
                    size,
                    quantity(own.ops_per_s, "OPS"),
                    percent(own.efficiency),
                    quantity(own.regulated, "OPS"),
                    percent(own.efficiency_valid),
                    "—" if own.error is None else number(own.error),
                    str(own.architectures),
                    percent(own.idle_share),
                    _CONVERGED[own.converged] + marks(own),
                )
            )
        return found

    def curves(self, scale: Scale) -> list[Curve]:
        """Both scores over workers and over time, then the error."""
        done = list(scale.found(SearchFigures))
        if not done:
            return []
        ranks, jobs = scale.base.ranks, tuple(point.jobs for point in scale.points)
        across = Across("workers" if ranks == 1 else f"workers of {ranks} ranks", jobs)
        curves = []
        for score in _SCORES:
            rows = [Row(point.jobs, score.final(own)) for point, own in done]
            rows += scale_charts.ideal(scale, score.figure, max(jobs), ranks)
            drawn = scale_charts.lines(rows, across, score.axis, rate=True)
            curves.append(Curve(score.id, f"{score.name} over workers", drawn))
            courses = {count(point.jobs, self.job): score.course(own) for point, own in done}
            over = scale_charts.over_time(courses, score.axis)
            if over:
                curves.append(Curve(f"{score.id}-time", f"{score.name} over time", over))
        errors = [Row(point.jobs, own.error) for point, own in done]
        limit = None if scale.target is None else ("valid up to", scale.target)
        drawn = scale_charts.lines(errors, across, "error", target=limit, zero=True)
        return [*curves, Curve("error", "Error of the best model", drawn)]

    def note(self, scale: Scale) -> str:
        """What the columns of the table are."""
        return (
            "OPS: operations so far over seconds so far, the largest of all moments that count;"
            " regulated: −ln(error of the best model so far) × OPS, the largest. Efficiency: OPS"
            f" (regulated score) of a worker over those at {self.words(scale.base.size)}. Tried:"
            " architectures, each once. Idle: of the workers’ time, between two candidates."
            " Converged: OPS varies by less than 2 % in the last fifth of the time. Over time:"
            " what does not count is dashed."
        )

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """The searches that are no results by AIPerf's rules."""
        return [
            (
                count(point.jobs, self.job),
                f"no valid result by AIPerf's rules: {'; '.join(own.broken)}",
            )
            for point, own in scale.found(SearchFigures)
            if own.broken
        ]

    def deviations(self, scale: Scale) -> list[str]:
        """Where they are other searches than AIPerf's table IV fixes, each said once."""
        done = scale.found(SearchFigures)
        return list(dict.fromkeys(line for _, own in done for line in own.deviations))


@dataclass(frozen=True)
class _Score:
    """One of the two scores, and how it is drawn."""

    id: str
    name: str
    axis: str
    figure: Literal["rate", "valid"]

    def final(self, own: SearchFigures) -> float | None:
        return own.rate if self.figure == "rate" else own.valid

    def course(self, own: SearchFigures) -> list[Moment]:
        found = []
        for each in own.moments:
            value = each.ops_per_s if self.figure == "rate" else each.regulated
            if value is not None:
                found.append(Moment(each.time_s, value, each.counts))
        return found


_SCORES = (
    _Score("ops", "OPS", "OPS", "rate"),
    _Score("regulated", "Regulated score", "−ln(error) · OPS", "valid"),
)


def _single(scale: Scale) -> bool:
    return all(point.ranks == 1 for point in scale.points)
