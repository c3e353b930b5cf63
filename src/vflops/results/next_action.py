"""The most useful command after a run: repair it, run it again, train longer, or publish it."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from vflops.config.named_programs import named_programs
from vflops.errors import VflopsError
from vflops.record.folder import RunFolder, RunRecord
from vflops.record.formats.job import JobRecord
from vflops.results.check.advice import whole_nodes
from vflops.results.check.easy_target import easy_target
from vflops.results.check.findings import Findings
from vflops.results.command_line import command, command_of_rehearsed, command_with
from vflops.results.score.score_file import Score, TrainingScore
from vflops.workloads.contract.profile_batch import batch_fault
from vflops.workloads.contract.registry import workload

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
        return _for_failure(folder, score, findings, run)
    longer = None if _names_programs(folder) else train_longer(folder, score)
    if longer is not None:
        return longer
    if not score.trainings and can_replay(folder, score):
        return NextAction(f"vflops replay {run}", "train the same candidates as fixed work")
    if folder.record.workload == "micro":
        return NextAction(f"vflops roofline {run}", "show what limits a model here")
    return NextAction(f"vflops archive {run}", "pack the run as evidence that others can check")


def _after_rehearsal(folder: RunFolder, run: str) -> NextAction:
    """Return the command of the real run, with a batch that suits its ranks."""
    record, purpose = folder.record, "the real run, on as many accelerators as it has ranks"
    batches = list(_suitable_batches(folder)) if not _names_programs(folder) else []
    line = None if _names_programs(folder) else command_of_rehearsed(record, batches)
    if line is None:
        return NextAction(f"vflops report {run}", "see the rehearsal")
    if batches:
        purpose += "; with a batch of its own, an open task"
    return NextAction(line, purpose)


def _suitable_batches(folder: RunFolder) -> Iterator[str]:
    """Yield settings of a batch for workloads whose profile has too small a batch for the ranks."""
    settings = folder.record.settings
    jobs = (JobRecord.read(folder.job_file(number)) for number in folder.history().jobs if number)
    for job in {job.workload: job for job in jobs}.values():
        try:
            spec = workload(job.workload)
            train = job.settings_as(spec.settings).train
        except VflopsError:
            continue
        fault = batch_fault(settings.profile, spec, train, job.data.train)
        if fault is not None and fault.suitable is not None:
            yield f"{job.workload}.train.batch={fault.suitable}"


def _for_failure(folder: RunFolder, score: Score, findings: Findings, run: str) -> NextAction:
    for finding in findings.failures:
        if finding.rule in _REPAIRS:
            name, purpose = _REPAIRS[finding.rule]
            return NextAction(f"vflops {name} {run}", purpose)
    if any(finding.rule == "goal" for finding in findings.failures):
        harder = closer_target(folder, score)
        if harder is not None:
            return harder
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


def closer_target(folder: RunFolder, score: Score) -> NextAction | None:
    """Return the command with a target close to what training reached, if one is far too easy.

    None also if no command line gives these settings.
    """
    if score.rehearsal or _names_programs(folder):
        return None
    for training in score.trainings:
        achieved = training.quality.achieved
        if training.task != "open" or achieved is None:
            continue
        try:
            goal = JobRecord.read(folder.job_file(training.job)).goal
        except VflopsError:  # another rule reports it
            continue
        easy = easy_target(goal, achieved)
        if easy is None:
            continue
        line = command_with(folder.record, training.workload, f"target={easy.closer}")
        if line is not None:
            return NextAction(line, "run it again with a target close to what training reaches")
    return None


def train_longer(folder: RunFolder, score: Score) -> NextAction | None:
    """Return the command to train for twice the epochs, if a training job missed its target.

    None also if no command line gives these settings.
    """
    missed = None if score.rehearsal else _missed_training(score)
    if missed is None:
        return None
    epochs = f"train.epochs={2 * ceil(missed.epochs)}"
    command_line = command_with(folder.record, missed.workload, epochs)
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
