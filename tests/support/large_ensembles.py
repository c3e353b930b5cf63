"""Ensembles of many models, written by hand: four at a time on one node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sample_parts import write_system
from tests.support.trained_runs import WORKLOAD, HandmadeRun, course, job, write_telemetry
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Ensembled, EnsembleSize
from vflops.record.formats.node import Clock, NodeRecord, node_file
from vflops.record.formats.system import Fact

_AT_ONCE, _LENGTH_S = 4, 40.0
FACT = Fact(name="cpu model", value="Test CPU", unit=None, source="test", reason=None)


def large_ensemble(
    parent: Path, monkeypatch: pytest.MonkeyPatch, models: int, *, ended: bool = True
) -> RunFolder:
    """An ensemble of ``models`` models; with ``ended``, the run has been evaluated too."""
    run = HandmadeRun(parent, monkeypatch)
    bag = {"models": models, "bootstrap": "poisson", "seed": 1}
    bags = [{**bag, "model": model} for model in range(models)]
    run.plan(*(job(1 + number, repeat=0, bag=each) for number, each in enumerate(bags)))
    for number in range(models):
        began_s = 1000.0 + (number // _AT_ONCE) * _LENGTH_S
        # The last model is an outlier.
        quality = 0.2 if number == models - 1 else 0.8 + 0.001 * (number % 50)
        attempt = run.attempt(1 + number, began_s, *course(0.3, quality))
        write_telemetry(attempt, began_s, 8)
        node = f"n{number % _AT_ONCE}"
        clock = Clock(offset_s=0.0, uncertainty_s=0.0)
        NodeRecord(
            node=0, nodes=1, host=node, name=node, reference="n0", clock=clock, facts=(FACT,)
        ).write(node_file(attempt, 0))
    if ended:
        ensembled = Ensembled(
            workload=WORKLOAD,
            repeat=0,
            planned=models,
            jobs=tuple(range(1, models + 1)),
            evaluated=200,
            sizes=(EnsembleSize(models=models, quality=0.9),),
            took_s=0.1,
        )
        with run.folder.start_attempt(job=0) as log:
            log.write("ensemble", **ensembled.model_dump(mode="json"))
        write_system(run.folder)
        run.end()
    return run.folder
