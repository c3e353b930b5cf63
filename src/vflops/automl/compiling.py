"""The next candidate, compiled while another one trains.

``python -m vflops.automl.compiling RUN JOB CANDIDATE LOCAL_RANK`` takes a step of it on data of the
run and forgets it: what stays is the compiler's cache, in which the worker finds it.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from vflops.automl.architecture.build import build
from vflops.automl.buffer import Buffer
from vflops.automl.candidate import CandidateTraining, candidate_record
from vflops.automl.record import Turn
from vflops.bagging.staging import read_staged
from vflops.record.folder import RunFolder
from vflops.record.training import JobRecord
from vflops.train.clock import Clock
from vflops.train.context import JobContext
from vflops.train.engine import Engine
from vflops.train.parallel import parallel_plan
from vflops.train.parent import die_with
from vflops.train.placement import rank_device
from vflops.train.precision import Precision
from vflops.train.signals import StopRequest
from vflops.workloads.automl.settings import AutomlSettings

_PARENT = "VFLOPS_WORKER"
_NICE = 10
"""Training comes first where both want a core."""
_STEPS = 2
_ROOM = 1.2
"""Free memory of the accelerator, against what training has taken so far: both have to fit."""


class CompileAhead:
    """Compiles one candidate at a time in a process of its own, which does not outlive this one."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._log = context.attempt / "compiling.log"
        self._now: tuple[Turn, float, subprocess.Popen[bytes]] | None = None

    def begin(self, turn: Turn) -> None:
        """Compile the candidate of this turn, if there is room beside the one in training."""
        free, _ = torch.cuda.mem_get_info()
        if self._now is not None or free < _ROOM * torch.cuda.max_memory_reserved():
            return
        run = self._context.attempt.parents[2]
        command = [sys.executable, "-P", "-m", "vflops.automl.compiling"]
        place = [str(self._context.record.job), turn.name, str(self._context.local_rank)]
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                [*command, str(run), *place],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, _PARENT: str(os.getpid())},
            )
        self._now = turn, time.monotonic(), process

    def taken_s(self, turn: Turn) -> float | None:
        """How long it has been at the candidate; infinite: it is ready; None: it is not at it."""
        if self._now is None or self._now[0] != turn or self._now[2].poll():
            return None
        _, began_s, process = self._now
        return math.inf if process.returncode == 0 else time.monotonic() - began_s

    def end(self, turn: Turn, *, wanted: bool) -> None:
        """Be free for the next candidate: wait for this one where it is wanted, else leave it."""
        if self._now is not None and self._now[0] == turn:
            if not wanted:
                self._now[2].kill()
            self._now[2].wait()
            self._now = None

    def close(self) -> None:
        """End what is going on."""
        if self._now is not None:
            self.end(self._now[0], wanted=False)


def main(run: str, job: str, name: str, local_rank: str) -> None:
    """Compile a candidate as its worker would."""
    die_with(int(os.environ[_PARENT]))
    os.nice(_NICE)
    folder = RunFolder.open(Path(run))
    record = read_staged(JobRecord.read(folder.job_file(int(job))))
    candidate = Buffer(folder.path).get(Turn.named(name))
    assert candidate is not None, "it is begun when there is one"
    record = candidate_record(record, candidate, compile="on")
    settings = AutomlSettings.model_validate(record.settings)
    device = rank_device(settings.train.device, int(local_rank))
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
        plan = parallel_plan(0, 1, device, context.store)
        network = build(candidate.architecture, torch.Generator().manual_seed(0))
        workload = CandidateTraining(settings, record.data, network)
        engine = Engine(context, settings.train, workload, plan, precision, device)
        parts = engine.loop().one_batch()
        for _ in range(_STEPS):
            engine.state.take_step(parts, 0.0)
        engine.state.evaluate(engine.evaluation("validation").first_batch)


if __name__ == "__main__":
    main(*sys.argv[1:5])
