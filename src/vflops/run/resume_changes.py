"""Changes to the settings of a resumed run: how ranks share a model, and who computes it."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.config.flatten import differences
from vflops.config.parallel import ParallelSettings
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobPlanned, JobRearranged
from vflops.run import validate
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import load, workload_settings
from vflops.workloads.contract.spec import ENGINE

_CHANGEABLE = (
    "train.ranks",
    "train.parallel.",
    "train.communication.",
    "train.accumulate",
    "train.batch_norm",
    "train.ghosts",
    "train.framework",
)
"""Prefixes of the settings that may change; any other change would train a different model."""


def changed_jobs(folder: RunFolder, assignments: Sequence[str]) -> list[JobRearranged]:
    """Return the unfinished jobs changed by ``assignments``; raise if that is not allowed."""
    if not assignments:
        return []
    history, run = folder.history(), folder.record.settings
    jobs = [event.payload(JobPlanned).job for event in history.events("job-planned")]
    records = [folder.effective_job(job) for job in jobs if not history.ended(job)]
    workloads = {**run.workloads, **{record.workload: record.settings for record in records}}
    before = run.model_copy(update={"workloads": workloads})
    after = load(_without_old_mode(before, assignments), None, assignments)
    _check_changeable(before, after)
    sections = workload_settings(after)
    changed = []
    for record in records:
        spec, section = workload(record.workload), sections[record.workload]
        changes = differences(record.settings, after.workloads[record.workload])
        if not changes:
            continue
        if spec.runner != ENGINE:
            raise UsageError(
                f"job {record.job} of {spec.name} can only be resumed with its original settings",
                hint=f"vflops resume {folder.path}",
            )
        validate.check(after, spec, section)
        validate.check_model(spec, section, record.data)
        changed.append(
            JobRearranged(
                job=record.job,
                ranks=section.train.ranks,
                settings=after.workloads[record.workload],
                changes=tuple(f"{key} {old} → {new}" for key, (old, new) in changes.items()),
            )
        )
    return changed


def _without_old_mode(settings: Settings, assignments: Sequence[str]) -> Settings:
    """Return ``settings`` without those of the old parallel mode, if the mode changes."""
    names = [assignment.partition("=")[0].strip() for assignment in assignments]
    if not any(name.endswith("parallel.mode") for name in names):
        return settings
    defaults = ParallelSettings().model_dump()
    workloads = {
        name: {**section, "train": {**section["train"], "parallel": defaults}}
        for name, section in settings.workloads.items()
    }
    return settings.model_copy(update={"workloads": workloads})


def _check_changeable(before: Settings, after: Settings) -> None:
    old_settings, new_settings = before.model_dump(mode="json"), after.model_dump(mode="json")
    for key, (old, new) in differences(old_settings, new_settings).items():
        name = key.split(".", 2)[2] if key.startswith("workloads.") else key
        if not name.startswith(_CHANGEABLE):
            raise UsageError(
                f"{name} cannot change from {old} to {new} when a run is resumed",
                hint="change only how ranks share the training: --ranks, --set parallel.mode, "
                "train.accumulate, train.batch_norm, train.framework; or start a new run",
            )
