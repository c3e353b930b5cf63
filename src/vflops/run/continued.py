"""Runs that belong to a larger experiment: each one is started, resumed or already complete."""

from __future__ import annotations

from pathlib import Path

from vflops.config.settings import Settings
from vflops.errors import Interrupted, UsageError
from vflops.launch.factory import launcher_class
from vflops.record.folder import RunFolder, latest
from vflops.run import pipeline
from vflops.run.observer import RunObserver


def require_lasting_nodes(settings: Settings) -> None:
    """Raise UsageError if the nodes belong to one run, so that a second run would wait for them."""
    if launcher_class(settings.launch.on).nodes_join:
        raise UsageError(
            "nodes that join a run leave when it ends, so several runs cannot share them",
            hint="train the points one by one: vflops run … --on join, with vflops join on every"
            " node for each of them; or start this on one machine, or with --on slurm",
        )


def existing_run(parent: Path) -> RunFolder | None:
    """Return the newest run in ``parent``, if there is one."""
    path = latest(parent)
    return RunFolder.open(path) if path else None


def run_to_end(parent: Path, workload: str, settings: Settings, observer: RunObserver) -> RunFolder:
    """Return a complete run in ``parent`` with its results; the newest one there is resumed."""
    require_lasting_nodes(settings)
    folder = existing_run(parent)
    try:
        if folder is None:
            folder = pipeline.start(parent, workload, settings, observer)
        elif not folder.history(0).state.complete:
            pipeline.resume(folder, observer)
        if not all(path.is_file() for path in folder.result_files):
            pipeline.conclude(folder, observer)
    except Interrupted as error:
        raise Interrupted(
            error.message, hint="run the same command again to continue; finished work is kept"
        ) from error
    return folder
