"""The state, samples and charged operations of a worker's candidates, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.search_runs import evaluated, progress
from vflops.workloads.automl.candidate_history import CandidateTracker
from vflops.workloads.automl.search_events import CandidateCut, CandidateFailed

ONE, TWO = "r00000-w00000", "r00001-w00000"


def begun(name: str, **facts: Any) -> dict[str, Any]:
    given = {
        "candidate": name,
        "digest": "",
        "proposal_sha256": "",
        "parent": None,
        "inherited": False,
        "epochs": 2,
        "batch": 32,
        "parameters": 1,
        "ops_forward": 10,
        "ops_total": 30,
        "waited_s": 0.0,
        "built_s": 0.0,
    }
    return {**given, **facts}


def phased(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "phases": {"training": 1.0}}


def tracked(*events: tuple[str, dict[str, Any]]) -> CandidateTracker:
    tracker = CandidateTracker()
    for number, (kind, data) in enumerate(events):
        tracker.take(kind, data, utc_s=float(number))
    return tracker


def test_training_and_evaluation_are_charged_once_over_all_attempts() -> None:
    half, whole = phased(progress(0.5)), phased(evaluated(1, 0.4))
    first = [("worker", {}), ("candidate", begun(ONE)), ("progress", half), ("evaluation", whole)]
    tracker = tracked(*first, *first)
    candidate = tracker.candidates[ONE]
    assert (candidate.samples, candidate.evaluated, candidate.tries) == (1000, 200, 2)
    assert tracker.ops == candidate.ops == 1000 * 30 + 200 * 10
    assert [point.ops for point in candidate.points] == [15000, 32000, 32000, 32000]
    assert [result.quality for result in candidate.results] == [0.4, 0.4]
    assert candidate.curve == [(1.0, 0.4), (1.0, 0.4)] and candidate.last_s == 7.0


@pytest.mark.parametrize(
    ("kind", "outcome", "state"),
    [
        ("candidate-cut", CandidateCut(candidate=ONE, samples=700), "cut"),
        ("candidate-failed", CandidateFailed(candidate=ONE, message="no", samples=700), "failed"),
    ],
)
def test_steps_after_the_last_progress_are_charged_when_a_candidate_ends(
    kind: str, outcome: CandidateCut | CandidateFailed, state: str
) -> None:
    begin = (("candidate", begun(ONE)), ("progress", phased(progress(0.5))))
    tracker = tracked(*begin, (kind, outcome.model_dump()))
    candidate = tracker.candidates[ONE]
    assert (candidate.state, candidate.samples, candidate.ended_s) == (state, 700, 2.0)
    assert tracker.ops == 700 * 30 and tracker.outcomes == {ONE: outcome}
    assert tracker.current is tracker.unfinished is None


def test_only_a_new_attempt_separates_the_current_from_the_unfinished_candidate() -> None:
    tracker = tracked(("candidate", begun(ONE)), ("worker", {}))
    assert tracker.current is None and tracker.unfinished is tracker.candidates[ONE]
    tracker.take("stopped", {})
    assert tracker.candidates[ONE].tries == 0
    tracker.take("candidate", begun(ONE, waited_s=9.0))
    assert tracker.current is tracker.unfinished is tracker.candidates[ONE]
    assert (tracker.current.begun.waited_s, tracker.current.resumed.waited_s) == (0.0, 9.0)


def test_a_candidate_that_cannot_be_built_has_an_outcome_and_no_history() -> None:
    failed = CandidateFailed(candidate=TWO, message="too large")
    tracker = tracked(("candidate", begun(ONE)), ("candidate-failed", failed.model_dump()))
    assert list(tracker.candidates) == [ONE] and tracker.outcomes == {TWO: failed}
    assert tracker.candidates[ONE].state == "training" and tracker.abandoned == {ONE}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("candidate", begun("../../escape")),
        ("candidate", {"candidate": ["a", "list"]}),
        ("candidate-trained", {"candidate": ["a", "list"]}),
        ("candidate-cut", {"candidate": "../../escape", "samples": 1}),
        ("progress", {"samples": "?"}),
        ("evaluation", {}),
    ],
)
def test_events_with_an_invalid_payload_are_skipped(kind: str, data: dict[str, Any]) -> None:
    tracker = tracked(("candidate", begun(ONE)), (kind, data))
    assert list(tracker.candidates) == [ONE] and not tracker.outcomes and tracker.ops == 0
