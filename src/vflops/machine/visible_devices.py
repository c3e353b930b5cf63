"""The GPUs of the node that a process may use, from environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping

_CUDA = "CUDA_VISIBLE_DEVICES"


def visible_devices(environment: Mapping[str, str] = os.environ) -> list[int]:
    """Return the indices, on the node, of the GPUs that ranks may use; empty if not known.

    SLURM may have renumbered them for CUDA, so its own variables are read first.
    """
    names = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", _CUDA)
    text = next((environment[name] for name in names if environment.get(name)), "")
    parts = text.split(",")
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else []


def cuda_devices(environment: Mapping[str, str] = os.environ) -> list[int | str] | None:
    """Return the indices and UUIDs in CUDA_VISIBLE_DEVICES; None if the variable is not set."""
    text = environment.get(_CUDA)
    if text is None:
        return None
    entries = [entry.strip() for entry in text.split(",")]
    return [
        int(entry) if entry.isdigit() else entry
        for entry in entries
        if entry.isdigit() or entry.startswith(("GPU-", "MIG-"))
    ]
