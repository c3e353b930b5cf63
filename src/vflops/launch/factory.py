"""The launchers that ``launch.on`` can name: those of vflops and those of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points

from vflops.errors import UsageError, unknown_name
from vflops.extensions import import_object
from vflops.launch.launcher import Launcher
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

GROUP = "vflops.launchers"
"""The group of the entry points of launchers."""
_BUILT_IN = {
    "local": "vflops.launch.local.local_launcher:LocalLauncher",
    "slurm": "vflops.launch.slurm.slurm_launcher:SlurmLauncher",
    "join": "vflops.launch.join.join_launcher:JoinLauncher",
}
"""A launcher's module is imported when it is used."""


def launcher_names() -> list[str]:
    """Return all values that ``launch.on`` may have."""
    return [*_BUILT_IN, *sorted(entry_points(group=GROUP).names - _BUILT_IN.keys())]


def origin(name: str) -> str:
    """Return the package that provides the launcher."""
    entry = next(iter(entry_points(group=GROUP, name=name)), None)
    if name in _BUILT_IN or entry is None:
        return "vflops"
    return entry.dist.name if entry.dist else "another package"


def launcher_class(name: str) -> type[Launcher]:
    """Return the launcher that ``launch.on`` names."""
    if name in _BUILT_IN:
        built_in: type[Launcher] = import_object(_BUILT_IN[name])
        return built_in
    entry = next(iter(entry_points(group=GROUP, name=name)), None)
    if entry is None:
        raise unknown_name("launcher", name, launcher_names())
    provider = origin(name)
    try:
        found = entry.load()
    except Exception as error:
        raise UsageError(
            f"the launcher {name!r} from {provider} cannot be loaded:"
            f" {type(error).__name__}: {error}",
            hint=f"fix or uninstall {provider}",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Launcher)):
        raise UsageError(
            f"the launcher {name!r} from {provider} is {found!r}, not a subclass of"
            " vflops.launch.launcher.Launcher",
            hint=f"fix or uninstall {provider}",
        )
    return found


def runs_here(name: str) -> bool:
    """Whether jobs of this ``launch.on`` run on this machine; not if the launcher is not known."""
    return name in launcher_names() and launcher_class(name).is_this_machine


def launcher(folder: RunFolder, records: Sequence[JobRecord]) -> Launcher:
    """Return the launcher of these jobs of a run, at the place that its settings name."""
    return launcher_class(folder.record.settings.launch.on)(folder, records)
