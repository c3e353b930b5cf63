"""Each rule of searches, with a run that breaks just it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.forged_runs import Forger
from tests.support.sample_parts import write_system
from tests.support.search_runs import HandmadeSearch, Note, judged, one_worker, started
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score import search_text
from vflops.results.score.scoring import score
from vflops.workloads.automl.replay import SearchLedger
from vflops.workloads.automl.search_events import Claim, Turn

RULES = ("searched", "charged", "results", "ledger", "timed")
AIPERF = (
    "duration",
    "precision",
    "error",
    "new-weights",
    "ended",
    "table-iv",
    "search-space",
    "rounds",
    "tuned",
)
FIRST, SECOND = "r00000-w00000", "r00001-w00000"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandmadeSearch:
    made = HandmadeSearch(tmp_path / "runs", monkeypatch)
    made.true_ops = True
    write_system(made.folder)
    return made


def test_a_good_search_meets_every_rule_and_is_no_result_of_aiperf(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    folder = run.end()
    assert judged(folder) == {}
    verdicts = {f.rule: f.verdict for f in check(Contents(folder)).findings}
    assert {verdicts[rule] for rule in RULES} == {"pass"}
    (found,) = score(Contents(folder)).searches
    assert not found.aiperf.valid  # 100 s are no hour: a matter of the score, not of the record


def test_a_run_without_a_search_is_not_judged_by_these_rules(run_folder: RunFolder) -> None:
    verdicts = {f.rule: f.verdict for f in check(Contents(run_folder), "aiperf").findings}
    assert {verdicts[rule] for rule in (*RULES, *AIPERF)} == {"not applicable"}


def test_a_search_without_a_result_has_no_error(run: HandmadeSearch) -> None:
    candidate = run.propose(Turn(round=0, worker=0), epochs=1)
    cut = {"candidate": candidate.turn.name, "samples": 300}
    notes = [(9.0, "job", started()), (10.0, "candidate", run.begun(candidate))]
    run.worker(0, [*notes, (100.0, "candidate-cut", cut), (100.0, "end", {})])
    findings = check(Contents(run.end()), "aiperf").failures
    told = {finding.rule: finding.text for finding in findings}
    assert told["error"] == "jobs/1/job.json: no model was evaluated"
    assert told["duration"].startswith("jobs/1/0/events.jsonl:5: it took 1 min 40 s")


def changed(notes: list[Note], kind: str, name: str = FIRST, **facts: Any) -> list[Note]:
    """``notes`` with other data in the event of a kind about a candidate."""
    found = [
        (at_s, noted, {**data, **facts} if (noted, data.get("candidate")) == (kind, name) else data)
        for at_s, noted, data in notes
    ]
    assert found != notes
    return found


@pytest.mark.parametrize(
    ("rule", "change", "evidence"),
    [
        (
            "charged",
            lambda n: changed(n, "candidate", ops_total=10**9),
            f"jobs/1/0/events.jsonl:3: {FIRST}: 1,000,000,000 operations",
        ),
        ("charged", lambda n: changed(n, "candidate", SECOND, ops_forward=1), SECOND),
        (
            "charged",
            lambda n: changed(
                n, "candidate", batch_ops={"batch": 50, "forward": 10**8, "total": 10**9}
            ),
            "1,000,000,000 operations per 50 samples recorded",
        ),
        ("charged", lambda n: changed(n, "candidate", parameters=3), "3 parameters recorded"),
        (
            "searched",
            lambda n: changed(n, "candidate", digest="0" * 64),
            "not the one that was proposed",
        ),
        ("searched", lambda n: changed(n, "candidate", proposal_sha256="0" * 64), "was changed"),
        ("searched", lambda n: changed(n, "candidate", epochs=2), "not the one that was proposed"),
        (
            "searched",
            lambda n: changed(n, "candidate-trained", hyper={"batch": 50, "kernel": None}),
            "hyper-parameters",
        ),
        (
            "results",
            lambda n: changed(n, "candidate-trained", accuracy=0.9),
            f"jobs/1/0/events.jsonl:6: {FIRST}: accuracy 0.9 recorded",
        ),
        (
            "results",
            lambda n: changed(n, "candidate-trained", predicted=0.9),
            "accuracy 0.9 recorded",
        ),
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
        (
            {"evaluated": 100},
            f"jobs/1/0/events.jsonl:4: {FIRST}: an evaluation used 100 of 200 samples",
        ),
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


@pytest.mark.parametrize("accuracy", [1.7, -0.2])
def test_an_accuracy_that_is_none_is_found(run: HandmadeSearch, accuracy: float) -> None:
    candidate = run.propose(Turn(round=0, worker=0), epochs=1)
    notes = run.trained(candidate, 10.0, accuracy)
    run.worker(0, [(9.0, "job", started()), *notes, (40.0, "end", {})])
    assert judged(run.end()) == {
        "evaluated": f"jobs/1/0/events.jsonl:4: the top-1 accuracy is {accuracy:g}, "
        "but it lies between 0 and 1"
    }


def test_two_candidates_do_not_come_to_the_same_weights(run: HandmadeSearch) -> None:
    notes = one_worker(run)
    for name in (FIRST, SECOND):
        notes = changed(notes, "candidate-trained", name, weights_sha256="0" * 64)
    run.worker(0, notes)
    said = f"{SECOND}: {FIRST} has the same weights: it is the same training twice"
    assert judged(run.end()) == {"searched": f"jobs/1/0/events.jsonl:11: {said}"}


def test_a_worker_that_is_not_there_is_found(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    forger = Forger(run.end().path)
    forger.settings(lambda told: told["search"].update(workers=2))
    forger.records(lambda told: told["worker"].update(workers=2))
    assert judged(forger.sealed()) == {
        "jobs": "run.json: 2 jobs of automl were requested and 1 planned, "
        "but repeat 0, number 1 is missing"
    }


def test_a_worker_whose_clock_is_known_to_be_behind_did_not_begin_too_early(
    run: HandmadeSearch,
) -> None:
    run.worker(0, one_worker(run), ahead_s=-3600.0)
    assert judged(run.end()) == {}
    node = run.folder.attempt_folder(1, 0) / "node-0.json"
    node.write_text(node.read_text().replace("-3600.0", "0.0"))
    found = judged(run.folder)
    assert found.keys() == {"clocks"}
    assert (
        "jobs/1/0/events.jsonl:1: the job logged this 60 min 00 s before it was planned"
        in found["clocks"]
    )


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
        f"2 planned, 1 finished; {lost}: its 1 trained candidate counts, "
        "no result for r00001-w00001"
    )
    goal = {f.rule: f.evidence for f in check(Contents(folder)).findings}["goal"]
    assert goal == "automl: error at most 0.3"
    (found,) = score(Contents(folder)).searches
    assert "with 2 workers, 1 of them lost" in search_text.search_line(found)
    assert ("lost", evidence.partition("; ")[2]) in search_text.search_rows(found)


def test_a_search_whose_workers_all_died_did_not_come_to_its_end(bereaved: HandmadeSearch) -> None:
    path = bereaved.folder.attempt_folder(1, 0) / "events.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:-1]))  # without its end
    assert judged(bereaved.end(1, 2))["trained"] == "jobs/1/job.json: job 1 did not finish"


def test_who_trains_a_candidate_has_claimed_it(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    folder = run.end()
    claim = folder.path / "claims" / f"{FIRST}.json"
    Claim(worker=3, job=4).write(claim)
    assert judged(folder)["searched"].endswith("claimed by worker 3, trained by 0")
    claim.unlink()
    assert judged(folder)["searched"].endswith("it was never claimed")


def test_a_proposal_that_was_changed_or_lost_is_found(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    folder = run.end()
    path = folder.path / "buffer" / f"{SECOND}.json"
    text = path.read_text()
    path.write_text(text.replace('"took_s": 0.1', '"took_s": 0.2'))
    found = judged(folder)
    said = f"{SECOND}: its proposal was changed after training"
    assert found["searched"] == f"buffer/{SECOND}.json: {said}"
    assert "does not match the trained candidates" in found["ledger"]
    path.write_bytes(path.with_name(f"{FIRST}.json").read_bytes())
    assert f"its proposal is for {FIRST}" in judged(folder)["searched"]
    path.unlink()
    assert judged(folder)["searched"].startswith(f"buffer/{SECOND}.json: missing")


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
    assert evidence["searched"].endswith("; 1 was claimed but never started")
