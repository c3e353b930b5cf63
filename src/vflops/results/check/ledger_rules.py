"""Rules for ledgers: a ledger lists what a search trained, and a replay trains all of it."""

from __future__ import annotations

from collections.abc import Iterator

from vflops.record.readout.contents import Contents
from vflops.results.check.locations import run_event_location
from vflops.results.check.rule import Outcome
from vflops.results.check.search_rules import NONE, Fault, Searched, all_searches
from vflops.results.score.figure_text import count
from vflops.results.score.search_workers import searches
from vflops.units import quantity
from vflops.workloads.automl.candidate_history import END_EVENTS, CandidateHistory
from vflops.workloads.automl.replay import (
    REPLAYED_LEDGER,
    LedgerWritten,
    ReplayedCandidate,
    SearchLedger,
    ledger_of,
)


def check_ledgers(contents: Contents) -> Outcome:
    """Fail unless the ledger for replays lists what the logs say was trained."""
    if not contents.workers:
        return NONE
    events = contents.history.events("ledger")
    written = {ledger.file: ledger for ledger in (e.payload(LedgerWritten) for e in events)}
    if not written:
        words = "no ledger was written: the search did not finish"
        return Outcome("fail", words, run_event_location(contents, "ledger"))
    for entry in written.values():
        path = contents.folder.path / entry.file
        if not path.is_file() or contents.hash(path) != entry.sha256:
            return Outcome("fail", "not the ledger that was written", str(path))
    for members in searches(contents):
        ledger = ledger_of(contents.folder, [member.record for member in members])
        if ledger.digest() not in {entry.sha256 for entry in written.values()}:
            words = "a ledger does not match what the logs say was trained"
            return Outcome("fail", words, run_event_location(contents, "ledger"))
    trained = sum(entry.candidates for entry in written.values())
    return Outcome("pass", f"{count(trained, 'candidate')} to replay, as in the logs")


def check_replays(contents: Contents) -> Outcome:
    """Fail unless a replay did exactly the work in its ledger."""
    replays = [
        search
        for search in (contents.once(all_searches) if contents.workers else ())
        if search.settings.search.ledger is not None
    ]
    if not replays:
        return Outcome("not applicable", "nothing was replayed in this run")
    path = contents.folder.path / REPLAYED_LEDGER
    if not path.is_file():
        return Outcome("fail", "the ledger that was replayed is missing", REPLAYED_LEDGER)
    written = [event.payload(LedgerWritten) for event in contents.history.events("ledger")]
    if {entry.replayed_sha256 for entry in written} - {contents.hash(path)}:
        return Outcome("fail", "not the ledger that was replayed", REPLAYED_LEDGER)
    ledger = contents.read(SearchLedger, path)
    for search in replays:
        fault = _replayed(ledger, search)
        if fault:
            return fault
    ops = quantity(sum(row.ops for row in ledger.candidates), "OP")
    then, now = (
        settings["train"]["precision"] for settings in (ledger.settings, replays[0].record.settings)
    )
    other = f"; in {now}, the search in {then}" if then != now else ""
    rows = count(len(ledger.candidates), "candidate")
    return Outcome("pass", f"{rows} of {ledger.run} replayed, {ops}{other}")


def _replayed(ledger: SearchLedger, searched: Searched) -> Outcome | None:
    """Return the first difference between a replay and its ledger."""
    stories = {story.begun.candidate: story for story in searched.story.candidates}
    for row in ledger.candidates:
        name = row.candidate.turn.name
        story = stories.pop(name, None)
        if story is None:
            return Outcome("fail", f"{name} of the ledger was not trained", REPLAYED_LEDGER)
        fault = _difference(story, row)
        if fault:
            return Fault(fault, END_EVENTS).outcome(searched.members, story)
    for story in stories.values():
        return Fault("it is not in the ledger").outcome(searched.members, story)
    return None


def _difference(story: CandidateHistory, row: ReplayedCandidate) -> str | None:
    if story.trained is None:
        return f"it has no result, but the ledger has one ({story.message or story.state})"
    for what, value, wanted in _compared(story, row):
        if value != wanted:
            return f"{what} {value}, the ledger has {wanted}"
    return None


def _compared(
    story: CandidateHistory, row: ReplayedCandidate
) -> Iterator[tuple[str, object, object]]:
    assert story.trained is not None
    yield "network", story.begun.digest[:16], row.candidate.architecture.digest[:16]
    yield "batch", story.begun.batch, row.candidate.hyper.batch
    yield "epochs", story.trained.epochs, row.trained.epochs
    yield "samples", story.samples, row.samples
    yield "operations", story.ops, row.ops
