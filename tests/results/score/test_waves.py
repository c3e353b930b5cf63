"""Whether models waited for others follows from when they trained, whatever was asked for."""

from __future__ import annotations

from datetime import datetime, tzinfo

import pytest

from tests.support.trained_runs import HandmadeRun, course
from tests.support.trained_runs import job as a_job
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Ensembled, EnsembleSize
from vflops.record.log import events
from vflops.record.readout.contents import Contents
from vflops.results.score.score_tables import ensemble_rows
from vflops.results.score.scoring import score

LONG_S = 1000.0
"""Longer than a model trains."""


@pytest.mark.parametrize(
    ("began_s", "waited"),
    [
        ((0.0, 0.0, 0.0), False),
        ((0.0, 5.0, 10.0), False),  # late, and all train together for a while
        ((0.0, 0.0, LONG_S), True),
        ((0.0, 30.0, 60.0), True),  # each overlaps with the next, and no more
        ((LONG_S, 0.0, LONG_S), True),
    ],
)
def test_models_that_did_not_train_at_once_waited(
    handmade_run: HandmadeRun,
    monkeypatch: pytest.MonkeyPatch,
    began_s: tuple[float, ...],
    waited: bool,
) -> None:
    class Wall(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Wall:
            return cls.fromtimestamp(handmade_run.clock.now_s, tz)

    monkeypatch.setattr(events, "datetime", Wall)
    folder, models = handmade_run.folder, len(began_s)
    bag = {"models": models, "bootstrap": "poisson", "seed": 1}
    bags = [{**bag, "model": model} for model in range(models)]
    handmade_run.plan(*(a_job(1 + k, repeat=0, ranks=1, bag=each) for k, each in enumerate(bags)))
    for job, start_s in enumerate(began_s, start=1):
        handmade_run.attempt(job, 1000.0 + start_s, *course(0.3, 0.6, 0.9))
    found = Ensembled(
        workload="image-classification",
        repeat=0,
        planned=models,
        jobs=tuple(range(1, models + 1)),
        evaluated=200,
        sizes=(EnsembleSize(models=1, quality=0.9),),
        took_s=0.1,
    )
    with folder.start_attempt(job=0) as log:
        log.write("ensemble", **found.model_dump(mode="json"))
        log.write("end")
    (scored,) = score(Contents(RunFolder.open(folder.path))).ensembles
    assert scored.waves == waited
    said = [value for name, value in ensemble_rows(scored) if name == "waves"]
    assert said == ["models waited for others: no claim of weak scaling"] * waited
