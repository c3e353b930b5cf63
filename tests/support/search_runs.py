"""Handmade searches, whose figures can all be computed by hand.

A candidate trains on 1,000 samples an epoch in batches of 100 and is evaluated on 200; training on
a sample is charged 30 operations and evaluating one 10, unless the true ones are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

from tests.support.trained_runs import closed_if_handmade, committed
from vflops.config.profiles import tiny
from vflops.record.files import atomic
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.job import DataFacts, Goal, JobRecord, WorkerRecord
from vflops.record.formats.node import Clock as NodeClock
from vflops.record.formats.node import NodeRecord
from vflops.record.installed_package import installed_package
from vflops.record.log import events
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.scoring import score
from vflops.results.task import closed_tasks
from vflops.workloads.automl import settings as automl
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Morph, apply
from vflops.workloads.automl.architecture.starting_networks import small
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.proposer import first_network
from vflops.workloads.automl.replay import write_ledger
from vflops.workloads.automl.search import learning_curve
from vflops.workloads.automl.search_events import RULES, Candidate, Hyperparameters, Turn
from vflops.workloads.automl.settings import AutomlSettings

TRAIN, VALIDATION, BATCH = 1000, 200, 100
OPS_FORWARD, OPS_TOTAL = 10, 30
ZERO_S = 1.7e9
LOADING_S = 2.0
"""The start-up time of an attempt before the worker begins."""
Note = tuple[float, str, dict[str, Any]]
FIRST = small("tiny", (3, 8, 8))
"""The first network of a search by default."""

_LAST = {"end", "stopped"}
"""Nothing follows these events."""


class HandmadeSearch:
    """A run folder whose workers' events are written at chosen times."""

    def __init__(
        self,
        parent: Path,
        patch: pytest.MonkeyPatch,
        workers: int = 1,
        *,
        base: AutomlSettings | None = None,
        imagenet: bool = False,
        **search: Any,
    ):
        """``base`` replaces the settings of the profile ``tiny``, ``imagenet`` its data."""
        self.now_s, self.jump_s, self.true_ops = 0.0, 0.0, False
        run = self

        class Now(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
                return datetime.fromtimestamp(ZERO_S + run.now_s + run.jump_s, UTC)

        patch.setattr("os.fsync", lambda file: None)  # it need not survive this machine
        patch.setattr(events, "time", self)
        patch.setattr(events, "datetime", Now)
        patch.setattr(closed_tasks, "job_task", closed_if_handmade)
        settings = base or _tiny(workers, **search)
        told = {"seed": 7, "workloads": {"automl": settings.model_dump(mode="json")}}
        self.folder = RunFolder.create(parent, "automl", tiny().model_copy(update=told))
        data = DataFacts(
            path="/data",
            synthetic=not imagenet,
            fingerprint="0" * 64,
            train=1_281_167 if imagenet else TRAIN,
            validation=50_000 if imagenet else VALIDATION,
            facts={"classes": 1000 if imagenet else 4},
        )
        self.first = first_network(settings, data)
        goal = Goal(quality="top-1 accuracy", better="higher", target=0.8, exponent=5)
        self.records = [
            JobRecord(
                job=1 + worker,
                workload="automl",
                repeat=0,
                seed=7,
                ranks=1,
                goal=goal,
                settings=settings.model_dump(mode="json"),
                data=data,
                worker=WorkerRecord(worker=worker, workers=workers),
            )
            for worker in range(workers)
        ]
        self.buffer = CandidateBuffer(self.folder.path)
        with self.folder.start_attempt(job=0) as log:
            log.write("start", workload="automl")
            log.write("plan", measurements=[])
            for record in self.records:
                path = self.folder.job_file(record.job)
                atomic.make_folder(path.parent)
                record.write(path)
                log.write("job-planned", job=record.job, sha256=record.digest())

    def monotonic(self) -> float:
        """Return the time that events record."""
        return self.now_s

    def worker(
        self, worker: int, notes: Sequence[Note], *, began_s: float = 0.0, ahead_s: float = 0.0
    ) -> Path:
        """Write an attempt of a worker on a node whose clock is ahead by ``ahead_s``."""
        job = 1 + worker
        number = self.folder.next_attempt(job)
        between_s, free_s = 0.0, began_s
        kinds = {kind for _, kind, _ in notes}
        commits = {"finished", "job"} <= kinds
        with self.folder.start_attempt(job) as log:
            for at_s, kind, data in [(began_s, "worker", self._began(worker, began_s)), *notes]:
                self.now_s, self.jump_s = at_s, self.jump_s or ahead_s
                if kind in ("progress", "evaluation", "finished"):
                    data = {**data, "phases": _phases(at_s - began_s, between_s)}
                elif kind == "candidate":
                    between_s += at_s - free_s
                elif kind.startswith("candidate-"):
                    free_s = at_s
                if kind in _LAST and commits:
                    log.write("commitment", **committed(job))
                log.write(kind, **data)
            if commits and not kinds & _LAST:
                log.write("commitment", **committed(job))
        place, self.jump_s = self.folder.attempt_folder(job, number), 0.0
        NodeRecord(
            node=0,
            nodes=1,
            host=f"node{worker}",
            name=f"node{worker}",
            reference="controller",
            clock=NodeClock(offset_s=ahead_s, uncertainty_s=1e-4),
            facts=(),
            package_sha256=installed_package().sha256,
        ).write(place / "node-0.json")
        return place

    def _began(self, worker: int, began_s: float) -> dict[str, Any]:
        duration_s = self.records[0].settings["search"]["duration_s"]
        return {"worker": worker, "left_s": duration_s - began_s, "clock": None}

    def propose(
        self,
        turn: Turn,
        parent: str | None = None,
        morphs: tuple[Morph, ...] = (),
        recorded: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> Candidate:
        """Put a candidate into the buffer, and claim it for the worker of its turn.

        ``recorded``: what the record says instead of how its architecture was derived.
        """
        base = self.network(parent)
        for morph in morphs:
            base = apply(base, morph)
        given: dict[str, Any] = {
            "hyper": Hyperparameters(batch=BATCH),
            "epochs": 2,
            "patience": None,
        }
        candidate = Candidate(
            turn=turn,
            architecture=base,
            known=0,
            known_sha256="0" * 64,
            took_s=0.1,
            **{
                "parent": parent,
                "morphs": morphs,
                "tuned": False,
                **given,
                **facts,
                **(recorded or {}),
            },
        )
        self.buffer.put(candidate)
        self.buffer.claim(turn, turn.worker, 1 + turn.worker)
        return candidate

    def network(self, name: str | None) -> Architecture:
        """Return the architecture of a candidate, or the first one."""
        found = self.buffer.get(Turn.named(name)) if name else None
        return found.architecture if found else self.first

    def begun(self, candidate: Candidate, *, inherited: bool | None = None) -> dict[str, Any]:
        """Return the payload with which a worker begins a candidate."""
        ops = (OPS_FORWARD, OPS_TOTAL)
        if self.true_ops:
            found = architecture_cost.ops(candidate.architecture, RULES, BATCH)
            ops = (found.forward // BATCH, found.total // BATCH)
        return {
            "candidate": candidate.turn.name,
            "digest": candidate.architecture.digest,
            "proposal_sha256": self.buffer.proposal_sha256(candidate.turn),
            "parent": candidate.parent,
            "inherited": candidate.parent is not None if inherited is None else inherited,
            "epochs": candidate.epochs,
            "batch": candidate.hyper.batch,
            "parameters": candidate.architecture.parameters,
            "ops_forward": ops[0],
            "ops_total": ops[1],
            "waited_s": 3.0,
            "built_s": 2.0,
        }

    def trained(
        self, candidate: Candidate, at_s: float, *accuracies: float, reports: int = 0
    ) -> list[Note]:
        """Return the events of a candidate that takes 20 s per epoch, each evaluated.

        ``reports``: the number of progress events in an epoch.
        """
        name, ends = candidate.turn.name, at_s + 20 * len(accuracies)
        notes = [(at_s, "candidate", self.begun(candidate))]
        for epoch, accuracy in enumerate(accuracies, start=1):
            for report in range(1, 1 + reports):
                share = epoch - 1 + report / (1 + reports)
                notes.append((at_s + 20 * share, "progress", progress(share)))
            notes.append((at_s + 20 * epoch, "evaluation", evaluated(epoch, accuracy)))
        standing = {**stands(len(accuracies)), "reason": "epochs", "weights_sha256": None}
        points = [(epoch, item) for epoch, item in enumerate(accuracies, start=1)]
        warm = candidate.turn.round + 1 < self.records[0].settings["search"]["tune_from"]
        result = {
            "candidate": name,
            "accuracy": max(accuracies),
            "predicted": learning_curve.predict(points, 2).value if warm else None,
            "epochs": len(accuracies),
            "reason": "epochs",
            "inherited": candidate.parent is not None,
            "hyper": candidate.hyper.model_dump(),
        }
        return [*notes, (ends, "finished", standing), (ends, "candidate-trained", result)]

    def stop(self) -> RunFolder:
        """Job 0 again: the user stops the run."""
        with self.folder.start_attempt(job=0) as log:
            log.write("described", sha256=file_hash(self.folder.system_file))
            log.write("stopped", message="interrupted (Ctrl-C)")
        return self.folder

    def end(self, *given_up: int) -> RunFolder:
        """Job 0 again: the ledger is written, the last log of every worker pinned.

        ``given_up``: jobs of workers that died for good.
        """
        with self.folder.start_attempt(job=0) as log:
            log.write("described", sha256=file_hash(self.folder.system_file))
            for job in given_up:
                reason = "it died after 'candidate'"
                log.write("job-given-up", job=job, attempts=3, reason=reason)
            for record in (item for item in self.records if item.job not in given_up):
                number = int(self.folder.logged_attempts(record.job)[-1].name)
                place = self.folder.attempt_folder(record.job, number)
                pinned = file_hash(place / "events.jsonl")
                log.write("job-trained", job=record.job, attempt=number, sha256=pinned)
            written = write_ledger(self.folder, self.records)
            log.write("ledger", **written.model_dump(mode="json"))
            log.write("end")
        return self.folder


def _tiny(workers: int, **search: Any) -> AutomlSettings:
    base = automl.tiny()
    train = base.train.model_copy(update={"batch": BATCH, "epochs": 2})
    given = base.search.model_copy(
        update={"workers": workers, "duration_s": 100.0, "batches": (BATCH,), **search}
    )
    size = {"size": FIRST.input_shape[1], "resize": FIRST.input_shape[1]}
    return base.model_copy(update={"train": train, "search": given, "target": 0.8, **size})


def stands(epoch: float) -> dict[str, Any]:
    """Return the progress after that many epochs."""
    return {"step": int(epoch * TRAIN / BATCH), "samples": int(epoch * TRAIN), "epoch": epoch}


def evaluated(epoch: float, accuracy: float) -> dict[str, Any]:
    return {**stands(epoch), "quality": accuracy, "evaluated": VALIDATION}


def progress(epoch: float) -> dict[str, Any]:
    return {**stands(epoch), "loss": 1.0}


def started(precision: str = "fp32") -> dict[str, Any]:
    return {
        "device": "cpu",
        "device_name": "Test CPU",
        "ranks": 1,
        "precision": precision,
        "ceiling_precision": precision,
        "batch": BATCH,
        "compiled": False,
        "threads": 1,
        "parameters": 1,
        "torch": "2.13.0",
    }


def one_worker(run: HandmadeSearch) -> list[Note]:
    """Return the events of two candidates, parent and child, and a third that is cut."""
    first = run.propose(Turn(round=0, worker=0), epochs=1)
    wider = Morph(kind="widen", layer=FIRST.layers[1].id, filters=16)
    second = run.propose(Turn(round=1, worker=0), first.turn.name, (wider,))
    third = run.propose(Turn(round=2, worker=0), second.turn.name)
    return [
        (9.0, "job", started()),
        *run.trained(first, 10.0, 0.6),
        *run.trained(second, 38.0, 0.7, 0.8),
        (85.0, "candidate", run.begun(third)),
        (100.0, "candidate-cut", {"candidate": third.turn.name, "samples": 300}),
        (100.0, "end", {}),
    ]


def _phases(since_s: float, between_s: float) -> dict[str, float]:
    names = ("compilation", "data", "evaluation", "checkpointing")
    own = {"start-up": LOADING_S + between_s, "training": since_s - between_s}
    return {**dict.fromkeys(names, 0.0), **own}


def judged(folder: RunFolder) -> dict[str, str]:
    """Return the rules that fail, with their evidence."""
    score(Contents(folder)).write(folder.score_file)
    findings = check(Contents(folder)).findings
    return {finding.rule: finding.text for finding in findings if finding.failed}
