"""Audits a run: draws parts of it, trains them again on this machine, and compares."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import vflops
from vflops.errors import FolderError, Interrupted, UsageError, VflopsError
from vflops.machine.system.gather import gather
from vflops.publish.evidence.verify import verify_contents
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.job_events import JobStarted
from vflops.record.installed_package import installed_package
from vflops.record.own_runs import inherit_mark
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.stack_rules import stack_fault
from vflops.results.evidence.audit_record import (
    AUDIT_FILE,
    AuditedEnsemble,
    AuditedSegment,
    AuditRecord,
    AuditVerdict,
    Odds,
    caught_probability,
)
from vflops.results.evidence.manifest import manifest_file
from vflops.studies.audit.drawing import ChosenSegment, Lot, draw
from vflops.studies.audit.judging import (
    Deviation,
    audited,
    judge_bits,
    judge_within,
    repeated_deviation,
)
from vflops.studies.audit.recombination import combined_again
from vflops.studies.audit.retraining import Progress, Retrained, Retrainer, data_here
from vflops.studies.audit.stacks import same_machine, stack_differences, start_differences
from vflops.studies.audit.trusted_spread import TrustedSpread

_SLOWER = 1.1
"""A run that claims more than this times the speed found here is not confirmed."""
_MIN_TIMED_S = 0.1
"""Shorter stretches of training are not compared."""
_REPETITIONS = 2
"""How often a part that seems too fast is trained again, to find the speed of a quiet machine."""
_ROUNDOFF = {"fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""The relative rounding error of the operands of products, by the precision of their ceiling."""
_EIGHT_BITS = 2.0**-4
_PERTURBED = (1.0, 0.5)
"""The perturbations of the repetitions that measure the tolerance, in rounding errors."""

_FORGED_SHARES = (0.01, 0.1, 0.5)
"""The shares of forged steps for which an audit says how likely it finds them."""

Show = Callable[[AuditedSegment], None]


