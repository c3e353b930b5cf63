"""How the ranks of a job shared the model, and the traffic per step.

Near links connect ranks of one node, far links ranks of different nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from pydantic import ValidationError

from vflops.config.parallel import ParallelSettings
from vflops.errors import FolderError
from vflops.metrics.traffic import ELEMENT_BYTES, ring_share
from vflops.record.files.document import Data, first_fault
from vflops.record.formats.job_events import Exchanged, JobRearranged, ModelSharing, StagesRun
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob


class ExchangeScore(Data):
    """Traffic per step of all ranks, to average gradients or to share a copy of the model."""

    mode: str
    precision: str
    ranks: int
    """The number of ranks that average gradients, or that share a copy of the model."""
    near: int
    """The number of ranks per group that near links connect."""
    backend: str
    algorithm: str | None
    reason: str | None
    """Why the algorithm is not known."""
    bytes_near: float
    bytes_far: float
    bytes_plain: float | None
    """The bytes that an all-reduce in fp32 would send; None if the number of gradients is not known
    or no gradients are averaged."""

    @property
    def bytes(self) -> float:
        """Bytes over near and far links together."""
        return self.bytes_near + self.bytes_far


class SharedScore(Data):
    """How several ranks shared one training job."""

    settings: ParallelSettings
    ranks: int
    copies: int
    """The number of copies of the model, each of which trains on a share of every batch."""
    stages: StagesRun | None
    """The pipeline stages; None if layers were not divided, or training has not finished."""
    exchange: ExchangeScore | None
    """Traffic to average gradients; None for a single copy, or if training has not finished."""
    within: ExchangeScore | None = None
    """Traffic between ranks that share a copy; None if every rank has its own copy, and in runs of
    older versions."""

    @property
    def bytes(self) -> float | None:
        """All traffic per step in bytes; None if no traffic was recorded."""
        exchanges = (self.exchange, self.within)
        counted = [exchange.bytes for exchange in exchanges if exchange is not None]
        return sum(counted) if counted else None


def parallelism_score(contents: Contents, trained: TrainedJob) -> SharedScore | None:
    """Return how ranks shared a job; None for a single rank and for a user's command."""
    started = trained.started
    if started is None or started.ranks == 1 or started.torch is None:
        return None
    settings = _parallel_settings(contents, trained)
    events = trained.logs[-1].events
    stages = [event.payload(StagesRun) for event in events if event.kind == "stages"]
    sent = [event.payload(Exchanged) for event in events if event.kind == "exchange"]
    sharing_modes = get_args(ModelSharing)
    return SharedScore(
        settings=settings,
        ranks=started.ranks,
        copies=settings.shares(started.ranks),
        stages=stages[-1] if stages else None,
        exchange=_exchange([event for event in sent if event.mode not in sharing_modes]),
        within=_exchange([event for event in sent if event.mode in sharing_modes]),
    )


def _parallel_settings(contents: Contents, trained: TrainedJob) -> ParallelSettings:
    """Return the job's parallel settings, which may have changed when it resumed."""
    job, settings = trained.record.job, trained.record.settings
    for event in contents.history.events("job-rearranged"):
        change = event.payload(JobRearranged)
        settings = change.settings if change.job == job else settings
    try:
        return ParallelSettings.model_validate(settings.get("train", {}).get("parallel", {}))
    except (ValidationError, AttributeError) as error:
        fault = first_fault(error) if isinstance(error, ValidationError) else "it is not a section"
        raise FolderError(f"jobs/{job}/job.json has no valid train.parallel: {fault}") from error


def _exchange(sent: Sequence[Exchanged]) -> ExchangeScore | None:
    """Return the traffic per step. A pipeline records one event per stage of a rank."""
    steps = max((event.steps for event in sent), default=0)
    if not steps:
        return None
    first, elements = sent[0], [event.elements for event in sent]
    plain = None
    if None not in elements:
        plain = ring_share(first.ranks) * ELEMENT_BYTES["fp32"]
        plain *= sum(number or 0 for number in elements)
        plain /= steps
    return ExchangeScore(
        mode=first.mode,
        precision=first.precision,
        ranks=first.ranks,
        near=first.near,
        backend=first.backend,
        algorithm=first.algorithm,
        reason=first.reason,
        bytes_near=sum(event.bytes_near for event in sent) / steps,
        bytes_far=sum(event.bytes_far for event in sent) / steps,
        bytes_plain=plain,
    )
