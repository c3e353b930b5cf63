"""Rules for operation counts: graphs are unchanged, and the score uses their counts."""

from __future__ import annotations

from vflops.counting.conventions.transformer_graph import token_count
from vflops.record.files.read_once import is_file
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord, SampleUnit
from vflops.record.readout.contents import Contents
from vflops.results.check.locations import event_location, job_file
from vflops.results.check.rule import Outcome
from vflops.results.score import figure_text
from vflops.results.score.score_file import Score, WorkScore
from vflops.results.score.training_score import job_work
from vflops.text import printable
from vflops.units import count, integer
from vflops.workloads.contract.registry import workloads

_MAX_UNCOUNTED_SHARE = 0.01
"""The largest share of the executed operations that counting rules may leave out."""


def check_graph_hashes(contents: Contents) -> Outcome:
    """Fail unless every graph has its hash in the log and every hash in the log has its graph."""
    if not contents.counted:
        return Outcome("not applicable", "no model was counted in this run")
    known = {contents.folder.graph_file(counted.model) for counted in contents.counted}
    strays = sorted(set(contents.folder.graph_files) - known)
    if strays:
        return Outcome("fail", "the graph does not belong to a model of this run", str(strays[0]))
    for counted in contents.counted:
        path = contents.folder.graph_file(counted.model)
        if not is_file(path):
            return Outcome("fail", f"the graph of {counted.model} is missing", str(path))
        if counted.sha256 != contents.hash(path):
            return Outcome("fail", "the graph was changed after it was counted", str(path))
    return Outcome("pass", f"{count(len(contents.graphs), 'graph')}, unchanged since the count")


def check_operations(contents: Contents) -> Outcome:
    """Fail unless the graphs belong to the trained models and the score uses their operations."""
    jobs = [job for job in contents.training_jobs if job.record.declared is None]
    if not jobs:
        return Outcome("not applicable", "no job has counted operations")
    graphs = {graph.model: graph for graph in contents.graphs}
    path = contents.folder.score_file
    claims = contents.read(Score, path).trainings if is_file(path) else ()
    claimed = {training.job: training.work for training in claims}
    for job in jobs:
        record, started = job.record, job.started
        graph = graphs.get(record.workload)
        if graph is None:
            evidence = f"{record.workload} was trained but has no graph"
            return Outcome("cannot tell", evidence, job_file(record))
        trained = started.parameters if started and not record.graph_declared else None
        if trained is not None and trained != graph.parameter_count:
            counted_ops = integer(graph.parameter_count)
            evidence = (
                f"the graph of {record.workload} has {counted_ops} parameters, "
                f"but the trained model has {integer(trained)}"
            )
            return Outcome("fail", f"job {record.job}: {evidence}", event_location(job, "job"))
        published = _published_rules(record.workload)
        if published not in (None, record.rules):
            evidence = f"{record.workload} is counted by {published}, but this job by"
            return Outcome("fail", f"{evidence} {record.rules}", job_file(record))
        fault = _unit_fault(record, graph)
        if fault:
            return Outcome("fail", f"job {record.job}: {fault}", job_file(record))
        work, claim = job_work(contents, record), claimed.get(record.job)
        if record.job in claimed and _counted(claim) != _counted(work):
            counted_ops = integer(work.ops_total if work else None)
            claimed_ops = integer(claim.ops_total if claim else None)
            evidence = (
                f"the score claims {claimed_ops} operations per sample, "
                f"but the graph has {counted_ops}"
            )
            return Outcome("fail", f"job {record.job}: {evidence}", path.name)
    return Outcome("pass", f"{count(len(jobs), 'training run')}, operations counted again")


def _unit_fault(record: JobRecord, graph: Graph) -> str | None:
    """Return what is wrong if speeds are not quoted in the tokens that the model reads."""
    unit, tokens = record.data.unit, token_count(graph)
    if record.workload == "language-model":
        context = record.settings["context"]
        if unit != SampleUnit(name="tokens", count=context):
            stated = "no unit" if unit is None else f"{unit.count:,} {printable(unit.name)}"
            return f"a sample has {context:,} tokens by the settings, but {stated} by the record"
    if unit is None or unit.name != "tokens" or tokens == unit.count * graph.batch:
        return None
    read = "no tokens" if tokens is None else f"{tokens:,} for {graph.batch:,} samples"
    return f"a sample is said to have {unit.count:,} tokens, but the graph reads {read}"


def check_uncounted(contents: Contents) -> Outcome:
    """Fail if the counting rules of a job leave out more than 1 % of what it executed."""
    works = {
        job.record.workload: (job.record, work)
        for job in contents.training_jobs
        if (work := job_work(contents, job.record)) and work.ops_executed is not None
    }
    if not works:
        return Outcome("not applicable", "no job has counted operations")
    for record, work in works.values():
        if work.uncounted_share > _MAX_UNCOUNTED_SHARE:
            hint = "name other rules in its WorkloadSpec, such as executed"
            return Outcome("fail", f"{_uncounted(record, work)}; {hint}", job_file(record))
    for record, work in works.values():
        if any(operator.foreign for operator in work.uncounted):
            hint = "capture the graph from plain operators, in work() of the workload"
            return Outcome("cannot tell", f"{_uncounted(record, work)}; {hint}", job_file(record))
    return Outcome("pass", "; ".join(_uncounted(*pair) for pair in works.values()))


def _uncounted(record: JobRecord, work: WorkScore) -> str:
    if not work.uncounted:
        return f"{record.workload}: {work.rules} counts every operator"
    return f"{record.workload}: {work.rules} does not count {figure_text.uncounted(work)}"


def _published_rules(name: str) -> str | None:
    """Return the counting rules of a workload of the papers; None for any other workload."""
    spec = workloads().get(name)
    published = spec is not None and spec.in_suite and spec.origin == "vflops"
    return spec.rules if spec is not None and published else None


def _counted(work: WorkScore | None) -> tuple[object, ...] | None:
    """Return the claim that a score makes about operations, whichever version wrote it."""
    if work is None:
        return None
    rules = (work.rules, work.rules_version)
    return work.source, work.detail, rules, work.ops_forward, work.ops_total
