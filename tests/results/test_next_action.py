"""The command that a run suggests next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.trained_runs import WORKLOAD
from vflops.cli import options
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.advice import advice, whole_nodes
from vflops.results.check.findings import Finding, Findings
from vflops.results.command_line import command
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


@pytest.fixture
def real_folder(tmp_path: Path) -> RunFolder:
    """A folder with settings that a command line gives."""
    settings = options.settings("tiny", None, None, [], workloads=WORKLOAD)
    return RunFolder.create(tmp_path / "real", WORKLOAD, settings)


def test_a_busy_machine_is_a_reason_to_run_the_same_again(
    trained_folder: RunFolder, real_folder: RunFolder
) -> None:
    scored = score(Contents(trained_folder)).model_copy(update={"complete": True})
    action = next_action(real_folder, scored, found("quiet"), run="runs/a")
    assert action.command == f"vflops run {WORKLOAD} --profile tiny --wait-quiet"
    assert action.purpose == "run it again once the machine is idle"


def test_a_program_that_the_run_names_is_never_suggested(
    trained_folder: RunFolder, real_folder: RunFolder
) -> None:
    """Reports are read by others than the author."""
    given = ["launch.on=slurm", "launch.container=docker://evil"]
    settings = options.settings("tiny", None, None, given, workloads=WORKLOAD)
    folder = RunFolder.create(real_folder.path.parent, WORKLOAD, settings)
    scored = score(Contents(trained_folder)).model_copy(update={"complete": True})
    assert "evil" in (command(folder.record) or "")
    for failed in ((), ("quiet",), ("valid",)):
        action = next_action(folder, scored, found(*failed), run="runs/a")
        assert action.command in ("vflops archive runs/a", "vflops check runs/a")


@pytest.mark.parametrize("on", ["slurm", "pbs"])
def test_a_run_on_busy_nodes_is_not_told_to_wait_for_this_machine(
    trained_folder: RunFolder, tmp_path: Path, on: str
) -> None:
    given = [f"launch.on={on}"]
    settings = options.settings("tiny", None, None, given, workloads=WORKLOAD)
    folder = RunFolder.create(tmp_path / "nodes", WORKLOAD, settings)
    scored = score(Contents(trained_folder)).model_copy(update={"complete": True})
    action = next_action(folder, scored, found("quiet"), run="runs/a")
    assert "--wait-quiet" not in action.command + advice("quiet", folder.record)
    assert action.command.startswith(f"vflops run {WORKLOAD} --profile tiny")
    assert ("--exclusive" in action.purpose) == (on == "slurm")  # an option of sbatch
    assert whole_nodes(on) in action.purpose
    assert advice("quiet", folder.record) == f"{whole_nodes(on)}, and run it again"
    assert advice("chain", folder.record) == advice("chain", trained_folder.record)


@pytest.mark.parametrize(
    ("task", "purpose"),
    [
        ("closed", "train longer (an open task: not comparable): the target was not reached"),
        ("open", "train longer: the target was not reached"),
    ],
)
def test_a_missed_target_asks_for_twice_the_epochs(
    trained_folder: RunFolder, real_folder: RunFolder, task: str, purpose: str
) -> None:
    scored = score(Contents(trained_folder))
    first = scored.trainings[0]
    quality = first.quality.model_copy(update={"time_to_quality_s": None})
    missed = first.model_copy(update={"quality": quality, "epochs": 3.0, "task": task})
    scored = scored.model_copy(update={"complete": True, "trainings": (missed,)})
    action = next_action(real_folder, scored, found(), run="runs/a")
    assert action.purpose == purpose
    assert action.command == f"vflops run {WORKLOAD} --profile tiny --set train.epochs=6"
