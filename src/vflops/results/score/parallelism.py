"""How the ranks of a training shared its model, and what they sent each other in steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from pydantic import ValidationError

from vflops.config.parallel import ParallelSettings
from vflops.errors import FolderError
from vflops.record.files.document import Data, first_fault
from vflops.record.formats.job_events import Exchanged, JobRearranged, ModelSharing, StagesRun
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob

_FP32_BYTES = 4


class ExchangeScore(Data):
    """What averaging gradients took, or sharing a model: of one step, all ranks together."""

    mode: str
    precision: str
    ranks: int
    """With a copy of the model each; or with one between them."""
    near: int
    backend: str
    algorithm: str | None
    reason: str | None
    """Why the algorithm is not known."""
    bytes_near: float
    bytes_far: float
    bytes_plain: float | None
    """What all-reduce in fp32 would send; None where it is not known how many gradients, and where
    it is not gradients that are averaged."""

    @property
    def bytes(self) -> float:
        """Over whichever links."""
        return self.bytes_near + self.bytes_far


class SharedScore(Data):
    """How several ranks were one training."""

    settings: ParallelSettings
    ranks: int
    copies: int
    """Of the model, each with a share of a batch."""
    stages: StagesRun | None
    """None where no layers were shared out, or training has not ended."""
    exchange: ExchangeScore | None
    """None without copies, and before the end of training."""
    within: ExchangeScore | None = None
    """What ranks sent each other that share a copy; None where each has its own, and in a run of an
    older vflops."""

    @property
    def bytes(self) -> float | None:
        """Of one step, by all ranks for whatever; None where nothing was counted."""
        counted = [each.bytes for each in (self.exchange, self.within) if each is not None]
        return sum(counted) if counted else None


def shared(contents: Contents, trained: TrainedJob) -> SharedScore | None:
    """Of a training by several ranks; None for one, and for a command, which shares by itself."""
    started = trained.started
    if started is None or started.ranks == 1 or started.torch is None:
        return None
    settings = _settings(contents, trained)
    newest = trained.logs[-1].events
    cut = [event.payload(StagesRun) for event in newest if event.kind == "stages"]
    sent = [event.payload(Exchanged) for event in newest if event.kind == "exchange"]
    sharing = get_args(ModelSharing)
    return SharedScore(
        settings=settings,
        ranks=started.ranks,
        copies=settings.shares(started.ranks),
        stages=cut[-1] if cut else None,
        exchange=_exchange([each for each in sent if each.mode not in sharing]),
        within=_exchange([each for each in sent if each.mode in sharing]),
    )


def _settings(contents: Contents, trained: TrainedJob) -> ParallelSettings:
    """As the job was told, or as it was told when it went on."""
    job, told = trained.record.job, trained.record.settings
    for event in contents.history.events("job-rearranged"):
        change = event.payload(JobRearranged)
        told = change.settings if change.job == job else told
    try:
        return ParallelSettings.model_validate(told.get("train", {}).get("parallel", {}))
    except (ValidationError, AttributeError) as error:
        fault = first_fault(error) if isinstance(error, ValidationError) else "no section"
        raise FolderError(f"jobs/{job}/job.json does not hold train.parallel: {fault}") from error


def _exchange(sent: Sequence[Exchanged]) -> ExchangeScore | None:
    """Of a step; a pipeline tells of each stage that a rank has."""
    steps = max((each.steps for each in sent), default=0)
    if not steps:
        return None
    first, elements = sent[0], [each.elements for each in sent]
    plain = None
    if None not in elements:
        ring = 2 * (first.ranks - 1) / first.ranks
        plain = ring * _FP32_BYTES * sum(each or 0 for each in elements) / steps
    return ExchangeScore(
        mode=first.mode,
        precision=first.precision,
        ranks=first.ranks,
        near=first.near,
        backend=first.backend,
        algorithm=first.algorithm,
        reason=first.reason,
        bytes_near=sum(each.bytes_near for each in sent) / steps,
        bytes_far=sum(each.bytes_far for each in sent) / steps,
        bytes_plain=plain,
    )
