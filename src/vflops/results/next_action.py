"""The most useful command after a run: repair it, run it again, train longer, or publish it."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from vflops.config.named_programs import named_programs
from vflops.record.folder import RunFolder, RunRecord
from vflops.results.check.advice import whole_nodes
from vflops.results.check.findings import Findings
from vflops.results.command_line import command, command_for_epochs
from vflops.results.score.score_file import Score, TrainingScore

_REPAIRS = {
    "score": ("score", "renew the score"),
    "operations": ("score", "renew the score"),
    **dict.fromkeys(
        ("schema", "chain", "manifest", "recounted", "trained", "powered", "ledger"),
        ("verify", "see which files were altered"),
    ),
}
"""The command for rules that are repaired without running again, and what it does."""


class NextAction(NamedTuple):
    """A command line, and what it is for."""

    command: str
    purpose: str


def next_action(
    folder: RunFolder, score: Score, findings: Findings, *, run: str, in_progress: bool = False
) -> NextAction:
    """Return the next command; ``run`` is the path of the run folder, quoted for a shell.

    Reports are read by others, so the command never contains a program that the run names.
    """
    if in_progress:
        return NextAction(f"vflops report {run}", "renew this report while the run goes on")
    if not score.complete:
        return NextAction(f"vflops resume {run}", "finish the run")
    if score.rehearsal:
        return _after_rehearsal(folder, run)
    if not findings.passed:
        return _for_failure(folder, findings, run)
    longer = None if _names_programs(folder) else train_longer(folder, score)
    if longer is not None:
        return longer
    if not score.trainings and can_replay(folder, score):
        return NextAction(f"vflops replay {run}", "train the same candidates as fixed work")
    if folder.record.workload == "micro":
        return NextAction(f"vflops roofline {run}", "show what limits a model here")
    return NextAction(f"vflops archive {run}", "pack the run as evidence that others can check")


def _after_rehearsal(folder: RunFolder, run: str) -> NextAction:
    """Return the command of the real run."""
    launch = folder.record.settings.launch
    line = None if _names_programs(folder) else command(folder.record)
    if line is None:
        return NextAction(f"vflops report {run}", "see the rehearsal")
    real = line.replace(" --set launch.rehearse=true", "")
    if folder.record.on_this_machine and (launch.nodes or 1) > 1:
        real += " --on slurm"
    return NextAction(real, "the real run, on as many accelerators as it has ranks")


def _for_failure(folder: RunFolder, findings: Findings, run: str) -> NextAction:
    for finding in findings.failures:
        if finding.rule in _REPAIRS:
            name, purpose = _REPAIRS[finding.rule]
            return NextAction(f"vflops {name} {run}", purpose)
    again = None if _names_programs(folder) else command(folder.record)
    if again is None:
        return NextAction(f"vflops check {run}", "see the evidence of every rule")
    if any(finding.rule == "quiet" for finding in findings.failures):
        return _run_quietly(again, folder.record)
    return NextAction(again, "run it again after the remedy above")


def _names_programs(folder: RunFolder) -> bool:
    return any(True for _ in named_programs(folder.record.settings))


def _run_quietly(again: str, run: RunRecord) -> NextAction:
    if run.on_this_machine:
        return NextAction(f"{again} --wait-quiet", "run it again once the machine is idle")
    cure = whole_nodes(run.settings.launch.on)
    return NextAction(again, f"run it again without other jobs on its nodes ({cure})")


def train_longer(folder: RunFolder, score: Score) -> NextAction | None:
    """Return the command to train for twice the epochs, if a training job missed its target.

    None also if no command line gives these settings.
    """
    missed = None if score.rehearsal else _missed_training(score)
    if missed is None:
        return None
    command_line = command_for_epochs(folder.record, missed.workload, 2 * ceil(missed.epochs))
    opens = " (an open task: not comparable)" if missed.task == "closed" else ""
    purpose = f"train longer{opens}: the target was not reached"
    return None if command_line is None else NextAction(command_line, purpose)


def _missed_training(score: Score) -> TrainingScore | None:
    """Return a training run outside ensembles that finished without reaching its target."""
    finished = (t for t in score.trainings if t.complete and t.model is None)
    return next((t for t in finished if t.quality.time_to_quality_s is None), None)


def can_replay(folder: RunFolder, score: Score) -> bool:
    """Whether the run holds a search that can be replayed."""
    ledger = (folder.path / "ledger.json").is_file()
    trained = (s for s in score.searches if any(c.state == "trained" for c in s.candidates))
    return ledger and any(not search.replay for search in trained)
