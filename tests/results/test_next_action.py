"""The command that a run suggests next."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.trained_runs import HandmadeRun, course, job
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Finding, Findings
from vflops.results.next_action import NextAction, next_action
from vflops.results.score.scoring import score


def found(*failed: str) -> Findings:
    findings = tuple(Finding(rule=rule, title="", verdict="fail", evidence="") for rule in failed)
    return Findings(run="x", rule_set="practice", rule_set_version=1, findings=findings)


def suggested(folder: RunFolder, *failed: str, complete: bool = True, **facts: Any) -> NextAction:
    scored = score(Contents(folder)).model_copy(update={"complete": complete})
    return next_action(folder, scored, found(*failed), run="runs/a", **facts)


@pytest.mark.parametrize(
    ("failed", "facts", "command"),
    [
        ((), {"in_progress": True, "complete": False}, "vflops report runs/a"),
        (("quiet",), {"complete": False}, "vflops resume runs/a"),
        (("chain", "quiet"), {}, "vflops verify runs/a"),
        (("score",), {}, "vflops score runs/a"),
        ((), {}, "vflops archive runs/a"),
    ],
)
def test_what_is_wrong_decides(
    trained_folder: RunFolder, failed: tuple[str, ...], facts: dict[str, Any], command: str
) -> None:
    assert suggested(trained_folder, *failed, **facts).command == command


def test_a_busy_machine_is_a_reason_to_run_the_same_again(run_folder: RunFolder) -> None:
    action = suggested(run_folder, "quiet")
    assert action.command.startswith("vflops run --profile tiny")
    assert action.purpose == "run it again when the machine is idle"


def test_a_missed_target_asks_for_twice_the_epochs(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job())
    handmade_run.attempt(1, 0.0, *course(0.4, 0.5))
    action = suggested(handmade_run.folder)
    assert action.purpose == "train longer: the target was not reached"
    assert "epochs=4" in action.command
