"""Submissions for rankings: small run folders that meet every rule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.dated_runs import named_run, system_of
from tests.support.forged_runs import NO_DUPLICATES
from tests.support.trained_runs import Note, course, job, write_telemetry
from vflops.config.profiles import tiny
from vflops.errors import FolderError
from vflops.record.folder import RunFolder
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.formats.measurement import Measurement
from vflops.record.readout.contents import Contents
from vflops.results.rebuild.rebuilding import rebuilt_graph
from vflops.results.score.scoring import score
from vflops.results.task.drawn_data import FINGERPRINTS
from vflops.workloads.image_classification import settings as image_settings

TASK = image_settings.tiny()
"""The task of the submissions, which is closed."""
_REFERENCE = image_settings.reference()
_PUBLISHED_TRAIN = _REFERENCE.train.model_dump(mode="json", exclude={"ranks"})
REAL: dict[str, Any] = {
    "data": {
        "path": "/d",
        "synthetic": False,
        "fingerprint": "0" * 64,
        "train": 1_281_167,
        "validation": 50_000,
        "facts": {"classes": 1000},
        "duplicates": NO_DUPLICATES,
    },
    "settings": {
        **_REFERENCE.model_dump(mode="json"),
        "data": "/d",
        # Ten steps an epoch; the start of the ranks says that they compute in fp32.
        "train": {**_PUBLISHED_TRAIN, "batch": 128_118, "precision": "fp32"},
    },
    "goal": {
        "quality": "top-1 accuracy",
        "better": "higher",
        "target": _REFERENCE.target,
        "exponent": 5,
    },
}
"""Fields of the record of a job with real data, the closed task of the profile ``reference``."""
REAL_EPOCHS = _REFERENCE.train.epochs
DEVICES = ("Accelerator A", "Accelerator B", "Accelerator C", "Processor P")


@dataclass(frozen=True)
class Submitted:
    """The properties of a submission."""

    id: str = "20260101T000000Z-image-classification-000000"
    created_utc: str = "2026-01-01T00:00:00+00:00"
    device: str = "Accelerator A"
    ranks: int = 2
    quality: float = 0.88
    epochs: int = TASK.train.epochs
    cpu: str = "Test CPU"
    power: bool = True
    ceilings: Sequence[Measurement] = ()
    """Measured ceilings; matrix product and convolution by default."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Changed fields of the job's record."""
    began: dict[str, Any] = field(default_factory=dict)
    """Changed fields of the start of its ranks."""


def submit(parent: Path, wanted: Submitted = Submitted()) -> RunFolder:
    """Write a submission below ``parent``, with its score and its manifest."""
    from vflops.results.evidence.manifest import write_manifest

    hardware: dict[str, str | int] = {
        "cpu model": wanted.cpu,
        "usable cpus": 2,
        "accelerator 0 model": wanted.device,
        "accelerator 1 model": wanted.device,
    }
    began_s = 1000.0 + 64 * int(wanted.id[-6:], 16)  # no two runs have the same times
    with named_run(parent, wanted.id, wanted.created_utc, tiny()) as run:
        system_of(hardware).write(run.folder.system_file)
        record = _job(wanted)
        run.graph = _graph(record) or run.graph
        run.plan(record, ceilings=tuple(wanted.ceilings) or _ceilings(record))
        begun = [wanted.quality - 0.3] * (wanted.epochs - 2)
        qualities = (*begun, wanted.quality - 0.05, wanted.quality)
        notes = [_as_in(record, *note) for note in course(*qualities)]
        began = {"parameters": run.graph.parameter_count, **wanted.began}
        notes[0][1].update(device_name=wanted.device, ranks=wanted.ranks, **began)
        attempt = run.attempt(1, began_s, *notes)
        write_telemetry(attempt, began_s, 5 + 15 * wanted.epochs, power=wanted.power)
        run.end()
        with suppress(FolderError):  # some tests make runs without a score
            score(Contents(run.folder)).write(run.folder.score_file)
        write_manifest(run.folder)
    return run.folder


def _job(wanted: Submitted) -> JobRecord:
    """The job of a submission: the closed task of the profile ``tiny``, with changed fields."""
    settings = TASK.model_dump(mode="json")
    settings["train"] |= {"epochs": wanted.epochs, "ranks": wanted.ranks}
    fields: dict[str, Any] = {"settings": settings, **wanted.facts}
    record = job(1, ranks=wanted.ranks, target=TASK.synthetic.target, **fields)
    if "data" in wanted.facts:
        return record
    drawn = FINGERPRINTS["image-classification"]["tiny"]
    facts: dict[str, Any] = {"classes": TASK.synthetic.classes}
    size = {"train": 10 * TASK.train.batch, "facts": facts}
    data = record.data.model_copy(update={**size, "fingerprint": drawn})
    return record.model_copy(update={"data": data})


def _as_in(record: JobRecord, kind: str, data: dict[str, Any]) -> Note:
    """An event of ``course``, with the batch and the data of ``record``."""
    batch, changes = record.settings["train"]["batch"], dict[str, Any]()
    if "samples" in data:
        samples = batch * data["step"]
        changes = {"samples": samples, "epoch": round(samples / record.data.train, 4)}
    changes |= {"batch": batch} if "batch" in data else {}
    changes |= {"evaluated": record.data.validation} if "evaluated" in data else {}
    return kind, {**data, **changes}


def submit_many(parent: Path, first: int, count: int) -> None:
    """Write submissions ``first`` to ``first + count``, each drawn from its number."""
    for number in range(first, first + count):
        draw = random.Random(number)
        device = draw.choice(DEVICES)
        day = f"20{draw.randrange(20, 26)}-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d}"
        submit(
            parent / f"centre-{draw.randrange(300):03d}",
            Submitted(
                id=f"{day.replace('-', '')}T000000Z-image-classification-{number:06x}",
                created_utc=f"{day}T00:00:00+00:00",
                device=device,
                ranks=draw.choice((1, 2, 4, 8, 16, 32)),  # they share a batch of 32
                quality=round(draw.uniform(0.6, 0.95), 3),
                cpu=f"CPU {draw.randrange(4)}",
                power=number % 3 > 0,
            ),
        )


def _graph(record: JobRecord) -> Graph | None:
    """The graph that follows from the settings, if they are valid."""
    with suppress(FolderError):  # some tests make runs with invalid settings
        return rebuilt_graph(record)
    return None


def _ceilings(record: JobRecord) -> tuple[Measurement, ...]:
    """Those of a machine that is fast enough for the network."""
    value = 2e11 if record.data.synthetic else 2e16
    return tuple(
        Measurement(
            benchmark=benchmark,
            case="peak",
            precision="fp32",
            device="cuda",
            unit="FLOPS",
            value=value,
            samples=(0.95 * value, value, 1.05 * value),
            spread=0.1,
            error=1e-7,
            tolerance=1e-5,
        )
        for benchmark in ("gemm", "convolution")
    )
