"""The rule on formats: every file and every event matches its schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vflops.errors import FolderError
from vflops.record.files.document import Data, Document
from vflops.record.files.folder_listing import matching_files, subfolders
from vflops.record.files.read_once import is_file
from vflops.record.formats import job_events
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.formats.measured_node import (
    LinksMeasured,
    MeasuredLinks,
    MeasuredNode,
    NodeMeasured,
    links_files,
    measured_node_files,
)
from vflops.record.formats.measurement import Loaded, Measurement
from vflops.record.formats.node import NodeRecord
from vflops.record.formats.system import SystemRecord
from vflops.record.log.events import Counted, Described, Planned
from vflops.record.readout.contents import Contents
from vflops.results.check.rule import Outcome
from vflops.results.evidence.anonymous_record import AnonymousRecord, anonymous_file
from vflops.results.evidence.integrity import FolderIntegrity
from vflops.units import count
from vflops.workloads.automl import search_events
from vflops.workloads.automl.architecture.step_memory import StepMemory
from vflops.workloads.automl.replay import LedgerWritten, SearchLedger

EVENTS: dict[str, type[Data]] = {
    "described": Described,
    "counted": Counted,
    "plan": Planned,
    "measurement": Measurement,
    "load": Loaded,
    "node-measured": NodeMeasured,
    "links-measured": LinksMeasured,
    "job-planned": job_events.JobPlanned,
    "job-rearranged": job_events.JobRearranged,
    "job-begun": job_events.JobBegun,
    "job-lost": job_events.JobLost,
    "job-given-up": job_events.JobGivenUp,
    "job-ended": job_events.JobEnded,
    "job-trained": job_events.JobTrained,
    "power-imported": job_events.PowerImported,
    "staged": job_events.Staged,
    "job": job_events.JobStarted,
    "rehearsed": job_events.RanksRehearsed,
    "resumed": job_events.Resumed,
    "fallback": job_events.Fallback,
    "progress": job_events.Progressed,
    "evaluation": job_events.Evaluated,
    "tested": job_events.Tested,
    "data-read": job_events.DataRead,
    "out-of-bag": job_events.OutOfBag,
    "predictions": job_events.Predicted,
    "evaluation-predictions": job_events.EvaluationPredicted,
    "ensemble": job_events.Ensembled,
    "checkpoint": job_events.Checkpointed,
    "commitment": job_events.Committed,
    "finished": job_events.Finished,
    "exhibit": job_events.Exhibited,
    "exhibit-skipped": job_events.ExhibitSkipped,
    "exchange": job_events.Exchanged,
    "kernels": job_events.KernelsProfiled,
    "framework-count": job_events.FrameworkCounted,
    "stages": job_events.StagesRun,
    "worker": search_events.WorkerBegun,
    "waiting": search_events.WorkerWaiting,
    "search-ended": search_events.SearchEnded,
    "candidate": search_events.CandidateBegun,
    "candidate-trained": search_events.CandidateTrained,
    "candidate-failed": search_events.CandidateFailed,
    "candidate-cut": search_events.CandidateCut,
    "ledger": LedgerWritten,
}
"""The payload by kind of event; ``start``, ``end``, ``stopped`` and ``failed`` have no payload."""


def check_schemas(contents: Contents) -> Outcome:
    """Fail if a file or an event does not match its schema."""
    for odd in contents.once(FolderIntegrity.of).listing.odd:
        name, _, evidence = odd.rpartition(": ")
        if evidence.endswith("not a file"):  # names with odd characters do not violate a schema
            return Outcome(
                "fail", f"{evidence}; links, pipes and devices do not belong in a run folder", name
            )
    files = 0
    for path, document in _documents(contents):
        try:
            if document is NodeRecord:
                contents.nodes_of.read(path)
            else:
                contents.read(document, path)
        except FolderError as error:
            return Outcome("fail", error.message, str(path))
        files += 1
    events = [event for log in contents.history.logs for event in log.events]
    for event in events:
        if event.kind in EVENTS:
            try:
                event.payload(EVENTS[event.kind])
            except FolderError as error:
                evidence = error.message.removeprefix(f"{event.source}: ")
                return Outcome("fail", evidence, event.source)
    return Outcome("pass", f"{count(files, 'file')} and {count(len(events), 'event')} match")


def _documents(contents: Contents) -> Iterator[tuple[Path, type[Document]]]:
    folder = contents.folder
    if is_file(folder.system_file):  # the rule "system" checks that it exists
        yield folder.system_file, SystemRecord
    if is_file(anonymous_file(folder.path)):
        yield anonymous_file(folder.path), AnonymousRecord
    for path in folder.graph_files:
        yield path, Graph
    for path in measured_node_files(folder.path):
        yield path, MeasuredNode
    for path in links_files(folder.path):
        yield path, MeasuredLinks
    jobs = subfolders(folder.path / "jobs")
    for path in (path for job in jobs for path in matching_files(job, "job.json")):
        yield path, JobRecord
    attempts = [attempt for job in jobs for attempt in subfolders(job)]
    for path in (path for attempt in attempts for path in matching_files(attempt, "node-*.json")):
        yield path, NodeRecord
    for path in matching_files(folder.path / "buffer", "r*-w*.json"):
        if path.name.count(".") == 1:  # names with a second dot mark a turn that was skipped
            yield path, search_events.Candidate
    for path in matching_files(folder.path / "buffer", "converged.json"):
        yield path, search_events.ConvergedEnd
    for path in matching_files(folder.path / "buffer", "memory.json"):
        yield path, StepMemory
    for path in matching_files(folder.path / "claims", "*.json"):
        yield path, search_events.Claim
    for path in matching_files(folder.path, "ledger*.json"):
        yield path, SearchLedger
