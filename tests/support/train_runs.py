"""Small trainings, by ranks alone or through the command, and the contents of their logs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.support.programs import start
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job_events import Evaluated, Finished, Progressed
from vflops.record.log.events import Log
from vflops.run import jobs
from vflops.workloads.contract.run_settings import load, profile

RANK = Path(__file__).with_name("train_rank.py")
SMALL = (
    "micro.benchmarks=[]",
    "synthetic.train=256",
    "synthetic.validation=60",
    "train.epochs=2",
    "train.batch=32",
    "train.checkpoint_share=1",
    "train.segments=0",
)
"""16 steps, no ceilings, and no checkpoints besides those at evaluations."""


def planned(
    directory: Path, *assignments: str, workload: str = "image-classification"
) -> RunFolder:
    """Return a run folder with one planned job."""
    settings = load(profile("tiny", [workload]), None, [*SMALL, *assignments])
    folder = RunFolder.create(directory, workload, settings)
    with folder.start_attempt(0) as events:
        jobs.plan(folder, events, None, lambda what, done, whole: None)
    return folder


class Ranks:
    """The processes of one attempt."""

    def __init__(self, words: list[str], ranks: int, logs: Path, **environment: str) -> None:
        self._processes = [
            start(
                words,
                Path.cwd(),
                {
                    **os.environ,
                    **environment,
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(ranks),
                    "WORLD_SIZE": str(ranks),
                },
                log=logs / f"rank-{rank}.log",
            )
            for rank in range(ranks)
        ]

    def poll(self) -> list[int | None]:
        """Return exit codes by rank; None for running ones."""
        return [process.poll() for process in self._processes]

    def running(self) -> bool:
        """Whether the attempt is running; kill all ranks if one failed."""
        codes = self.poll()
        if any(codes):
            for process in self._processes:
                process.kill()
                process.wait()
        return None in self.poll()


def start_ranks(folder: RunFolder, ranks: int = 1, **environment: str) -> Ranks:
    """Start a new attempt at the job, which records the loss of every step."""
    return _start_job(folder, 1, ranks, environment)


def _start_job(folder: RunFolder, job: int, ranks: int, environment: Mapping[str, str]) -> Ranks:
    attempt = folder.next_attempt(job)
    directory = folder.attempt_folder(job, attempt)
    directory.mkdir(parents=True)
    words = [str(RANK), str(folder.path), str(job), str(attempt)]
    return Ranks(words, ranks, directory, **environment)


def run_ranks(folder: RunFolder, ranks: int = 1, **environment: str) -> Log:
    """Run a new attempt and return its log; it must succeed."""
    return run_job(folder, 1, ranks, environment)


def run_job(
    folder: RunFolder,
    job: int,
    ranks: int = 1,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Log:
    """Run a new attempt at one of several jobs and return its log; it must succeed."""
    processes = _start_job(folder, job, ranks, environment)
    while processes.running():
        time.sleep(0.02)
    log = folder.history().jobs[job][-1]
    assert processes.poll() == [0] * ranks, log.events[-1]
    assert not log.faults
    return log


def losses(log: Log) -> list[float]:
    """Return the loss of every step."""
    notes = [event.payload(Progressed) for event in log.events if event.kind == "progress"]
    return [note.loss for note in notes if note.loss is not None]


def losses_by_step(log: Log) -> dict[int, float]:
    """Return the losses of the steps that the events name."""
    notes = [event.payload(Progressed) for event in log.events if event.kind == "progress"]
    return {note.step: note.loss for note in notes if note.loss is not None}


def evaluations(log: Log) -> list[Evaluated]:
    """Return all evaluations."""
    return [event.payload(Evaluated) for event in log.events if event.kind == "evaluation"]


def weights(folder: RunFolder) -> str | None:
    """Return the hash of the trained weights."""
    return folder.history().events("finished", job=1)[-1].payload(Finished).weights_sha256


def start_command(directory: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start the command in a new process group."""
    words = ["-m", "vflops", *map(str, arguments)]
    return start(words, directory, {**os.environ, "COLUMNS": "100"})


def training_run(*assignments: str) -> list[str]:
    """Return the arguments of a run that only trains."""
    settings = [part for item in (*SMALL, *assignments) for part in ("--set", item)]
    return ["run", "image-classification", "--profile", "tiny", *settings]


def wait_for(
    directory: Path, kind: str, process: subprocess.Popen[str], count: int = 1
) -> RunFolder:
    """Return the newest run under ``place``, once it has ``count`` training events of a kind."""
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s:
        if process.poll() is not None:
            raise AssertionError(f"ended early: {process.communicate()[1]}")
        path = latest(directory / "runs")
        if path is not None:
            folder = RunFolder.open(path)
            if len(folder.history().events(kind, job=1)) >= count:
                return folder
        time.sleep(0.05)
    raise AssertionError(f"no {kind} event came")
