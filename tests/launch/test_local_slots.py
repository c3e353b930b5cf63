"""The devices of the slots of this machine, and those of a job, which telemetry reads."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from vflops.launch import attempt
from vflops.launch.local.local_launcher import Slot, divide_node, where


@pytest.mark.parametrize(
    ("visible", "device", "devices"),
    [
        (None, "auto", ["0", "1"]),
        ("2, 3", "auto", ["2", "3"]),
        ("GPU-aaaa,MIG-bbbb", "cuda", ["GPU-aaaa", "MIG-bbbb"]),
        ("GPU-aaaa,MIG-bbbb", "cuda:1", [None, None]),  # ranks count from the user's first device
        ("GPU-aaaa,MIG-bbbb", "cpu", [None, None]),
    ],
)
def test_a_slot_has_an_entry_of_the_user(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: str, devices: list[str | None]
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    slots = divide_node(2, True, device, None)
    assert [slot.device for slot in slots] == devices


def test_a_slot_of_a_node_without_accelerators_has_none() -> None:
    assert [slot.device for slot in divide_node(2, False, "auto", None)] == [None, None]


@pytest.mark.parametrize(
    ("device", "ranks", "gpus_per_rank", "used"),
    [
        ("cpu", 2, None, ()),
        ("auto", 2, None, (0, 1)),
        ("cuda", 1, None, (0,)),
        ("cuda:3", 1, None, (3,)),
        ("auto", 2, 4, range(8)),
    ],
)
def test_telemetry_reads_the_devices_that_the_ranks_have(
    device: str, ranks: int, gpus_per_rank: int | None, used: Sequence[int]
) -> None:
    record: Any = SimpleNamespace(settings={"train": {"device": device}})
    assert list(attempt._used_devices(record, ranks, gpus_per_rank)) == list(used)


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        ([((0,), None)], "core 0"),
        ([((0, 1), None), ((2, 3), None)], "cores 0-3"),
        ([((0, 1), None)] * 4, "4 ranks share cores 0-1"),  # a rehearsal on two cores
        ([((0,), "0"), ((1,), "1")], "devices 0, 1"),
        ([((0,), "GPU-aaaa")] * 8, "8 ranks share device GPU-aaaa"),
        ([], ""),
    ],
)
def test_the_place_of_a_job_names_each_core_and_device_once(
    slots: list[tuple[tuple[int, ...], str | None]], text: str
) -> None:
    assert where([Slot(number, *slot) for number, slot in enumerate(slots)]) == text
