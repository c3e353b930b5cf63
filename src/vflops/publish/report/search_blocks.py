"""Blocks of the report for searches: results, progress and candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vflops.metrics.summation import sum_in_order
from vflops.publish.report import search_charts
from vflops.publish.report.architecture_drawing import draw_network
from vflops.publish.report.curves import Points
from vflops.publish.report.figure_tables import Tile
from vflops.publish.report.search_charts import TimeSpent
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score import figure_text, score_tables, search_text
from vflops.results.score.node_power import node_telemetry
from vflops.results.score.node_usage import mean_course
from vflops.results.score.score_file import Score, SearchScore
from vflops.results.score.search_workers import (
    WorkerTimeline,
    search_history,
    searches,
    time_by_activity,
)
from vflops.units import count, percent, quantity
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.search_events import Turn

MAX_ROWS = 50
"""The maximum number of rows in the table of candidates."""
_MAX_BARS = 16
"""With more workers than this, one bar shows the time of all of them."""
_BINS = 200
"""The number of time bins of the utilisation chart."""


@dataclass(frozen=True)
class SearchBlock:
    """What the report shows for one search."""

    kind: ClassVar[str] = "search"

    id: str
    workload: str
    title: str
    gist: str
    """What the section is about, in a few words."""
    aiperf: str
    valid: bool
    deviations: list[str]
    tiles: list[Tile]
    rows: list[tuple[str, str]]
    score: dict[str, Any] | None
    utilisation: dict[str, Any] | None
    tree: dict[str, Any] | None
    winner: str
    architecture: str | None
    """A drawing of the best network as SVG."""
    slices: dict[str, Any] | None
    spent: dict[str, Any] | None
    idle: str
    names: tuple[str, ...]
    candidates: list[tuple[str, ...]]
    left_out: int
    """The number of candidates that are not in the table."""
    failures: list[tuple[str, str]]
    node_names: tuple[str, ...]
    nodes: list[tuple[str, ...]]


def search_blocks(contents: Contents, scored: Score) -> list[SearchBlock]:
    """Return one block per search that has begun."""
    pairs = zip(searches(contents), scored.searches, strict=True)
    return [
        _block(contents, f"search-{number}", members, score)
        for number, (members, score) in enumerate(pairs)
        if search_text.has_started(score)
    ]


def _block(
    contents: Contents, id: str, members: Sequence[TrainedJob], score: SearchScore
) -> SearchBlock:
    best = search_text.by_accuracy(score)
    names, rows = _without_empty_columns(
        search_text.CANDIDATES, [search_text.candidate_row(item) for item in best[:MAX_ROWS]]
    )
    failed = [
        (candidate.candidate, candidate.message)
        for candidate in score.candidates
        if candidate.message
    ]
    return SearchBlock(
        id=id,
        workload=score.workload,
        gist="score over time, where the time went, the best network, candidates",
        title=f"{score.workload}, {count(score.workers, 'worker')}, seed {score.seed}",
        aiperf=_sentence(search_text.aiperf_line(score)),
        valid=score.aiperf.valid,
        deviations=search_text.deviations(score),
        tiles=_tiles(score),
        rows=[row for row in search_text.search_rows(score) if row[0] not in ("AIPerf", "")],
        score=search_charts.score(score),
        utilisation=search_charts.utilisation(_utilisation(members), score.duration_s),
        tree=search_charts.tree(score),
        winner=search_text.winner(score),
        architecture=_drawing(contents, score),
        slices=search_charts.slices(score),
        spent=search_charts.spent(_time_bars(members)),
        idle=_sentence(search_text.idle(score)),
        names=names,
        candidates=rows,
        left_out=max(len(best) - MAX_ROWS, 0),
        failures=[*failed, *score.unbuilt.items()],
        node_names=score_tables.NODES,
        nodes=score_tables.node_rows(score) if len(score.nodes) > 1 else [],
    )


def _without_empty_columns(
    names: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return names and rows without the columns that are empty in every row."""
    kept = [number for number in range(len(names)) if any(row[number] for row in rows)]
    return tuple(names[n] for n in kept), [tuple(row[n] for n in kept) for row in rows]


