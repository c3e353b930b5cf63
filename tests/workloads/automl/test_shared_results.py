"""Shared results of all workers, read from logs in any state."""

from __future__ import annotations

from pathlib import Path

from tests.support.automl_parts import new_run, trained, write_event
from vflops.workloads.automl.search_events import CandidateFailed, Turn
from vflops.workloads.automl.shared_results import SharedResults


def test_results_of_all_workers_and_attempts_are_known_in_whatever_order(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    shared = SharedResults(folder, {0: 1, 1: 2})
    shared.read()
    assert shared.results == {}
    with folder.start_attempt(job=2) as log:
        write_event(log, "candidate-trained", trained("r00000-w00001", 0.5))
    with folder.start_attempt(job=1) as log:
        write_event(
            log, "candidate-failed", CandidateFailed(candidate="r00000-w00000", message="no")
        )
        shared.read()  # while it is written
    with folder.start_attempt(job=1) as log:
        write_event(log, "candidate-trained", trained("r00001-w00000", 0.75))
    with folder.start_attempt(job=3) as log:  # another search's
        write_event(log, "candidate-trained", trained("r00009-w00000", 0.9))
    shared.read()
    trained_by_name = {name: result.trained for name, result in shared.results.items()}
    accuracies = {name: item.accuracy if item else None for name, item in trained_by_name.items()}
    assert accuracies == {"r00000-w00001": 0.5, "r00000-w00000": None, "r00001-w00000": 0.75}


def test_torn_and_corrupt_lines_are_passed_over_and_what_follows_is_read(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    with folder.start_attempt(job=1) as log:
        for n, accuracy in enumerate((0.1, 0.2, 0.3, 0.4, 0.5)):
            write_event(log, "candidate-trained", trained(f"r{n:05d}-w00000", accuracy))
    path = folder.logged_attempts(1)[0] / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = b"\x00\xff not JSON\n"
    lines[1] = lines[1].replace(b'"accuracy": 0.2', b'"accuracy": "?"')  # JSON, but no result
    lines[2] = lines[2].replace(b"r00002-w00000", b"../../escape")
    path.write_bytes(b"".join(lines)[:-9])
    shared = SharedResults(folder, {0: 1})
    shared.read()
    assert list(shared.results) == ["r00003-w00000"]
    path.write_bytes(b"".join(lines))  # the last line is whole now
    shared.read()
    assert list(shared.results) == ["r00003-w00000", "r00004-w00000"]


def test_a_worker_is_heard_by_any_event_of_its_own(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    shared = SharedResults(folder, {0: 1, 1: 2})
    shared._heard_s = dict.fromkeys(shared._heard_s, -100.0)
    with folder.start_attempt(job=1) as log:
        log.write("progress", step=1)
        shared.read()
        assert shared.silent_s(0) < 10 < 90 < shared.silent_s(1)


def test_a_result_is_lost_when_its_worker_has_gone_on_without_a_word_of_it(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    shared, name = SharedResults(folder, {0: 1}), "r00001-w00000"
    turn = Turn.named(name)
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
        shared.read()
        assert shared.is_lost(turn) is lost, kinds
    with folder.start_attempt(job=1) as log:
        log.write("candidate", candidate="r00002-w00000")
    shared.read()
    assert shared.is_lost(turn) and not shared.is_lost(Turn.named("r00002-w00000"))
    with folder.start_attempt(job=1) as log:
        write_event(log, "candidate-failed", CandidateFailed(candidate=name, message="damaged"))
    shared.read()
    assert not shared.is_lost(turn)
