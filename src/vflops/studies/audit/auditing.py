"""Audits a run: draws parts of it, trains them again on this machine, and compares."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import vflops
from vflops.errors import FolderError, UsageError
from vflops.machine.system.gather import gather
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.job_events import JobStarted
from vflops.record.formats.system import SystemRecord
from vflops.record.installed_package import installed_package
from vflops.record.own_runs import inherit_mark
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.evidence.audit_record import (
    AUDIT_FILE,
    AuditedEnsemble,
    AuditedSegment,
    AuditRecord,
    AuditVerdict,
)
from vflops.results.evidence.manifest import manifest_file
from vflops.studies.audit.drawing import ChosenSegment, draw
from vflops.studies.audit.judging import (
    Deviation,
    audited,
    deviation,
    judge_bits,
    judge_within,
    repeated_deviation,
)
from vflops.studies.audit.recombination import combined_again
from vflops.studies.audit.retraining import (
    CannotRetrain,
    Progress,
    Retrained,
    Retrainer,
    data_here,
)
from vflops.studies.reproduce.reproduce import software_differences

_SLOWER = 1.1
"""A run that claims more than this times the speed found here is not confirmed."""
_ROUNDOFF = {"fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""The relative rounding error of the operands of products, by the precision of their ceiling."""
_EIGHT_BITS = 2.0**-4
_PERTURBED = (1.0, 0.5)
"""The perturbations of the repetitions that measure the tolerance, in rounding errors."""

Show = Callable[[AuditedSegment], None]


@dataclass
class Audit:
    """The audit of one run, written to ``folder``."""

    recorded: Contents
    folder: RunFolder
    retrainer: Retrainer
    differences: tuple[str, ...]
    """How machine and software differ from those of the run."""
    trusted: Sequence[Deviation] | None = None
    """How far repetitions of a trusted run are from it; None to measure by perturbations."""

    def judge(self, chosen: ChosenSegment) -> AuditedSegment:
        """Train a part again and compare it with the log."""
        job = job_of(self.recorded, chosen.segment.job)
        try:
            again = self.retrainer.train(chosen.segment)
        except CannotRetrain as error:
            return audited(job, chosen, None, "cannot tell", error.message)
        try:
            if self._must_be_equal(job, again.trained.started):
                return judge_bits(job, chosen, again)
            spread = self.trusted
            if spread is None:
                spread = self._spread(chosen, again)
            return judge_within(job, chosen, again, spread)
        finally:
            again.delete_states()

    def _must_be_equal(self, job: TrainedJob, here: JobStarted | None) -> bool:
        then = job.started
        if then is None or here is None or self.differences:
            return False
        return then.threads == here.threads

    def _spread(self, chosen: ChosenSegment, again: Retrained) -> list[Deviation]:
        """Return how far repetitions from slightly different weights are apart."""
        job = job_of(self.recorded, chosen.segment.job)
        precision = job.started.ceiling_precision if job.started else None
        roundoff = _ROUNDOFF.get(precision or "fp32", _EIGHT_BITS)
        spread = []
        for size in _PERTURBED:
            repeated = self.retrainer.train(chosen.segment, roundoff * size)
            spread.append(repeated_deviation(again, repeated, chosen.segment))
            repeated.delete_states()
        return spread


def audit(
    run: RunFolder,
    parent: Path,
    *,
    count: int,
    data: Path | None = None,
    trusted: RunFolder | None = None,
    progress: Progress = lambda what, done, total: None,
    show: Callable[[str], None] = lambda text: None,
    on_segment: Show = lambda segment: None,
) -> tuple[AuditRecord, Path]:
    """Audit a complete run; return the record and the path of ``audit.json``.

    ``count`` parts are drawn by fresh random numbers. ``trusted`` is a run of the same stack as
    the audited one that the auditor trusts: its repetitions here give the tolerance.
    """
    recorded = _readable(run)
    nonce = os.urandom(16).hex()
    lot = draw(recorded, count, nonce)
    if not lot.pool:
        raise UsageError(
            f"{run.path} has nothing to train again: no training of it finished",
            hint="give a run with a finished training or search",
        )
    facts = data_here(recorded, data, progress)
    folder = RunFolder.create(parent, "audit", run.record.settings)
    inherit_mark(folder.path, run.path)  # its settings may name programs
    with folder.in_use(), folder.start_attempt(job=0) as events:
        events.write("start", workload="audit")
        system = gather(folder.path)
        system.write(folder.system_file)
        events.write("described", sha256=system.digest())
        differences = tuple(_stack_differences(recorded, system))
        retrainer = Retrainer(recorded, folder, events, facts)
        spread = None
        if trusted is not None and differences:
            show(f"training parts of {trusted.record.id} again, to measure the tolerance")
            spread = _trusted_spread(trusted, retrainer, count)
        examined = Audit(recorded, folder, retrainer, differences, spread)
        rows: list[AuditedSegment] = []
        for number, chosen in enumerate(lot.chosen, start=1):
            show(f"part {number} of {len(lot.chosen)}: {_name(chosen)}")
            rows.append(examined.judge(chosen))
            on_segment(rows[-1])
        combined = combined_again(recorded, facts)
        events.write("end")
    verdict, detail, ratio = _verdict(rows, combined, same_machine=_same_machine(recorded, system))
    manifest = manifest_file(run.path)
    record = AuditRecord(
        run=run.record.id,
        run_sha256=run.anchor,
        manifest_sha256=file_hash(manifest) if manifest.is_file() else None,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"vflops": vflops.__version__, "package": installed_package().sha256},
        nonce=nonce,
        segments_total=len(lot.pool),
        segments_drawn=lot.drawn,
        steps_total=sum(segment.steps for segment in lot.pool),
        steps_audited=sum(row.last - row.first for row in rows),
        same_stack=not differences,
        stack_differences=differences,
        trusted_run=trusted.record.id if spread is not None and trusted else None,
        segments=tuple(rows),
        ensembles=tuple(combined),
        speed_ratio=ratio,
        verdict=verdict,
        detail=detail,
    )
    path = folder.path / AUDIT_FILE
    record.write(path)
    return record, path


