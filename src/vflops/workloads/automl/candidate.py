"""Training a candidate: its job record, its workload, and the context of a rank."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from vflops.config.training import Compile
from vflops.data.sampler import mix
from vflops.record.files.document import Data
from vflops.record.formats.batch_ops import BatchOps
from vflops.record.formats.job import DataFacts, JobRecord
from vflops.record.formats.job_events import Evaluated, Finished
from vflops.train.context import JobContext
from vflops.train.signals import StopSource
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.fused_network import FusedNetwork, can_fuse, fuses_on
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.module_builder import Network
from vflops.workloads.automl.convergence import Convergence
from vflops.workloads.automl.search_events import RULES, Candidate
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.image_classification.data import JobImages
from vflops.workloads.image_classification.workload import ImageClassification


def batch_ops(candidate: Candidate, batch: int) -> BatchOps:
    """Return the operations of a batch, by the counting rules of a search."""
    ops = architecture_cost.ops(candidate.architecture, RULES, batch)
    return BatchOps(batch=batch, forward=ops.forward, total=ops.total)


def ops_per_sample(candidate: Candidate, batch: int) -> tuple[int, int]:
    """Return forward and total operations per sample, rounded down, for estimates of the time."""
    ops = batch_ops(candidate, batch)
    return ops.forward // batch, ops.total // batch


def candidate_record(
    record: JobRecord, candidate: Candidate, *, compile: Compile = "auto"
) -> JobRecord:
    """Return the job record for training a candidate, with its epochs, batch and seed."""
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
    """Image classification with the network of a candidate."""

    def __init__(
        self,
        settings: AutomlSettings,
        data: DataFacts,
        network: Network,
        architecture: Architecture,
        images: JobImages | None = None,
    ) -> None:
        super().__init__(settings, data, images)
        self._network, self._architecture = network, architecture

    def model(self) -> nn.Module:
        """Return the candidate's network with its initial weights."""
        return self._network

    def initial_weights(self, seed: int) -> None:
        """Return None: the network has its weights, possibly those of its parent."""

    def fast_model(self, dtype: torch.dtype, device: torch.device) -> nn.Module | None:
        """Return the network with a fused step, if the kernels fit it and the device."""
        batch = self._settings.train.rank_batch
        if not (fuses_on(device) and can_fuse(self._architecture, batch)):
            return None
        return FusedNetwork(self._network, self._architecture, dtype)


@dataclass(frozen=True)
class Deadline:
    """A request to stop: by a signal, because the time is up, or the search has converged."""

    stop: StopSource
    end_s: float
    """On the monotonic clock."""
    convergence: Convergence | None = None
    """None if only the time ends the search."""

    @property
    def passed(self) -> bool:
        """Whether the search is over."""
        is_converged = self.convergence is not None and self.convergence.end is not None
        return is_converged or time.monotonic() >= self.end_s

    @property
    def signal(self) -> str | None:
        """The reason to stop; None to continue."""
        return self.stop.signal or ("the end of its search" if self.passed else None)

    def set_unsaved_work(self, unsaved: bool) -> None:
        """Set whether a signal waits until work is saved; the end of the time always does."""
        self.stop.set_unsaved_work(unsaved)


@dataclass(frozen=True)
class CandidateContext(JobContext):
    """One rank that trains a candidate, with its own checkpoints but the log of the worker."""

    folder: Path = Path()
    """The folder of the candidate's checkpoints."""
    evaluations: list[Evaluated] = field(default_factory=list)
    """The evaluations so far."""
    finished_events: list[Finished] = field(default_factory=list)
    """The event that ends the training, once it has been written."""

    @property
    def checkpoints(self) -> Path:
        """The folder of the candidate's checkpoints."""
        return self.folder

    def write_event(self, kind: str, payload: Data, *, sync: bool = True) -> None:
        """Write an event to the worker's log; every rank keeps the events that form the result."""
        if isinstance(payload, Finished):
            self.finished_events.append(payload)
        elif isinstance(payload, Evaluated):
            self.evaluations.append(payload)
        super().write_event(kind, payload, sync=sync)
