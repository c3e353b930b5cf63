"""The algorithm of NCCL's all-reduce, which the library reads once from its environment."""

from __future__ import annotations

import os

from vflops.config.parallel import NCCL_ALGORITHM, AllReduceAlgorithm, nccl_algorithm
from vflops.errors import UsageError


def fix_algorithm(algorithm: AllReduceAlgorithm, backend: str) -> None:
    """Set ``NCCL_ALGO`` for this process, before its first process group.

    Raise ``UsageError`` if the library is not NCCL, or if the environment says something else.
    """
    check_backend(algorithm, backend)
    if algorithm == "auto":
        return
    wanted, found = nccl_algorithm(algorithm), os.environ.get(NCCL_ALGORITHM)
    if found not in (None, wanted):
        raise UsageError(
            f"train.communication.algorithm is {algorithm}, but {NCCL_ALGORITHM} is {found} in the "
            "environment",
            hint=f"unset {NCCL_ALGORITHM}, or leave the setting at auto",
        )
    os.environ[NCCL_ALGORITHM] = wanted


def check_backend(algorithm: AllReduceAlgorithm, backend: str) -> None:
    """Raise ``UsageError`` if the communication library does not offer the choice."""
    if algorithm != "auto" and backend != "nccl":
        raise UsageError(
            f"train.communication.algorithm is {algorithm}, but the ranks communicate by {backend},"
            " which has no such choice",
            hint="leave it at auto, or train on accelerators with NCCL",
        )
