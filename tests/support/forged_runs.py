"""Runs that meet a paper's rules, written by hand, and a careful forger who changes one thing.

The forger chains the logs anew and renews every pin, so that only what was changed is found.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import search_runs
from tests.support.sample_parts import MEASUREMENTS, write_system
from tests.support.search_runs import HandmadeSearch
from tests.support.trained_runs import DEVICE, ZERO, HandmadeRun, Note, job, started
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.job import DataFacts, Duplicates, Goal, JobRecord
from vflops.record.formats.job_events import PHASES
from vflops.record.formats.telemetry import Header, Series
from vflops.record.log.telemetry_log import TelemetryWriter
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score
from vflops.workloads.automl.architecture import morphs
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Limits
from vflops.workloads.automl.replay import write_ledger
from vflops.workloads.automl.search import rounds
from vflops.workloads.automl.search_events import Turn
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.settings import reference as automl_reference
from vflops.workloads.image_classification.settings import reference

TRAIN, VALIDATION, EPOCHS = 1_281_167, 50_000, 90
REPEATS, MODELS = 4, 2
NO_DUPLICATES: dict[str, Any] = {
    "leaked": 0,
    "leaks": [],
    "contradictory": 0,
    "contradictions": [],
}
CONTENTS = {"train": "1" * 64, "validation": "2" * 64}
"""The content hashes of the images."""
START_S, WORK_S, EVALUATION_S = 4.0, 3600.0, 20.0
POWER_W, INTERVAL_S = 300.0, 60.0

ACCELERATORS = {"accelerators": 1, "accelerator_kind": DEVICE, "accelerator_0_model": "Test GPU"}

Line = dict[str, Any]
_REPORTS = 25
"""Progress events per epoch of a search, which takes 20 minutes."""


class Forger:
    """A run folder whose files may be changed before it is sealed again."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder.open(path)
        jobs = sorted((path / "jobs").glob("*/*/events.jsonl"))
        self.logs = {log: [json.loads(line) for line in log.open()] for log in jobs}
        self.after: list[Callable[[RunFolder], object]] = []
        """What is done to the sealed folder: nothing of it is made good."""

    def attempt(self, job: int) -> Path:
        """The folder of the only attempt at a training."""
        return self.folder.attempt_folder(job, 0)

    def lines(self, kind: str, job: int | None = None) -> list[Line]:
        """All events of a kind, to be changed in place."""
        return [
            line
            for path, log in self.logs.items()
            if job is None or path.parts[-3] == str(job)
            for line in log
            if line["kind"] == kind
        ]

    def drop(self, keep: Callable[[Line], bool]) -> None:
        """Leave out the events that are not to be kept."""
        for log in self.logs.values():
            log[:] = [line for line in log if keep(line)]

    def record(self, job: int, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the record of a job."""
        path = self.folder.job_file(job)
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))

    def records(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the record of every job."""
        for path in (self.folder.path / "jobs").glob("*/job.json"):
            self.record(int(path.parent.name), change)

    def settings(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the settings of every job, and with them those of the run."""
        self.records(lambda data: change(data["settings"]))
        self.run(lambda data: [change(settings) for settings in data["workloads"].values()])

    def bags(self, **facts: Any) -> None:
        """Change how every sample is drawn, as the run says it too."""
        self.records(lambda data: data["bag"].update(facts))
        self.run(lambda data: data["bagging"].update(facts))

    def twins(self) -> None:
        """Make pairs of the models: one sample and one seed each."""
        self.bags(twins=True)
        self.records(lambda data: data.update(seed=data["seed"] - (data["bag"]["model"] + 1) // 2))

    def run(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the settings in ``run.json``."""
        path = self.folder.path / "run.json"
        data = json.loads(path.read_text())
        change(data["settings"])
        path.write_text(json.dumps(data))
        self.folder = RunFolder.open(self.folder.path)

    def stands(self, job: int, epochs: int) -> None:
        """Training ended after that many epochs, and nothing gives it away."""
        for line in (*self.lines("evaluation", job), *self.lines("finished", job)):
            step = -(-epochs * TRAIN // reference().train.batch)
            line["data"].update(stood(step))

    def sealed(self) -> RunFolder:
        """The folder with its chains, pins, ledger and score renewed."""
        own = [path for path in self.logs if path.parts[-3] == "0"]
        anchors = {path.parts[-3]: self.folder.anchor for path in self.logs}
        for path in [path for path in self.logs if path not in own]:
            anchors[path.parts[-3]] = _chained(path, self.logs[path], anchors[path.parts[-3]])
        self._pin()
        for path in own:
            anchors["0"] = _chained(path, self.logs[path], anchors["0"])
        folder = RunFolder.open(self.folder.path)
        score(Contents(folder)).write(folder.score_file)
        for harm in self.after:
            harm(folder)
        return folder

    def _pin(self) -> None:
        for line in self.lines("job-planned"):
            line["data"]["sha256"] = file_hash(self.folder.job_file(line["data"]["job"]))
        for line in self.lines("job-trained"):
            place = self.folder.attempt_folder(line["data"]["job"], line["data"]["attempt"])
            line["data"]["sha256"] = file_hash(place / "events.jsonl")
            if (place / "telemetry.jsonl").is_file():
                line["data"]["telemetry_sha256"] = file_hash(place / "telemetry.jsonl")
        for line in self.lines("ledger"):
            jobs = sorted(self.folder.path.glob("jobs/*/job.json"))
            written = write_ledger(self.folder, [JobRecord.read(path) for path in jobs])
            line["data"] = written.model_dump(mode="json")


def _chained(path: Path, lines: list[Line], anchor: str) -> str:
    """Write a log whose lines follow each other; its hash is the next one's anchor."""
    text = b""
    for line in lines:
        data = json.dumps({**line, "prev": anchor}, sort_keys=True, ensure_ascii=False).encode()
        anchor, text = hashlib.sha256(data).hexdigest(), text + data + b"\n"
    path.write_bytes(text)
    return hashlib.sha256(text).hexdigest()


def trained_run(parent: Path, patch: pytest.MonkeyPatch, *, models: int = 1) -> Path:
    """Image classification as published, four times; of one model, or of an ensemble each."""
    run = HandmadeRun(parent, patch)
    write_system(run.folder)
    describe(run.folder.system_file, **ACCELERATORS)
    numbers = [(repeat, model) for repeat in range(REPEATS) for model in range(models)]
    jobs = [_job(1 + place, *each, models) for place, each in enumerate(numbers)]
    run.plan(*jobs, ceilings=MEASUREMENTS)
    for record in jobs:
        began_s = 10_000.0 * (1 + record.repeat)
        _telemetry(run.attempt(record.job, began_s, *_course(run, record.job)), began_s)
    run.end()
    if models > 1:
        with run.folder.start_attempt(job=0) as log:
            for repeat in range(REPEATS):
                own = [each.job for each in jobs if each.repeat == repeat]
                log.write("ensemble", **_ensemble(repeat, own))
            log.write("end")
    return run.folder.path


def describe(system: Path, **facts: Any) -> None:
    """Facts of the hardware, beside those that are there; ``_`` in a name stands for a space."""
    data = json.loads(system.read_text())
    for name, value in facts.items():
        fact = {"name": name.replace("_", " "), "value": value, "source": "test"}
        data["layers"][0]["facts"].append({**fact, "unit": None, "reason": None})
    system.write_text(json.dumps(data))


def search_run(
    parent: Path,
    patch: pytest.MonkeyPatch,
    *,
    scale: float = 60.0,
    best: float = 0.8,
    second: Mapping[str, Any] | None = None,
    first: Architecture | None = None,
) -> Path:
    """A search as AIPerf publishes it, of more than an hour.

    ``second`` changes a proposal, ``first`` is a network that the settings do not have.
    """
    patch.setattr(search_runs, "TRAIN", TRAIN)
    patch.setattr(search_runs, "VALIDATION", VALIDATION)
    settings = _published_search(100.0 * scale)
    run = HandmadeSearch(parent, patch, base=settings, imagenet=True)
    run.true_ops = True
    run.first = first or run.first
    write_system(run.folder)
    proposed: list[dict[str, Any]] = [
        {
            "epochs": rounds.epochs(number, settings.train.epochs),
            "patience": rounds.patience_evaluations(number, settings.train.epochs, 1),
        }
        for number in range(2)
    ]
    begun = run.propose(Turn(round=0, worker=0), **proposed[0])
    drawn = morphs.sample(run.first, random.Random(1), Limits(batch=search_runs.BATCH))
    assert drawn is not None
    given = {"morphs": drawn[:1], **proposed[1], **(second or {})}
    child = run.propose(Turn(round=1, worker=0), begun.turn.name, **given)
    notes = [
        (9.0, "job", search_runs.started()),
        *run.trained(begun, 10.0, 0.5, reports=_REPORTS),
        *run.trained(child, 38.0, 0.6, best, reports=_REPORTS),
        (100.0, "end", {}),
    ]
    early = {"candidate-trained": {"reason": "patience"}}
    run.worker(0, [(scale * at_s, kind, data | early.get(kind, {})) for at_s, kind, data in notes])
    path = run.end().path
    forger = Forger(path)
    forger.records(lambda data: data["data"].update(duplicates=NO_DUPLICATES))
    forger.records(lambda data: data["goal"].update(target=settings.target))
    forger.sealed()
    return path


def _published_search(duration_s: float) -> AutomlSettings:
    """The settings of the profile ``reference`` with the batch and the precision that were used."""
    base = automl_reference()
    train = base.train.model_copy(update={"batch": search_runs.BATCH, "precision": "fp32"})
    search = base.search.model_copy(update={"duration_s": duration_s})
    return base.model_copy(update={"data": "/images", "train": train, "search": search})


def _job(number: int, repeat: int, model: int, models: int) -> JobRecord:
    train = reference().train.model_copy(update={"precision": "fp32"})
    settings = reference().model_copy(update={"data": "/images", "train": train})
    bag = {"model": model, "models": models, "bootstrap": "poisson", "seed": 1 + repeat}
    return job(
        number,
        repeat=repeat,
        ranks=1,
        goal=Goal(quality="top-1 accuracy", better="higher", target=0.763, exponent=5),
        settings=settings.model_dump(mode="json"),
        data=DataFacts(
            path="/images",
            synthetic=False,
            fingerprint="0" * 64,
            train=TRAIN,
            validation=VALIDATION,
            facts={"classes": 1000},
            contents=CONTENTS,
            duplicates=Duplicates.model_validate(NO_DUPLICATES),
        ),
        bag=bag if models > 1 else None,
    )


def data_read() -> dict[str, Any]:
    """All samples were read and compared."""
    sizes = {"train": TRAIN, "validation": VALIDATION}
    splits = {
        name: {"samples": size, "compared": size, "sha256": CONTENTS[name]}
        for name, size in sizes.items()
    }
    return {"splits": splits, "leaked": 0}


def stood(step: int) -> dict[str, Any]:
    """Where a training was after so many steps."""
    samples = step * reference().train.batch
    return {"step": step, "samples": samples, "epoch": round(samples / TRAIN, 4)}


def _course(run: HandmadeRun, number: int) -> list[Note]:
    """A training with a note every minute, an evaluation and its end."""
    batch = reference().train.batch
    steps = -(-EPOCHS * TRAIN // batch)

    def stands(share: float, **phases: float) -> dict[str, Any]:
        return {
            **stood(int(share * steps)),
            "phases": {**dict.fromkeys(PHASES, 0.0), "start-up": START_S, **phases},
        }

    whole = stands(1.0, training=WORK_S, evaluation=EVALUATION_S)
    return [
        started(ranks=1, batch=batch, parameters=run.graph.parameter_count, deterministic=True),
        *(
            (
                "progress",
                {
                    **stands(at_s / WORK_S, training=at_s),
                    "loss": 1.0 + number / at_s,
                    "learning_rate": 0.1,
                },
            )
            for at_s in (INTERVAL_S * minute for minute in range(1, int(WORK_S / INTERVAL_S)))
        ),
        ("evaluation", {**whole, "quality": 0.77, "evaluated": VALIDATION}),
        ("finished", {**whole, "reason": "epochs", "weights_sha256": f"{number:064x}"}),
        ("data-read", data_read()),
        ("end", {}),
    ]


def _telemetry(place: Path, began_s: float) -> None:
    """Power of an accelerator, and its counter."""
    common = {"source": "test", "part": "accelerator", "title": "gpu0"}
    series = (
        Series(id="gpu0.power", unit="W", kind="gauge", **common),
        Series(id="gpu0.energy", unit="J", kind="counter", **common),
    )
    writer = TelemetryWriter(
        place / "telemetry.jsonl", Header(interval_s=INTERVAL_S, series=series)
    )
    for sample in range(-1, int(WORK_S / INTERVAL_S) + 3):
        at_s = began_s + INTERVAL_S * sample
        writer.write(at_s, ZERO.timestamp() + at_s, (POWER_W, POWER_W * (at_s - began_s) + 1e4))
    writer.close()


def _ensemble(repeat: int, jobs: list[int]) -> dict[str, Any]:
    return {
        "workload": "image-classification",
        "repeat": repeat,
        "planned": len(jobs),
        "jobs": jobs,
        "evaluated": VALIDATION,
        "sizes": [{"models": len(jobs), "quality": 0.78}],
        "took_s": 0.1,
    }
