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
    freed_b = kept_b(folder)
    for path in _kept(folder):
        shutil.rmtree(path, ignore_errors=True)
    return f"{quantity(freed_b, 'B')} freed; this run can no longer be audited"


def kept_b(folder: RunFolder) -> int:
    """Return the bytes of checkpoints and weights that a run keeps; only audits need them."""
    return sum(_size(path) for path in _kept(folder))


def _kept(folder: RunFolder) -> list[Path]:
    return [*sorted(folder.path.glob("jobs/*/checkpoint")), folder.path / "weights"]


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