def _tiles(score: SearchScore) -> list[Tile]:
    last = f"last sample {quantity(score.last_ops_per_s, 'OPS')}"
    convergence = {None: "too short to tell", True: "converged", False: "not converged"}
    rows = [
        ("OPS", quantity(score.ops_per_s, "OPS"), f"{convergence[score.converged]}; {last}"),
        ("regulated score", *_regulated(score)),
        (
            "best error",
            "—" if score.error is None else figure_text.number(score.error),
            f"must be at most {search_text.max_error(score):g}",
        ),
        (
            "architectures",
            str(len({candidate.digest for candidate in score.candidates})),
            f"of {count(len(score.candidates), 'candidate')}",
        ),
        ("idle", percent(score.idle_share), "of the workers' time, between candidates"),
    ]
    return [{"name": name, "value": value, "note": note} for name, value, note in rows]


def _regulated(score: SearchScore) -> tuple[str, str]:
    """Return the regulated score and its formula, or why there is none."""
    if score.regulated is None:
        return "—", search_text.regulated_value(score).removeprefix("— ")
    return search_text.regulated_value(score), "−ln(error) · OPS"


def _drawing(contents: Contents, score: SearchScore) -> str | None:
    """Return a drawing of the best network, with marks where it differs from the first network."""
    if score.winner is None:
        return None
    first, best = (
        _architecture(contents, turn)
        for turn in (Turn(round=0, worker=0), Turn.named(score.winner))
    )
    return draw_network(best, first) if best else None


def _architecture(contents: Contents, turn: Turn) -> Architecture | None:
    if not (contents.folder.path / "buffer").is_dir():
        return None
    candidate = CandidateBuffer(contents.folder.path).get(turn)
    return candidate.architecture if candidate else None


def _time_bars(members: Sequence[TrainedJob]) -> list[TimeSpent]:
    """Return the time by activity: one bar per worker, or one for all if there are many."""
    bars = [_bar(member) for member in members]
    if len(bars) <= _MAX_BARS:
        return bars
    total = {name: sum_in_order(bar.seconds[name] for bar in bars) for name in bars[0].seconds}
    return [TimeSpent(f"all {len(bars)} workers", total)]


def _bar(member: TrainedJob) -> TimeSpent:
    number = member.record.worker.worker + 1 if member.record.worker else member.record.job
    return TimeSpent(f"worker {number}", time_by_activity(member))


def _utilisation(members: Sequence[TrainedJob]) -> dict[str, Points]:
    """Return the utilisation of all devices over the search in percent."""
    span_s = search_history(members).span_s
    if span_s is None or span_s[1] <= span_s[0]:
        return {}
    start_s, end_s = span_s
    devices: dict[str, dict[tuple[str, str], Points]] = {}
    for host, parts in WorkerTimeline(members).parts.items():
        for part in parts:
            sampled = node_telemetry(part, start_s)
            for series in sampled[0].series() if sampled else ():
                name = _device_kind(series.id, series.part)
                if name is None or sampled is None:
                    continue
                readings = zip(sampled[0].times_s, sampled[0].column(series.id), strict=True)
                points = devices.setdefault(name, {}).setdefault(
                    (host, series.device or series.id), []
                )
                points += [(time_s, value) for time_s, value in readings if value is not None]
    return {
        name: mean_course(list(by_device.values()), end_s - start_s, _BINS)
        for name, by_device in sorted(devices.items())
    }


def _device_kind(id: str, part: str) -> str | None:
    """Return the line of a telemetry series: accelerators or processors; None for others."""
    if part == "accelerator" and id.endswith(".utilisation"):
        return "accelerators"
    return "processors" if id == "cpu.busy" else None


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
