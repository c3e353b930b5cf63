"""Which parts of a training can be audited, which are drawn, and how runs are judged."""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain, combinations, pairwise
from typing import Any

import pytest

from tests.support.trained_runs import job
from vflops.record.formats.job import JobRecord
from vflops.record.log.events import Event, Log
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.evidence.audit_record import (
    AuditedEnsemble,
    AuditedSegment,
    Difference,
    caught_probability,
)
from vflops.studies.audit.auditing import judge_run
from vflops.studies.audit.committed_segments import Segment, last_evaluation, segments_of
from vflops.studies.audit.drawing import _drawn


def kept_every(steps: int, end: int) -> JobRecord:
    """A job whose settings end a part after so many steps, with ten steps an epoch."""
    record = job(1)
    train = {"epochs": end // 10, "batch": record.data.train // 10, "segments": end // steps}
    return record.model_copy(update={"settings": {"train": train}})


def attempt(*events: tuple[str, dict[str, Any]]) -> Log:
    return Log(
        tuple(Event(kind, data, "", f"log:{n}") for n, (kind, data) in enumerate(events)), (), None
    )


def checkpoint(step: int, kept: bool = True) -> tuple[str, dict[str, Any]]:
    data = {"step": step, "sha256": f"c{step}", "loss": 1.0, "kept": kept, "size_bytes": 1}
    return "checkpoint", {**data, "file": f"step-{step:09d}.state"}


def commitment(step: int) -> tuple[str, dict[str, Any]]:
    return "commitment", {"step": step, "sha256": f"s{step}", "loss": 1.0}


def point(kind: str, step: int, **more: Any) -> tuple[str, dict[str, Any]]:
    return kind, {"step": step, "samples": step, "epoch": 1.0, "phases": {}, **more}


def end(step: int) -> tuple[str, dict[str, Any]]:
    return point("finished", step, reason="epochs", weights_sha256="w")


def test_segments_lie_between_kept_checkpoints() -> None:
    log = attempt(
        commitment(0),
        commitment(5),
        checkpoint(10),
        checkpoint(15, kept=False),
        checkpoint(20),
        end(20),
    )
    trained = TrainedJob(kept_every(10, 20), (log,))
    segments = segments_of(trained)
    assert [(item.first, item.last, item.is_end) for item in segments] == [
        (0, 10, False),
        (10, 20, True),
    ]
    assert [[state.step for state in item.commitments] for item in segments] == [
        [0, 5, 10],
        [15, 20],
    ]
    assert segments[1].start is not None and segments[1].start.sha256 == "c10"
    evaluation = last_evaluation(trained)
    assert evaluation is not None and (evaluation.first, evaluation.last) == (20, 20)


def test_what_an_attempt_lost_does_not_count_and_resumes_are_audited() -> None:
    first = attempt(commitment(0), checkpoint(10), commitment(13), point("progress", 14, loss=1.0))
    resumed = (
        "resumed",
        {"step": 10, "samples": 10, "file": "step-000000010.state", "sha256": "c10"},
    )
    second = attempt(resumed, commitment(12), checkpoint(20), end(20))
    segments = segments_of(TrainedJob(kept_every(10, 20), (first, second)))
    assert [item.resumed for item in segments] == [True, False]
    assert [state.step for state in segments[1].commitments] == [12, 20]


def test_parts_are_those_of_the_settings_whatever_the_log_says_was_kept() -> None:
    """The first part ends where the log kept nothing; what its owner kept at 3 ends no part."""
    log = attempt(commitment(0), checkpoint(3), checkpoint(20), end(25))
    segments = segments_of(TrainedJob(kept_every(10, 40), (log,)))
    assert [(item.first, item.last) for item in segments] == [(0, 10), (10, 20), (20, 25)]
    assert [item.start is not None for item in segments] == [False, False, True]


def test_a_training_without_kept_checkpoints_is_one_segment() -> None:
    segments = segments_of(TrainedJob(job(1), (attempt(commitment(0), end(7)),)))
    assert [(item.first, item.last) for item in segments] == [(0, 7)]
    assert last_evaluation(TrainedJob(job(1), (attempt(end(7)),))) is None
    assert segments_of(TrainedJob(job(1), (attempt(commitment(0)),))) == []


def test_parts_are_drawn_without_repetition_in_proportion_to_their_steps() -> None:
    pool = [part(0, 10), part(10, 40)]
    draws = 2000
    first = Counter(_drawn(pool, 1, str(nonce))[0].first for nonce in range(draws))
    share, expected = first[10] / draws, 0.75
    assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / draws)
    assert {item.first for item in _drawn(pool, 5, "nonce")} == {0, 10}
    assert _drawn(pool, 1, "nonce") == _drawn(pool, 1, "nonce")


def test_the_probability_to_catch_a_forgery_of_equal_parts_is_hypergeometric() -> None:
    equal = [7] * 90
    assert caught_probability(equal, 3, 63) == pytest.approx(1 - 81 / 90 * 80 / 89 * 79 / 88)
    assert caught_probability(equal, 3, 57) == caught_probability(equal, 3, 63)
    assert caught_probability([7] * 10, 10, 1) == 1.0
    assert caught_probability([7] * 10, 0, 70) == caught_probability([7] * 10, 5, 0) == 0.0
    assert caught_probability([7] * 10, 0, 71) == 1.0, "the rest is always audited"


