"""The process beside a worker that proposes its candidates.

Started as ``python -m vflops.workloads.automl.proposer_process RUN JOB``.

It proposes the worker's candidates ahead of its training, without torch, and puts them into the
buffer. In ordered mode it waits for what a proposal depends on; a worker that gives no sign of life
for too long is no longer waited for, nor is a result that cannot be read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from itertools import count
from pathlib import Path

from vflops.errors import FolderError, RunFailed, VflopsError
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.train.context import JobContext
from vflops.train.parent_death import die_with
from vflops.workloads.automl.backoff import Backoff
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.proposer import Proposer, first_network
from vflops.workloads.automl.search.searcher import EmptySpace
from vflops.workloads.automl.search_events import Candidate, Turn
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.shared_results import SharedResults
from vflops.workloads.automl.turns import KnownResults, TurnOrder, all_known

_PARENT = "VFLOPS_WORKER"
_NICE = 5
"""Training comes first where both want a core."""


def worker_of(record: JobRecord) -> tuple[int, int]:
    """Which worker of how many a job is."""
    if record.worker is None:
        raise FolderError(f"job {record.job} is no worker of a search")
    return record.worker.worker, record.worker.workers


def jobs_of(record: JobRecord) -> dict[int, int]:
    """The job of every worker of a search: they were planned one after the other."""
    me, workers = worker_of(record)
    return {worker: record.job - me + worker for worker in range(workers)}


class ProposerProcess:
    """The process that searches for a worker; it does not outlive it."""

    def __init__(self, context: JobContext) -> None:
        run = context.attempt.parents[2]
        self._log = context.attempt / "search.log"
        command = [sys.executable, "-P", "-m", "vflops.workloads.automl.proposer_process"]
        own = {_PARENT: str(os.getpid()), "OMP_NUM_THREADS": "1"}
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, str(run), str(context.record.job)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **own},
            )

    def goes_on(self) -> bool:
        """Whether more candidates may come; False: there is none left within the limits."""
        code = self._process.poll()
        if code:
            raise RunFailed(
                f"the search ended with code {code}: {self.last_words}", hint=f"see {self._log}"
            )
        return code is None

    @property
    def last_words(self) -> str:
        """What it said last."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


class ProposerLoop:
    """Proposes for one worker."""

    def __init__(self, folder: RunFolder, record: JobRecord) -> None:
        self._me, self._workers = worker_of(record)
        self._settings = AutomlSettings.model_validate(record.settings)
        self._buffer, self._ledger = (
            CandidateBuffer(folder.path),
            SharedResults(folder, jobs_of(record)),
        )
        self._order = TurnOrder(self._workers, self._ledger, self._buffer)
        first = first_network(self._settings, record.data)
        self._proposer = Proposer(self._settings, record.seed, first, cache(self._proposed))
        self._turn = self._first_open()

    def run(self) -> None:
        """For ever, or until there is nothing new within the limits."""
        while True:
            pause = Backoff()
            while (known := self._known()) is None:
                pause.wait()
            self._buffer.put(self._propose(known))
            self._turn = Turn(round=self._turn.round + 1, worker=self._me)

    def _propose(self, known: KnownResults) -> Candidate:
        try:
            return self._proposer.propose(self._turn, known)
        except EmptySpace:
            self._buffer.end(self._turn)  # nobody waits for what will not come
            raise

    def _known(self) -> KnownResults | None:
        """What the next proposal is made from; None: it is not its time."""
        if self._settings.ordered:
            known = self._order.known(self._turn)
            if known is None:
                self._pass_late()
            return known
        self._buffer.look()
        waiting = [turn for turn in self._buffer.waiting() if turn.worker == self._me]
        if len(waiting) >= self._settings.search.ahead:
            return None
        return all_known(self._ledger, self._buffer)

    def _pass_late(self) -> None:
        """Give up the turn that all wait for, if nothing will come of it."""
        patience_s, heard = self._settings.search.turn_s, self._ledger.silent_s
        while (turn := self._order.to_pass(self._turn, patience_s, heard)) is not None:
            silent_s = heard(turn.worker)
            why = (
                "its result is lost" if self._ledger.lost(turn) else f"silent for {silent_s:.0f} s"
            )
            if self._buffer.give_up(turn, self._me, round(silent_s, 3)):
                print(f"{turn.name} is passed: {why}", file=sys.stderr)

    def _proposed(self, turn: Turn) -> Candidate:
        found = self._buffer.get(turn)
        assert found is not None, turn.name
        return found

    def _first_open(self) -> Turn:
        """The worker's first turn without a candidate that others may still wait for: one that
        comes late, or back, joins them where they are."""
        turns = (Turn(round=n, worker=self._me) for n in count())
        return next(t for t in turns if not (self._buffer.has(t) or self._buffer.passed(t)))


def main(run: str, job: str) -> int:
    """Search until the worker ends; the exit code."""
    die_with(int(os.environ[_PARENT]))
    os.nice(_NICE)
    folder = RunFolder.open(Path(run))
    try:
        ProposerLoop(folder, JobRecord.read(folder.job_file(int(job)))).run()
    except EmptySpace as error:
        print(error.message, file=sys.stderr)
        return 0
    except VflopsError as error:
        print(error.message, error.hint or "", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
