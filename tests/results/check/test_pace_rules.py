"""When a training compiles, how long it evaluates, and how often it reports."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.sample_parts import MEASUREMENTS, write_system
from tests.support.trained_runs import (
    HandmadeRun,
    Note,
    course,
    job,
    started,
)
from vflops.record.readout.contents import Contents
from vflops.results.check.pace_rules import (
    check_compilation,
    check_evaluation_times,
    check_progress,
)
from vflops.results.check.rule import Outcome

GOOD = course(0.4, 0.8, 0.85)


def outcomes(run: HandmadeRun, notes: list[Note], **facts: Any) -> dict[str, Outcome]:
    """The verdicts on one training."""
    write_system(run.folder)
    run.plan(job(1, **facts), ceilings=MEASUREMENTS)
    run.attempt(1, 1000.0, *notes)
    run.end()
    rules = (check_compilation, check_evaluation_times, check_progress)
    return {
        rule.__name__.removeprefix("check_"): Outcome(*rule(Contents(run.folder))) for rule in rules
    }


def failed(found: dict[str, Outcome]) -> dict[str, str]:
    return {name: outcome.evidence for name, outcome in found.items() if outcome.verdict == "fail"}


def spent(note: Note, **added_s: float) -> Note:
    kind, data = note
    phases = {name: time_s + added_s.get(name, 0.0) for name, time_s in data["phases"].items()}
    return kind, {**data, "phases": phases}


def after(step: int, kind: str = "", /, **added_s: float) -> list[Note]:
    """More time in phases, in all events from a step on."""
    return [
        spent(note, **added_s)
        if "phases" in note[1]
        and note[1]["step"] >= step
        and (note[1]["step"] > step or note[0] not in kind.split())
        else note
        for note in GOOD
    ]


def test_an_honest_training_passes(handmade_run: HandmadeRun) -> None:
    found = outcomes(handmade_run, GOOD)
    assert failed(found) == {}
    assert found["compilation"].evidence == (
        "3 s in 1 attempt, only in first steps and first evaluations"
    )
    assert "at most 0.91 times as long as training" in found["evaluation_times"].evidence
    assert "19 progress events, at most 2.2 s of training" in found["progress"].evidence


def test_the_first_evaluation_may_compile(handmade_run: HandmadeRun) -> None:
    assert failed(outcomes(handmade_run, after(10, "progress", compilation=200.0))) == {}


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        (after(12, "", **{"start-up": 5.0}), "job 1: 5 s in start-up after its first event"),
        (after(12, compilation=5.0), "job 1: 5 s in compilation after step 10"),
        (after(8, compilation=5.0), "job 1: 5 s in compilation after step 6"),
        (after(20, "progress", compilation=5.0), "5 s in compilation after step 20"),
        (after(2, compilation=4e3), "in compilation; at most 60 min 00 s is possible"),
        (
            [(k, {**d, "samples_compiling": 500} if "phases" in d else d) for k, d in GOOD],
            "500 samples while it compiled; the first 4 steps have 200",
        ),
        (
            [started(device="cpu", compiled=False), *GOOD[1:]],
            "3 s in compilation, but nothing was compiled",
        ),
    ],
)
def test_steps_that_are_called_compilation_are_found(
    handmade_run: HandmadeRun, notes: list[Note], words: str
) -> None:
    found = failed(outcomes(handmade_run, notes))
    assert list(found) == ["compilation"]
    assert words in found["compilation"]


def test_steps_hidden_beside_compilation_are_found(handmade_run: HandmadeRun) -> None:
    """The first event is that of step 300, most of whose time is recorded as compilation."""
    long = {"epochs": 40, "batch": 100, "ranks": 2}
    notes = []
    for kind, data in GOOD:
        if "phases" in data:
            step = data["step"] + 300
            data = {**data, "step": step, "samples": 100 * step, "epoch": step / 10}
        notes.append((kind, data))
    found = failed(outcomes(handmade_run, notes, settings={"target": 0.8, "train": long}))
    assert list(found) == ["compilation"]
    assert "302 steps in 2.2 s beside compilation, but the fastest other" in found["compilation"]


def test_training_that_is_called_evaluation_is_found(handmade_run: HandmadeRun) -> None:
    found = failed(outcomes(handmade_run, after(20, "progress", evaluation=60.0)))
    assert list(found) == ["evaluation_times"]
    words = "3 evaluations of 600 samples in all took 1 min 06 s, but training on as many 6.6 s"
    assert words in found["evaluation_times"]


def test_evaluating_faster_than_the_ceiling_is_found(handmade_run: HandmadeRun) -> None:
    quick = [
        (kind, {**data, "phases": {**data["phases"], "evaluation": 1e-9}})
        if "phases" in data
        else (kind, data)
        for kind, data in GOOD
    ]
    found = failed(outcomes(handmade_run, quick))
    assert list(found) == ["evaluation_times"]
    assert "but the measured ceiling is 400 GFLOPS" in found["evaluation_times"]


def test_hours_with_two_events_are_found(handmade_run: HandmadeRun) -> None:
    found = failed(outcomes(handmade_run, after(20, training=7200.0)))
    assert list(found) == ["progress"]
    assert "no progress event for 120 min 02 s of 120 min 33 s of training" in found["progress"]


def test_a_short_stall_is_no_fault(handmade_run: HandmadeRun) -> None:
    assert failed(outcomes(handmade_run, after(20, data=50.0))) == {}