@dataclass
class Audit:
    """The audit of one run."""

    recorded: Contents
    retrainer: Retrainer
    differences: list[str]
    """How machine and software differ from those of the run."""
    trusted: TrustedSpread | None = None
    """Parts of a trusted run; None to measure the tolerance by perturbations."""
    rows: list[AuditedSegment] = field(default_factory=list)

    def judge(self, chosen: ChosenSegment) -> AuditedSegment:
        """Train a part again and compare it with the log; what fails is not audited."""
        job = job_of(self.recorded, chosen.segment.job)
        try:
            return self._judge(job, chosen)
        except Interrupted:
            raise
        except VflopsError as error:
            return audited(job, chosen, None, "not audited", error.message)

    def _judge(self, job: TrainedJob, chosen: ChosenSegment) -> AuditedSegment:
        segment = chosen.segment
        again = self.retrainer.train(segment)
        try:
            here = again.trained.started
            is_candidate = segment.candidate is not None
            for difference in start_differences(segment.started, here, is_candidate=is_candidate):
                if difference not in self.differences:
                    self.differences.append(difference)
            if not self.differences:
                return judge_bits(job, chosen, again)
            spread = [self.trusted.measure(segment)] if self.trusted else []
            return judge_within(job, chosen, again, spread or self._spread(chosen, again, here))
        finally:
            again.delete_states()

    def repeat_fast(self, chosen: Sequence[ChosenSegment]) -> float | None:
        """Train parts again whose claimed speed was not found; keep the fastest repetition.

        Return the slowest over the fastest one, or None if every claimed speed was found.
        """
        spread = None
        for _ in range(_REPETITIONS):
            together = (_speed_ratio(self.rows) or 0.0) > _SLOWER
            for number, row in enumerate(self.rows):
                own = _ratio(row) if _is_long(row) else 0.0
                if row.seconds_here is None or not (together or own > _SLOWER):
                    continue
                job = job_of(self.recorded, row.job)
                again = self.retrainer.train(chosen[number].segment)
                repeated = audited(job, chosen[number], again, row.verdict, row.detail)
                again.delete_states()
                times = (row.seconds_here, repeated.seconds_here or row.seconds_here)
                spread = max(spread or 1.0, round(max(times) / min(times), 4))
                if min(times) < row.seconds_here:
                    faster = ("seconds_here", "samples_per_s_here")
                    update = {name: getattr(repeated, name) for name in faster}
                    self.rows[number] = row.model_copy(update=update)
        return spread

    def _spread(
        self, chosen: ChosenSegment, again: Retrained, here: JobStarted | None
    ) -> list[Deviation]:
        """Return how far repetitions from slightly different weights are apart."""
        precision = here.ceiling_precision if here is not None else None
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
    """Audit a complete, unaltered run; return the record and the path of ``audit.json``.

    ``count`` parts are drawn by fresh random numbers. ``trusted`` is a run of the same stack as
    the audited one that the auditor trusts: its repetitions here give the tolerance.
    """
    recorded = readable(run)
    nonce = os.urandom(16).hex()
    lot = draw(recorded, count, nonce)
    if not lot.parts:
        raise UsageError(
            f"{run.path} has nothing to train again: no training of it finished",
            hint="give a run with a finished training or search",
        )
    facts = data_here(recorded, data, progress)
    folder = RunFolder.create(
        parent, "audit", run.record.settings, this_machine=run.record.this_machine
    )
    inherit_mark(folder.path, run.path)  # its settings may name programs
    with folder.in_use(), folder.start_attempt(job=0) as events:
        events.write("start", workload="audit")
        system = gather(folder.path)
        system.write(folder.system_file)
        events.write("described", sha256=system.digest())
        retrainer = Retrainer(recorded, folder, events, facts)
        spread = None if trusted is None else TrustedSpread(readable(trusted), retrainer)
        examined = Audit(recorded, retrainer, stack_differences(recorded, system), spread)
        for number, chosen in enumerate(lot.chosen, start=1):
            show(f"part {number} of {len(lot.chosen)}: {_name(chosen)}")
            examined.rows.append(examined.judge(chosen))
            on_segment(examined.rows[-1])
        is_same_machine = same_machine(recorded, system)
        repeats = examined.repeat_fast(lot.chosen) if is_same_machine else None
        combined = combined_again(recorded, facts)
        events.write("end")
    rows, differences = examined.rows, tuple(examined.differences)
    told = [row for row in rows if row.verdict != "not audited"]
    drawn = sum(row.reason == "drawn" for row in told)
    verdict, detail, ratio = judge_run(
        rows,
        combined,
        same_machine=is_same_machine,
        same_stack=not differences,
        is_exact=not differences or spread is not None,
        claims=stack_fault(recorded),
    )
    manifest = manifest_file(run.path)
    record = AuditRecord(
        run=run.record.id,
        run_sha256=run.anchor,
        manifest_sha256=file_hash(manifest) if manifest.is_file() else None,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"vflops": vflops.__version__, "package": installed_package().sha256},
        nonce=nonce,
        segments_total=len(lot.parts),
        segments_drawn=drawn,
        steps_total=lot.steps,
        steps_audited=sum(row.steps for row in told),
        odds=odds(lot, drawn),
        same_stack=not differences,
        stack_differences=differences,
        trusted_run=trusted.record.id if trusted is not None and differences else None,
        segments=tuple(rows),
        ensembles=tuple(combined),
        speed_ratio=ratio,
        speed_spread=repeats,
        verdict=verdict,
        detail=detail,
    )
    path = folder.path / AUDIT_FILE
    record.write(path)
    return record, path


def odds(lot: Lot, drawn: int) -> tuple[Odds, ...]:
    """Return how likely ``drawn`` parts and those that are always audited include a forgery."""
    lengths = [part.steps for part in lot.pool]
    return tuple(
        Odds(
            forged_share=share,
            probability=caught_probability(lengths, drawn, math.ceil(share * lot.steps)),
        )
        for share in _FORGED_SHARES
    )


def job_of(contents: Contents, number: int) -> TrainedJob:
    """Return a training job or a worker by its number."""
    jobs = (*contents.training_jobs, *contents.workers)
    return next(job for job in jobs if job.record.job == number)


def readable(run: RunFolder) -> Contents:
    """Return the contents of a run that is complete and was not altered; raise otherwise.

    The record of the audit names its manifest, so every file must be the one in the manifest.
    """
    contents = Contents(run)
    if not contents.state.complete:
        raise UsageError(
            f"{run.path} is not complete: {contents.state.reason}",
            hint="audit a run that has finished",
        )
    alterations = verify_contents(contents, recomputed=()).alterations
    if alterations:
        raise FolderError(
            f"{run.path} was altered: {alterations[0]}", hint=f"see: vflops verify {run.path}"
        )
    return contents


