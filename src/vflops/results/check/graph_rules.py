"""The rule for graphs: each is the one that follows from the settings of its jobs."""

from __future__ import annotations

from vflops.errors import FolderError
from vflops.record.formats.graph import Graph
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.locations import job_file
from vflops.results.check.rule import Outcome
from vflops.results.rebuild.graph_comparison import difference
from vflops.results.rebuild.rebuilding import can_be_rebuilt, rebuilt_graph
from vflops.units import count


def check_rebuilt_graphs(contents: Contents) -> Outcome:
    """Fail unless the graph of each job of ours equals the one that is rebuilt from its settings.

    Without a graph there is nothing to compare, and without its operations no score.
    """
    jobs = [
        job for job in (*contents.training_jobs, *contents.workers) if can_be_rebuilt(job.record)
    ]
    if not jobs:
        return Outcome("not applicable", "no job trains a network of vflops")
    graphs = {graph.model: graph for graph in contents.graphs}
    outcomes = [_judge(contents, job, graphs.get(job.record.workload)) for job in jobs]
    for verdict in ("fail", "cannot tell"):
        for outcome in outcomes:
            if outcome.verdict == verdict:
                return outcome
    if all(outcome.verdict == "not applicable" for outcome in outcomes):
        return outcomes[0]
    compared = count(len({job.record.workload for job in jobs} & graphs.keys()), "graph")
    evidence = f"{compared}, equal to what the settings give, counted by all conventions"
    notes = dict.fromkeys(outcome.evidence for outcome in outcomes if outcome.verdict == "pass")
    return Outcome("pass", "; ".join([evidence, *filter(None, notes)]))


def _judge(contents: Contents, job: TrainedJob, graph: Graph | None) -> Outcome:
    record = job.record
    if record.declared is not None or record.graph_declared:
        evidence = f"job {record.job}: operations are declared, but {record.workload} is counted"
        return Outcome("fail", evidence, job_file(record))
    if graph is None:
        return Outcome("not applicable", f"{record.workload} has no graph")
    key = ("rebuilt", record.workload, repr(record.settings), repr(record.data.facts))
    try:
        rebuilt = contents.once_for(key, lambda: rebuilt_graph(record))
    except FolderError as error:
        return Outcome("fail", error.message, job_file(record))
    where = str(contents.folder.graph_file(graph.model))
    if rebuilt is None:
        evidence = "the network of its settings is too large to be rebuilt"
        return Outcome("cannot tell", evidence, where)
    found = contents.once_for((*key, "difference"), lambda: difference(graph, rebuilt))
    if found is None:
        return Outcome("pass", "")
    if found.negligible:  # releases of torch may split a loss into different operators
        return Outcome("pass", f"a negligible difference: {found.text}")
    evidence = f"the graph does not follow from the settings of job {record.job}: {found.text}"
    return Outcome("fail", evidence, where)
