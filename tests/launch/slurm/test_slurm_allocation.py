"""Scripts in an allocation that the user already has, on fake commands of SLURM."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflops.launch.slurm.slurm_allocation import AllocationScheduler
from vflops.launch.slurm.slurm_nodes import Allocation


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ("PREEMPTED", [("running", None), ("ended", "preemption")]),
        ("TIMEOUT", [("ended", "time limit")] * 2),
        ("COMPLETING", [("running", None)] * 2),
        ("RUNNING", [("ended", "failure")] * 2),  # the script died, not the allocation
    ],
)
def test_a_script_ends_as_its_allocation_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, seen: list[tuple[str, str | None]]
) -> None:
    answer = f'case "$*" in *--steps*) ;; *) echo "7|{state}|n1|0|0|None|" ;; esac'
    for name, command in (("sbatch", "exit 1"), ("squeue", answer)):
        (tmp_path / name).write_text(f"#!/bin/bash\n{command}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    scheduler = AllocationScheduler(Allocation("7", ("n1",)), tmp_path)
    looks = [scheduler.look(["allocation-1"])["allocation-1"] for _ in seen]
    assert [(status.state, status.ended_by) for status in looks] == seen
