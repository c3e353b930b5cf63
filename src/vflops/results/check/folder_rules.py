"""Rules of the folder itself: whole, unchanged, in order, and its score what the record gives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from pathlib import Path

from vflops.record.formats.node import node_records
from vflops.record.formats.system import SystemRecord
from vflops.record.log.events import Described, Event, Log
from vflops.record.readout.contents import Contents
from vflops.results.check.locations import RUN_LOG
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count
from vflops.results.score.scoring import score
from vflops.units import seconds

MOST_SET_S = 60.0
"""By which the clock on the wall may be set while a log is written: NTP after a boot."""
_SHOWN = 3
"""Of the files that are not as they were pinned."""
MOST_DRIFT = 1e-3
"""By which two clocks of one machine may go apart: NTP slews by half of this."""


def complete(contents: Contents) -> Outcome:
    """The log of the run ends with its end."""
    state = contents.state
    if state.complete:
        return Outcome("pass", "the log ends with its end")
    logs = contents.history.jobs.get(0, ())
    last = next((log.events[-1].source for log in reversed(logs) if log.events), RUN_LOG)
    return Outcome("fail", str(state.reason), last)


def chain(contents: Contents) -> Outcome:
    """Every line of every log is the one that the next was chained to."""
    logs = contents.history.logs
    faults = [fault for log in logs for fault in log.faults]
    if faults:
        place, _, words = faults[0].partition(": ")
        return Outcome("fail", "; ".join([words, *faults[1:3]]), place)
    for of_job in contents.history.jobs.values():
        if of_job and of_job[-1].torn:  # one of an attempt that another followed was made good
            return Outcome("fail", "cut off while it was written", of_job[-1].torn)
    lines = sum(len(log.events) for log in logs)
    return Outcome("pass", f"{count(lines, 'line')}, each chained to the one before")


def clocks(contents: Contents) -> Outcome:
    """No line is earlier than the one before it, and the clock on the wall goes with the other."""
    lines = 0
    for log in contents.history.logs:
        for before, after in pairwise(log.events):
            if after.time_s < before.time_s:
                back_s = before.time_s - after.time_s
                return Outcome("fail", f"the clock went back by {back_s:g} s", after.source)
        lines += len(log.events)
    if not lines:
        return Outcome("cannot tell", "the run has no log", RUN_LOG)
    for of_job in contents.history.jobs.values():
        found = _set(of_job)
        if found:
            return Outcome("fail", found[1], found[0].source)
    early = _outside(contents)
    if early:
        return Outcome("fail", early[1], early[0].source)
    return Outcome("pass", f"{count(lines, 'line')}, none earlier than the one before")


def _set(attempts: Sequence[Log]) -> tuple[Event, str] | None:
    """The first event at which the clock on the wall was set by more than NTP would."""
    ended_s = None
    for log in attempts:
        for event in log.events:
            first = log.events[0]
            passed_s = event.time_s - first.time_s
            apart_s = event.utc_s - first.utc_s - passed_s
            if abs(apart_s) > MOST_SET_S + MOST_DRIFT * passed_s:
                return event, f"UTC and the clock of the log are {abs(apart_s):.6g} s apart"
        if log.events:
            if ended_s is not None and log.events[0].utc_s < ended_s - MOST_SET_S:
                return log.events[0], "the attempt began before the one before it ended"
            ended_s = log.events[-1].utc_s
    return None


def _outside(contents: Contents) -> tuple[Event, str] | None:
    """The first event of a job from before it was planned, or from after the run saw its end."""
    planned, pinned = (
        {event.data.get("job"): event.utc_s for event in contents.history.events(kind, 0)}
        for kind in ("job-planned", "job-trained")
    )
    for job in (*contents.trained, *contents.workers):
        from_s = planned.get(job.record.job, -inf)
        until_s = pinned.get(job.record.job, inf)
        for log, place in zip(job.logs, job.folders, strict=True):
            ahead_s = _ahead_s(place)
            for event in (*log.events[:1], *log.events[-1:]):
                at_s = event.utc_s - ahead_s
                if at_s < from_s - MOST_SET_S:
                    return event, f"{seconds(from_s - at_s)} before the job was planned"
                if at_s > until_s + MOST_SET_S:
                    return event, f"{seconds(at_s - until_s)} after the run saw the job's end"
    return None


def _ahead_s(place: Path) -> float:
    """How far the clock of an attempt's log is before that of the run; 0 where nobody asked."""
    first = (node.clock.offset_s for node in node_records(place) if node.node == 0)
    return next(first, None) or 0.0


def system(contents: Contents) -> Outcome:
    """``system.json`` is the description that this run wrote."""
    record = contents.read(SystemRecord, contents.folder.system_file)
    described = contents.history.events("described")
    if not described:
        words = "the log does not say when the system was described"
        return Outcome("cannot tell", words, RUN_LOG)
    if described[-1].payload(Described).sha256 != contents.hash(contents.folder.system_file):
        return Outcome("fail", "not the one that was written in this run", "system.json")
    facts = [fact for layer in record.layers for fact in layer.facts]
    known = sum(fact.value is not None for fact in facts)
    return Outcome("pass", f"{len(record.layers)} layers, {known} of {len(facts)} facts read")


def scored(contents: Contents) -> Outcome:
    """``score.json`` is, byte for byte, what the record gives."""
    path = contents.folder.score_file
    if not path.is_file():
        return Outcome("fail", "it is missing: vflops score writes it", path.name)
    if path.read_bytes() != contents.once(score).to_json().encode():
        return Outcome("fail", "not what the record gives: vflops score recomputes it", path.name)
    return Outcome("pass", "score.json is what the record gives, byte for byte")


def manifest(contents: Contents) -> Outcome:
    """No recorded file contradicts the manifest.

    The words are the same without a manifest and with a good one: it pins these findings, so they
    must not follow from it. Whether there is one, and who signed it, is said by ``vflops verify``.
    """
    from vflops.results.evidence.integrity import FolderIntegrity, altered_record

    pinned, id = contents.once(FolderIntegrity.of).manifest, contents.folder.record.id
    if pinned is not None and pinned.run != id:
        return Outcome("fail", f"of run {pinned.run}, and run.json is of {id}", "manifest.json")
    altered = altered_record(contents)
    if altered:
        file, _, first = altered[0].partition(": ")
        line = re.match("line ([0-9]+) ", first)
        more = [f"and {len(altered) - _SHOWN} more"] if len(altered) > _SHOWN else []
        words = "; ".join([first, *altered[1:_SHOWN], *more])
        return Outcome("fail", words, f"{file}:{line[1]}" if line else file)
    return Outcome("not applicable", "nothing contradicts a manifest: vflops verify says more")
