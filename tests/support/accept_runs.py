"""Runs and references for tests of acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.dated_runs import Dated, dated_run
from vflops.record.folder import RunFolder
from vflops.record.formats.node import Clock, NodeRecord, node_file
from vflops.record.installed_package import installed_package
from vflops.studies.accept.reference import PromisedFigure, Reference
from vflops.studies.accept.reference_writer import reference_from
from vflops.studies.accept.runs_under_test import RunUnderTest, read_runs

IC = "image-classification"
THROUGHPUT = f"{IC}.throughput"


def repeats(parent: Path, *slower: float, name: str = "a", **facts: Any) -> list[RunFolder]:
    """Runs of one training each with the next seeds; ``slower`` is the time of each."""
    return [
        seeded(parent, Dated(day, (time,), seed=1 + day, name=name, **facts))
        for day, time in enumerate(slower)
    ]


def seeded(parent: Path, wanted: Dated) -> RunFolder:
    """A run that was asked for its seed."""
    settings = wanted.settings.model_copy(update={"seed": wanted.seed})
    return dated_run(parent, replace(wanted, settings=settings))


def on_nodes(parent: Path, day: int, times: Sequence[float]) -> RunFolder:
    """A run with one training per node; node n is called ``node<n>``."""
    folder = dated_run(parent, Dated(day, times))
    for number in range(1, len(times) + 1):
        record_host(folder, f"node{number}", job=number)
    return folder


def record_host(folder: RunFolder, host: str, job: int = 1) -> RunFolder:
    """Write that a job of a run was trained on a host, which is also the name of the node."""
    NodeRecord(
        node=0,
        nodes=1,
        host=host,
        name=host,
        reference="node1",
        clock=Clock(offset_s=0.0, uncertainty_s=0.0),
        facts=(),
        package_sha256=installed_package().sha256,
    ).write(node_file(folder.attempt_folder(job, 0), 0))
    return folder


def under_test(*folders: RunFolder) -> list[RunUnderTest]:
    return read_runs([str(folder.path) for folder in folders])


def reference(*folders: RunFolder, tolerance: float = 0.05, **changes: Any) -> Reference:
    """A reference that does not name its runs, so that they can be judged by it."""
    made = reference_from(under_test(*folders), name="Test", tolerances={"*": tolerance})
    return made.model_copy(update={"runs": (), **changes})


def only(made: Reference, *names: str, **changes: Any) -> Reference:
    """The reference with these figures only, changed alike."""
    figures = [f.model_dump() | changes for f in made.figure if f.name in names]
    return made.model_copy(update={"figure": tuple(map(PromisedFigure.model_validate, figures))})
