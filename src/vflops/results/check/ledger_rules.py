"""Rules for ledgers: a ledger lists the candidates that a search trained, for later replays."""

from __future__ import annotations

from collections.abc import Iterator

from vflops.record.files.read_once import is_file
from vflops.record.readout.contents import Contents
from vflops.results.check.locations import run_event_location
from vflops.results.check.rule import Outcome
from vflops.results.check.search_rules import NONE, Fault, Searched, all_searches
from vflops.results.score.search_workers import searches
from vflops.units import count, quantity
from vflops.workloads.automl.candidate_history import END_EVENTS, CandidateHistory
from vflops.workloads.automl.replay import (
    REPLAYED_LEDGER,
    LedgerWritten,
    ReplayedCandidate,
    SearchLedger,
    ledger_of,
)


def check_ledgers(contents: Contents) -> Outcome:
    """Fail unless the ledger lists exactly the candidates that the logs show as trained."""
    if not contents.workers:
        return NONE
    events = contents.history.events("ledger")
    written = {ledger.file: ledger for ledger in (e.payload(LedgerWritten) for e in events)}
    if not written:
        evidence = "no ledger was written: the search did not finish"
        return Outcome("fail", evidence, run_event_location(contents, "ledger"))
    for entry in written.values():
        path = contents.folder.path / entry.file
        if path.is_symlink() or not is_file(path) or contents.hash(path) != entry.sha256:
            return Outcome("fail", "the ledger is not the one that was written", str(path))
    for members in searches(contents):
        ledger = ledger_of(contents.folder, [member.record for member in members])
        if ledger.digest() not in {entry.sha256 for entry in written.values()}:
            evidence = "a ledger does not match the trained candidates in the logs"
            return Outcome("fail", evidence, run_event_location(contents, "ledger"))
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
    if not is_file(path):
        return Outcome("fail", "the ledger that was replayed is missing", REPLAYED_LEDGER)
    written = [event.payload(LedgerWritten) for event in contents.history.events("ledger")]
    if {entry.replayed_sha256 for entry in written} - {contents.hash(path)}:
        return Outcome("fail", "the ledger is not the one that was replayed", REPLAYED_LEDGER)
    ledger = contents.read(SearchLedger, path)
    for search in replays:
        fault = _replay_fault(ledger, search)
        if fault:
            return fault
    ops = quantity(sum(row.ops for row in ledger.candidates), "OP")
    then, now = (
        settings["train"]["precision"] for settings in (ledger.settings, replays[0].record.settings)
    )
    other = f"; precision {now}, while the search used {then}" if then != now else ""
    rows = count(len(ledger.candidates), "candidate")
    return Outcome("pass", f"{rows} of {ledger.run} replayed, {ops}{other}")


def _replay_fault(ledger: SearchLedger, searched: Searched) -> Outcome | None:
    """Return the first difference between a replay and its ledger."""
    histories = {history.begun.candidate: history for history in searched.history.candidates}
    for row in ledger.candidates:
        name = row.candidate.turn.name
        history = histories.pop(name, None)
        if history is None:
            return Outcome("fail", f"{name} is in the ledger but was not trained", REPLAYED_LEDGER)
        fault = _difference(history, row)
        if fault:
            return Fault(fault, END_EVENTS).outcome(searched.members, history)
    for history in histories.values():
        return Fault("it is not in the ledger").outcome(searched.members, history)
    return None


def _difference(history: CandidateHistory, row: ReplayedCandidate) -> str | None:
    if history.trained is None:
        return f"it has no result, but the ledger has one ({history.message or history.state})"
    for what, value, expected in _compared_facts(history, row):
        if value != expected:
            return f"{what} {value}, but the ledger has {expected}"
    return None


def _compared_facts(
    history: CandidateHistory, row: ReplayedCandidate
) -> Iterator[tuple[str, object, object]]:
    assert history.trained is not None
    yield "network", history.begun.digest[:16], row.candidate.architecture.digest[:16]
    yield "batch", history.begun.batch, row.candidate.hyper.batch
    yield "epochs", history.trained.epochs, row.trained.epochs
    yield "samples", history.samples, row.samples
    yield "operations", history.ops, row.ops
