"""Handmade parts of a search: settings, data, candidates, and logs of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts
from vflops.record.log.events import EventWriter
from vflops.workloads.automl.proposer import Proposer, first_network
from vflops.workloads.automl.search_events import Candidate, CandidateTrained, Hyperparameters, Turn
from vflops.workloads.automl.settings import AutomlSettings, tiny
from vflops.workloads.contract import run_settings

DATA = DataFacts(
    synthetic=True,
    path="",
    fingerprint="f" * 64,
    train=512,
    validation=256,
    facts={"classes": 4},
)


def settings(**search: Any) -> AutomlSettings:
    """The profile ``tiny`` with changed search settings."""
    base = tiny()
    changed = base.search.model_dump() | {"searcher": "evolution"} | search
    return AutomlSettings.model_validate({**base.model_dump(), "search": changed})


def turn(round: int, worker: int) -> Turn:
    return Turn(round=round, worker=worker)


def proposer(chosen: AutomlSettings, candidates: dict[str, Candidate], seed: int = 1) -> Proposer:
    """A proposer that looks up earlier proposals in a dict."""
    first = first_network(chosen, DATA)
    return Proposer(chosen, seed, first, lambda at: candidates[at.name])


def candidate(at: Turn, **facts: Any) -> Candidate:
    """The starting network as the candidate of a turn."""
    return Candidate(
        turn=at,
        architecture=first_network(settings(), DATA),
        hyper=Hyperparameters(batch=32),
        known_sha256="",
        **{
            "parent": None,
            "morphs": (),
            "tuned": False,
            "epochs": 2,
            "patience": 1,
            "known": 0,
            "took_s": 0.0,
            **facts,
        },
    )


def trained(name: str, accuracy: float, **facts: Any) -> CandidateTrained:
    """A made-up result."""
    usual: dict[str, Any] = {
        "epochs": 2,
        "reason": "epochs",
        "inherited": False,
        "hyper": Hyperparameters(batch=32),
    }
    return CandidateTrained(candidate=name, accuracy=accuracy, **(usual | facts))


def new_run(folder: Path) -> RunFolder:
    """A run folder without any job."""
    return RunFolder.create(folder, "automl", run_settings.profile("tiny", ["automl"]))


def write_event(log: EventWriter, kind: str, payload: Any) -> None:
    """Write an event as a worker does."""
    log.write(kind, **payload.model_dump(mode="json"))
