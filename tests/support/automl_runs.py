"""Small searches, started as a user starts them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.support import ensemble_runs
from tests.support.cores import skip_if_refused
from tests.support.programs import start
from vflops.record.folder import RunFolder
from vflops.record.log.events import Event
from vflops.workloads.automl.replay import SearchLedger
from vflops.workloads.automl.search_events import CandidateTrained

SMALL = (
    "micro.benchmarks=[]",
    "synthetic.train=128",
    "synthetic.validation=64",
    "search.duration_s=400",
    "train.checkpoint_share=1",
    "train.segments=0",
)
"""Four steps per epoch, and no time limit that matters."""


def started(folder: Path, *settings: str, words: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a search of the profile ``tiny`` in ``folder``."""
    skip_if_refused(words)
    assigned = [part for setting in (*SMALL, *settings) for part in ("--set", setting)]
    run = ["-m", "vflops", "run", "automl", "--profile", "tiny", *words]
    return start([*run, *assigned], folder, os.environ)


def searched(folder: Path, *settings: str, words: tuple[str, ...] = ()) -> RunFolder:
    """Run a search, and return its folder."""
    return ensemble_runs.ended(started(folder, *settings, words=words), folder)


def replayed(folder: Path, ledger: Path, *words: str) -> RunFolder:
    """Replay a search, and return the new run folder."""
    command = ["-m", "vflops", "replay", str(ledger), "--set", "micro.benchmarks=[]", *words]
    return ensemble_runs.ended(start(command, folder, os.environ), folder)


def results(folder: RunFolder) -> dict[str, CandidateTrained]:
    """Return the result of each candidate; no candidate is trained twice."""
    told = folder.history().events("candidate-trained")
    found = {item.data["candidate"]: item.payload(CandidateTrained) for item in told}
    assert len(found) == len(told), "a candidate was trained twice"
    return found


def essence(folder: RunFolder) -> dict[str, tuple[object, ...]]:
    """Return architecture, accuracy and weights of each trained candidate."""
    ledger = SearchLedger.find(folder.path)
    return {
        row.candidate.turn.name: (
            row.candidate.architecture.digest,
            row.candidate.hyper,
            row.trained.accuracy,
            row.trained.weights_sha256,
        )
        for row in ledger.candidates
    }


def wait_until(folder: RunFolder, sees: Callable[[list[Event]], bool], job: int) -> list[Event]:
    """Wait for a condition on the events of a job, and return them."""
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s:
        events = [event for log in folder.history().jobs.get(job, ()) for event in log.events]
        if sees(events):
            return events
        time.sleep(0.02)
    raise AssertionError(f"job {job} came to nothing of the kind")


def rank_of(folder: RunFolder, job: int) -> psutil.Process:
    """Return the process that trains for a worker of this run."""
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "vflops.train.rank" not in line:
            continue
        if (Path(line[-3]).name, line[-2]) == (folder.path.name, str(job)):
            return process
    raise AssertionError(f"nobody trains for job {job}")
