"""The device of the ranks in a test: the CPU, or one GPU that they share over NCCL."""

from __future__ import annotations

import os

import pytest
import torch

VARIABLE = "VFLOPS_TEST_DEVICE"
"""The environment variable that names the device in ranks."""

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no accelerator"),
]
on_both = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
"""Gives a test the argument ``device``."""


def rank_device(rank: int) -> torch.device:
    """Return this rank's device; on a GPU, let NCCL take the rank for one of another host."""
    device = os.environ.get(VARIABLE, "cpu")
    if device == "cpu":
        return torch.device("cpu")
    local = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    os.environ.update(NCCL_HOSTID=f"host-{rank}", **local)
    torch.cuda.set_device(0)
    return torch.device("cuda", 0)
