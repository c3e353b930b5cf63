"""The rule for challenges: all seeds follow from the challenge, and the run came after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from math import inf

from vflops.config.flatten import differences
from vflops.errors import FolderError
from vflops.record.formats.challenge import ChallengedRun, utc_text
from vflops.record.log.events import Log
from vflops.record.readout.contents import Contents
from vflops.results.check.clock_rules import MAX_CLOCK_STEP_S
from vflops.results.check.locations import job_file
from vflops.results.check.rule import Outcome
from vflops.units import percent, seconds

RULE = "challenge"
_RUN = "run.json"
Fault = tuple[str, str]
"""The location and the text of a fault."""


@dataclass(frozen=True)
class Demand:
    """What the keeper of a list knows about the challenge that is required of a run."""

    keeper: str | None
    """Who issued the challenge, by the list of keys that may do so; None if nobody on it did."""
    signature: str
    """A description of the signature of the challenge."""
    received_s: float | None = None
    """When the run was handed in, as Unix time; None if that is not known."""


def check_challenge(contents: Contents, demand: Demand | None = None) -> Outcome:
    """Fail unless the seeds and times of a challenged run follow from its challenge.

    With a ``demand``, every run needs a challenge, issued by a keeper of the list.
    """
    run = contents.folder.record.challenge
    if run is None:
        if demand is not None:
            return Outcome("fail", "the run answers no challenge, but one is required", _RUN)
        return Outcome("not applicable", "the run answers no challenge")
    for where, text in _seed_faults(contents, run):
        return Outcome("fail", text, where)
    if run.reproduces is not None:
        text = f"it repeats the seeds of {run.reproduces}"
        if demand is not None:
            return Outcome("fail", f"{text}, and is not an answer to the challenge itself", _RUN)
        return Outcome("not applicable", text)
    if demand is not None and demand.keeper is None:
        return Outcome("fail", f"the challenge is not accepted: {demand.signature}", _RUN)
    received_s = demand.received_s if demand is not None else None
    for where, text in _time_faults(contents, run, received_s):
        return Outcome("fail", text, where)
    return Outcome("pass", _text(contents, run, demand), _RUN)


def _seed_faults(contents: Contents, run: ChallengedRun) -> Iterator[Fault]:
    """Yield the recorded seeds that do not follow from the challenge."""
    settings = contents.folder.record.settings
    expected = run.seeded(settings).model_dump(mode="json")
    for name, (value, right) in differences(settings.model_dump(mode="json"), expected).items():
        yield _RUN, f"{name.removeprefix('workloads.')} is {value}, but the challenge gives {right}"
    for name, section in settings.workloads.items():
        if section.get("search", {}).get("ledger") is not None:
            yield _RUN, f"{name} is a replay, which has the seeds of its ledger"
    for job in contents.training_jobs:
        bag, seed = job.record.bag, settings.seed + job.record.repeat
        if bag is not None and bag.seed != seed:
            text = f"the sample of job {job.record.job} is drawn with the seed {bag.seed}"
            yield job_file(job.record), f"{text}, but the challenge gives {seed}"


def _time_faults(
    contents: Contents, run: ChallengedRun, received_s: float | None
) -> Iterator[Fault]:
    """Yield what happened before the challenge was issued, after it expired or was handed in."""
    record, issued = contents.folder.record, run.issued
    earliest_s, latest_s = issued.issued_s, min(issued.expires_s, received_s or inf)
    if issued.expires_s < earliest_s:
        yield _RUN, "the challenge expired before it was issued"
    if received_s is not None and received_s > issued.expires_s + MAX_CLOCK_STEP_S:
        received, expires = utc_text(received_s), issued.expires_utc
        yield _RUN, f"it was received at {received}, after the challenge expired at {expires}"
    created_s = _created_s(record.created_utc)
    if created_s < earliest_s - MAX_CLOCK_STEP_S:
        created = f"the run was created at {record.created_utc}"
        yield _RUN, f"{created}, before the challenge was issued at {issued.issued_utc}"
    for log in _logs(contents):
        first, last = log.events[0], log.events[-1]
        if first.utc_s < max(created_s, earliest_s) - MAX_CLOCK_STEP_S:
            yield first.source, f"the log begins at {first.utc}, before the run was created"
        if last.utc_s > latest_s + MAX_CLOCK_STEP_S:
            limit = "it was received" if latest_s == received_s else "the challenge expired"
            yield last.source, f"the log ends at {last.utc}, after {limit} at {utc_text(latest_s)}"
    window_s, took_s = _end_s(contents, created_s) - earliest_s, _took_s(contents)
    if took_s > window_s + MAX_CLOCK_STEP_S:
        window = f"{seconds(max(window_s, 0.0))} from the issue of the challenge to its end"
        yield _RUN, f"the run took {seconds(took_s)}, but there were only {window}"


def _created_s(created_utc: str) -> float:
    try:
        return datetime.fromisoformat(created_utc).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise FolderError(f"run.json: created_utc is {created_utc!r}, expected a time") from error


def _logs(contents: Contents, *jobs: int) -> list[Log]:
    """Return the logs of these jobs, or of all, without those that only import a power log."""
    history = contents.history
    logs = [log for job in jobs or history.jobs for log in history.jobs.get(job, ())]
    return [
        log
        for log in logs
        if log.events and all(event.kind != "power-imported" for event in log.events)
    ]


def _end_s(contents: Contents, created_s: float) -> float:
    """Return when the last event of the run was written, as Unix time."""
    return max((log.events[-1].utc_s for log in _logs(contents)), default=created_s)


def _took_s(contents: Contents) -> float:
    """Return for how long the run itself was executed, by monotonic clocks."""
    return sum(log.events[-1].time_s - log.events[0].time_s for log in _logs(contents, 0))


def _text(contents: Contents, run: ChallengedRun, demand: Demand | None) -> str:
    """Return who issued the challenge to whom, and how much of the time since then the run took.

    This bounds clocks that were slowed: the run cannot have taken longer than that time.
    """
    issued = run.issued
    by = f" by {demand.keeper}" if demand is not None and demand.keeper else ""
    text = f"run {run.number} of the challenge issued{by} to {issued.submitter}"
    received_s = demand.received_s if demand is not None else None
    until = "its end" if received_s is None else "its receipt"
    end_s = _end_s(contents, issued.issued_s) if received_s is None else received_s
    took_s, window_s = _took_s(contents), end_s - issued.issued_s
    share = f", {percent(took_s / window_s)} of the {seconds(window_s)}" if window_s > 0 else ""
    since = f"{share} from issue to {until}" if share else ""
    return (
        f"{text} at {issued.issued_utc}; all seeds follow from it; it took {seconds(took_s)}{since}"
    )
