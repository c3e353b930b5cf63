"""The rules of ledgers: as it was written, and all of it done again by a replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.forged_runs import Forger
from tests.support.sample_parts import write_system
from tests.support.search_runs import HandmadeSearch, judged, one_worker
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.workloads.automl.replay import SearchLedger
from vflops.workloads.automl.search_events import Turn

SECOND = "r00001-w00000"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandmadeSearch:
    made = HandmadeSearch(tmp_path / "runs", monkeypatch)
    made.true_ops = True
    write_system(made.folder)
    return made


def test_a_search_that_wrote_no_ledger_did_not_come_to_its_end(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    forger = Forger(run.end().path)
    forger.drop(lambda line: line["kind"] != "ledger")
    words = "jobs/0/0/events.jsonl: no ledger was written: the search did not finish"
    assert judged(forger.sealed()) == {"ledger": words}


def test_a_ledger_that_was_changed_is_found(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    folder = run.end()
    ledger = folder.path / "ledger.json"
    ledger.write_text(ledger.read_text().replace('"seed": 7', '"seed": 8'))
    assert set(judged(folder)) == {"ledger"}
    ledger.unlink()
    assert "the ledger is not the one that was written" in judged(folder)["ledger"]


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[HandmadeSearch, SearchLedger]:
    """A replay to be, and the ledger of a search of two candidates that it is given."""
    made = [
        HandmadeSearch(tmp_path / name, monkeypatch, ledger=ledger)
        for name, ledger in (("searched", None), ("replayed", "/the/ledger.json"))
    ]
    for run in made:
        run.true_ops = True
        write_system(run.folder)
    made[0].worker(0, one_worker(made[0]))
    ledger = SearchLedger.find(made[0].end().path)
    ledger.write(made[1].folder.path / "ledger-replayed.json")
    return made[1], ledger


def test_a_replay_that_did_all_of_its_ledger_says_how_much(
    replay: tuple[HandmadeSearch, SearchLedger],
) -> None:
    run, ledger = replay
    run.worker(0, one_worker(run)[:-3])  # without the one that was cut
    folder = run.end()
    assert judged(folder) == {}
    (found,) = (f for f in check(Contents(folder)).findings if f.rule == "replayed")
    assert found.verdict == "pass"
    assert found.evidence.startswith(f"2 candidates of {ledger.run} replayed, ")


@pytest.mark.parametrize("kept", [-3, 6, 5])
def test_a_replay_that_did_not_do_all_of_its_ledger_is_found(
    replay: tuple[HandmadeSearch, SearchLedger], kept: int
) -> None:
    run, _ = replay
    notes = one_worker(run)[:kept]
    end = notes[-1][0]
    if kept == 6:
        end += 1.0
        told = {"candidate": SECOND, "message": "2 attempts of the worker died over it"}
        notes.append((end, "candidate-failed", told))
    if kept == -3:  # with more than was asked for
        third = run.propose(Turn(round=5, worker=0), epochs=1)
        notes += run.trained(third, end, 0.5)
    run.worker(0, [*notes, (notes[-1][0], "end", {})])
    said = {
        -3: "jobs/1/0/events.jsonl:12: r00005-w00000: it is not in the ledger",
        6: f"jobs/1/0/events.jsonl:8: {SECOND}: it has no result, but the ledger has one "
        "(2 attempts of the worker died over it)",
        5: f"ledger-replayed.json: {SECOND} is in the ledger but was not trained",
    }
    assert judged(run.end()) == {"replayed": said[kept]}


def test_a_replayed_ledger_that_was_changed_or_lost_is_found(
    replay: tuple[HandmadeSearch, SearchLedger],
) -> None:
    run, ledger = replay
    run.worker(0, one_worker(run)[:-3])
    folder = run.end()
    path = folder.path / "ledger-replayed.json"
    ledger.model_copy(update={"candidates": ledger.candidates[:1]}).write(path)
    assert "the ledger is not the one that was replayed" in judged(folder)["replayed"]
    path.unlink()
    assert "is missing" in judged(folder)["replayed"]
