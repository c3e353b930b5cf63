"""What a search of many workers costs besides training: proposals, reads, ledger, score, check.

    python -m benchmarks.search_at_scale [--workers 10 32 100 256 512 1000] [--rounds 5]
                                         [--searcher bayesian] [--folder DIR]

The workers are simulated: a formula gives the accuracy of a network, and time is simulated, so that
no candidate is trained. Everything else is the code of a run: buffer, claims, logs, shared results,
ledger, score and check. The proposals of worker 0 are made by its real proposer in a process of its
own, which is measured; every other worker needs the same time on its own node. The networks of the
others are random morphs of earlier ones, because a thousand searchers do not fit on one machine.
Networks have the size of ResNet-50, and logs one evaluation per epoch, for 15, 30, 45 and then 60
epochs.

A candidate of the paper took hours: 96 were trained on 50 nodes in 12 hours, which is the time of a
training that proposals are compared with. Bytes and calls are those of the system calls of the
measured process. Logs and proposals are in ``--folder``, by default a temporary folder; on a shared
file system, each open file costs more.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from math import exp
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from tests.support.sample_parts import write_system
from tests.support.search_runs import started
from vflops.record.files import atomic
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.job import DataFacts, Goal, JobRecord, WorkerRecord
from vflops.record.log import events
from vflops.record.log.events import EventWriter
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.scoring import score
from vflops.units import quantity, seconds
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import sample
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.proposer import first_network, limits_of
from vflops.workloads.automl.proposer_process import ProposerLoop
from vflops.workloads.automl.replay import write_ledger
from vflops.workloads.automl.search import rounds as schedule
from vflops.workloads.automl.search_events import RULES, Candidate, Hyperparameters, Turn
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.contract.run_settings import load, profile

ZERO_S = 1.7e9
EPOCH_S = 20.0
"""The simulated time of an epoch."""
SAMPLES, EVALUATED = 1_281_167, 50_000
PUBLISHED_TRAINING_S = 12 * 3600 * 50 / 96
"""Seconds that a worker of the paper took for a candidate: 96 of them on 50 nodes in 12 hours."""


class SimulatedClock(datetime):
    """The clock of all workers; ``now_s`` is set by the simulation."""

    now_s = 0.0

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.fromtimestamp(ZERO_S + cls.now_s, UTC)

    @classmethod
    def monotonic(cls) -> float:
        return cls.now_s


@dataclass(frozen=True)
class Cost:
    """What a call cost the process that made it."""

    wall_s: float
    cpu_s: float
    read_b: int
    reads: int
    """Read calls."""


@dataclass(frozen=True)
class RoundCost:
    """What the proposer of one worker cost in one round."""

    history: int
    """Results that the proposal was based on."""
    polling: Cost
    """Finding out which candidates wait for a worker."""
    proposing: Cost
    memory_b: int


class SimulatedSearch:
    """A run folder whose workers are simulated."""

    def __init__(self, parent: Path, workers: int, searcher: str) -> None:
        base = profile("reference", ["automl"])
        given = [f"search.workers={workers}", f"search.searcher={searcher}", "search.inherit=false"]
        settings = load(base, None, [*given, "train.batch=256", "launch.on=local"])
        self.settings = AutomlSettings.model_validate(settings.workloads["automl"])
        self.folder = RunFolder.create(parent, "automl", settings)
        facts = DataFacts(
            path="/data",
            synthetic=True,
            fingerprint="0" * 64,
            train=SAMPLES,
            validation=EVALUATED,
            facts={"classes": 1000},
        )
        goal = Goal(quality="top-1 accuracy", better="higher", target=0.7, exponent=5)
        self.records = [
            JobRecord(
                job=1 + worker,
                workload="automl",
                repeat=0,
                seed=1,
                ranks=1,
                goal=goal,
                settings=self.settings.model_dump(mode="json"),
                data=facts,
                worker=WorkerRecord(worker=worker, workers=workers),
            )
            for worker in range(workers)
        ]
        self.buffer = CandidateBuffer(self.folder.path)
        self.first = first_network(self.settings, facts)
        self.rng = random.Random(1)
        self.networks: list[Architecture] = [self.first]
        self.digests = {self.first.digest}
        write_system(self.folder)
        with self.folder.start_attempt(job=0) as log:
            log.write("start", workload="automl")
            log.write("plan", measurements=[])
            for record in self.records:
                path = self.folder.job_file(record.job)
                atomic.make_folder(path.parent)
                record.write(path)
                log.write("job-planned", job=record.job, sha256=record.digest())

    def drawn(self, turn: Turn) -> Candidate:
        """Return a candidate that no searcher chose: a random morph of an earlier network."""
        while True:
            parent = self.rng.choice(self.networks)
            found = sample(parent, self.rng, limits_of(self.settings))
            if found is not None and found[1].digest not in self.digests:
                break
        self.digests.add(found[1].digest)
        return Candidate(
            turn=turn,
            architecture=found[1],
            parent=None,
            morphs=(),
            hyper=Hyperparameters(batch=256, kernel=3 if self._is_tuned(turn) else None),
            tuned=self._is_tuned(turn),
            epochs=schedule.epochs(turn.round),
            patience=None,
            known=0,
            known_sha256="0" * 64,
            took_s=0.0,
        )

    def train(self, log: EventWriter, candidate: Candidate, worker: int, began_s: float) -> None:
        """Write what the training of a candidate would have written."""
        turn, epochs = candidate.turn, candidate.epochs
        self.buffer.claim(turn, worker, 1 + worker)
        SimulatedClock.now_s = began_s
        log.write("candidate", sync=False, **self._begun(candidate))
        best = accuracy_of(candidate.architecture, self.first)
        for epoch in range(1, epochs + 1):
            SimulatedClock.now_s += EPOCH_S
            accuracy = round(best * (1 - exp(-epoch / 8)), 6)
            log.write("evaluation", sync=False, quality=accuracy, evaluated=EVALUATED, **at(epoch))
        reached = at(epochs)
        log.write("finished", sync=False, reason="epochs", weights_sha256=None, **reached)
        log.write(
            "candidate-trained",
            sync=False,
            candidate=turn.name,
            accuracy=accuracy,
            predicted=None if self._is_tuned(turn) else best,
            epochs=epochs,
            reason="epochs",
            inherited=False,
            hyper=candidate.hyper.model_dump(),
        )
        self.networks.append(candidate.architecture)

    def end(self) -> None:
        """Write the end of the run, without its ledger."""
        with self.folder.start_attempt(job=0) as log:
            log.write("described", sha256=file_hash(self.folder.system_file))
            log.write("end")

    def _is_tuned(self, turn: Turn) -> bool:
        return turn.round + 1 >= self.settings.search.tune_from

    def _begun(self, candidate: Candidate) -> dict[str, Any]:
        ops = architecture_cost.ops(candidate.architecture, RULES, 256)
        return {
            "candidate": candidate.turn.name,
            "digest": candidate.architecture.digest,
            "proposal_sha256": self.buffer.proposal_sha256(candidate.turn),
            "parent": candidate.parent,
            "inherited": False,
            "epochs": candidate.epochs,
            "batch": candidate.hyper.batch,
            "parameters": candidate.architecture.parameters,
            "ops_forward": ops.forward // 256,
            "ops_total": ops.total // 256,
            "waited_s": 0.0,
            "built_s": 1.0,
        }


def at(epoch: int) -> dict[str, Any]:
    """Return the progress after an epoch."""
    names = ("compilation", "data", "evaluation", "checkpointing")
    return {
        "step": epoch * SAMPLES // 256,
        "samples": epoch * SAMPLES,
        "epoch": float(epoch),
        "phases": {
            **dict.fromkeys(names, 0.0),
            "start-up": 1.0,
            "training": epoch * EPOCH_S,
        },
    }


def accuracy_of(network: Architecture, first: Architecture) -> float:
    """Return the accuracy after endless training: the deeper, the better, up to a limit."""
    return 0.75 + 0.1 * (1 - exp(-(network.depth - first.depth) / 10))


def measured_proposals(run: Path, job: int, pipe: Connection) -> None:
    """Make the proposals of one worker when asked to, and send what each one cost."""
    folder = RunFolder.open(run)
    loop = ProposerLoop(folder, JobRecord.read(folder.job_file(job)))
    buffer = CandidateBuffer(run)
    while pipe.recv():
        with cost() as proposing:
            candidate = loop.propose_next()
        with cost() as polling:
            buffer.refresh()
            buffer.unclaimed()
        memory_b = psutil.Process().memory_info().rss
        known = candidate.known if candidate else 0
        pipe.send((candidate, RoundCost(known, polling[0], proposing[0], memory_b)))


@contextmanager
def cost() -> Iterator[list[Cost]]:
    """Yield a list to which the cost of the block is added."""
    measured = list[Cost]()
    before, started_s, cpu_s = io_counts(), time.monotonic(), time.process_time()
    yield measured
    wall_s, cpu_s = time.monotonic() - started_s, time.process_time() - cpu_s
    after = io_counts()
    measured.append(Cost(wall_s, cpu_s, after[0] - before[0], after[1] - before[1]))


def io_counts() -> tuple[int, int]:
    """Return the bytes that this process has read, and its read calls."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]), int(lines["syscr"])


