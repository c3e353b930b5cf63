"""From the run folder to its score."""

from __future__ import annotations

from pydantic import ValidationError

from vflops.errors import FolderError
from vflops.flops.count import Count, count
from vflops.flops.graph import Graph
from vflops.flops.rules import BUILT_IN, rule_set
from vflops.record.folder import RunFolder
from vflops.record.measurement import Measurement
from vflops.record.schema import first_fault
from vflops.roofline.analysis import Bound, Roofs, bound, roofs
from vflops.score.record import BoundScore, CeilingScore, ModelScore, RuleCount, Score

SCORING_RULES = "hpcai500"
"""The rule set of the two HPC AI500 workloads and of the bounds."""


def measurements(folder: RunFolder) -> list[Measurement]:
    """The newest measurement of every ceiling, in the order in which they were first made."""
    newest: dict[tuple[str, str, str | None], Measurement] = {}
    for event in folder.events("measurement"):
        try:
            item = Measurement.model_validate(event.data)
        except ValidationError as error:
            raise FolderError(f"{event.source}: not a measurement: {first_fault(error)}") from error
        newest[item.key] = item
    return list(newest.values())


def graphs(folder: RunFolder) -> list[Graph]:
    """The recorded operation graphs."""
    return [Graph.read(path) for path in folder.graph_files]


def score(folder: RunFolder) -> Score:
    """Every figure of the run, recomputed from its folder alone."""
    state = folder.state()
    found = measurements(folder)
    machine = roofs(found)
    return Score(
        run=folder.record.id,
        workload=folder.record.workload,
        complete=state.complete,
        incomplete_reason=state.reason,
        ceilings=tuple(_ceiling(item) for item in found),
        models=tuple(_model(graph, machine) for graph in graphs(folder)),
    )


def best_bound(counted: Count, machine: Roofs) -> tuple[Bound | None, str | None]:
    """The bound in the fastest precision, or the reason why there is none."""
    precisions = machine.precisions()
    if not precisions:
        return None, "no precision has both a measured matrix product and convolution"
    if machine.memory is None:
        return None, "the memory bandwidth was not measured"
    return bound(counted, machine, precisions[0]), None


def _ceiling(item: Measurement) -> CeilingScore:
    return CeilingScore(**item.model_dump(include=set(CeilingScore.model_fields)))


def _model(graph: Graph, machine: Roofs) -> ModelScore:
    found, reason = best_bound(count(graph, rule_set(SCORING_RULES)), machine)
    return ModelScore(
        model=graph.model,
        parameters=graph.parameter_count,
        counts=tuple(_rule_count(count(graph, rules)) for rules in BUILT_IN),
        bound=_bound(found) if found else None,
        bound_reason=reason,
    )


def _rule_count(counted: Count) -> RuleCount:
    total, batch = counted.total, counted.graph.batch
    return RuleCount(
        rules=counted.rules.id,
        rules_version=counted.rules.version,
        ops_forward=total.forward // batch,
        ops_backward=total.backward // batch,
        ops_update=total.update // batch,
        ops_total=total.total // batch,
        uncounted_share=sum(item.share for item in counted.uncounted),
    )


def _bound(found: Bound) -> BoundScore:
    limit = "memory" if found.share("memory") > 0.5 else "compute"
    return BoundScore(
        precision=found.precision,
        rules=found.rules,
        batch=found.batch,
        flops=found.attainable,
        samples_per_s=found.samples_per_s,
        bound_by=limit,
        bound_share=found.share(limit),
    )