def job_of(contents: Contents, number: int) -> TrainedJob:
    """Return a training job or a worker by its number."""
    jobs = (*contents.training_jobs, *contents.workers)
    return next(job for job in jobs if job.record.job == number)


def _readable(run: RunFolder) -> Contents:
    contents = Contents(run)
    if not contents.state.complete:
        raise UsageError(
            f"{run.path} is not complete: {contents.state.reason}",
            hint="audit a run that has finished",
        )
    faults = [fault for log in contents.history.logs for fault in log.faults]
    if faults:
        raise FolderError(
            f"{run.path} was altered: {faults[0]}", hint=f"see: vflops verify {run.path}"
        )
    return contents


def _name(chosen: ChosenSegment) -> str:
    segment = chosen.segment
    if segment.candidate is not None:
        return f"candidate {segment.candidate.candidate} ({chosen.reason})"
    if not segment.steps:
        return f"job {segment.job}, the trained model ({chosen.reason})"
    return f"job {segment.job}, steps {segment.first:,} to {segment.last:,} ({chosen.reason})"


def _stack_differences(recorded: Contents, here: SystemRecord) -> list[str]:
    """Return how machine and software differ from those of the run; empty if they do not."""
    folder = recorded.folder
    if not folder.system_file.is_file():
        return ["the system of the run is not described"]
    then = SystemRecord.read(folder.system_file)
    differences = []
    if then.machine != here.machine:
        differences.append(
            f"machine: {', '.join(then.machine)} then, {', '.join(here.machine)} here"
        )
    differences += [
        f"{row.name}: {row.recorded or 'none'} then, {row.here or 'none'} here"
        for row in software_differences(then, here)
    ]
    jobs = (*recorded.training_jobs, *recorded.workers)
    if not all(job.started is not None and job.started.deterministic for job in jobs):
        differences.append("the training was not deterministic (train.deterministic=true)")
    package, installed = folder.record.package, installed_package()
    if package is None or package.sha256 != installed.sha256:
        differences.append("vflops: another version or changed code")
    return differences


def _same_machine(recorded: Contents, here: SystemRecord) -> bool:
    path = recorded.folder.system_file
    return path.is_file() and SystemRecord.read(path).machine == here.machine


def _trusted_spread(trusted: RunFolder, retrainer: Retrainer, count: int) -> list[Deviation]:
    """Return how far parts of a trusted run are from their repetition here."""
    contents = _readable(trusted)
    lot = draw(contents, count, os.urandom(16).hex())
    facts = data_here(contents, None, lambda what, done, total: None)
    other = Retrainer(contents, retrainer.folder, retrainer.events, facts)
    spread = []
    for chosen in lot.chosen:
        again = other.train(chosen.segment)
        spread.append(deviation(job_of(contents, chosen.segment.job), chosen.segment, again))
        again.delete_states()
    return spread


def _verdict(
    rows: Sequence[AuditedSegment],
    combined: Sequence[AuditedEnsemble] = (),
    *,
    same_machine: bool,
) -> tuple[AuditVerdict, str, float | None]:
    """Return the verdict on the whole run, a sentence, and the ratio of recorded to found speed."""
    ratios = [
        row.samples_per_s_recorded / row.samples_per_s_here
        for row in rows
        if row.samples_per_s_recorded and row.samples_per_s_here
    ]
    ratio = round(median(ratios), 4) if ratios and same_machine else None
    for row in rows:
        if row.verdict == "differs":
            return "contradicted", f"{row.name}: {row.detail}", ratio
    for ensemble in combined:
        if ensemble.agrees is False:
            detail = (
                f"the ensemble of {ensemble.workload} has the quality {ensemble.quality_here:.6g}, "
                f"but the log has {ensemble.quality_recorded:.6g}"
            )
            return "contradicted", detail, ratio
    if ratio is not None and ratio > _SLOWER:
        detail = f"the run claims {ratio:.2f} × the speed that this machine of the same kind has"
        return "not conclusive", detail, ratio
    for row in rows:
        if row.verdict == "cannot tell":
            return "not conclusive", f"{row.name}: {row.detail}", ratio
    for ensemble in combined:
        if ensemble.agrees is None:
            return "not conclusive", f"{ensemble.workload}: {ensemble.detail}", ratio
    how = "bit by bit" if all(r.verdict == "same bits" for r in rows) else "within tolerance"
    return "confirmed", f"all {len(rows)} parts agree {how}", ratio
