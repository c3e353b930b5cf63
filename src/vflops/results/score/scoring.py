"""Compute the score of a run folder."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from vflops.counting.conventions import BUILT_IN, TRANSFORMER, Convention
from vflops.counting.count import Count, count
from vflops.errors import FolderError, UsageError
from vflops.metrics.summation import sum_in_order
from vflops.record.files.document import first_fault
from vflops.record.formats.graph import Graph
from vflops.record.formats.measurement import Measurement
from vflops.record.readout.contents import Contents
from vflops.results.roofline.analysis import Bound, Ceilings, bound, roofline_benchmarks
from vflops.results.roofline.run_ceilings import model_ceilings
from vflops.results.score.ensemble_score import ensemble_scores
from vflops.results.score.node_spread import node_kind_scores
from vflops.results.score.repeat_score import repeat_scores
from vflops.results.score.score_file import BoundScore, CeilingScore, ModelScore, RuleCount, Score
from vflops.results.score.scoring_convention import model_convention
from vflops.results.score.search_score import search_scores
from vflops.results.score.training_score import training_scores
from vflops.results.score.unscored import unscored
from vflops.results.task.closed_tasks import tasks


def score_text(contents: Contents) -> str:
    """Return the text of ``score.json``, which takes seconds to write for thousands of jobs."""
    return contents.once(score).to_json()


def score(contents: Contents) -> Score:
    """Return every figure of a run, computed from its folder alone."""
    try:
        return _scored(contents)
    except (ValueError, ArithmeticError) as error:  # formulas reject negative times and overflows
        what = first_fault(error) if isinstance(error, ValidationError) else str(error)
        raise FolderError(
            f"{contents.folder.path} holds impossible values: {what}",
            hint="a file was changed or damaged; vflops check reports what is wrong",
        ) from error


def _scored(contents: Contents) -> Score:
    record, state = contents.folder.record, contents.state
    trainings = contents.once(training_scores)
    ensembles = ensemble_scores(contents, trainings)
    scored = Score(
        run=record.id,
        workload=record.workload,
        complete=state.complete,
        incomplete_reason=state.reason,
        ceilings=tuple(_ceiling(item) for item in contents.measurements),
        models=tuple(
            _model(contents, graph, model_convention(contents, graph.model))
            for graph in contents.graphs
        ),
        trainings=trainings,
        repeats=repeat_scores(trainings, ensembles),
        ensembles=ensembles,
        searches=contents.once(search_scores),
        tasks=tuple(dict.fromkeys(contents.once(tasks).values())),
        node_kinds=node_kind_scores(contents),
    )
    return unscored(scored) if record.settings.launch.rehearse else scored


def best_bound(counted: Count, machine: Ceilings) -> tuple[Bound | None, str | None]:
    """Return the bound in the fastest precision, or the reason why there is none."""
    precisions = machine.precisions(counted.graph)
    if not precisions:
        if roofline_benchmarks(counted.graph) == ("gemm",):
            return None, "the matrix product was not measured"
        return None, "no precision has both a measured matrix product and convolution"
    if machine.memory is None:
        return None, "the memory bandwidth was not measured"
    best = bound(counted, machine, precisions[0])
    return (best, None) if best.step_s else (None, "the model moves no data")


def with_trained_bounds(scored: Score, contents: Contents) -> Score:
    """Return ``scored`` for display: trained models are bounded in the precision of training."""
    trained = {
        job.record.workload: job.started.ceiling_precision
        for job in (*contents.training_jobs, *contents.workers)
        if job.started is not None
    }
    graphs = {graph.model: graph for graph in contents.graphs}
    models = []
    for model in scored.models:
        shown, precision = model.bound, trained.get(model.model)
        machine, _ = model_ceilings(contents, model.model)
        graph = graphs[model.model]
        if shown is not None and precision in machine.precisions(graph):
            counted = count(graph, model_convention(contents, model.model))
            shown = _bound(bound(counted, machine, precision))
        models.append(model.model_copy(update={"bound": shown}))
    return scored.model_copy(update={"models": tuple(models)})


def _ceiling(item: Measurement) -> CeilingScore:
    return CeilingScore(**item.model_dump(include=set(CeilingScore.model_fields)))


def _model(contents: Contents, graph: Graph, rules: Convention) -> ModelScore:
    machine, unbounded = model_ceilings(contents, graph.model)
    best, reason = best_bound(count(graph, rules), machine)
    if unbounded:
        best, reason = None, unbounded
    return ModelScore(
        model=graph.model,
        parameters=graph.parameter_count,
        counts=tuple(_rule_count(counted) for counted in _counts(graph)),
        bound=_bound(best) if best else None,
        bound_reason=reason,
    )


def _counts(graph: Graph) -> Iterator[Count]:
    """Yield the counts by all conventions that apply to the model."""
    for rules in (*BUILT_IN, *(TRANSFORMER if graph.looks_up_tokens else ())):
        try:
            yield count(graph, rules)
        except UsageError:  # the model is not a transformer on tokens
            continue


def _rule_count(counted: Count) -> RuleCount:
    total, batch = counted.total, counted.graph.batch
    return RuleCount(
        rules=counted.convention.id,
        rules_version=counted.convention.version,
        ops_forward=total.forward // batch,
        ops_backward=total.backward // batch,
        ops_update=total.update // batch,
        ops_total=total.total // batch,
        uncounted_share=sum_in_order(item.share for item in counted.uncounted),
    )


def _bound(bound: Bound) -> BoundScore:
    return BoundScore(
        precision=bound.precision,
        rules=bound.rules,
        batch=bound.batch,
        flops=bound.attainable,
        samples_per_s=bound.samples_per_s,
        bound_by=bound.bound_by,
        bound_share=bound.bound_share,
    )
