"""``result_<k>.txt``: one training run as an MLPerf result log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

import vflops
from vflops.config.training import TrainSettings
from vflops.errors import FolderError
from vflops.machine.system.mlperf_system import RDI
from vflops.metrics.training_time import training_steps
from vflops.publish.export.mlperf import BENCHMARK
from vflops.publish.export.mlperf.course import Course
from vflops.publish.export.mlperf.mllog_lines import Line, Value
from vflops.record.files.document import first_fault
from vflops.record.formats.job import JobRecord

STATUSES = {
    "onprem": "Available on-premise",
    "cloud": "Available cloud",
    "research": RDI,
    "preview": "Preview",
}
"""Availability of a system: names in result logs, mapped to names in system descriptions."""
_POWER, _END_RATE = 2.0, 0.0
"""Power and final learning rate of the polynomial schedule, which are not settings."""


@dataclass(frozen=True)
class Submitter:
    """Submitter and system, in MLPerf's terms."""

    org: str
    system: str
    division: str
    status: str
    """One of ``STATUSES``."""


def result_lines(course: Course, submitter: Submitter, run_id: str) -> Iterator[Line]:
    """Yield the log: submitter, benchmark and settings, then the run from start to target."""
    job = course.trained.record
    began_ms, source = course.began_ms, f"jobs/{job.job}/job.json:1"
    metadata: dict[str, Value] = {"run": run_id, "job": job.job, "vflops": vflops.__version__}
    # vflops does not clear caches, and the log says so.
    yield Line(began_ms, "cache_clear", False, source=source)
    yield Line(began_ms, "init_start", source=source)
    for key, value in _submitter_keys(submitter).items():
        yield Line(began_ms, key, value, source=source)
    # The checkers detect a seed that is used twice by this common source.
    yield Line(began_ms, "seed", job.seed, source="job.json:1")
    for key, value in hyper_parameters(job).items():
        yield Line(began_ms, key, value, source=source)
    yield Line(began_ms, "vflops_run", run_id, metadata, source)
    yield Line(course.run_ms, "init_stop", source=source)
    yield Line(course.run_ms, "run_start", source=source)
    yield from _blocks(course)
    status = "success" if course.reached else "aborted"
    epochs = round(course.evaluations[-1].evaluated.epoch, 3)
    stopped: dict[str, Value] = {"status": status, "epoch_num": epochs}
    yield Line(course.stop_ms, "run_stop", metadata=stopped, source=course.evaluations[-1].source)


def hyper_parameters(job: JobRecord) -> dict[str, Value]:
    """Return the settings that have a name in MLPerf."""
    train = train_settings(job)
    steps = training_steps(epochs=train.epochs, samples=job.data.train, batch_size=train.batch)
    warmup = round(train.warmup_epochs * job.data.train / train.batch)
    span = train.rank_batch // train.ghosts
    named: dict[str, Value] = {
        "global_batch_size": train.batch,
        "train_samples": job.data.train,
        "eval_samples": job.data.validation,
        "gradient_accumulation_steps": train.accumulate,
        "opt_name": train.optimizer,
        "model_bn_span": span * train.ranks if train.batch_norm == "synchronised" else span,
        "opt_learning_rate_warmup_epochs": train.warmup_epochs,
        f"{train.optimizer}_opt_base_learning_rate": train.peak_rate,
        f"{train.optimizer}_opt_weight_decay": train.weight_decay,
        f"{train.optimizer}_opt_momentum": train.momentum,
        f"{train.optimizer}_opt_learning_rate_decay_steps": steps - warmup,
    }
    if train.schedule in ("polynomial", "cosine"):
        named[f"{train.optimizer}_opt_end_learning_rate"] = _END_RATE
    if train.schedule == "polynomial":
        named[f"{train.optimizer}_opt_learning_rate_decay_poly_power"] = _POWER
    if train.optimizer == "lars":
        named["lars_epsilon"] = 0.0
        named["lars_opt_learning_rate_warmup_epochs"] = train.warmup_epochs
    return named


def train_settings(job: JobRecord) -> TrainSettings:
    """Return the job's training settings, validated."""
    recorded = job.settings.get("train", {})
    try:
        return TrainSettings.model_validate({**recorded, "ranks": job.ranks})
    except ValidationError as error:
        raise FolderError(
            f"job {job.job} has training settings unknown to this version: {first_fault(error)}",
            hint="export it with the version of vflops that ran it",
        ) from error


def _submitter_keys(submitter: Submitter) -> dict[str, Value]:
    return {
        "submission_benchmark": BENCHMARK,
        "submission_org": submitter.org,
        "submission_division": submitter.division,
        "submission_status": submitter.status,
        "submission_platform": submitter.system,
    }


def _blocks(course: Course) -> Iterator[Line]:
    """Yield the lines of each training block and of the evaluation after it."""
    start_ms, before = course.run_ms, 0.0
    for evaluation in course.evaluations:
        epoch = round(evaluation.evaluated.epoch, 3)
        block = {"first_epoch_num": before + 1, "epoch_count": round(epoch - before, 3)}
        position, source = {"epoch_num": epoch}, evaluation.source
        yield Line(start_ms, "block_start", metadata=block, source=source)
        yield Line(evaluation.start_ms, "block_stop", metadata=block, source=source)
        yield Line(evaluation.start_ms, "eval_start", metadata=position, source=source)
        yield Line(evaluation.stop_ms, "eval_stop", metadata=position, source=source)
        yield Line(
            evaluation.stop_ms, "eval_accuracy", evaluation.evaluated.quality, position, source
        )
        start_ms, before = evaluation.stop_ms, epoch
