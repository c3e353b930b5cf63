"""Which GPUs of the node this process may use, as its environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def visible_devices(environment: Mapping[str, str] = os.environ) -> list[int]:
    """Return the node's numbers of the GPUs that ranks may use; empty if they are not known.

    SLURM's variables take precedence: SLURM may have renumbered the GPUs for CUDA.
    """
    names = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", CUDA_VISIBLE_DEVICES)
    text = next((environment[name] for name in names if environment.get(name)), "")
    parts = text.split(",")
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else []


def visible_device_names(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """Return the entries of ``CUDA_VISIBLE_DEVICES``, numbers or UUIDs; None if it is not set."""
    text = environment.get(CUDA_VISIBLE_DEVICES)
    return None if text is None else [part.strip() for part in text.split(",")]
