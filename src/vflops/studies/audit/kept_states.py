"""The states that a run keeps for audits: how much they take, and how they are deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

from vflops.record.folder import RunFolder
from vflops.units import quantity


def discard_states(folder: RunFolder) -> str:
    """Delete the checkpoints and weights that a complete run keeps; return what was freed."""
    if not folder.history(0).state.complete:
        from vflops.errors import UsageError

        raise UsageError(
            f"{folder.path} is not complete: it needs its checkpoints to resume",
            hint=f"resume it: vflops resume {folder.path}",
        )
    folders = [*sorted(folder.path.glob("jobs/*/checkpoint")), folder.path / "weights"]
    freed = sum(_size(path) for path in folders)
    for path in folders:
        shutil.rmtree(path, ignore_errors=True)
    return f"{quantity(freed, 'B')} freed; this run can no longer be audited"


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
