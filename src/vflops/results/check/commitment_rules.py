"""Rules for the states that the logs of training jobs commit to."""

from __future__ import annotations

from collections.abc import Iterator

from vflops.record.formats.job_events import Checkpointed, Resumed
from vflops.record.formats.recorded_names import checkpoint_file
from vflops.record.log.events import Event
from vflops.record.readout.commitment_lineage import COMMITMENTS, lineage
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.locations import event_location
from vflops.results.check.rule import Outcome
from vflops.units import count

_FIRST_VERSION = (0, 3)
"""The first version whose logs have commitments."""
_DECIDE_BITS = (
    "device_name",
    "threads",
    "torch",
    "framework",
    "framework_version",
    "precision",
    "compiled",
    "batch",
)
"""What of the start of an attempt determines the bits of its states."""


def check_commitments(contents: Contents) -> Outcome:
    """Fail if a job resumed from a state that its log does not know, or contradicts itself.

    Repeated steps of a deterministic job must lead to the same state.
    """
    trained = [job for job in (*contents.training_jobs, *contents.workers) if _by_engine(job)]
    jobs = [job for job in trained if _commits(job)]
    silent = [job for job in trained if not _commits(job) and job.finished is not None]
    record = contents.folder.record
    if silent and (record.package is not None or _version(contents) >= _FIRST_VERSION):
        return Outcome(
            "cannot tell",
            f"job {silent[0].record.job} committed to no state, so that nobody can audit it",
            event_location(silent[0], "finished"),
        )
    if not jobs:
        return Outcome("not applicable", "no job committed to its state")
    for job in jobs:
        for text, event in _faults(job):
            return Outcome("fail", f"job {job.record.job}: {text}", event.source)
    states = sum(
        event.kind in COMMITMENTS for job in jobs for log in job.logs for event in log.events
    )
    kept = sum(
        event.kind == "checkpoint" and event.payload(Checkpointed).kept
        for job in jobs
        for log in job.logs
        for event in log.events
    )
    return Outcome(
        "pass",
        f"{count(states, 'state')} of {count(len(jobs), 'job')}; an audit can start from "
        f"{count(kept, 'kept checkpoint')}",
    )


def check_parts(contents: Contents) -> Outcome:
    """Fail unless the checkpoints kept for audits are those that follow from the settings.

    The parts that an audit can draw lie between them, so that their owner cannot choose them.
    """
    kept = 0
    jobs = [job for job in contents.training_jobs if _by_engine(job) and _commits(job)]
    for job in (job for job in jobs if job.finished is not None):
        expected, found = job.kept_steps, set[int]()
        for state in lineage(job.attempts)[0]:
            start = state.kept
            if start is None:
                continue
            found.add(start.step)
            text = f"job {job.record.job}: {start.file} is kept after step {start.step:,}"
            if start.file != checkpoint_file(start.step):
                return Outcome("fail", f"{text}, which is not its name", state.event.source)
            if start.step not in expected:
                ends = "no part of the settings ends there"
                return Outcome("fail", f"{text}, but {ends}", state.event.source)
        missing = sorted(set(expected) - found)
        if missing:
            text = f"job {job.record.job}: no state is kept after step {missing[0]:,}"
            end = event_location(job, "finished")
            return Outcome("fail", f"{text}, where a part of the settings ends", end)
        kept += len(found)
    if not kept:
        return Outcome("not applicable", "no state is kept for audits")
    return Outcome("pass", f"{count(kept, 'kept checkpoint')} at the ends of equal parts")


def _by_engine(job: TrainedJob) -> bool:
    """Whether the training engine trained it, and not a program of the user."""
    return job.started is not None and job.started.torch is not None


def _version(contents: Contents) -> tuple[int, ...]:
    version = contents.folder.record.versions.get("vflops") or "0"
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _commits(job: TrainedJob) -> bool:
    """Whether the log has commitments; those of 0.2 and earlier have only plain checkpoints."""
    return any(
        event.kind == "commitment" or event.data.get("loss") is not None
        for log in job.logs
        for event in log.events
        if event.kind in COMMITMENTS
    )


def _faults(job: TrainedJob) -> Iterator[tuple[str, Event]]:
    known: dict[tuple[object, ...], str] = {}
    checkpoints: set[tuple[str | None, str, str, int]] = set()
    candidate: str | None = None
    environment: tuple[object, ...] | None = None
    for number, log in enumerate(job.logs):
        earlier = set(checkpoints)
        for event in log.events:
            if event.kind == "candidate":
                candidate = str(event.data.get("candidate"))
            elif event.kind == "job":
                environment = _environment(event)
            elif event.kind == "resumed":
                resumed = event.payload(Resumed)
                key = (candidate, resumed.file, resumed.sha256 or "", resumed.step)
                if key not in earlier:
                    yield _resumed_fault(resumed, number), event
            elif event.kind in COMMITMENTS:
                state = event.payload(COMMITMENTS[event.kind])
                if environment is not None:
                    key_of_state = (candidate, state.step, *environment)
                    if known.setdefault(key_of_state, state.sha256) != state.sha256:
                        yield f"two different states after step {state.step:,}", event
                if isinstance(state, Checkpointed):
                    checkpoints.add((candidate, state.file, state.sha256, state.step))


def _environment(started: Event) -> tuple[object, ...] | None:
    """Return what determines the bits of an attempt; None if they may differ in any case.

    Several ranks average their running statistics at checkpoints, whose steps depend on the time.
    """
    data = started.data
    if data.get("deterministic") is not True or data.get("ranks") != 1:
        return None
    return tuple(data.get(name) for name in _DECIDE_BITS)


def _resumed_fault(resumed: Resumed, attempt: int) -> str:
    if attempt == 0:
        return f"the first attempt resumed from {resumed.file}, which this run did not write"
    hash_text = "without a hash" if resumed.sha256 is None else f"with hash {resumed.sha256[:12]}"
    return f"it resumed from {resumed.file} {hash_text}, which no earlier attempt wrote"
