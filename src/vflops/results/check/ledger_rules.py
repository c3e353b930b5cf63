"""Rules of ledgers: what a search wrote down for replays, and that a replay did all of it."""

from __future__ import annotations

from collections.abc import Iterator

from vflops.record.readout.contents import Contents
from vflops.results.check.locations import logged
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


def ledgered(contents: Contents) -> Outcome:
    """The ledger that replays read is what the logs say was trained."""
    if not contents.workers:
        return NONE
    events = contents.history.events("ledger")
    written = {each.file: each for each in (e.payload(LedgerWritten) for e in events)}
    if not written:
        words = "no ledger was written: the search did not come to its end"
        return Outcome("fail", words, logged(contents, "ledger"))
    for each in written.values():
        path = contents.folder.path / each.file
        if not path.is_file() or contents.hash(path) != each.sha256:
            return Outcome("fail", "not the ledger that was written", str(path))
    for members in searches(contents):
        ledger = ledger_of(contents.folder, [each.record for each in members])
        if ledger.digest() not in {each.sha256 for each in written.values()}:
            words = "a ledger is not what the logs say was trained"
            return Outcome("fail", words, logged(contents, "ledger"))
    trained = sum(each.candidates for each in written.values())
    return Outcome("pass", f"{count(trained, 'candidate')} to replay, as the logs have them")


def replayed(contents: Contents) -> Outcome:
    """A replay did all the work of its ledger, and no other."""
    found = [
        each
        for each in (contents.once(all_searches) if contents.workers else ())
        if each.settings.search.ledger is not None
    ]
    if not found:
        return Outcome("not applicable", "nothing was replayed in this run")
    path = contents.folder.path / REPLAYED_LEDGER
    if not path.is_file():
        return Outcome("fail", "it is missing: the ledger that was replayed", REPLAYED_LEDGER)
    written = [event.payload(LedgerWritten) for event in contents.history.events("ledger")]
    if {each.replayed_sha256 for each in written} - {contents.hash(path)}:
        return Outcome("fail", "not the ledger that was replayed", REPLAYED_LEDGER)
    ledger = contents.read(SearchLedger, path)
    for each in found:
        fault = _replayed(ledger, each)
        if fault:
            return fault
    ops = quantity(sum(row.ops for row in ledger.candidates), "OP")
    then, now = (each["train"]["precision"] for each in (ledger.settings, found[0].record.settings))
    other = f"; in {now}, and the search in {then}" if then != now else ""
    rows = count(len(ledger.candidates), "candidate")
    return Outcome("pass", f"{rows} of {ledger.run}, {ops}, all of them again{other}")


def _replayed(ledger: SearchLedger, searched: Searched) -> Outcome | None:
    """What a replay did not do as its ledger has it."""
    stories = {story.begun.candidate: story for story in searched.story.candidates}
    for row in ledger.candidates:
        name = row.candidate.turn.name
        story = stories.pop(name, None)
        if story is None:
            return Outcome("fail", f"{name} of the ledger was not trained", REPLAYED_LEDGER)
        fault = _undone(story, row)
        if fault:
            return Fault(fault, END_EVENTS).outcome(searched.members, story)
    for story in stories.values():
        return Fault("it is not in the ledger").outcome(searched.members, story)
    return None


def _undone(story: CandidateHistory, row: ReplayedCandidate) -> str | None:
    if story.trained is None:
        return f"no result of it, and the ledger has one ({story.message or story.state})"
    for what, own, wanted in _compared(story, row):
        if own != wanted:
            return f"{own} {what}, the ledger has {wanted}"
    return None


def _compared(
    story: CandidateHistory, row: ReplayedCandidate
) -> Iterator[tuple[str, object, object]]:
    assert story.trained is not None
    yield "as network", story.begun.digest[:16], row.candidate.architecture.digest[:16]
    yield "as batch", story.begun.batch, row.candidate.hyper.batch
    yield "epochs", story.trained.epochs, row.trained.epochs
    yield "samples", story.samples, row.samples
    yield "operations", story.ops, row.ops
