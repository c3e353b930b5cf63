"""Small ensembles of image classification, started as a user starts them."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psutil

from tests.support.cores import skip_if_refused
from tests.support.programs import Program, start
from vflops.record.folder import RunFolder, latest

TRAIN, VALIDATION = 256, 60
"""Samples."""
SMALL = (
    "micro.benchmarks=[]",
    f"synthetic.train={TRAIN}",
    f"synthetic.validation={VALIDATION}",
    "train.batch=32",
    "train.checkpoint_share=1",
    "train.segments=0",
)
"""8 steps an epoch, no ceilings."""
_PATIENCE_S = 120


def started(place: Path, *arguments: str, epochs: int = 2) -> Program:
    """The command in ``place``, in a process group of its own."""
    skip_if_refused(arguments)
    settings = [part for each in (*SMALL, f"train.epochs={epochs}") for part in ("--set", each)]
    run = ["-m", "vflops", "run", "image-classification", "--profile", "tiny"]
    return start([*run, *settings, *arguments], place, os.environ)


def ended(process: subprocess.Popen[str], place: Path, *codes: int) -> RunFolder:
    """The run of a command that has ended with one of ``codes``, by default 0; or what it said."""
    out, err = process.communicate(timeout=400)
    path = latest(place / "runs")
    logs = [] if path is None else [log.read_text()[-1500:] for log in path.glob("**/*.log")]
    assert process.returncode in (codes or (0,)), "\n".join([out, err, *logs])
    assert path is not None
    return RunFolder.open(path)


def wait_for(place: Path, kind: str, *jobs: int) -> RunFolder:
    """The newest run in ``place``, once each of the jobs has written an event of a kind."""
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s:
        path = latest(place / "runs")
        if path is not None:
            folder = RunFolder.open(path)
            history = folder.history()
            if all(history.events(kind, job=job) for job in jobs):
                return folder
        time.sleep(0.05)
    raise AssertionError(f"no {kind} event of jobs {jobs}")


def processes_of(place: RunFolder | Path) -> list[psutil.Process]:
    """Every process whose command names the run, or any run inside a folder."""
    named = str(place if isinstance(place, Path) else place.path)
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if named in " ".join(process.info["cmdline"] or ())
    ]