def simulate(parent: Path, workers: int, rounds: int, searcher: str) -> None:
    """Simulate a search, and print what it cost."""
    print(f"\n{workers} workers, {rounds} rounds", flush=True)
    search = SimulatedSearch(parent, workers, searcher)
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    prober = spawn.Process(target=measured_proposals, args=(search.folder.path, 1, theirs))
    prober.start()
    print(f"  {'history':>8} {'propose':>9} {'CPU':>9} {'read':>9} {'calls':>7} {'poll':>9} memory")
    with ExitStack() as stack:
        logs = [stack.enter_context(search.folder.start_attempt(1 + w)) for w in range(workers)]
        for worker, log in enumerate(logs):
            log.write("worker", sync=False, worker=worker, left_s=1e6, clock=None)
            log.write("job", sync=False, **started())
        began_s = 1.0
        for number in range(rounds):
            ours.send(True)
            mine, taken = ours.recv()
            print_round(taken)
            for worker, log in enumerate(logs):
                turn = Turn(round=number, worker=worker)
                candidate = mine if worker == 0 else search.drawn(turn)
                if worker > 0:
                    search.buffer.put(candidate)
                search.train(log, candidate, worker, began_s)
            began_s += schedule.epochs(number) * EPOCH_S + 1.0
        for log in logs:
            log.write("end", sync=False)
    ours.send(False)
    prober.join()
    print_end(search)


