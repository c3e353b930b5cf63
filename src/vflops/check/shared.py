"""How ranks shared a training, as its logs have it, beside what the job was told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from pydantic import ValidationError

from vflops.config.training import TrainSettings
from vflops.record.events import Event
from vflops.record.schema import first_fault
from vflops.record.training import Exchanged, ModelSharing, StagesRun
from vflops.score.trained import Trained

Fact = tuple[str, object, object]
"""What it is of, as the log has it, as the job was told."""


def shared_otherwise(job: Trained) -> Iterator[tuple[Event, str]]:
    """What the logs of a job say of its stages or its exchange that it was not told."""
    events = [
        event for log in job.logs for event in log.events if event.kind in ("stages", "exchange")
    ]
    if not events:
        return
    try:
        train = TrainSettings.model_validate(job.record.settings.get("train", {}))
    except ValidationError as error:
        yield events[0], f"its settings do not hold train: {first_fault(error)}"
        return
    for event in events:
        for what, found, told in _facts(event, train):
            if found != told:
                yield event, f"{what} {found}, {told} was told"


def _facts(event: Event, train: TrainSettings) -> tuple[Fact, ...]:
    parallel, copies = train.parallel, train.shares
    if event.kind == "exchange":
        sent, asked = event.payload(Exchanged), train.communication
        if sent.mode in get_args(ModelSharing):
            sharing = train.ranks if parallel.mode == "sharded" else train.ranks // copies
            return (
                ("a model shared by", sent.mode, parallel.inner),
                ("ranks that share one:", sent.ranks, sharing),
            )
        return (
            ("gradients averaged by", sent.mode, asked.mode),
            ("gradients sent in", sent.precision, asked.precision),
            ("copies of the model:", sent.ranks, copies),
        )
    run = event.payload(StagesRun)
    cut = parallel.stages(train.ranks) if parallel.cuts_layers else 0
    return (
        ("stages:", len(run.operations), cut),
        ("ranks of a copy:", run.ranks, train.ranks // copies),
        ("micro-batches:", run.micro_batches, train.accumulate),
        ("schedule", run.schedule, parallel.running),
    )
