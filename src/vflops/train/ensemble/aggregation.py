"""What base models are worth together: their predictions combined and judged, piece by piece."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vflops.extensions import imported
from vflops.record.folder import History, RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Ensembled, EnsembleSize, Predicted
from vflops.train.ensemble.predictions import KeptPredictions
from vflops.workloads.contract.registry import workload

_PIECE_BYTES = 1 << 26
"""Of all models' predictions that are in memory at once, whatever the number of models."""


@dataclass(frozen=True)
class _Member:
    record: JobRecord
    predictions: KeptPredictions


def ensembles(records: Sequence[JobRecord]) -> list[list[JobRecord]]:
    """The jobs of each ensemble of a run: one for each workload and repeat."""
    groups: dict[tuple[str, int], list[JobRecord]] = {}
    for record in records:
        if record.bag is not None:
            groups.setdefault((record.workload, record.repeat), []).append(record)
    return list(groups.values())


def judge(folder: RunFolder, history: History, records: Sequence[JobRecord]) -> Ensembled | None:
    """The quality of the models of one ensemble together; None where no job came to its end."""
    started_s = time.monotonic()
    members: list[_Member] = []
    for record in records:
        found = _predictions(folder, history, record)
        if found is not None:
            found = found.beside(members[0].predictions) if members else found
            members.append(_Member(record, found))
    if not members:
        return None
    first = members[0].record
    different = _different(members)
    sizes = _sizes(len(different))
    qualities = _qualities(different, sizes)
    return Ensembled(
        workload=first.workload,
        repeat=first.repeat,
        planned=len(records),
        jobs=tuple(member.record.job for member in members),
        evaluated=len(members[0].predictions),
        sizes=tuple(
            EnsembleSize(models=models, quality=quality)
            for models, quality in zip(sizes, qualities, strict=True)
        ),
        took_s=round(time.monotonic() - started_s, 6),
    )


def _different(members: Sequence[_Member]) -> list[_Member]:
    """Of twins the first that came to its end: a model does not count twice."""
    found: dict[int, _Member] = {}
    for member in members:
        bag = member.record.bag
        found.setdefault(bag.number if bag else 0, member)
    return list(found.values())


def _predictions(folder: RunFolder, history: History, record: JobRecord) -> KeptPredictions | None:
    """What a job has left; None where it did not come to its end."""
    if not history.ended(record.job):
        return None
    kept = [e for e in history.jobs[record.job][-1].events if e.kind == "predictions"]
    if not kept:
        return None
    place = folder.logged_attempts(record.job)[-1]
    return KeptPredictions.open(place, kept[-1].payload(Predicted).files)


def _qualities(members: Sequence[_Member], sizes: Sequence[int]) -> list[float]:
    first = members[0]
    samples = len(first.predictions)
    spec = workload(first.record.workload)
    combine = imported(spec.combine)
    settings = spec.settings.model_validate(first.record.settings)
    code = spec.load_code().create(settings, first.record.data)
    meters = [code.meter(torch.device("cpu")) for _ in sizes]
    step = max(_PIECE_BYTES // (first.predictions.row_bytes * len(members)), 1)
    for start in range(0, samples, step):
        stop = min(start + step, samples)
        rows = [member.predictions.rows(start, stop) for member in members]
        truth = [torch.from_numpy(each[start:stop]) for each in first.predictions.truth]
        nothing = torch.empty(stop - start, 0)  # in the place of the samples themselves
        for models, meter in zip(sizes, meters, strict=True):
            combined = torch.from_numpy(combine(rows[:models]))
            meter.update(combined, (nothing, *truth), torch.ones(stop - start, dtype=torch.bool))
    return [float(code.quality([meter.summary()])) for meter in meters]


def _sizes(models: int) -> list[int]:
    """1, 2, 4 … and all of them."""
    doubled = [1 << power for power in range(models.bit_length()) if 1 << power < models]
    return [*doubled, models]
