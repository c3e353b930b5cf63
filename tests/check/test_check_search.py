"""Each rule of searches, with a run that breaks just it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import write_system
from search_runs import HandmadeSearch, Note, one_worker, started
from vflops.automl.record import Claim, Turn
from vflops.automl.replay import SearchLedger
from vflops.check.check import check
from vflops.record.folder import RunFolder
from vflops.score import search_words
from vflops.score.contents import Contents
from vflops.score.score import score

RULES = ("searched", "charged", "results", "ledger", "timed")
FIRST, SECOND = "r00000-w00000", "r00001-w00000"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandmadeSearch:
    made = HandmadeSearch(tmp_path / "runs", monkeypatch)
    made.true_ops = True
    write_system(made.folder)
    return made


def judged(folder: RunFolder) -> dict[str, str]:
    """The rules that are not met, with their evidence."""
    score(Contents(folder)).write(folder.score_file)
    findings = check(Contents(folder)).findings
    return {finding.rule: finding.told for finding in findings if finding.failed}


def test_a_good_search_meets_every_rule_and_is_no_result_of_aiperf(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    folder = run.end()
    assert judged(folder) == {}
    verdicts = {f.rule: f.verdict for f in check(Contents(folder)).findings}
    assert {verdicts[rule] for rule in RULES} == {"pass"}
    (found,) = score(Contents(folder)).searches
    assert not found.aiperf.valid  # 100 s are no hour: a matter of the score, not of the record


def test_a_run_without_a_search_is_not_judged_by_these_rules(run_folder: RunFolder) -> None:
    verdicts = {f.rule: f.verdict for f in check(Contents(run_folder)).findings}
    assert {verdicts[rule] for rule in RULES} == {"not applicable"}


def changed(notes: list[Note], kind: str, name: str = FIRST, **facts: Any) -> list[Note]:
    """``notes`` with other data in the event of a kind about a candidate."""
    found = [
        (at_s, each, {**data, **facts} if (each, data.get("candidate")) == (kind, name) else data)
        for at_s, each, data in notes
    ]
    assert found != notes
    return found


@pytest.mark.parametrize(
    ("rule", "change", "evidence"),
    [
        ("charged", lambda n: changed(n, "candidate", ops_total=10**9), "1,000,000,000 operations"),
        ("charged", lambda n: changed(n, "candidate", SECOND, ops_forward=1), SECOND),
        ("charged", lambda n: changed(n, "candidate", parameters=3), "3 parameters told"),
        ("searched", lambda n: changed(n, "candidate", digest="0" * 64), "not what was proposed"),
        ("searched", lambda n: changed(n, "candidate", proposal_sha256="0" * 64), "was changed"),
        ("searched", lambda n: changed(n, "candidate", epochs=2), "not what was proposed"),
        (
            "searched",
            lambda n: changed(n, "candidate-trained", hyper={"batch": 50, "kernel": None}),
            "hyper-parameters",
        ),
        ("results", lambda n: changed(n, "candidate-trained", accuracy=0.9), "accuracy 0.9 told"),
        ("results", lambda n: changed(n, "candidate-trained", predicted=0.9), "accuracy 0.9 told"),
        ("results", lambda n: changed(n, "candidate-trained", SECOND, epochs=1), "are not 1 epoch"),
    ],
)
def test_a_candidate_that_does_not_add_up_breaks_its_rule(
    run: HandmadeSearch, rule: str, change: Callable[[list[Note]], list[Note]], evidence: str
) -> None:
    run.worker(0, change(one_worker(run)))
    found = judged(run.end())
    assert set(found) == {rule}
    assert evidence in found[rule]


@pytest.mark.parametrize(
    ("facts", "evidence"),
    [
        ({"samples": 900}, "900 samples are not 1 epoch of 1,000"),
        ({"samples": 2500}, "2,500 samples are more than 1 epoch of 1,000"),
        ({"evaluated": 100}, "an evaluation saw 100 of 200 samples"),
    ],
)
def test_samples_are_epochs_of_the_data(
    run: HandmadeSearch, facts: dict[str, int], evidence: str
) -> None:
    notes = one_worker(run)
    for place, (at_s, kind, data) in enumerate(notes[:5]):
        if kind in ("evaluation", "finished"):
            own = {name: value for name, value in facts.items() if name in data}
            notes[place] = (at_s, kind, {**data, **own})
    run.worker(0, notes)
    found = judged(run.end())
    assert set(found) == {"results"}
    assert evidence in found["results"]


def test_a_candidate_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = HandmadeSearch(tmp_path / "twice", monkeypatch, workers=2)
    run.true_ops = True
    write_system(run.folder)
    candidate = run.propose(Turn(round=0, worker=0), epochs=1)
    for worker in (0, 1):
        notes = [(9.0, "job", started()), *run.trained(candidate, 10.0, 0.5), (40.0, "end", {})]
        run.worker(worker, notes)
    assert "trained by workers 0 and 1" in judged(run.end())["searched"]


@pytest.fixture
def bereaved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandmadeSearch:
    """Two workers; the second died over its second candidate, and not only once."""
    run = HandmadeSearch(tmp_path / "bereaved", monkeypatch, workers=2)
    run.true_ops = True
    write_system(run.folder)
    run.worker(0, one_worker(run))
    first, second = (run.propose(Turn(round=n, worker=1), epochs=1) for n in (0, 1))
    whole = [(9.0, "job", started()), *run.trained(first, 10.0, 0.5)]
    run.worker(1, [*whole, (40.0, "candidate", run.begun(second))])
    run.worker(1, [(51.0, "candidate", run.begun(second))], began_s=50.0)
    return run


def test_a_worker_that_died_for_good_is_told_and_does_the_others_no_harm(
    bereaved: HandmadeSearch,
) -> None:
    folder = bereaved.end(2)
    assert judged(folder) == {}
    evidence = {f.rule: f.evidence for f in check(Contents(folder)).findings}["trained"]
    lost = "the worker of job 2 was given up after 3 attempts (it died after 'candidate')"
    assert evidence == (
        f"2 planned, 1 came to the end; {lost}: 1 candidate of its count, "
        "no result of r00001-w00001"
    )
    (found,) = score(Contents(folder)).searches
    assert "with 2 workers, of which 1 died for good" in search_words.search_line(found)
    assert ("lost", evidence.partition("; ")[2]) in search_words.search_rows(found)


def test_a_search_whose_workers_all_died_did_not_come_to_its_end(bereaved: HandmadeSearch) -> None:
    path = bereaved.folder.attempt_folder(1, 0) / "events.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:-1]))  # without its end
    assert judged(bereaved.end(1, 2))["trained"] == "jobs/1/job.json: job 1 did not come to its end"


def test_who_trains_a_candidate_has_claimed_it(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    folder = run.end()
    claim = folder.path / "claims" / f"{FIRST}.json"
    Claim(worker=3, job=4).write(claim)
    assert judged(folder)["searched"].endswith("claimed by worker 3, trained by 0")
    claim.unlink()
    assert judged(folder)["searched"].endswith("nobody claimed it")


def test_a_proposal_that_was_changed_or_lost_is_found(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    folder = run.end()
    path = folder.path / "buffer" / f"{SECOND}.json"
    text = path.read_text()
    path.write_text(text.replace('"took_s": 0.1', '"took_s": 0.2'))
    found = judged(folder)
    assert found["searched"] == f"{SECOND}: its proposal was changed since it was trained"
    assert "not what the logs say" in found["ledger"]
    path.unlink()
    assert f"{SECOND}.json is missing" in judged(folder)["searched"]


def test_a_ledger_that_was_changed_is_found(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    folder = run.end()
    ledger = folder.path / "ledger.json"
    ledger.write_text(ledger.read_text().replace('"seed": 7', '"seed": 8'))
    assert set(judged(folder)) == {"ledger"}
    ledger.unlink()
    assert "not the ledger that was written" in judged(folder)["ledger"]


@pytest.mark.parametrize("harm", [b"\0" * 20, b'"candidate": {"r": 1}, "x'])
def test_a_damaged_result_costs_its_children_and_nothing_else(
    run: HandmadeSearch, harm: bytes
) -> None:
    """The ledger, the score and the findings of all the rest are there."""
    place = run.worker(0, one_worker(run)) / "events.jsonl"
    lines = place.read_bytes().splitlines(keepends=True)
    (number,) = (
        n
        for n, line in enumerate(lines)
        if b'"candidate-trained"' in line and FIRST.encode() in line
    )
    old = b'"candidate": "' + FIRST.encode()
    lines[number] = lines[number].replace(old, harm)
    place.write_bytes(b"".join(lines))
    folder = run.end()
    ledger = SearchLedger.find(folder.path)
    assert ledger.candidates == () and ledger.left_out == 3
    assert ledger.reasons == {
        FIRST: "its log holds no result of it",
        SECOND: f"it starts from {FIRST}, which has no result",
        "r00002-w00000": "the time was up",
    }
    assert {"chain"} <= judged(folder).keys()


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[HandmadeSearch, SearchLedger]:
    """A replay to be, and the ledger of a search of two candidates that it is given."""
    made = [
        HandmadeSearch(tmp_path / name, monkeypatch, ledger=ledger)
        for name, ledger in (("searched", None), ("replayed", "/the/ledger.json"))
    ]
    for each in made:
        each.true_ops = True
        write_system(each.folder)
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
    assert found.evidence.startswith(f"2 candidates of {ledger.run}, ")


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
        -3: "r00005-w00000 is not in the ledger",
        6: f"{SECOND} of the ledger has no result (2 attempts of the worker died over it)",
        5: f"{SECOND} of the ledger was not trained",
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
    assert "not the ledger that was replayed" in judged(folder)["replayed"]
    path.unlink()
    assert "is missing" in judged(folder)["replayed"]


def test_a_search_whose_time_does_not_add_up_is_found(run: HandmadeSearch) -> None:
    notes = one_worker(run)
    run.worker(0, notes)
    # Half of the log is moved by 50 s, while its phases say otherwise.
    path = run.folder.attempt_folder(1, 0) / "events.jsonl"
    path.write_text(path.read_text().replace('"time_s": 78.0', '"time_s": 128.0'))
    assert "the time does not add up" in judged(run.end())["timed"]


def test_a_claim_that_nobody_began_is_told_and_no_fault(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    run.propose(Turn(round=9, worker=0))
    folder = run.end()
    assert judged(folder) == {}
    evidence = {f.rule: f.evidence for f in check(Contents(folder)).findings}
    assert evidence["searched"].endswith("; 1 was claimed and never begun")
