"""How the ranks of a training shared its model, and the traffic of its steps."""

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
    """What averaging gradients took, or sharing a model: of one step, all ranks together."""

    mode: str
    precision: str
    ranks: int
    """The ranks that average gradients, or that share a copy of the model."""
    near: int
    backend: str
    algorithm: str | None
    reason: str | None
    """Why the algorithm is not known."""
    bytes_near: float
    bytes_far: float
    bytes_plain: float | None
    """What all-reduce in fp32 would send; None if the number of gradients is not known, or if no
    gradients are averaged."""

    @property
    def bytes(self) -> float:
        """Bytes over near and far links."""
        return self.bytes_near + self.bytes_far


class SharedScore(Data):
    """How several ranks were one training."""

    settings: ParallelSettings
    ranks: int
    copies: int
    """Copies of the model, each with a share of a batch."""
    stages: StagesRun | None
    """None if layers were not divided, or training has not finished."""
    exchange: ExchangeScore | None
    """None without copies, or before training has finished."""
    within: ExchangeScore | None = None
    """Traffic between ranks that share a copy; None if each has its own, and in runs of an older
    vflops."""

    @property
    def bytes(self) -> float | None:
        """All traffic of one step; None if nothing was counted."""
        exchanges = (self.exchange, self.within)
        counted = [exchange.bytes for exchange in exchanges if exchange is not None]
        return sum(counted) if counted else None


def parallelism_score(contents: Contents, trained: TrainedJob) -> SharedScore | None:
    """Return how ranks shared a training; None for one rank, and for a user's command."""
    started = trained.started
    if started is None or started.ranks == 1 or started.torch is None:
        return None
    settings = _settings(contents, trained)
    newest = trained.logs[-1].events
    stages = [event.payload(StagesRun) for event in newest if event.kind == "stages"]
    sent = [event.payload(Exchanged) for event in newest if event.kind == "exchange"]
    sharing = get_args(ModelSharing)
    return SharedScore(
        settings=settings,
        ranks=started.ranks,
        copies=settings.shares(started.ranks),
        stages=stages[-1] if stages else None,
        exchange=_exchange([event for event in sent if event.mode not in sharing]),
        within=_exchange([event for event in sent if event.mode in sharing]),
    )


def _settings(contents: Contents, trained: TrainedJob) -> ParallelSettings:
    """Return the settings of the job, or those that it resumed with."""
    job, settings = trained.record.job, trained.record.settings
    for event in contents.history.events("job-rearranged"):
        change = event.payload(JobRearranged)
        settings = change.settings if change.job == job else settings
    try:
        return ParallelSettings.model_validate(settings.get("train", {}).get("parallel", {}))
    except (ValidationError, AttributeError) as error:
        fault = first_fault(error) if isinstance(error, ValidationError) else "no section"
        raise FolderError(f"jobs/{job}/job.json has no valid train.parallel: {fault}") from error


def _exchange(sent: Sequence[Exchanged]) -> ExchangeScore | None:
    """Return the traffic per step; a pipeline records one event per stage of a rank."""
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
