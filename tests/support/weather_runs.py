"""Detection of extreme weather, written by hand: one training with the settings of ``tiny``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.forged_runs import ACCELERATORS, Forger, describe
from tests.support.sample_parts import MEASUREMENTS, write_system
from tests.support.trained_runs import HandmadeRun, Note, course, job
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts, Goal
from vflops.results.rebuild.rebuilding import rebuilt_graph
from vflops.results.task.drawn_data import FINGERPRINTS
from vflops.workloads.extreme_weather.settings import tiny

NAME = "extreme-weather"
VALIDATION, TEST = 64, 64


def weather_run(parent: Path, patch: pytest.MonkeyPatch) -> Path:
    """A training of several epochs that reached a quality that honest runs reach."""
    run = HandmadeRun(parent, patch)
    write_system(run.folder)
    describe(run.folder.system_file, **ACCELERATORS)
    settings = tiny()
    train, synthetic = settings.train, settings.synthetic
    samples = 10 * train.batch  # ten steps an epoch
    facts = {"height": synthetic.height, "width": synthetic.width}
    record = job(
        1,
        workload=NAME,
        ranks=1,
        settings=settings.model_dump(mode="json"),
        goal=Goal(quality="mAP@0.5", better="higher", target=synthetic.target, exponent=10),
        data=DataFacts(
            path="/data",
            synthetic=True,
            fingerprint=FINGERPRINTS[NAME]["tiny"],
            train=samples,
            validation=VALIDATION,
            test=TEST,
            facts=facts,
        ),
    )
    graph = rebuilt_graph(record)
    assert graph is not None
    run.graph = _as_captured(graph)
    run.plan(record, ceilings=MEASUREMENTS)
    began = {"ranks": 1, "batch": train.batch, "parameters": graph.parameter_count}
    notes = [_as_in(train.batch, samples, began, *note) for note in course(*[0.3] * train.epochs)]
    run.attempt(1, 1000.0, *notes)
    run.end()
    forger = Forger(run.folder.path)
    for line in forger.lines("start"):
        line["data"]["workload"] = NAME
    forger.sealed()
    return run.folder.path


def _as_captured(graph: Graph) -> Graph:
    """The graph with the name that torch gives to the operator of the regions."""
    names = {"aten.roi_align": "vflops.roi_align.default"}
    nodes = (node.model_copy(update={"op": names.get(node.op, node.op)}) for node in graph.nodes)
    return graph.model_copy(update={"nodes": tuple(nodes)})


def _as_in(
    batch: int, samples: int, began: dict[str, Any], kind: str, data: dict[str, Any]
) -> Note:
    changes = began if kind == "job" else {}
    if "samples" in data:
        done = batch * data["step"]
        changes = {"samples": done, "epoch": round(done / samples, 4)}
    changes |= {"evaluated": VALIDATION} if "evaluated" in data else {}
    return kind, {**data, **changes}
