"""``report.html``, the report of a run."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.counting.count import count
from vflops.publish.pages import roofline_chart
from vflops.publish.pages.page import chart_library, render
from vflops.publish.report import ceiling_charts
from vflops.publish.report.answer import answer
from vflops.publish.report.ensemble_blocks import (
    EnsembleBlock,
    EnsembleMeanBlock,
    ensemble_blocks,
    ensemble_mean_blocks,
)
from vflops.publish.report.figure_tables import CONVENTIONS, Tile
from vflops.publish.report.job_table import JOBS, job_table, level_sentence
from vflops.publish.report.node_blocks import nodes_block
from vflops.publish.report.results import Result
from vflops.publish.report.search_blocks import SearchBlock, search_blocks
from vflops.publish.report.training_blocks import Block, blocks, roofline_models
from vflops.record.files import atomic
from vflops.record.files.read_once import is_file
from vflops.record.formats.measurement import Measurement
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import between_nodes, main_ceilings
from vflops.results import many_trainings
from vflops.results.check.checking import check
from vflops.results.check.level import levels
from vflops.results.check.rule_sets import RULE_SETS
from vflops.results.command_line import command
from vflops.results.roofline.analysis import COMPUTE, Bound, Ceilings
from vflops.results.roofline.roofline_text import PARTS, part_rows, sentences
from vflops.results.roofline.run_ceilings import measured_where, run_ceilings
from vflops.results.score import score_tables
from vflops.results.score.lost_attempts import LOST, lost_line, lost_rows
from vflops.results.score.node_text import nodes_title
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import best_bound, score
from vflops.results.score.scoring_convention import model_convention
from vflops.units import count as count_text
from vflops.units import quantity

_ROOFLINE_BENCHMARKS = (*COMPUTE, "memory", "all-reduce")
"""The benchmarks that give lines of the roofline, even if their values have a caveat."""


WorkloadBlock = Block | EnsembleBlock | EnsembleMeanBlock | SearchBlock


def write_report(contents: Contents) -> None:
    """Write the report of a run, which may be incomplete."""
    folder, measurements = contents.folder, main_ceilings(contents)
    scored = contents.once(score)
    machine = run_ceilings(contents)
    models = roofline_models(contents, scored)
    bounds = [model.bound for model in models] or _first_bound(contents, machine)
    achieved = [model.achieved for model in models if model.achieved]
    system = (
        contents.read(SystemRecord, folder.system_file) if is_file(folder.system_file) else None
    )
    trainings, findings = blocks(contents, scored), contents.once(check)
    jobs = job_table(contents, scored)
    first_screen = answer(contents, machine, models)
    workloads: list[WorkloadBlock] = [
        *ensemble_mean_blocks(scored),
        *ensemble_blocks(scored),
        *trainings,
        *search_blocks(contents, scored),
    ]
    page = render(
        "report.html",
        title=folder.record.id,
        headline=_headline(system, scored),
        run=folder.record,
        began=f"{folder.record.created_utc[:16].replace('T', ' ')} UTC",
        answer=first_screen,
        in_progress=contents.in_progress,
        score=scored,
        ceilings=_tiles(measurements),
        ceilings_gist=_ceilings_gist(scored),
        ceilings_where=measured_where(contents),
        ceiling_node=score_tables.ceiling_node,
        several_kinds=score_tables.has_several_kinds(scored),
        nodes=nodes_block(contents, scored),
        absent=[item for item in scored.ceilings if item.value is None],
        workloads=_by_validity(workloads, [*first_screen.rows, *first_screen.more_rows]),
        trainings=trainings,
        roofline=roofline_chart.roofline(machine, bounds, achieved) if bounds else None,
        bounds_gist="roofline, and the operations of one sample" if bounds else "",
        drawn_models=", ".join(bound.model for bound in bounds),
        achieved=achieved,
        sentences=[model.sentence for model in models if model.sentence]
        + [sentence for bound in bounds for sentence in sentences(bound)],
        part_names=PARTS,
        parts=[(bound, part_rows(bound)) for bound in bounds],
        search=ceiling_charts.shape_search(measurements),
        messages=ceiling_charts.message_sizes(measurements),
        job_names=JOBS,
        jobs=jobs.rows,
        jobs_note=jobs.note,
        jobs_gist=count_text(jobs.jobs, "job"),
        lost_names=LOST,
        lost=lost_rows(contents),
        lost_line=lost_line(contents),
        distribution_names=many_trainings.DISTRIBUTION,
        convention_names=CONVENTIONS,
        system=system,
        findings=findings,
        rules_title=RULE_SETS[findings.rule_set].title,
        level=level_sentence(contents.once(levels)),
        command=command(folder.record),
        library=chart_library(),
    )
    atomic.write_text(folder.report_file, page)


def _by_validity(workloads: Sequence[WorkloadBlock], rows: Sequence[Result]) -> list[WorkloadBlock]:
    """Return the sections of the workloads in the order of the results on the first screen."""
    position: dict[str, int] = {}
    for number, row in enumerate(rows):
        position.setdefault(row.workload, number)
    return sorted(workloads, key=lambda block: position.get(block.workload, len(rows)))


def _ceilings_gist(scored: Score) -> str:
    measured = sum(item.value is not None for item in scored.ceilings)
    absent = len(scored.ceilings) - measured
    return f"{measured} measured" + (f", {absent} not" if absent else "")


def _first_bound(contents: Contents, machine: Ceilings) -> list[Bound]:
    """Return the bound of the first model with a graph, for a run that trained none."""
    for graph in contents.graphs[:1]:
        best, _ = best_bound(count(graph, model_convention(contents, graph.model)), machine)
        return [best] if best else []
    return []


def _headline(system: SystemRecord | None, scored: Score) -> str:
    """Return the system in one line: its nodes, its accelerators, or else its processor."""
    if system is None:
        return f"{scored.workload} run"
    if scored.node_kinds:
        return nodes_title(scored.node_kinds)
    accelerators = system.accelerator_counts
    if accelerators:
        return ", ".join(f"{number} × {model}" for model, number in accelerators.items())
    facts = {fact.name: fact.value for fact in system.matching("hardware", "*cpu*")}
    processor, cores = str(facts.get("cpu model") or "unknown processor"), facts.get("usable cpus")
    return processor if cores is None else f"{processor}, {cores} core{'' if cores == 1 else 's'}"


def _tiles(measurements: Sequence[Measurement]) -> list[Tile]:
    """Return tiles of the most important ceilings.

    Values with a caveat are left out unless they are lines of the roofline.
    """
    tiles = []
    products = [
        item for item in measurements if item.benchmark == "gemm" and item.value is not None
    ]
    for item in sorted(products, key=lambda item: -(item.value or 0))[:3]:
        tiles.append(_tile(f"{item.precision} matrix product", item))
    for benchmark, name in (
        ("convolution", "convolution"),
        ("memory", "memory"),
        ("transfer", "host to device"),
        ("all-reduce", "all-reduce, local ranks"),
        ("point-to-point", "point to point between nodes"),
        ("storage", "storage, best of read and write"),
    ):
        values = [
            item
            for item in measurements
            if item.benchmark == benchmark
            and item.unit != "IO/s"
            and item.value is not None
            and (item.caveat is None or benchmark in _ROOFLINE_BENCHMARKS)
        ]
        if values:
            best = max(values, key=lambda item: item.value or 0)
            if benchmark == "all-reduce" and between_nodes(best):
                name = "all-reduce between nodes"
            tiles.append(_tile(f"{best.precision} {name}" if best.precision else name, best))
    return tiles


def _tile(name: str, item: Measurement) -> Tile:
    return {"name": name, "value": quantity(item.value, item.unit), "note": item.caveat or ""}
