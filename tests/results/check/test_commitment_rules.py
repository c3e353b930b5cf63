"""States of one step must be equal if the same software computed them on the same device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vflops.record.log.events import Event
from vflops.results.check.commitment_rules import _faults

STARTED = {
    "deterministic": True,
    "ranks": 1,
    "device_name": "a CPU",
    "threads": 2,
    "torch": "2.13.0",
    "framework": "pytorch",
    "framework_version": None,
    "precision": "fp32",
    "compiled": False,
    "batch": 32,
}


def event(kind: str, **data: Any) -> Event:
    return Event(kind, data, utc="", source="events.jsonl:1")


def faults(**second: Any) -> list[str]:
    """Two attempts that reach different states after step 5; ``second`` is how they differ."""
    logs = [
        SimpleNamespace(events=[event("job", **start), event("commitment", step=5, sha256=sha256)])
        for start, sha256 in ((STARTED, "a" * 64), (STARTED | second, "b" * 64))
    ]
    job: Any = SimpleNamespace(logs=logs)
    return [fault for fault, _ in _faults(job)]


def test_the_same_software_must_reach_the_same_state() -> None:
    assert faults() == ["two different states after step 5"]


@pytest.mark.parametrize(
    "second",
    [
        {"framework": "jax", "framework_version": "0.10.2"},
        {"framework_version": "0.11.0"},
        {"precision": "mixed-bf16"},
        {"compiled": True},
        {"threads": 1},
        {"deterministic": False},
    ],
)
def test_other_software_may_round_otherwise(second: dict[str, Any]) -> None:
    assert faults(**second) == []
