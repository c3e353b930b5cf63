"""Runs with trainings, written by hand: every figure of theirs can be worked out on paper.

A training takes 10 steps of 100 samples an epoch; a step takes 1 s and waits 0.1 s for data, an
evaluation takes 2 s, a checkpoint 0.5 s, start-up 4 s and compilation 3 s.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from vflops.config.profiles import tiny
from vflops.metrics.traffic import bytes_sent
from vflops.record.files import atomic
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts, DeclaredWork, Goal, JobRecord
from vflops.record.formats.telemetry import Absent, Header, Kind, Part, Series
from vflops.record.log import events
from vflops.record.log.telemetry_log import TelemetryWriter
from vflops.results.check import graph_rules
from vflops.results.rebuild.rebuilding import rebuilt_graph
from vflops.results.task import closed_tasks
from vflops.results.task.task import Task
from vflops.testing.conventions import sample_graph

WORKLOAD = "image-classification"
DEVICE = "cuda"
GPU_POWER_W = (300.0, 200.0)
START_S, COMPILE_S = 4.0, 3.0
ZERO = datetime(2026, 1, 1, tzinfo=UTC)
"""When the clock of such a run is at zero."""
Note = tuple[str, dict[str, Any]]
_BAGGING = ("models", "bootstrap", "twins")
TARGET = 0.8
vflops_job_task = closed_tasks.job_task
"""The function of vflops, which ``HandmadeRun`` replaces by ``closed_if_handmade``."""


def closed_if_handmade(record: JobRecord, profile: str, data_seed: int | None = None) -> Task:
    """The task of a job; it counts as closed for jobs with the usual target of this module."""
    task = vflops_job_task(record, profile, data_seed)
    if record.goal.target != TARGET:
        return task
    return task.model_copy(update={"kind": "closed", "differences": ()})


class Clock:
    """Stands for the ``time`` that events ask."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    @property
    def utc(self) -> type[datetime]:
        """A ``datetime`` that goes as this clock does."""
        clock = self

        class Now(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
                return ZERO + timedelta(seconds=clock.now_s)

        return Now


class HandmadeRun:
    """A run folder whose jobs are written event by event, at times of our choice."""

    def __init__(self, parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        monkeypatch.setattr("os.fsync", lambda file: None)  # it need not survive this machine
        monkeypatch.setattr(events, "time", self.clock)
        monkeypatch.setattr(events, "monotonic_clock_id", lambda: "handmade")
        monkeypatch.setattr(events, "datetime", self.clock.utc)
        monkeypatch.setattr(closed_tasks, "job_task", closed_if_handmade)
        self.folder = RunFolder.create(parent, WORKLOAD, tiny())
        self.graph = trained_graph()
        monkeypatch.setattr(graph_rules, "rebuilt_graph", self._rebuilt)

    def _rebuilt(self, record: JobRecord) -> Graph | None:
        """The graph of the run for the jobs of this module, whose data has no classes."""
        return rebuilt_graph(record) if record.data.facts else self.graph

    def plan(self, *records: JobRecord, ceilings: tuple[Any, ...] = ()) -> None:
        """Job 0: the graph, the ceilings and the plan of the jobs; the run is complete."""
        self.tell(*records)
        atomic.make_folder(self.folder.path / "graphs")
        graph = self.graph
        graph.write(self.folder.graph_file(graph.model))
        with self.folder.start_attempt(job=0) as log:
            log.write("start", workload=WORKLOAD)
            log.write("plan", measurements=[item.key for item in ceilings])
            for item in ceilings:
                measured = item.model_copy(update={"device": f"{DEVICE}:0"})
                log.write("measurement", **measured.model_dump(mode="json"))
            log.write("counted", model=graph.model, batch=graph.batch, sha256=graph.digest())
            for record in records:
                path = self.folder.job_file(record.job)
                atomic.make_folder(path.parent)
                record.write(path)
                log.write("job-planned", job=record.job, sha256=record.digest())
            log.write("end")

    def tell(self, *records: JobRecord) -> None:
        """``run.json`` with the settings that the jobs are told; no log may have begun."""
        settings = self.folder.record.settings
        bags = [record.bag for record in records if record.bag]
        told = {key: getattr(bags[0], key) for key in _BAGGING} if bags else {}
        changes = {
            "workloads": {record.workload: record.settings for record in records},
            "repeat": max(settings.repeat, *(1 + record.repeat for record in records)),
            "bagging": settings.bagging.model_copy(update=told),
        }
        run = self.folder.record.model_copy(
            update={"settings": settings.model_copy(update=changes)}
        )
        run.write(self.folder.path / "run.json")
        self.folder = RunFolder(self.folder.path, run)

    def end(self) -> None:
        """Job 0 again: the system is described, the last log of every job pinned."""
        with self.folder.start_attempt(job=0) as log:
            log.write("described", sha256=file_hash(self.folder.system_file))
            log.write("load", others_share=0.01)
            for job, logs in self.folder.history().jobs.items():
                if job and logs:
                    number = int(self.folder.logged_attempts(job)[-1].name)
                    path = self.folder.attempt_folder(job, number) / "events.jsonl"
                    telemetry = path.with_name("telemetry.jsonl")
                    pinned = file_hash(telemetry) if telemetry.is_file() else None
                    log.write(
                        "job-trained",
                        job=job,
                        attempt=number,
                        sha256=file_hash(path),
                        telemetry_sha256=pinned,
                    )
            log.write("end")

    def attempt(self, job: int, began_s: float, *notes: Note, tells: bool = True) -> Path:
        """An attempt whose processes began at ``began_s``; notes with phases come at their time.

        ``tells``: several ranks that came to the end say what they sent, unless the notes do.
        """
        number = self.folder.next_attempt(job)
        told = dict(notes)
        if tells and "finished" in told and not {"exchange", "stages"} & {*told}:
            end = [kind for kind, _ in notes].index("finished") + 1
            notes = (*notes[:end], *averaged(told), *notes[end:])
        with self.folder.start_attempt(job) as log:
            self.clock.now_s = began_s + START_S
            for kind, data in notes:
                if kind == "end" and told.get("job", {}).get("torch"):
                    log.write("commitment", **committed(job))
                if "phases" in data:
                    self.clock.now_s = began_s + sum(data["phases"].values())
                log.write(kind, **_of_seed(job, data))
            if "end" not in told:
                for step in range(10, 1 + max(item.get("step", 0) for _, item in notes), 10):
                    log.write("checkpoint", **checkpoint(step))
        return self.folder.attempt_folder(job, number)


def checkpoint(step: int) -> dict[str, Any]:
    """A checkpoint of an attempt that died; last in its log, so that no line moves."""
    file, sha256 = f"step-{step:09d}.state", f"{step:064x}"
    return {"step": step, "sha256": sha256, "loss": 1.0, "file": file, "size_bytes": 1}


def committed(job: int) -> dict[str, Any]:
    """The state of a training before its first step; last in a log, so that no line moves."""
    return {"step": 0, "sha256": f"{job:064x}", "loss": None}


def _of_seed(job: int, data: dict[str, Any]) -> dict[str, Any]:
    """The data of an event; losses of different seeds differ, if only in their last digits."""
    loss = data.get("loss")
    return {**data, "loss": loss * (1 + 1e-9 * job)} if loss else data


def trained_graph() -> Graph:
    """A small graph in the workload's name, so that its operations are what is counted."""
    return sample_graph(batch=4).model_copy(update={"model": WORKLOAD})


def job(number: int = 1, *, target: float = TARGET, **facts: Any) -> JobRecord:
    """Job ``number``, with the seed of the same number."""
    ranks, settings = facts.get("ranks", 2), facts.pop("settings", {"target": target})
    train = {"epochs": 3, "batch": 100, "ranks": ranks, **settings.get("train", {})}
    train["segments"] = 0  # no state is kept
    return JobRecord.model_validate(
        {
            "job": number,
            "workload": WORKLOAD,
            "repeat": number - 1,
            "seed": number,
            "ranks": ranks,
            "goal": Goal(quality="top-1 accuracy", better="higher", target=target, exponent=5),
            "settings": {**settings, "train": train},
            "data": DataFacts(
                path="/data", synthetic=True, fingerprint="0" * 64, train=1000, validation=200
            ),
            **facts,
        }
    )


def declared(ops_forward: int, ops_total: int) -> DeclaredWork:
    return DeclaredWork(ops_forward=ops_forward, ops_total=ops_total, source="the user's <script>")


def started(**facts: Any) -> Note:
    """The ranks run: on two accelerators unless told otherwise."""
    return "job", {
        "device": DEVICE,
        "device_name": "Test GPU",
        "ranks": 2,
        "precision": "fp32",
        "ceiling_precision": "fp32",
        "batch": 100,
        "compiled": True,
        "threads": 0,
        "parameters": 1504,
        "torch": "2.13.0",
        **facts,
    }


def resumed(step: int) -> Note:
    state = {name: checkpoint(step)[name] for name in ("file", "sha256")}
    return "resumed", {"step": step, "samples": 100 * step, **state}


def _standing(step: int, first_step: int, evaluations: int) -> dict[str, Any]:
    taken = step - first_step
    return {
        "step": step,
        "samples": 100 * step,
        "epoch": step / 10,
        "phases": {
            "start-up": START_S,
            "compilation": COMPILE_S,
            "data": 0.1 * taken,
            "training": 1.0 * taken,
            "evaluation": 2.0 * evaluations,
            "checkpointing": 0.5 * (evaluations - 1) if evaluations else 0.0,
        },
    }


def progress(step: int, loss: float, *, first_step: int = 0, evaluations: int = 0) -> Note:
    standing = _standing(step, first_step, evaluations)
    return "progress", {**standing, "loss": loss, "learning_rate": 0.1}


def evaluated(step: int, quality: float, *, first_step: int = 0, evaluations: int) -> Note:
    """The ``evaluations``-th evaluation of the attempt, after that many less one checkpoints."""
    standing = _standing(step, first_step, evaluations)
    return "evaluation", {**standing, "quality": quality, "evaluated": 200}


def finished(step: int, *, first_step: int = 0, evaluations: int) -> Note:
    standing = _standing(step, first_step, evaluations)
    standing["phases"]["checkpointing"] += 0.5
    return "finished", {**standing, "reason": "epochs", "weights_sha256": None}


def averaged(told: dict[str, Any]) -> list[Note]:
    """What the ranks of an attempt sent to average gradients, by what it has told so far."""
    began, ranks = told["job"], told["job"]["ranks"]
    steps = told["finished"]["step"] - told.get("resumed", {"step": 0})["step"]
    if ranks == 1 or began["torch"] is None or not began["parameters"] or not steps:
        return []
    on_cpu = began["device"] == "cpu"
    sent = bytes_sent("all-reduce", "fp32", ranks, ranks, began["parameters"])
    exchange = {
        "mode": "all-reduce",
        "precision": "fp32",
        "ranks": ranks,
        "near": ranks,
        "backend": "gloo" if on_cpu else "nccl",
        "algorithm": "all-reduce: ring" if on_cpu else None,
        "reason": None if on_cpu else "nccl does not say",
        "bytes_near": steps * sent.near,
        "bytes_far": 0,
        "steps": steps,
        "elements": steps * ranks * began["parameters"],
    }
    return [("exchange", exchange)]


def kernels() -> Note:
    shares = {"convolution": 0.6, "normalisation": 0.25, "element-wise": 0.15}
    times = [
        {"kind": kind, "time_s": share, "share": share, "calls": 10}
        for kind, share in shares.items()
    ]
    return "kernels", {"steps": 3, "kernels": times}


def course(*qualities: float, first_step: int = 0, **began: Any) -> list[Note]:
    """An attempt from ``first_step`` with an evaluation an epoch, to its end."""
    notes: list[Note] = [started(**began), *([resumed(first_step)] if first_step else [])]
    step, facts = first_step, {"first_step": first_step}
    for count, quality in enumerate(qualities, start=1):
        for number in range(step + 2, step + 11, 2):
            notes.append(progress(number, 2 / (1 + number / 10), **facts, evaluations=count - 1))
        step += 10
        notes.append(evaluated(step, quality, **facts, evaluations=count))
    return [*notes, finished(step, **facts, evaluations=len(qualities)), ("end", {})]


def write_telemetry(attempt: Path, began_s: float, length_s: float, *, power: bool = True) -> None:
    """A sample a second: two accelerators at constant power, a busy processor, some traffic."""
    gpus = [
        _series(f"gpu{number}.power", "W", "gauge", "accelerator")
        for number in range(len(GPU_POWER_W))
        if power
    ]
    others = [
        _series("gpu0.utilisation", "%", "gauge", "accelerator"),
        _series("cpu.run", "%", "gauge", "run"),
        _series("net.eth0.received", "B", "counter", "network-between"),
        _series("disk.run_read", "B", "counter", "run"),
    ]
    absent = (Absent(what="processor energy", reason="no powercap <here>"),)
    header = Header(interval_s=1.0, series=(*gpus, *others), absent=absent)
    writer = TelemetryWriter(attempt / "telemetry.jsonl", header)
    for second in range(int(length_s) + 3):
        watts = GPU_POWER_W if power else ()
        values = (*watts, 90.0 + second % 10, 40.0, 1e6 * second, 5e7 * second)
        writer.write(began_s - 1 + second, 1.7e9 + second, values)
    writer.close()


def _series(id: str, unit: str, kind: Kind, part: Part) -> Series:
    return Series(id=id, title=id, unit=unit, source=f"test {id}", kind=kind, part=part)


def two_seeds(run: HandmadeRun, ceilings: tuple[Any, ...]) -> RunFolder:
    """Seed 1 in two attempts with 500 samples done again, seed 2 in one with its kernels."""
    run.plan(job(1), job(2), ceilings=ceilings)
    # Killed at step 15; its newest checkpoint is of step 10.
    lost = [*course(0.3)[:-2], progress(15, 1.0, evaluations=1)]
    write_telemetry(run.attempt(1, 1000.0, *lost), 1000.0, 30)
    write_telemetry(run.attempt(1, 1100.0, *course(0.6, 0.9, first_step=10)), 1100.0, 40)
    notes = course(0.4, 0.85, 0.88)
    write_telemetry(run.attempt(2, 1200.0, *notes[:-1], kernels(), notes[-1]), 1200.0, 60)
    return run.folder
