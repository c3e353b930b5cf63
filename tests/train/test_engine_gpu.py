"""The engine on a GPU: loader, fused and recorded steps, evaluation, checkpoints, resuming."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.support.train_runs import evaluations, planned
from vflops.errors import Interrupted
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobStarted
from vflops.record.log.events import Log
from vflops.train.context import JobContext
from vflops.train.engine import run
from vflops.train.phase_clock import Clock

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no accelerator"),
]

IMAGES = (
    "size=64",
    "resize=64",
    "network.blocks=[1,1,1,1]",
    "network.width=64",
    "network.stem=imagenet",
    "synthetic.size=64",
    "synthetic.train=256",
    "synthetic.validation=64",
    "train.batch=64",
    "train.epochs=2",
    "train.precision=mixed-bf16",
)
FRAMES = (
    "synthetic.train=8",
    "synthetic.validation=4",
    "train.batch=4",
    "train.epochs=2",
    "train.compile=record",
)


class Asked:
    """A request to stop, if ``signal`` is given."""

    def __init__(self, signal: str | None) -> None:
        self.signal = signal

    def set_unsaved_work(self, unsaved: bool) -> None:
        """Ignore whether there is work to save: ``signal`` is polled."""


def train(folder: RunFolder, signal: str | None = None) -> Log:
    """Run an attempt at job 1 in this process; return its log."""
    attempt = folder.next_attempt(1)
    with folder.log(1, attempt) as events, suppress(Interrupted):
        run(
            JobContext(
                record=folder.effective_job(1),
                rank=0,
                local_rank=0,
                attempt=folder.attempt_folder(1, attempt),
                events=events,
                clock=Clock(),
                stop=Asked(signal),
            )
        )
    return folder.history(1).logs[-1]


def test_fused_and_recorded_steps_train_and_resume(tmp_path: Path) -> None:
    folder = planned(tmp_path, *IMAGES)
    stopped = train(folder, "SIGTERM")
    started = stopped.events[0].payload(JobStarted)
    assert (started.device, started.recorded, started.compiled) == ("cuda", True, False)
    assert [event.kind for event in stopped.events].count("checkpoint") == 1
    resumed = train(folder)
    assert [event.kind for event in resumed.events[:2]] == ["job", "resumed"]
    assert [evaluation.step for evaluation in evaluations(resumed)] == [4, 8]
    assert "finished" in [event.kind for event in resumed.events]


def test_recorded_steps_train_a_detector(tmp_path: Path) -> None:
    log = train(planned(tmp_path, *FRAMES, workload="extreme-weather"))
    started = log.events[0].payload(JobStarted)
    assert (started.recorded, started.compiled) == (True, False)
    assert [evaluation.step for evaluation in evaluations(log)] == [2, 4]


def test_a_training_that_compiles_nothing_does_not_import_the_compiler(tmp_path: Path) -> None:
    folder = planned(tmp_path, *IMAGES)
    code = f"""
import sys
from vflops.train.rank import main
print(main({str(folder.path)!r}, "1", "0"), "torch._dynamo" in sys.modules)
"""
    variables = {"RANK": "0", "LOCAL_RANK": "0", "VFLOPS_LAUNCHER": str(os.getpid())}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["0", "False"]
