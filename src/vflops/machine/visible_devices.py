"""Which GPUs of the node a process may use, by the variables that limit them."""

from __future__ import annotations

import os
from collections.abc import Mapping

_CUDA = "CUDA_VISIBLE_DEVICES"


def visible_devices(environment: Mapping[str, str] = os.environ) -> list[int]:
    """Return the node's numbers of the GPUs that ranks may use, or an empty list if not known.

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
    words = [word.strip() for word in text.split(",")]
    return [
        int(word) if word.isdigit() else word
        for word in words
        if word.isdigit() or word.startswith(("GPU-", "MIG-"))
    ]