def print_round(taken: RoundCost) -> None:
    """Print the cost of one proposal."""
    own = taken.proposing
    print(
        f"  {taken.history:8,} {seconds(own.wall_s):>9} {seconds(own.cpu_s):>9}"
        f" {quantity(own.read_b, 'B'):>9} {own.reads:7,} {seconds(taken.polling.wall_s):>9}"
        f" {quantity(taken.memory_b, 'B')}, {own.wall_s / PUBLISHED_TRAINING_S:.1e} of a training",
        flush=True,
    )


def print_end(search: SimulatedSearch) -> None:
    """Write and print what is done once at the end."""
    with cost() as ledger:
        write_ledger(search.folder, search.records)
    search.end()
    with cost() as scoring:
        result = score(Contents(search.folder))
        result.write(search.folder.score_file)
    with cost() as checking:
        check(Contents(search.folder))
    for what, (own,) in (("ledger", ledger), ("score", scoring), ("check", checking)):
        print(f"  {what}: {seconds(own.wall_s)}, CPU {seconds(own.cpu_s)}", end="")
    print(f"; {result.searches[0].ops:.3e} operations", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 32, 100, 256, 512, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--searcher", default="bayesian")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    events.time = events.datetime = SimulatedClock  # type: ignore[assignment, attr-defined]
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for workers in arguments.workers:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            simulate(Path(folder), workers, arguments.rounds, arguments.searcher)


if __name__ == "__main__":
    main()
