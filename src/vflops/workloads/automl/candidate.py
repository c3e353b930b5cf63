"""A candidate in training: the workload with its network, and what a rank knows of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from vflops.config.training import Compile
from vflops.data.sampler import mix
from vflops.record.files.document import Data
from vflops.record.formats.job import DataFacts, Evaluated, Finished, JobRecord
from vflops.train.context import JobContext
from vflops.train.signals import StopSource
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.search_events import RULES, Candidate
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.image_classification.workload import ImageClassification


def ops_of_sample(candidate: Candidate, batch: int) -> tuple[int, int]:
    """Forward and in all, by the rules that score it, in a batch of a rank's."""
    ops = architecture_cost.ops(candidate.architecture, RULES, batch)
    return ops.forward // batch, ops.total // batch


def candidate_record(
    record: JobRecord, candidate: Candidate, *, compile: Compile = "auto"
) -> JobRecord:
    """What the engine trains: the job with the candidate's epochs, batch and seed."""
    settings = AutomlSettings.model_validate(record.settings)
    at_target = settings.train.stop_at_target and candidate.end_epoch is None
    train = settings.train.model_copy(
        update={
            "epochs": candidate.epochs,
            "batch": candidate.hyper.batch,
            "patience": candidate.patience,
            "end_epoch": candidate.end_epoch,
            "stop_at_target": at_target,
            "compile": compile,
        }
    )
    turn = candidate.turn
    return record.model_copy(
        update={
            "settings": settings.model_copy(update={"train": train}).model_dump(mode="json"),
            "seed": mix(record.seed, turn.round, turn.worker) >> 1,
            "kernels": False,
        }
    )


class CandidateTraining(ImageClassification):
    """Image classification by a network that the search chose."""

    def __init__(self, settings: AutomlSettings, data: DataFacts, network: nn.Module) -> None:
        super().__init__(settings, data)
        self._network = network

    def model(self) -> nn.Module:
        """The candidate's network, with the weights that it starts from."""
        return self._network

    def fast_model(self, *_: object) -> None:
        """None: the fused kernels are for ResNet."""


@dataclass(frozen=True)
class Deadline:
    """A wish to stop: a signal's, or that of the clock."""

    stop: StopSource
    end_s: float
    """Of the monotonic clock."""

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.end_s

    @property
    def signal(self) -> str | None:
        """What asks to stop; None: nothing does."""
        return self.stop.signal or ("the end of its time" if self.passed else None)


@dataclass(frozen=True)
class CandidateContext(JobContext):
    """One rank of a candidate's training: its own checkpoints, in the worker's log."""

    folder: Path = Path()
    """Of the candidate's checkpoints."""
    evaluations: list[Evaluated] = field(default_factory=list)
    """As they are written."""
    ended: list[Finished] = field(default_factory=list)
    """How training came to its end, once it has."""

    @property
    def checkpoints(self) -> Path:
        """Where the candidate's are, whoever trains it."""
        return self.folder

    def write_event(self, kind: str, payload: Data, *, sync: bool = True) -> None:
        """Write an event of the worker's; every rank keeps what the result is made of."""
        if isinstance(payload, Finished):
            self.ended.append(payload)
        elif isinstance(payload, Evaluated):
            self.evaluations.append(payload)
        super().write_event(kind, payload, sync=sync)
