"""What earlier attempts of a worker left: an unfinished candidate, and time that is used up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.automl_parts import trained, turn
from vflops.record.formats.job_events import Evaluated, Finished
from vflops.record.log.events import Event, Log
from vflops.workloads.automl.search_events import (
    CandidateBegun,
    CandidateCut,
    CandidateFailed,
    WorkerBegun,
)
from vflops.workloads.automl.worker_history import WorkerHistory

_START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def _begun(name: str) -> tuple[str, Any]:
    return "candidate", CandidateBegun(
        candidate=name,
        digest="",
        proposal_sha256="",
        parent=None,
        inherited=False,
        epochs=2,
        batch=32,
        parameters=1,
        ops_forward=1,
        ops_total=3,
        waited_s=0,
        built_s=0,
    )


def _evaluated(step: int, quality: float) -> tuple[str, Any]:
    return "evaluation", Evaluated(
        step=step, samples=step, epoch=1.0, quality=quality, evaluated=10, phases={}
    )


_WORKER = ("worker", WorkerBegun(worker=0, left_s=1.0))
_CHECKPOINT = ("checkpoint", None)
_STOPPED = ("stopped", None)


def history(*attempts: Sequence[tuple[str, Any]]) -> WorkerHistory:
    """Attempts with an event a second; 100 s of the clock lie between two of them."""
    logs, now_s = [], _START
    for number, attempt in enumerate(attempts):
        events = []
        for n, (kind, payload) in enumerate(attempt):
            utc = datetime.fromtimestamp(now_s + n, UTC).isoformat()
            data = {} if payload is None else payload.model_dump(mode="json")
            events.append(Event(kind, data, utc, "", time_s=1000.0 * number + n))
        now_s += len(attempt) + 100
        logs.append(Log(events=tuple(events), faults=(), torn=None))
    return WorkerHistory(logs)


def test_nothing_before_is_nothing_to_go_on_with() -> None:
    assert history().unfinished() is None and not history().ended and not history().begun
    assert history().spent_s() == (0.0, None)
    assert history([_WORKER]).begun


def test_half_a_candidate_is_gone_on_with_and_all_its_evaluations_are_kept() -> None:
    one, two = "r00000-w00000", "r00001-w00000"
    whole = [_begun(one), _evaluated(9, 0.9), ("candidate-trained", trained(one, 0.9))]
    past = history(
        [_WORKER, *whole, _begun(two), _evaluated(1, 0.1)],
        [_WORKER, _begun(two), _evaluated(2, 0.2)],
    )
    unfinished = past.unfinished()
    assert unfinished is not None
    assert (unfinished.turn, unfinished.tries, unfinished.finished) == (turn(1, 0), 2, None)
    assert [evaluation.quality for evaluation in unfinished.evaluations] == [
        0.1,
        0.2,
    ] and unfinished.samples == 2
    assert past.ended == {one}


def test_a_candidate_that_finished_but_was_not_told_is_half_too() -> None:
    finished = Finished(
        step=7, samples=7, epoch=2.0, reason="epochs", phases={}, weights_sha256=None
    )
    unfinished = history([_WORKER, _begun("r00000-w00000"), ("finished", finished)]).unfinished()
    assert unfinished is not None and unfinished.finished == finished


def test_whatever_its_end_a_candidate_that_ended_is_not_gone_on_with() -> None:
    name = "r00000-w00000"
    for kind, payload in (
        ("candidate-trained", trained(name, 0.5)),
        ("candidate-failed", CandidateFailed(candidate=name, message="")),
        ("candidate-cut", CandidateCut(candidate=name, samples=1)),
    ):
        past = history([_WORKER, _begun(name), (kind, payload)])
        assert past.unfinished() is None and past.ended == {name}


def test_only_attempts_that_died_without_progress_count_as_tries() -> None:
    name = "r00000-w00000"
    for middle, tries in (((), 2), ((_CHECKPOINT,), 1), ((_STOPPED,), 1)):
        unfinished = history([_WORKER, _begun(name), *middle], [_WORKER, _begun(name)]).unfinished()
        assert unfinished is not None and unfinished.tries == tries


def test_attempts_that_died_before_they_began_what_they_had_claimed_are_counted() -> None:
    name = "r00000-w00000"
    whole = [_WORKER, _begun(name), ("candidate-trained", trained(name, 0.5))]
    assert history(whole).failed_starts == 1
    assert history(whole, [], [_WORKER]).failed_starts == 2  # one died before it worked at all
    assert history(whole, [_WORKER, _STOPPED], [_WORKER]).failed_starts == 1
    assert history(whole, [_WORKER], [_WORKER, _STOPPED]).failed_starts == 0


def test_time_between_attempts_is_spent_too() -> None:
    past = history([_WORKER] * 11, [_WORKER] * 6)  # 10 s, 101 s of nothing, 5 s
    now = datetime.fromtimestamp(_START + 150, UTC)
    assert past.spent_s(now) == (150.0, None)


def test_attempts_with_one_monotonic_clock_need_no_wall_clock_between_them() -> None:
    """It counts 990 s from the end of the first to the beginning of the second."""
    logs = [
        replace(log, events=(replace(log.events[0], clock="one"), *log.events[1:]))
        for log in history([_WORKER] * 11, [_WORKER] * 16).logs
    ]
    now = datetime.fromtimestamp(_START + 136, UTC)  # 10 s after the second, of another clock
    assert WorkerHistory(logs).spent_s(now) == (10 + 990 + 15 + 10, None)


def test_a_clock_that_was_set_back_is_told_and_the_attempts_own_clocks_count() -> None:
    past = history([_WORKER] * 11, [_WORKER] * 6)
    spent_s, line = past.spent_s(datetime.fromtimestamp(_START - 3600, UTC))
    assert spent_s == 10 + 101 + 5
    assert line == "the clock was set back by 3716 s; 116 s count"


@pytest.mark.parametrize(("jump_s", "way"), [(7200.0, "ahead"), (-50.0, "back")])
def test_a_clock_that_jumps_while_the_worker_works_is_told_and_costs_it_nothing(
    jump_s: float, way: str
) -> None:
    (log,) = history([_WORKER] * 11).logs
    later = datetime.fromtimestamp(_START + 10 + jump_s, UTC)
    jumped = replace(log.events[-1], utc=later.isoformat())
    past = WorkerHistory([replace(log, events=(*log.events[:-1], jumped))])
    spent_s, line = past.spent_s(datetime.fromtimestamp(_START + 15 + jump_s, UTC))
    assert spent_s == pytest.approx(15)
    assert line == f"the clock was set {way} by {abs(jump_s):.0f} s; 15 s count"


def test_all_open_claims_are_left_and_half_a_candidate_comes_first() -> None:
    one, two, three, four = (f"r0000{n}-w00000" for n in range(4))
    claims = [turn(n, 0) for n in range(4)]
    whole = [_WORKER, _begun(one), ("candidate-trained", trained(one, 0.5))]
    # Of the second nothing can be read but its beginning; the last one was only claimed.
    past = history([*whole, _begun(two), _begun(three), _evaluated(3, 0.2)]).open_claims(claims)
    assert [(item.turn, item.lost) for item in past] == [
        (turn(2, 0), False), (turn(1, 0), True), (turn(3, 0), False)
    ]  # fmt: skip
    assert past[0].samples == 3
    ended = ("candidate-trained", trained(three, 0.5))
    past = history([*whole, _begun(two), _begun(three), ended], [_WORKER]).open_claims(claims)
    tries = [(item.turn, item.lost, item.tries) for item in past]
    assert tries == [(turn(1, 0), True, 0), (turn(3, 0), False, 2)]
    assert history().open_claims(claims) == []  # nothing can be left
    failed = ("candidate-failed", CandidateFailed(candidate=four, message=""))
    assert history([*whole, failed]).open_claims([turn(0, 0), turn(3, 0)]) == []


def test_a_candidate_that_another_rank_could_not_train_has_ended() -> None:
    one, two = "r00000-w00000", "r00001-w00000"
    logs = history([_WORKER, _begun(one), ("candidate-trained", trained(one, 0.5)), _begun(two)])
    failed = [CandidateFailed(candidate=name, message="rank 1: no memory") for name in (one, two)]
    past = WorkerHistory(logs.logs, failed)
    assert logs.unfinished() is not None and past.unfinished() is None
    assert past.ended == {one, two} and past.open_claims([turn(0, 0), turn(1, 0)]) == []
    assert past.unrecorded == failed[1:]