def test_a_forgery_in_the_worst_place_is_drawn_as_often_as_is_promised() -> None:
    """All places of a forgery are tried, in parts of very different lengths."""
    pool = [part(first, last) for first, last in pairwise((0, 1, 2, 12, 22, 52))]
    lengths = [segment.steps for segment in pool]
    draws = [{item.first for item in _drawn(pool, 2, str(n))} for n in range(4000)]
    for forged in (1, 5, 11, 30):
        promised = caught_probability(lengths, 2, forged)
        shares = []
        for places in chain.from_iterable(combinations(pool, n) for n in range(1, 5)):
            if sum(place.steps for place in places) >= forged:
                firsts = {place.first for place in places}
                shares.append(sum(bool(firsts & drawn) for drawn in draws) / len(draws))
        assert promised <= min(shares) + 4 * math.sqrt(0.25 / len(draws))


def part(first: int, last: int) -> Segment:
    return Segment(1, first, last, None, (), False)


def row(verdict: Any = "same bits", **facts: Any) -> AuditedSegment:
    return AuditedSegment(
        job=1, first=0, last=5, reason="first", verdict=verdict, detail="why", **facts
    )


def timed(recorded: float, here: float = 100.0, seconds: float = 1.0) -> dict[str, float]:
    """The speeds of a part."""
    speeds = {"samples_per_s_recorded": recorded, "samples_per_s_here": here}
    return {**speeds, "seconds_here": seconds}


def test_one_part_that_differs_contradicts_the_run() -> None:
    assert (
        judge_run([row(), row("differs"), row("not audited")], same_machine=True)[0]
        == "contradicted"
    )
    assert judge_run([row(), row("not audited")], same_machine=True)[0] == "not conclusive"
    assert judge_run([row(**timed(100.0))], same_machine=True)[0] == "confirmed"


def test_only_equal_bits_on_the_claimed_stack_confirm_a_run() -> None:
    for rows, same_stack in (([row("within tolerance")], True), ([row()], False)):
        verdict, detail, _ = judge_run(rows, same_machine=False, same_stack=same_stack)
        assert (verdict, "within the tolerance" in detail) == ("consistent", True)
    claims = "the log says torch 3, but system.json says 2"
    verdict, detail, _ = judge_run([row()], same_machine=True, claims=claims)
    assert (verdict, detail) == ("not conclusive", claims)


def test_a_tolerance_that_was_only_estimated_accuses_nobody() -> None:
    verdict, detail, _ = judge_run([row("differs")], same_machine=False, is_exact=False)
    assert verdict == "not conclusive"
    assert detail.endswith("the tolerance needs a trusted run")


def test_drawn_parts_are_timed_alone() -> None:
    """Honest parts that are always audited do not outvote a drawn one."""
    honest = [row(**timed(100.0)) for _ in range(8)]
    drawn = row(**timed(500.0, seconds=0.05))
    drawn = drawn.model_copy(update={"reason": "drawn"})
    assert judge_run([*honest, drawn], same_machine=True)[2] == 5.0


def test_an_ensemble_whose_predictions_give_another_quality_contradicts_the_run() -> None:
    claimed = AuditedEnsemble(
        workload="w", repeat=0, quality_recorded=0.9, quality_here=0.5, detail=""
    )
    assert judge_run([row()], [claimed], same_machine=True)[:2] == (
        "contradicted",
        "the ensemble of w has the quality 0.5, but the log has 0.9",
    )
    unknown = claimed.model_copy(update={"quality_here": None, "detail": "lost"})
    assert judge_run([row()], [unknown], same_machine=True)[:2] == ("not conclusive", "w: lost")


def test_a_speed_that_a_machine_of_the_same_kind_does_not_reach_is_not_confirmed() -> None:
    rows = [row(**timed(100.0 / 0.85))]
    verdict, detail, ratio = judge_run(rows, same_machine=True)
    assert (verdict, ratio) == ("not conclusive", 1.1765)
    assert "claims 1.18 × the speed" in detail
    assert judge_run(rows, same_machine=False) == (
        "confirmed",
        "all 1 parts agree bit by bit",
        None,
    )
    honest = [row(**timed(105.0))]
    assert judge_run(honest, same_machine=True)[0] == "confirmed"


def test_a_part_that_is_long_enough_is_judged_by_itself() -> None:
    """Others with honest times do not outvote it; a shorter one says too little."""
    honest = [row(**timed(100.0)) for _ in range(8)]
    for seconds, ratio in ((1.0, 1.3), (0.01, 1.0263)):
        rows = [*honest, row(**timed(130.0, seconds=seconds))]
        assert judge_run(rows, same_machine=True)[2] == ratio


def test_an_audit_that_compared_no_time_on_the_same_kind_of_machine_confirms_nothing() -> None:
    for rows, words in (
        ([row()], "does not say how long"),
        ([row(**timed(100.0, seconds=0.01))], "too short to compare speeds"),
    ):
        verdict, detail, _ = judge_run(rows, same_machine=True)
        assert (verdict, words in detail) == ("not conclusive", True)
        assert judge_run(rows, same_machine=False)[0] == "confirmed"


def test_a_difference_is_compared_with_its_tolerance() -> None:
    assert Difference(figure="loss", difference=0.1, tolerance=0.1).is_within
    assert not Difference(figure="loss", difference=0.11, tolerance=0.1).is_within
