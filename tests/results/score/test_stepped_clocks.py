"""Wall clocks that are set during a run: durations, power and searches do not change.

Every training takes 43.5 s from its first step. The monotonic clock of node a is 100 s ahead of the
controller's, that of b 7,000 s.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.support.trained_runs import HandmadeRun, course, job
from vflops.record.formats.job import BagRecord, JobRecord
from vflops.record.formats.node import Clock, NodeRecord, node_file, telemetry_file
from vflops.record.formats.telemetry import Header, Series
from vflops.record.log import events
from vflops.record.log.telemetry_log import TelemetryWriter
from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Timeline
from vflops.results.check.clock_rules import check_clocks
from vflops.results.score.score_file import EnsembleScore
from vflops.results.score.scoring import score

WALL_S = 1.8e9
"""What right wall clocks show when the controller's monotonic clock is at 0."""
MONOTONIC_S = {"a": 100.0, "b": 7000.0}
LENGTH_S = 3 + 30 * 1.1 + 3 * 2 + 3 * 0.5
HOUR_S = 3600.0
PACKAGE = Series(
    id="package0.energy", title="", unit="J", source="test", kind="counter", part="processor"
)
Steps = Callable[[float], float]
"""By how much a wall clock is wrong, as a function of the controller's monotonic time."""


