"""A rank fails in a job of two NCCL ranks that share one GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.rank_faults import LIMIT_S, PHASES, SAID, Fault, fault_variables, plant


@pytest.mark.gpu
@pytest.mark.parametrize("fault", ["exception", "kill"])
@pytest.mark.parametrize("phase", PHASES)
def test_the_job_ends_within_seconds_and_the_cause_is_the_fault(
    tmp_path: Path, phase: str, fault: Fault
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no NVIDIA accelerator")
    plant(tmp_path)
    command = ["run", "image-classification", "--profile", "tiny", "--ranks", "2", "--rehearse"]
    settings = ("micro.benchmarks=[]", "bagging.attempts=1")
    for faulty in range(2):
        place = tmp_path / str(faulty)
        place.mkdir()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "vflops", *command, "--out", str(place)),
                *(word for setting in settings for word in ("--set", setting)),
            ],
            env={**os.environ, **fault_variables(tmp_path, place, phase, fault, faulty)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        happened_s = float((place / "fault").read_text())
        (attempt,) = place.glob("*/jobs/1/1")
        # The agent writes telemetry until all of its ranks have ended.
        ended_s = max(path.stat().st_mtime for path in attempt.glob("telemetry*.jsonl"))
        assert done.returncode == 3, done.stderr
        assert re.search(f"rank {faulty}\\b.*{SAID[fault]}", done.stderr), done.stderr
        assert ended_s - happened_s < LIMIT_S
