"""A run that goes on with other ranks, or with its model shared in another way."""

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

_FREE = (
    "train.ranks",
    "train.parallel.",
    "train.communication.",
    "train.accumulate",
    "train.batch_norm",
    "train.ghosts",
)
"""What ranks share and how; with all else it would be another training."""


def rearranged(folder: RunFolder, assignments: Sequence[str]) -> list[JobRearranged]:
    """The jobs that are not over as ``assignments`` want them, or why that cannot be."""
    if not assignments:
        return []
    history, run = folder.history(), folder.record.settings
    jobs = [event.payload(JobPlanned).job for event in history.events("job-planned")]
    records = [folder.effective_job(job) for job in jobs if not history.ended(job)]
    now = {**run.workloads, **{record.workload: record.settings for record in records}}
    before = run.model_copy(update={"workloads": now})
    after = load(_without_mode(before, assignments), None, assignments)
    _refuse_others(before, after)
    sections = workload_settings(after)
    found = []
    for record in records:
        spec, section = workload(record.workload), sections[record.workload]
        changes = differences(record.settings, after.workloads[record.workload])
        if not changes:
            continue
        if spec.runner != ENGINE:
            raise UsageError(
                f"job {record.job} is of {spec.name}, which goes on only as it began",
                hint=f"vflops resume {folder.path}",
            )
        validate.check(after, spec, section)
        validate.check_model(spec, section, record.data)
        found.append(
            JobRearranged(
                job=record.job,
                ranks=section.train.ranks,
                settings=after.workloads[record.workload],
                changes=tuple(f"{key} {old} → {new}" for key, (old, new) in changes.items()),
            )
        )
    return found


def _without_mode(settings: Settings, assignments: Sequence[str]) -> Settings:
    """``settings`` less what belongs to the mode, as a mesh does, where another one is wanted."""
    if not any(each.partition("=")[0].strip().endswith("parallel.mode") for each in assignments):
        return settings
    plain = ParallelSettings().model_dump()
    workloads = {
        name: {**section, "train": {**section["train"], "parallel": plain}}
        for name, section in settings.workloads.items()
    }
    return settings.model_copy(update={"workloads": workloads})


def _refuse_others(before: Settings, after: Settings) -> None:
    one, other = before.model_dump(mode="json"), after.model_dump(mode="json")
    for key, (old, new) in differences(one, other).items():
        name = key.split(".", 2)[2] if key.startswith("workloads.") else key
        if not name.startswith(_FREE):
            raise UsageError(
                f"{name} = {new}: it is {old} in this run, and what goes on is the same training",
                hint="change how ranks share it: --ranks, --set parallel.mode, train.accumulate, "
                "train.batch_norm; or start a new run",
            )