class SteppedRun:
    """An ensemble of two models on nodes a and b; wall clocks are wrong by what a test says."""

    def __init__(self, parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = HandmadeRun(parent, monkeypatch)
        self.wrong_s: dict[str, Steps] = {}
        self.compared = True
        self.alone = False
        """Whether there is a single machine, with one monotonic clock."""
        self.cloned = False
        """Whether the nodes, restored from one snapshot, have the same id of different clocks."""
        self.ended_s: float | None = None
        """When the controller sees the ends of the trainings; None as in earlier versions."""
        self.noted_s = 1060.0
        """When it records their hashes."""
        self.zero_s = {"a": WALL_S, "b": WALL_S}
        """Unix time at the zero of the controller's monotonic clock, as each node was told."""
        self.reference: dict[str, tuple[str, str | None]] = {}
        """The reference host of each node and the id of its monotonic clock, if not the usual."""
        self.suspended_s = 0.0
        self._on = "controller"
        stepped = self

        class Wall:
            """Stands for the ``datetime`` that events ask."""

            fromisoformat = datetime.fromisoformat

            @staticmethod
            def now(zone: timezone) -> datetime:
                return datetime.fromtimestamp(stepped.wall_s(), zone)

        monkeypatch.setattr(events, "datetime", Wall)
        monkeypatch.setattr(events, "monotonic_clock_id", self.clock_id)
        monkeypatch.setattr(events, "suspended_s", lambda: stepped.suspended_s)

    def clock_id(self) -> str:
        """The id of the monotonic clock of the machine that writes now."""
        return "controller" if self.alone or self.cloned else self._on

    def ahead_s(self, host: str) -> float:
        """By how much the monotonic clock of a machine is ahead of the controller's."""
        return 0.0 if self.alone else MONOTONIC_S.get(host, 0.0)

    def wall_s(self) -> float:
        """What the wall clock of the machine that writes now shows."""
        true_s = self.run.clock.now_s - self.ahead_s(self._on)
        wrong_s = self.wrong_s.get(self._on)
        return WALL_S + true_s + (wrong_s(true_s) if wrong_s else 0.0)

    def trains(self, number: int, host: str, began_s: float) -> None:
        """A training on a node that began at this time of the controller's monotonic clock."""
        own_s = began_s + self.ahead_s(host)
        self._on = host
        self.run.clock.now_s = own_s
        wrong_s = self.wall_s() - WALL_S - began_s
        head, head_clock = self.reference.get(host, ("head", "controller"))
        place = self.run.attempt(number, own_s, *course(0.4, 0.85, 0.88))
        node(
            place,
            host,
            Clock(offset_s=wrong_s, uncertainty_s=1e-3)
            if not self.compared
            else Clock(
                offset_s=wrong_s,
                uncertainty_s=1e-3,
                monotonic_offset_s=self.ahead_s(host),
                reference_clock=head_clock,
                reference_zero_s=self.zero_s[host],
            ),
            head,
        )
        self._sample(place, own_s)
        self._on = "controller"
        self.run.clock.now_s = began_s + 100

    def _sample(self, place: Path, own_s: float) -> None:
        """A meter that counts 100 W, read once a second."""
        writer = TelemetryWriter(
            telemetry_file(place, 0), Header(interval_s=1.0, series=(PACKAGE,))
        )
        for second in range(60):
            self.run.clock.now_s = own_s + second
            writer.write(own_s + second, self.wall_s(), [100.0 * second])
        writer.close()

    def scored(self) -> EnsembleScore:
        """The score of both models, in a complete run."""
        with self.run.folder.start_attempt(job=0) as log:
            log.write(
                "ensemble",
                workload="image-classification",
                repeat=0,
                planned=2,
                jobs=(1, 2),
                evaluated=200,
                sizes=[{"models": 2, "quality": 0.9}],
                took_s=1.0,
            )
            log.write("end")
        (found,) = score(Contents(self.run.folder)).ensembles
        return found

    def trained(self) -> EnsembleScore:
        """Plan and train both models, the second 2 s later, and score them."""
        self.run.clock.now_s = 990.0
        models = [
            job(
                number,
                repeat=0,
                bag=BagRecord(model=number - 1, models=2, bootstrap="none", seed=0),
            )
            for number in (1, 2)
        ]
        self.run.plan(*models)
        self.trains(1, "a", 1000.0)
        self.trains(2, "b", 1002.0)
        self._report(models)
        return self.scored()

    def _report(self, models: list[JobRecord]) -> None:
        """The controller notes the ends of the trainings, in a log of its own."""
        self.run.clock.now_s = 1005.0
        with self.run.folder.start_attempt(job=0) as log:
            log.write("start", workload="image-classification")
            if self.ended_s is not None:
                self.run.clock.now_s = self.ended_s
                for model in models:
                    log.write("job-ended", job=model.job)
            self.run.clock.now_s = self.noted_s
            for model in models:
                log.write("job-trained", job=model.job, attempt=0, sha256="0" * 64)


def node(place: Path, host: str, clock: Clock, reference: str) -> None:
    names = {"host": host, "name": host, "reference": reference}
    NodeRecord(node=0, nodes=1, clock=clock, facts=(), **names).write(node_file(place, 0))


@pytest.fixture
def stepped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SteppedRun:
    return SteppedRun(tmp_path, monkeypatch)


def after(true_s: float, step_s: float) -> Steps:
    """A clock that is set by ``step_s`` at this time."""
    return lambda now_s: step_s if now_s >= true_s else 0.0


@pytest.mark.parametrize(
    "wrong_s",
    [
        {},
        {"a": after(1020.0, HOUR_S)},
        {"a": after(1020.0, -HOUR_S)},
        {"b": after(1020.0, HOUR_S), "controller": after(1030.0, -HOUR_S / 2)},
        {"controller": after(1030.0, -HOUR_S)},
        {"controller": after(1030.0, HOUR_S)},
        {"controller": after(995.0, HOUR_S), "a": after(0.0, 5.0)},
    ],
    ids=[
        "right",
        "node ahead",
        "node back",
        "both",
        "controller back",
        "controller ahead",
        "between logs",
    ],
)
def test_a_clock_that_is_set_changes_labels_only(
    stepped: SteppedRun, wrong_s: dict[str, Steps]
) -> None:
    stepped.wrong_s = wrong_s
    found = stepped.trained()
    assert found.window_s == pytest.approx(LENGTH_S + 2.0, abs=1e-5)
    assert found.started_apart_s == pytest.approx(2.0, abs=1e-5)
    assert found.flops is not None and found.vflops is not None
    assert found.power.power_w == pytest.approx(200.0 * LENGTH_S / (LENGTH_S + 2.0))
    verdict, evidence, _ = check_clocks(Contents(stepped.run.folder))
    assert verdict == "pass", evidence
    steps = [when for when in wrong_s.values() if abs(when(1040.0) - when(1010.0)) > 60]
    assert ("a wall clock was set" in evidence) == bool(steps)
    assert ("back by 60 min 00 s" in evidence) == any(when(1040.0) < 0 for when in steps[:1])


@pytest.mark.parametrize("zero_s", [WALL_S - HOUR_S, WALL_S + HOUR_S])
def test_the_controllers_clock_is_set_between_the_starts_of_two_nodes(
    stepped: SteppedRun, zero_s: float
) -> None:
    """The first of two readings of one monotonic clock counts for both nodes."""
    stepped.zero_s["b"] = zero_s
    found = stepped.trained()
    assert found.window_s == pytest.approx(LENGTH_S + 2.0, abs=1e-5)
    members = Contents(stepped.run.folder).training_jobs
    times_s = [Timeline(members).start_s(member) for member in members]
    assert times_s == pytest.approx([WALL_S + 1004.0, WALL_S + 1006.0])


@pytest.mark.parametrize(
    "reference",
    [{"b": ("other", "controller")}, {"a": ("head", None), "b": ("other", None)}],
    ids=["another host", "no ids"],
)
def test_clocks_of_two_reference_hosts_are_not_mixed(
    stepped: SteppedRun, reference: dict[str, tuple[str, str | None]]
) -> None:
    """The monotonic clock of the second host has another zero."""
    stepped.reference = reference
    stepped.zero_s["b"] = WALL_S + 500.0
    stepped.trained()
    members = Contents(stepped.run.folder).training_jobs
    times_s = [Timeline(members).start_s(member) for member in members]
    assert times_s == pytest.approx([WALL_S + 1004.0, WALL_S + 1506.0])


SET = "set ahead by 60 min 00 s during the run, which changes no duration"
STOOD_STILL = "the node stood still for 60 min 00 s by the clock of the controller"


@pytest.mark.parametrize(
    ("ended_s", "noted_s", "verdict", "evidence"),
    [
        (None, 1060.0, "pass", SET),
        (None, 1060.0 + HOUR_S, "fail", STOOD_STILL),
        (None, 1060.0 + 2 * HOUR_S, "cannot tell", "its end was noted only 120 min"),
        (1050.0, 1060.0 + HOUR_S, "pass", SET),
        (1050.0 + HOUR_S, 1060.0 + 2 * HOUR_S, "fail", STOOD_STILL),
    ],
    ids=["set", "stood still", "noted late", "set, seen", "stood still, seen"],
)
def test_a_node_that_stood_still_is_not_one_whose_clock_was_set(
    stepped: SteppedRun, ended_s: float | None, noted_s: float, verdict: str, evidence: str
) -> None:
    """In the log of the node, both look the same; the clock of the controller tells which."""
    stepped.wrong_s = {"b": after(1020.0, HOUR_S)}
    stepped.ended_s, stepped.noted_s = ended_s, noted_s
    stepped.trained()
    found = check_clocks(Contents(stepped.run.folder))
    assert found.verdict == verdict, found.evidence
    assert evidence in found.evidence
    assert found.where is not None and "jobs/2/0/events.jsonl" in found.where


def test_a_machine_alone_cannot_tell_whether_it_stood_still(stepped: SteppedRun) -> None:
    """All logs are on one monotonic clock and have the same step."""
    stepped.alone = True
    stepped.wrong_s = {host: after(1020.0, HOUR_S) for host in ("a", "b", "controller")}
    stepped.trained()
    verdict, evidence, _ = check_clocks(Contents(stepped.run.folder))
    assert verdict == "cannot tell" and "no other clock shows which" in evidence


def test_a_second_log_on_the_machine_shows_that_it_did_not_stand_still(
    stepped: SteppedRun,
) -> None:
    stepped.alone = True
    stepped.wrong_s = {"b": after(1020.0, HOUR_S)}
    stepped.trained()
    verdict, evidence, _ = check_clocks(Contents(stepped.run.folder))
    assert verdict == "pass" and SET in evidence


def test_a_run_that_is_continued_before_its_first_part_ended_is_found(stepped: SteppedRun) -> None:
    """No log has a step, so UTC counts as well as the monotonic clock."""
    stepped.wrong_s = {"controller": after(995.0, -HOUR_S)}
    stepped.trained()
    verdict, evidence, where = check_clocks(Contents(stepped.run.folder))
    assert (verdict, evidence) == ("fail", "the attempt started before the previous one ended")
    assert where is not None and "jobs/0/1/events.jsonl" in where


def test_equal_ids_do_not_stand_for_a_comparison_of_clocks(stepped: SteppedRun) -> None:
    stepped.compared, stepped.cloned = False, True
    stepped.trained()
    verdict, evidence, _ = check_clocks(Contents(stepped.run.folder))
    assert verdict == "pass", evidence


def test_a_suspension_is_found_in_the_log(stepped: SteppedRun) -> None:
    stepped.trained()
    with stepped.run.folder.start_attempt(job=0) as log:
        log.write("start")
        stepped.suspended_s += 0.9  # the clocks are read one after the other
        log.write("load", others_share=0.0)
        stepped.suspended_s += HOUR_S
        log.write("load", others_share=0.0)
        log.write("end")
    *_, before, suspended, last = Contents(stepped.run.folder).history.jobs[0][-1].events
    assert (before.suspended_s, suspended.suspended_s, last.suspended_s) == (None, HOUR_S, None)
    verdict, evidence, where = check_clocks(Contents(stepped.run.folder))
    assert (verdict, evidence) == ("fail", "the machine was suspended for 60 min 00 s")
    assert where == suspended.source


def test_without_a_comparison_of_monotonic_clocks_a_step_is_a_fault(stepped: SteppedRun) -> None:
    stepped.compared = False
    stepped.wrong_s = {"a": after(1020.0, HOUR_S)}
    stepped.trained()
    verdict, evidence, where = check_clocks(Contents(stepped.run.folder))
    assert (verdict, evidence) == ("fail", "wall clock and monotonic clock are 3600 s apart")
    assert where is not None and "jobs/1/0/events.jsonl" in where


def test_a_clock_that_runs_at_another_speed_is_not_one_that_was_set(stepped: SteppedRun) -> None:
    """Neither in one long interval after another, nor a little at a time."""
    stepped.wrong_s = {"a": lambda true_s: 100 * (true_s - 1000.0)}
    stepped.trained()
    verdict, evidence, _ = check_clocks(Contents(stepped.run.folder))
    assert verdict == "fail" and "wall clock and monotonic clock are" in evidence


def test_a_training_outside_of_its_run_is_found_by_monotonic_clocks(stepped: SteppedRun) -> None:
    stepped.wrong_s = {"controller": after(1030.0, -HOUR_S)}
    stepped.trained()
    path = stepped.run.folder.logged_attempts(1)[0] / "node-0.json"
    path.write_text(
        path.read_text().replace('"monotonic_offset_s": 100.0', '"monotonic_offset_s": -100.0')
    )
    verdict, evidence, _ = check_clocks(Contents(stepped.run.folder))
    assert verdict == "fail" and "after its recorded end" in evidence
