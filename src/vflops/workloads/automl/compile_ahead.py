"""Compiles the next candidate while another one trains.

``python -m vflops.workloads.automl.compile_ahead RUN JOB CANDIDATE LOCAL_RANK`` takes one step of
the candidate on the run's data and discards the result. What remains is the compiler's cache, which
the worker then uses.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import torch

from vflops.config.parallel import CommunicationSettings
from vflops.data.staging import read_staged
from vflops.launch.parent_death import die_with
from vflops.python_start import module_command
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.train.context import JobContext
from vflops.train.engine import Engine
from vflops.train.parallel.data_parallel import DataParallel
from vflops.train.parallel.parallel_plan import ParallelPlan, SingleRank
from vflops.train.phase_clock import Clock
from vflops.train.precision import Precision
from vflops.train.rank_device import rank_device, use_threads
from vflops.train.signals import StopRequest
from vflops.workloads.automl.architecture.module_builder import build
from vflops.workloads.automl.candidate import CandidateTraining, Deadline, candidate_record
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.search_events import Turn
from vflops.workloads.automl.settings import AutomlSettings

_PARENT = "VFLOPS_WORKER"
_NICE = 10
"""Training takes precedence when both need a core."""
_STEPS = 2
_MEMORY_SHARE = 1.2
"""Free accelerator memory that is required, relative to the peak of training so far."""


@dataclass(frozen=True)
class _Compilation:
    turn: Turn
    began_s: float
    process: subprocess.Popen[bytes]


class CompileAhead:
    """Compiles one candidate at a time in a child process, which ends with this process."""

    def __init__(self, context: JobContext, device: torch.device, deadline: Deadline) -> None:
        self._context, self._device, self._deadline = context, device, deadline
        self._log = context.attempt / "compiling.log"
        self._lock = Lock()  # the building thread calls begin, the training thread finish
        self._running: _Compilation | None = None
        self._too_late = -1
        """The number of the newest turn whose training has begun; it is too late to compile it."""

    def begin(self, turn: Turn) -> None:
        """Compile the candidate of this turn, if it fits in memory beside the one in training."""
        with self._lock:
            if turn.number <= self._too_late:
                return
            self._stop_earlier(turn)
            free, _ = torch.cuda.mem_get_info(self._device)
            reserved = torch.cuda.max_memory_reserved(self._device)
            if self._running is None and free >= _MEMORY_SHARE * reserved:
                self._running = _Compilation(turn, time.monotonic(), self._process(turn))

    def elapsed_s(self, turn: Turn) -> float | None:
        """Return how long a candidate has been compiling.

        The result is infinity if it is ready, and None if compiling was not begun or failed.
        """
        with self._lock:
            self._stop_earlier(turn)
            running = self._running
            if running is None or running.turn != turn or running.process.poll():
                return None
            ready = running.process.returncode == 0
            return math.inf if ready else time.monotonic() - running.began_s

    def finish(self, turn: Turn, *, wanted: bool) -> None:
        """Wait until the candidate of this turn is compiled; stop compiling if not ``wanted``."""
        with self._lock:
            self._too_late = max(self._too_late, turn.number)
            self._stop_earlier(turn)
            running = self._running
            if running is None or running.turn != turn:
                return
            self._running = None
        while wanted and not self._deadline.signal:
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(timeout=1.0)
                return
        _kill(running.process)

    def close(self) -> None:
        """Stop compiling permanently."""
        with self._lock:
            self._too_late = sys.maxsize
            if self._running is not None:
                _kill(self._running.process)
                self._running = None

    def _stop_earlier(self, turn: Turn) -> None:
        """Stop compiling for an earlier turn, which was given up or claimed by another worker."""
        if self._running is not None and self._running.turn.number < turn.number:
            _kill(self._running.process)
            self._running = None

    def _process(self, turn: Turn) -> subprocess.Popen[bytes]:
        run = self._context.attempt.parents[2]
        arguments = run, self._context.record.job, turn.name, self._context.local_rank
        with self._log.open("ab") as output:
            return subprocess.Popen(
                module_command("vflops.workloads.automl.compile_ahead", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, _PARENT: str(os.getpid())},
            )


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def main(run: str, job: str, name: str, local_rank: str) -> None:
    """Compile a candidate in the same way as its worker would."""
    die_with(int(os.environ[_PARENT]))
    os.nice(_NICE)
    folder = RunFolder.open(Path(run))
    record = read_staged(JobRecord.read(folder.job_file(int(job))))
    candidate = CandidateBuffer(folder.path).get(Turn.named(name))
    assert candidate is not None, "compiling begins after the proposal"
    record = candidate_record(record, candidate, compile="on")
    settings = AutomlSettings.model_validate(record.settings)
    device = rank_device(settings.train.device, int(local_rank))
    use_threads(device, int(os.environ.get("LOCAL_WORLD_SIZE", record.ranks)))
    precision = Precision.named(settings.train.precision, device)
    with tempfile.TemporaryDirectory(prefix="vflops-") as scratch, precision.settings():
        context = JobContext(
            record,
            0,
            int(local_rank),
            Path(scratch),
            events=None,
            clock=Clock(),
            stop=StopRequest(),
        )
        # The graphs of several ranks are cut into buckets, which one rank in a group does alike.
        plan: ParallelPlan = SingleRank()
        if record.ranks > 1:
            plan = DataParallel(0, 1, device, context.store, CommunicationSettings())
        network = build(candidate.architecture, torch.Generator().manual_seed(0))
        workload = CandidateTraining(settings, record.data, network, candidate.architecture)
        engine = Engine.with_torch(context, settings.train, workload, plan, precision, device)
        parts = engine.loop().one_batch()
        for _ in range(_STEPS):
            engine.state.take_step(parts, 0.0)
        engine.state.evaluate(engine.evaluation("validation").first_batch)


if __name__ == "__main__":
    main(*sys.argv[1:5])
    os._exit(0)  # without waiting for the threads of a process group
