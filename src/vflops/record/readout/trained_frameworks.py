"""The frameworks that trained the models of a run."""

from __future__ import annotations

from vflops.config.frameworks import FRAMEWORKS
from vflops.record.readout.contents import Contents


def other_frameworks(contents: Contents) -> str | None:
    """Return the frameworks besides PyTorch with their versions, such as ``JAX 0.10.2``.

    None if PyTorch trained all models, whose version the system description has.
    """
    started = [job.started for job in contents.training_jobs]
    names = {
        f"{FRAMEWORKS[start.framework].title} {start.framework_version or '(version unknown)'}"
        for start in started
        if start is not None and start.framework in FRAMEWORKS
    }
    return ", ".join(sorted(names)) or None
