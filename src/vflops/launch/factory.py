"""The table of all back ends; a new back end is added here."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.errors import unknown_name
from vflops.extensions import import_object
from vflops.launch.backend import Backend
from vflops.launch.interface import Launcher
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

_PSIJ = "vflops.launch.psij.psij_backend:PsijBackend"
_BACKENDS = {
    "local": "vflops.launch.local.local_backend:LocalBackend",
    "slurm": "vflops.launch.slurm.slurm_backend:SlurmBackend",
    "pbs": _PSIJ,
    "lsf": _PSIJ,
    "flux": _PSIJ,
}
"""The back end of each value of ``launch.on``; its module is imported when it is used."""


def backend(name: str) -> Backend:
    """Return the back end that ``launch.on`` names."""
    if name not in _BACKENDS:
        raise unknown_name("launcher", name, _BACKENDS)
    result: Backend = import_object(_BACKENDS[name])(name)
    return result


def backends() -> list[Backend]:
    """Return all back ends."""
    return [backend(name) for name in _BACKENDS]


def launcher(folder: RunFolder, records: Sequence[JobRecord]) -> Launcher:
    """Return the launcher for these jobs of a run, on the back end that its settings name."""
    return backend(folder.record.settings.launch.on).launcher(folder, records)