def judge_run(
    rows: Sequence[AuditedSegment],
    combined: Sequence[AuditedEnsemble] = (),
    *,
    same_machine: bool,
    same_stack: bool = True,
    is_exact: bool = True,
    claims: str | None = None,
) -> tuple[AuditVerdict, str, float | None]:
    """Return the verdict on the whole run, a sentence, and the ratio of recorded to found speed.

    A run is only confirmed on the same stack. ``claims`` says how its files disagree about the
    stack that it ran on. Unless ``is_exact``, the tolerance was only estimated: then a part that
    differs accuses nobody.
    """
    ratio = _speed_ratio(rows) if same_machine else None
    for row in rows:
        if row.verdict == "differs":
            detail = f"{row.name}: {row.detail}"
            if is_exact:
                return "contradicted", detail, ratio
            return "not conclusive", f"{detail}; the tolerance needs a trusted run", ratio
    for ensemble in combined:
        if ensemble.agrees is False:
            detail = (
                f"the ensemble of {ensemble.workload} has the quality {ensemble.quality_here:.6g}, "
                f"but the log has {ensemble.quality_recorded:.6g}"
            )
            return "contradicted", detail, ratio
    if claims is not None:
        return "not conclusive", claims, ratio
    if ratio is not None and ratio > _SLOWER:
        detail = f"the run claims {ratio:.2f} × the speed that this machine of the same kind has"
        return "not conclusive", f"{detail}; was it quiet?", ratio
    for row in rows:
        if row.verdict == "not audited":
            return "not conclusive", f"{row.name}: {row.detail}", ratio
    for ensemble in combined:
        if ensemble.agrees is None:
            return "not conclusive", f"{ensemble.workload}: {ensemble.detail}", ratio
    untimed = _untimed(rows) if same_machine else None
    if untimed is not None:
        return "not conclusive", untimed, ratio
    if same_stack and all(row.verdict == "same bits" for row in rows):
        return "confirmed", f"all {len(rows)} parts agree bit by bit", ratio
    detail = f"all {len(rows)} parts agree within the tolerance of another stack"
    return "consistent", detail, ratio


def _speed_ratio(rows: Sequence[AuditedSegment]) -> float | None:
    """Return the time that steps took here over the time that the log claims for them.

    Drawn parts are judged alone if they were timed: a forger knows which others are audited. Each
    part that is long enough is also judged by itself.
    """
    single = [_ratio(row) for row in rows if _is_long(row)]
    timed = [row for row in rows if row.samples_per_s_recorded and row.samples_per_s_here]
    timed = [row for row in timed if row.reason == "drawn"] or timed
    if not timed:
        return None
    here_s = sum((row.last - row.first) / (row.samples_per_s_here or 1.0) for row in timed)
    recorded_s = sum((row.last - row.first) / (row.samples_per_s_recorded or 1.0) for row in timed)
    return round(max(here_s / recorded_s, *single, 0.0), 4)


def _ratio(row: AuditedSegment) -> float:
    """Return the recorded over the found speed of a part."""
    return (row.samples_per_s_recorded or 0.0) / (row.samples_per_s_here or math.inf)


def _is_long(row: AuditedSegment) -> bool:
    """Whether the steps of a part take long enough here to compare their time."""
    return row.seconds_here is not None and row.seconds_here >= _MIN_TIMED_S


def _untimed(rows: Sequence[AuditedSegment]) -> str | None:
    """Return why the speed of a run is not known after its audit; None if it is."""
    for row in rows:
        if row.first < row.last and row.samples_per_s_recorded is None:
            return f"{row.name}: the log does not say how long its steps took"
    seconds = sum(row.seconds_here or 0.0 for row in rows)
    if seconds < _MIN_TIMED_S:
        return f"{seconds:.3f} s of training are too short to compare speeds"
    return None


def _name(chosen: ChosenSegment) -> str:
    segment = chosen.segment
    if segment.candidate is not None:
        return f"candidate {segment.candidate.name} ({chosen.reason})"
    if not segment.steps:
        return f"job {segment.job}, the trained model ({chosen.reason})"
    return f"job {segment.job}, steps {segment.first:,} to {segment.last:,} ({chosen.reason})"
