"""The workers' logs as one history, whatever state they are in."""

from __future__ import annotations

from pathlib import Path

from tests.support.automl_parts import new_run, tell, trained
from vflops.workloads.automl.search_events import CandidateFailed, Turn
from vflops.workloads.automl.shared_results import SharedResults


def test_results_of_all_workers_and_attempts_are_known_in_whatever_order(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    ledger = SharedResults(folder, {0: 1, 1: 2})
    ledger.read()
    assert ledger.results == {}
    with folder.start_attempt(job=2) as log:
        tell(log, "candidate-trained", trained("r00000-w00001", 0.5))
    with folder.start_attempt(job=1) as log:
        tell(log, "candidate-failed", CandidateFailed(candidate="r00000-w00000", message="no"))
        ledger.read()  # while it is written
    with folder.start_attempt(job=1) as log:
        tell(log, "candidate-trained", trained("r00001-w00000", 0.75))
    with folder.start_attempt(job=3) as log:  # another search's
        tell(log, "candidate-trained", trained("r00009-w00000", 0.9))
    ledger.read()
    found = {name: each.trained for name, each in ledger.results.items()}
    accuracies = {name: each.accuracy if each else None for name, each in found.items()}
    assert accuracies == {"r00000-w00001": 0.5, "r00000-w00000": None, "r00001-w00000": 0.75}


def test_torn_and_corrupt_lines_are_passed_over_and_what_follows_is_read(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    with folder.start_attempt(job=1) as log:
        for n, accuracy in enumerate((0.1, 0.2, 0.3, 0.4, 0.5)):
            tell(log, "candidate-trained", trained(f"r{n:05d}-w00000", accuracy))
    path = folder.logged_attempts(1)[0] / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = b"\x00\xff not JSON\n"
    lines[1] = lines[1].replace(b'"accuracy": 0.2', b'"accuracy": "?"')  # JSON, but no result
    lines[2] = lines[2].replace(b"r00002-w00000", b"../../escape")
    path.write_bytes(b"".join(lines)[:-9])
    ledger = SharedResults(folder, {0: 1})
    ledger.read()
    assert list(ledger.results) == ["r00003-w00000"]
    path.write_bytes(b"".join(lines))  # the last line is whole now
    ledger.read()
    assert list(ledger.results) == ["r00003-w00000", "r00004-w00000"]


def test_a_worker_is_heard_by_any_event_of_its_own(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    ledger = SharedResults(folder, {0: 1, 1: 2})
    ledger._heard_s = dict.fromkeys(ledger._heard_s, -100.0)
    with folder.start_attempt(job=1) as log:
        log.write("progress", step=1)
        ledger.read()
        assert ledger.silent_s(0) < 10 < 90 < ledger.silent_s(1)


def test_a_result_is_lost_when_its_worker_has_gone_on_without_a_word_of_it(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    ledger, name = SharedResults(folder, {0: 1}), "r00001-w00000"
    place = Turn.named(name)
    for kinds, lost in (
        (("candidate",), False),
        (("candidate", "worker", "progress"), False),  # another attempt goes on with it
        (("candidate", "waiting"), True),
        (("candidate", "candidate", "candidate-cut"), False),
        (("candidate-cut", "waiting"), True),  # there was time left after all
        (("waiting", "candidate"), False),
    ):
        with folder.start_attempt(job=1) as log:
            for kind in kinds:
                log.write(kind, candidate=name if kind.startswith("candidate") else None)
        ledger.read()
        assert ledger.is_lost(place) is lost, kinds
    with folder.start_attempt(job=1) as log:
        log.write("candidate", candidate="r00002-w00000")
    ledger.read()
    assert ledger.is_lost(place) and not ledger.is_lost(Turn.named("r00002-w00000"))
    with folder.start_attempt(job=1) as log:
        tell(log, "candidate-failed", CandidateFailed(candidate=name, message="damaged"))
    ledger.read()
    assert not ledger.is_lost(place)
