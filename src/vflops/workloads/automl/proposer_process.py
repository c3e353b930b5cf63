"""The process that proposes the candidates of a worker, running beside it.

Started as ``python -m vflops.workloads.automl.proposer_process RUN JOB``.

It proposes candidates ahead of the worker's training, without torch, and writes them to the buffer.
In ordered mode it waits for the results that a proposal depends on, but neither for a worker that
has been silent for too long nor for a result that cannot be read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from itertools import count
from pathlib import Path

from vflops.errors import FolderError, RunFailed, VflopsError
from vflops.launch.parent_death import die_with
from vflops.machine.system.cpu_share import available_cpus
from vflops.python_start import module_command
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.train.context import JobContext
from vflops.workloads.automl.backoff import Backoff
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.proposer import Proposer, first_network
from vflops.workloads.automl.search.distance_processes import (
    DistanceProcesses,
    DistancesTo,
    distances_to,
)
from vflops.workloads.automl.search.searcher import SearchSpaceExhausted
from vflops.workloads.automl.search_events import Candidate, Turn
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.shared_results import SharedResults
from vflops.workloads.automl.turns import KnownResults, TurnOrder, all_known

_PARENT = "VFLOPS_WORKER"
_PROCESSES = "VFLOPS_PROPOSER_PROCESSES"
_MAX_PROCESSES = 4
"""More processes are hardly faster: the rest of a proposal runs on one core."""
_POLLS_PER_S = 64
"""How often all proposers together look for something to do; each at least once per second below
this many workers. Proposals are made ahead, so that a later look costs nothing."""
_NICE = 5
"""Training takes precedence when both need a core."""


def worker_of(record: JobRecord) -> tuple[int, int]:
    """Return the index of a job's worker, and the number of workers."""
    if record.worker is None:
        raise FolderError(f"job {record.job} is not a worker of a search")
    return record.worker.worker, record.worker.workers


def jobs_of(record: JobRecord) -> dict[int, int]:
    """Return the job of every worker of the search that ``record`` belongs to."""
    index, workers = worker_of(record)
    return {worker: record.job - index + worker for worker in range(workers)}  # consecutive numbers


