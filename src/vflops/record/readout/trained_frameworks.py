"""The frameworks that trained the models of a run."""

from __future__ import annotations

from vflops.config.frameworks import FRAMEWORKS
from vflops.record.formats.job_events import JobStarted
from vflops.record.readout.contents import Contents


def other_frameworks(contents: Contents) -> str | None:
    """Return the frameworks besides PyTorch with their versions, such as ``JAX 0.10.2``.

    None if PyTorch trained all models, whose version the system description has.
    """
    names = {other_framework(job.started) for job in contents.training_jobs}
    return ", ".join(sorted(filter(None, names))) or None


def other_framework(started: JobStarted | None) -> str | None:
    """Return the framework of a job with its version; None for PyTorch."""
    if started is None or started.framework not in FRAMEWORKS:
        return None
    version = started.framework_version or "(version unknown)"
    return f"{FRAMEWORKS[started.framework].title} {version}"
