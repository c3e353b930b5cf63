"""Blocks of the report for ensembles: figures, and the quality by number of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vflops.publish.pages.chart_style import SERIES, apply_style, data, tooltips
from vflops.publish.report.figure_tables import Tile
from vflops.publish.report.training_charts import WIDTH
from vflops.results.many_trainings import MANY
from vflops.results.score import figure_text, score_tables
from vflops.results.score.score_file import EnsembleScore, Score
from vflops.units import count, quantity, seconds


@dataclass(frozen=True)
class EnsembleBlock:
    """What the report shows for one ensemble."""

    kind: ClassVar[str] = "ensemble"

    id: str
    workload: str
    title: str
    gist: str
    """What the section is about, in a few words."""
    synthetic: bool
    tiles: list[Tile]
    rows: list[tuple[str, str]]
    over_time: dict[str, Any] | None
    """None if the models were combined only after training."""
    waves: bool
    by_models: dict[str, Any]
    node_names: tuple[str, ...]
    nodes: list[tuple[str, ...]]
    nodes_note: str
    """Which nodes are shown; empty if it is all of them."""
    apart: str
    """The time between the first and the last start of a model."""


@dataclass(frozen=True)
class EnsembleMeanBlock:
    """What the report shows for all ensembles of a workload that was repeated."""

    kind: ClassVar[str] = "ensemble-mean"

    id: str
    workload: str
    title: str
    gist: str
    names: tuple[str, ...]
    rows: list[tuple[str, ...]]
    """The mean and the variation over repeats, with the columns of ``names``."""


def ensemble_mean_blocks(scored: Score) -> list[EnsembleMeanBlock]:
    """Return one block per workload whose ensemble was repeated."""
    repeats = [repeat for repeat in scored.repeats if repeat.models is not None]
    return [
        EnsembleMeanBlock(
            id=f"ensemble-mean-{number}",
            workload=repeat.workload,
            title=score_tables.repeat_title(repeat),
            gist="mean and variation over repeats",
            names=score_tables.REPEATS,
            rows=score_tables.repeat_rows(repeat),
        )
        for number, repeat in enumerate(repeats)
    ]


def ensemble_blocks(scored: Score) -> list[EnsembleBlock]:
    """Return one block per ensemble."""
    return [
        EnsembleBlock(
            id=f"ensemble-{number}",
            workload=ensemble.workload,
            title=_title(scored, ensemble),
            gist="figures, quality by number of models",
            synthetic=_uses_synthetic_data(scored, frozenset(ensemble.jobs)),
            tiles=_tiles(ensemble),
            rows=score_tables.ensemble_rows(ensemble),
            over_time=_quality_over_time(ensemble) if len(ensemble.moments) > 1 else None,
            waves=ensemble.waves,
            by_models=_quality_by_models(ensemble),
            node_names=score_tables.NODES,
            nodes=score_tables.node_rows(ensemble, at_most=MANY),
            nodes_note=_nodes_note(len(ensemble.nodes)),
            apart=seconds(ensemble.started_apart_s),
        )
        for number, ensemble in enumerate(scored.ensembles)
    ]


def _title(scored: Score, ensemble: EnsembleScore) -> str:
    name = score_tables.ensemble_name(scored, ensemble.workload, ensemble.repeat)
    return f"{name}, {count(ensemble.planned, 'model')}{_twins_note(ensemble)}"


def _quality_over_time(ensemble: EnsembleScore) -> dict[str, Any]:
    import altair as alt

    rows = [
        {"time_s": moment.time_s, "quality": moment.quality, "epoch": moment.epoch}
        for moment in ensemble.moments
    ]
    y = alt.Y("quality:Q").scale(zero=False).title(ensemble.quality_name)
    line = (
        alt.Chart(data(rows))
        .mark_line(point=True, color=SERIES[0])
        .encode(
            x=alt.X("time_s:Q").title("seconds"),
            y=y,
            tooltip=tooltips("time_s:Q", "quality:Q", "epoch:Q"),
        )
    )
    target = [{"quality": ensemble.target, "label": f"target {ensemble.target:g}"}]
    rule = alt.Chart(data(target)).mark_rule(color="#444", strokeDash=[6, 4]).encode(y=y)
    label = rule.mark_text(align="right", dx=-6, dy=-8, color="#444").encode(
        x=alt.value("width"), text=alt.Text("label:N")
    )
    return apply_style((line + rule + label).properties(width=WIDTH, height=200))


def _nodes_note(nodes: int) -> str:
    if nodes <= MANY:
        return ""
    return (
        f"{MANY} of {nodes:,} nodes: those that are slow or noisy, those whose clock is not known, "
        "and those with the most and the least power. score.json has all of them."
    )


def _uses_synthetic_data(scored: Score, jobs: frozenset[int]) -> bool:
    return any(training.synthetic for training in scored.trainings if training.job in jobs)


def _twins_note(ensemble: EnsembleScore) -> str:
    return f", twins: {score_tables.TWINS}" if ensemble.twins else ""


def _tiles(ensemble: EnsembleScore) -> list[Tile]:
    valid = ensemble.capped_vflops
    product = f"FLOPS × {figure_text.FACTOR} {ensemble.factor:.3g}"
    published = figure_text.published_flops(valid, ensemble.vflops)
    comparable = figure_text.NOT_COMPARABLE if ensemble.task == "open" else ""
    rows = [
        (
            figure_text.vflops_name(ensemble.task),
            quantity(valid, "VFLOPS"),
            "; ".join(filter(None, (comparable, product, published, f"n = {ensemble.exponent}"))),
        ),
        (
            "FLOPS",
            quantity(ensemble.flops, "FLOPS"),
            "of all models, from the first step to the last end",
        ),
        (
            ensemble.quality_name,
            figure_text.number(ensemble.achieved),
            "; ".join(
                [
                    f"of the ensemble; target {figure_text.number(ensemble.target)}",
                    *figure_text.short_loss(ensemble.loss),
                ]
            ),
        ),
        (
            "time to quality",
            _time(ensemble),
            figure_text.combined_at(ensemble),
        ),
        (
            "single models",
            figure_text.number(ensemble.mean_quality),
            _mean_note(ensemble),
        ),
    ]
    return [{"name": name, "value": value, "note": note} for name, value, note in rows]


def _mean_note(ensemble: EnsembleScore) -> str:
    mean = f"mean of {len(ensemble.jobs)} models"
    if ensemble.best_quality is None:
        return mean
    better = "; the ensemble is better" if ensemble.beats == "best" else ""
    return f"{mean}; the best: {figure_text.number(ensemble.best_quality)}{better}"


def _time(ensemble: EnsembleScore) -> str:
    if ensemble.time_to_quality_s is not None:
        return seconds(ensemble.time_to_quality_s)
    return figure_text.NOT_REACHED if ensemble.moments else "—"


def _quality_by_models(ensemble: EnsembleScore) -> dict[str, Any]:
    import altair as alt

    rows = [{"models": size.models, "quality": size.quality} for size in ensemble.sizes]
    x = alt.X("models:Q").scale(type="log", base=2).title("models").axis(format="d")
    y = alt.Y("quality:Q").scale(zero=False, padding=16).title(ensemble.quality_name)
    line = (
        alt.Chart(data(rows))
        .mark_line(point=True, color=SERIES[0])
        .encode(x=x, y=y, tooltip=tooltips("models:Q", "quality:Q"))
    )
    marks = [
        {"quality": ensemble.mean_quality, "label": "mean of single models"},
        {"quality": ensemble.target, "label": f"target {ensemble.target:g}"},
    ]
    rules = alt.Chart(data(marks)).mark_rule(color="#444", strokeDash=[6, 4]).encode(y=y)
    # The labels are at opposite ends, so that they do not overlap if the values are nearly equal.
    texts = [alt.Chart(data([mark])).encode(y=y, text=alt.Text("label:N")) for mark in marks]
    # The label of the upper line is above it, and that of the lower one below.
    above, below = -8, 11
    left_dy, right_dy = below, above
    if ensemble.mean_quality > ensemble.target:
        left_dy, right_dy = above, below
    left = texts[0].mark_text(align="left", dx=6, dy=left_dy, color="#444")
    right = texts[1].mark_text(align="right", dx=-6, dy=right_dy, color="#444")
    labels = left.encode(x=alt.value(0)) + right.encode(x=alt.value("width"))
    return apply_style((line + rules + labels).properties(width=WIDTH, height=200))
