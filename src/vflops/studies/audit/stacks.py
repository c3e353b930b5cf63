"""Whether this machine and its software are those of a recorded run."""

from __future__ import annotations

from collections.abc import Iterator

from vflops.record.formats.job_events import JobStarted
from vflops.record.formats.system import SystemRecord
from vflops.record.installed_package import installed_package
from vflops.record.readout.contents import Contents
from vflops.studies.reproduce.reproduce import software_differences

_STARTED = (
    "device",
    "device_name",
    "torch",
    "framework",
    "framework_version",
    "precision",
    "threads",
)
"""What of the start of an attempt determines the bits of its result."""
_STEP = ("compiled", "recorded")
"""The same for the steps of one model; candidates of a search may differ in it."""


def stack_differences(recorded: Contents, here: SystemRecord) -> list[str]:
    """Return how machine and software differ from those of the run; empty if they do not."""
    folder = recorded.folder
    if not folder.record.on_this_machine:
        return ["it ran on nodes of a scheduler, which are not compared with this machine"]
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
    package, installed = folder.record.package, installed_package()
    if package is None or package.sha256 != installed.sha256:
        differences.append("vflops: another version or changed code")
    return differences


def start_differences(
    then: JobStarted | None, here: JobStarted | None, *, is_candidate: bool
) -> Iterator[str]:
    """Yield why the bits of an attempt need not be those of its repetition here.

    Whether training is deterministic is that of the repetition, not what the log claims.
    """
    if then is None or here is None:
        yield "the log does not say how the training was started"
        return
    for name in _STARTED if is_candidate else (*_STARTED, *_STEP):
        before, now = getattr(then, name), getattr(here, name)
        if before != now:
            yield f"{name.replace('_', ' ')}: {before} then, {now} here"
    if not here.deterministic:
        yield "the training is not deterministic (PyTorch is with train.deterministic=true)"


def same_machine(recorded: Contents, here: SystemRecord) -> bool:
    """Whether the run was made on a machine of this kind, so that speeds can be compared."""
    folder = recorded.folder
    if not folder.record.on_this_machine or not folder.system_file.is_file():
        return False
    return SystemRecord.read(folder.system_file).machine == here.machine
