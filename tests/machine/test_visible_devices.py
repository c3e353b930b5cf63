"""The GPUs that a process may use, by the variables that limit them."""

from __future__ import annotations

import pytest

from vflops.machine.visible_devices import cuda_devices, visible_devices


@pytest.mark.parametrize(
    ("environment", "numbers"),
    [
        ({}, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "1,3"}, [1, 3]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aaaa"}, []),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "5"}, [5]),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "6", "SLURM_JOB_GPUS": "5,6"}, [6]),
    ],
)
def test_numbers_of_the_node_come_before_those_of_cuda(
    environment: dict[str, str], numbers: list[int]
) -> None:
    assert visible_devices(environment) == numbers


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (None, None),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1, 0", [1, 0]),
        ("GPU-aaaa,MIG-bbbb,2", ["GPU-aaaa", "MIG-bbbb", 2]),
    ],
)
def test_words_that_name_no_device_are_left_out(
    text: str | None, devices: list[int | str] | None
) -> None:
    environment = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    assert cuda_devices(environment) == devices
