"""Each rule of trainings, with a run that breaks just it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.sample_parts import MEASUREMENTS
from tests.support.trained_runs import (
    WORKLOAD,
    HandmadeRun,
    Note,
    averaged,
    committed,
    course,
    evaluated,
    finished,
    job,
    progress,
    started,
    write_telemetry,
)
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.log.events import EventWriter
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.paper_rules import PaperRules
from vflops.results.check.published_figures import HPCAI500_V2
from vflops.results.score.scoring import score
from vflops.run import pipeline
from vflops.units import quantity

GOOD = course(0.4, 0.85, 0.88)


def judged(folder: RunFolder) -> dict[str, str]:
    """The rules that are not met, with their evidence."""
    score(Contents(folder)).write(folder.score_file)
    findings = check(Contents(folder)).findings
    return {finding.rule: finding.text for finding in findings if finding.failed}


def run_with(run: HandmadeRun, notes: list[Note]) -> RunFolder:
    run.plan(job(1), ceilings=MEASUREMENTS)
    run.attempt(1, 1000.0, *notes)
    run.end()
    return run.folder


def test_a_good_training_meets_every_rule(handmade_run: HandmadeRun) -> None:
    assert judged(run_with(handmade_run, GOOD)) == {}


def test_a_run_without_trainings_is_not_judged_by_these_rules(run_folder: RunFolder) -> None:
    score(Contents(run_folder)).write(run_folder.score_file)
    verdicts = {f.rule: f.verdict for f in check(Contents(run_folder)).findings}
    of_time = ("trained", "powered", "processed", "timed", "evaluated", "twins", "telemetry")
    of_jobs = ("jobs", "seeds", "data", "synthetic", "as-told", "goal", "operations")
    assert {verdicts[rule] for rule in (*of_time, *of_jobs)} == {"not applicable"}


def changed(notes: list[Note], kind: str, **facts: object) -> list[Note]:
    """``notes`` with other data in the last event of a kind."""
    last = max(index for index, note in enumerate(notes) if note[0] == kind)
    data = {**notes[last][1], **facts}
    return [*notes[:last], (kind, data), *notes[last + 1 :]]


def stood(step: int) -> list[Note]:
    """``GOOD``, ended after another step."""
    facts = {"step": step, "samples": 100 * step, "epoch": step / 10}
    return changed(changed(GOOD, "finished", **facts), "evaluation", **facts)


@pytest.mark.parametrize(
    ("rule", "notes", "evidence"),
    [
        ("processed", stood(29), "2,900 samples are not 3 epochs"),
        ("processed", stood(31), "3,100 samples are not 3 epochs"),
        ("evaluated", changed(GOOD, "evaluation", evaluated=100), "used 100 of 200 samples"),
        (
            "evaluated",
            [started(), progress(2, 1.0), finished(30, evaluations=0), ("end", {})],
            "never evaluated",
        ),
    ],
)
def test_a_training_that_does_not_add_up_breaks_its_rule(
    handmade_run: HandmadeRun, rule: str, notes: list[Note], evidence: str
) -> None:
    found = judged(run_with(handmade_run, notes))
    assert list(found) == [rule]
    assert evidence in found[rule]


def test_phases_that_the_clock_does_not_bear_out_are_found(handmade_run: HandmadeRun) -> None:
    run = handmade_run
    run.plan(job(1), ceilings=MEASUREMENTS)
    # The clock is moved after each note: a second more than its phases say.
    original: Callable[[], float] = run.clock.monotonic
    ticks = iter(range(1000))
    run.clock.monotonic = lambda: original() + next(ticks)  # type: ignore[method-assign]
    run.attempt(1, 1000.0, *GOOD)
    run.clock.monotonic = original  # type: ignore[method-assign]
    run.end()
    found = judged(run.folder)
    assert list(found) == ["timed"]
    assert "the time does not add up" in found["timed"]


@pytest.mark.parametrize("late", ["finished", "evaluation"])
def test_seconds_that_belong_to_no_phase_are_found(
    handmade_run: HandmadeRun, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = handmade_run
    run.plan(job(1), ceilings=MEASUREMENTS)
    monotonic, write = run.clock.monotonic, EventWriter.write
    delays: list[float] = []

    def write_late(events: EventWriter, kind: str, **data: Any) -> None:
        if kind == late and not delays:
            delays.append(5.0)
        write(events, kind, **data)

    monkeypatch.setattr(run.clock, "monotonic", lambda: monotonic() + sum(delays))
    monkeypatch.setattr(EventWriter, "write", write_late)
    run.attempt(1, 1000.0, *GOOD)
    run.end()
    assert list(judged(run.folder)) == ["timed"]


def test_a_job_that_was_changed_after_it_was_planned_is_found(handmade_run: HandmadeRun) -> None:
    folder = run_with(handmade_run, GOOD)
    path = folder.job_file(1)
    path.write_text(path.read_text().replace('"path": "/data"', '"path": "/other"'))
    found = judged(folder)
    assert list(found) == ["trained"]
    assert "job 1 was changed since it was planned" in found["trained"]


def test_a_log_that_was_exchanged_after_the_job_ended_is_found(handmade_run: HandmadeRun) -> None:
    """A whole new chain is in order by itself: only the pin gives it away."""
    folder = run_with(handmade_run, GOOD)
    log = folder.attempt_folder(1, 0) / "events.jsonl"
    log.unlink()
    handmade_run.clock.now_s = 1000.0
    with folder.log(1, 0) as events:
        *notes, end = changed(GOOD, "evaluation", quality=0.91)
        state = ("commitment", committed(1))
        for kind, data in (*notes, *averaged(dict(notes)), state, end):
            if "phases" in data:
                handmade_run.clock.now_s = 1000 + sum(data["phases"].values())
            events.write(kind, **data)
    found = judged(folder)
    assert list(found) == ["trained"]
    assert "the log was changed since job 1 finished" in found["trained"]


def test_telemetry_that_was_changed_or_removed_is_found(handmade_run: HandmadeRun) -> None:
    run = handmade_run
    run.plan(job(1), ceilings=MEASUREMENTS)
    place = run.attempt(1, 1000.0, *GOOD)
    write_telemetry(place, 1000.0, 50)
    run.end()
    assert judged(run.folder) == {}
    telemetry = place / "telemetry.jsonl"
    whole = telemetry.read_text()
    telemetry.write_text(whole.replace("300.0", "3.0"))
    assert list(judged(run.folder)) == ["trained"]
    telemetry.unlink()
    assert "the telemetry was changed since the job finished" in judged(run.folder)["trained"]


def test_a_power_log_that_was_not_imported_is_found(
    handmade_run: HandmadeRun, tmp_path: Path
) -> None:
    folder = run_with(handmade_run, GOOD)
    utc = folder.history().jobs[1][0].events[0].utc_s
    lines = [f"{utc + second},{500 + second}" for second in range(-5, 60)]
    (tmp_path / "pdu.csv").write_text("\n".join(["time,power_w", *lines]))
    kept = pipeline.import_power(folder, tmp_path / "pdu.csv")
    assert judged(folder) == {}
    forged = kept.with_name("imported-2.jsonl")
    forged.write_text(kept.read_text())
    assert list(judged(folder)) == ["powered"]
    forged.unlink()
    kept.write_text(kept.read_text().replace("500", "5"))
    assert "the power log was changed since it was imported" in judged(folder)["powered"]


def test_a_power_log_of_another_time_is_refused(handmade_run: HandmadeRun, tmp_path: Path) -> None:
    folder = run_with(handmade_run, GOOD)
    (tmp_path / "old.csv").write_text("time,power_w\n1577836800,500\n1577836801,501\n")
    with pytest.raises(UsageError, match=r"covers 2020-01-01.*, but"):
        pipeline.import_power(folder, tmp_path / "old.csv")
    assert not (folder.path / "telemetry").exists()


def test_a_job_that_did_not_end_is_found(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job(1), job(2), ceilings=MEASUREMENTS)
    handmade_run.attempt(1, 1000.0, *GOOD)
    handmade_run.end()
    found = judged(handmade_run.folder)
    assert list(found) == ["trained"]
    assert "job 2 did not finish" in found["trained"]


def test_a_run_that_stops_at_its_target_needs_no_more_epochs(handmade_run: HandmadeRun) -> None:
    notes = changed(course(0.4, 0.85), "finished", reason="target")
    assert judged(run_with(handmade_run, notes)) == {}


def test_evaluations_may_be_fewer_than_epochs(handmade_run: HandmadeRun) -> None:
    notes: list[Note] = [
        started(),
        progress(10, 1.0),
        evaluated(30, 0.9, evaluations=1),
        finished(30, evaluations=1),
        ("end", {}),
    ]
    assert judged(run_with(handmade_run, notes)) == {}


def test_the_seed_of_a_single_training_is_named(handmade_run: HandmadeRun) -> None:
    findings = check(Contents(run_with(handmade_run, GOOD))).findings
    assert [f.evidence for f in findings if f.rule == "seeds"] == ["1 job, seed 1"]


def test_the_rule_of_the_papers_target_reports_vflops_as_published(
    handmade_run: HandmadeRun,
) -> None:
    goal = {"quality": "top-1 accuracy", "better": "higher", "target": 0.763, "exponent": 5}
    handmade_run.plan(job(goal=goal))
    handmade_run.attempt(1, 0.0, *course(0.4, 0.9))
    contents = Contents(handmade_run.folder)
    (training,) = score(contents).trainings
    assert training.speed is not None and (training.speed.vflops or 0) > training.speed.flops
    published = f"VFLOPS as published: {WORKLOAD} {quantity(training.speed.vflops, 'VFLOPS')}"
    outcome = PaperRules(HPCAI500_V2).check_target(contents)
    goal_text = f"{WORKLOAD}: top-1 accuracy 0.763, exponent 5"
    assert (outcome.verdict, outcome.evidence) == ("pass", f"{goal_text}; {published}")
