"""Rules for operation counts: graphs are unchanged, and the score uses their counts."""

from __future__ import annotations

from vflops.record.readout.contents import Contents
from vflops.results.check.locations import event_location, job_file
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count
from vflops.results.score.score_file import Score
from vflops.results.score.training_score import work_score
from vflops.units import integer


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
        if not path.is_file():
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
    claims = contents.read(Score, path).trainings if path.is_file() else ()
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
        work, claim = work_score(record, contents.graphs), claimed.get(record.job)
        if record.job in claimed and claim != work:
            counted_ops = integer(work.ops_total if work else None)
            claimed_ops = integer(claim.ops_total if claim else None)
            evidence = (
                f"the score claims {claimed_ops} operations per sample, "
                f"but the graph has {counted_ops}"
            )
            return Outcome("fail", f"job {record.job}: {evidence}", path.name)
    return Outcome("pass", f"{count(len(jobs), 'training run')}, operations counted again")