def proposer_processes(context: JobContext) -> int:
    """Return on how many cores a worker proposes: those that its training leaves idle, or one.

    Training on a CPU uses its threads, training on an accelerator one core and those of its
    readers. The ranks of a node share its cores equally.
    """
    import torch

    from vflops.launch.core_binding import BINDING
    from vflops.machine.devices import pick

    train = AutomlSettings.model_validate(context.record.settings).train
    sharing = 1 if BINDING in os.environ else context.local_ranks or context.record.ranks
    on_cpu = pick(train.device, "train.device").torch_device.type == "cpu"
    busy = torch.get_num_threads() if on_cpu else 1 + train.readers
    return min(max(available_cpus() // sharing - busy, 1), _MAX_PROCESSES)


class ProposerProcess:
    """The proposer process of a worker; it ends with the worker."""

    def __init__(self, context: JobContext, memory_bytes: int | None = None) -> None:
        """``memory_bytes`` is the memory that a rank can use; the first worker measures a step."""
        run = context.attempt.parents[2]
        buffer = CandidateBuffer(run)
        if memory_bytes is not None and buffer.step_memory() is None:
            from vflops.workloads.automl.measured_memory import step_memory

            buffer.share_memory(step_memory(context, worker_of(context.record)[0], memory_bytes))
        self._log = context.attempt / "search.log"
        program = "vflops.workloads.automl.proposer_process"
        variables = {
            _PARENT: str(os.getpid()),
            _PROCESSES: str(proposer_processes(context)),
            "OMP_NUM_THREADS": "1",
        }
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                module_command(program, run, context.record.job),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **variables},
            )

    def is_running(self) -> bool:
        """Whether more candidates may come; False once there are none left within the limits."""
        code = self._process.poll()
        if code:
            raise RunFailed(
                f"the search ended with code {code}: {self.last_line}", hint=f"see {self._log}"
            )
        return code is None

    @property
    def last_line(self) -> str:
        """The last line of its output."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()


class ProposerLoop:
    """Proposes candidates for one worker."""

    def __init__(
        self,
        folder: RunFolder,
        record: JobRecord,
        distances: DistancesTo = distances_to,
    ) -> None:
        self._worker, self._workers = worker_of(record)
        self._settings = AutomlSettings.model_validate(record.settings)
        self._buffer, self._shared = (
            CandidateBuffer(folder.path),
            SharedResults(folder, jobs_of(record)),
        )
        self._order = TurnOrder(self._workers, self._shared, self._buffer)
        first = first_network(self._settings, record.data)
        self._proposer = Proposer(
            self._settings,
            record.seed,
            first,
            cache(self._proposed),
            distances,
            self._buffer.step_memory(),
        )
        self._turn = self._first_open()

    def run(self) -> None:
        """Propose until the process is killed, or raise ``SearchSpaceExhausted``."""
        while True:
            backoff = Backoff(max_s=max(1.0, self._workers / _POLLS_PER_S))
            while self.propose_next() is None:
                backoff.wait()

    def propose_next(self) -> Candidate | None:
        """Write the worker's next proposal, and return it; None if it is too early for one."""
        known = self._known()
        if known is None:
            return None
        candidate = self._propose(known)
        self._buffer.put(candidate)
        self._turn = Turn(round=self._turn.round + 1, worker=self._worker)
        return candidate

    def _propose(self, known: KnownResults) -> Candidate:
        try:
            return self._proposer.propose(self._turn, known)
        except SearchSpaceExhausted:
            self._buffer.end_turns(self._turn)  # so that no worker waits for it
            raise

    def _known(self) -> KnownResults | None:
        """Return what the next proposal is based on; None if it is too early to propose."""
        if self._settings.ordered:
            known = self._order.known(self._turn)
            if known is None:
                self._give_up_late()
            return known
        self._buffer.refresh()
        unclaimed = [turn for turn in self._buffer.unclaimed() if turn.worker == self._worker]
        if len(unclaimed) >= self._settings.search.ahead:
            return None
        return all_known(self._shared, self._buffer)

    def _give_up_late(self) -> None:
        """Give up turns whose worker is silent or whose result is lost."""
        patience_s, silence_of = self._settings.search.turn_s, self._shared.silent_s
        while (turn := self._order.turn_to_give_up(self._turn, patience_s, silence_of)) is not None:
            silent_s = silence_of(turn.worker)
            lost = self._shared.is_lost(turn)
            reason = "its result is lost" if lost else f"silent for {silent_s:.0f} s"
            if self._buffer.give_up(turn, self._worker, round(silent_s, 3)):
                print(f"gave up {turn.name}: {reason}", file=sys.stderr)

    def _proposed(self, turn: Turn) -> Candidate:
        candidate = self._buffer.get(turn)
        assert candidate is not None, turn.name
        return candidate

    def _first_open(self) -> Turn:
        """Return the worker's first turn that has neither a proposal nor been given up.

        So a worker that starts late, or restarts, joins the others in their current round.
        """
        turns = (Turn(round=n, worker=self._worker) for n in count())
        return next(t for t in turns if not (self._buffer.has(t) or self._buffer.was_passed(t)))


def main(run: str, job: str) -> int:
    """Propose until the worker ends, and return the exit code."""
    die_with(int(os.environ[_PARENT]))
    os.nice(_NICE)
    folder = RunFolder.open(Path(run))
    processes = DistanceProcesses(int(os.environ.get(_PROCESSES, "1")))
    try:
        record = JobRecord.read(folder.job_file(int(job)))
        ProposerLoop(folder, record, processes.distances_to).run()
    except SearchSpaceExhausted as error:
        print(error.message, file=sys.stderr)
        return 0
    except VflopsError as error:
        print(error.message, error.hint or "", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
