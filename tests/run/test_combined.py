"""Ensembles whose models are combined already are left alone when a run resumes."""

from __future__ import annotations

from tests.support.trained_runs import HandmadeRun, course
from tests.support.trained_runs import job as a_job
from vflops.record.formats.job_events import Ensembled, EnsembleSize
from vflops.run import jobs
from vflops.run.observer import RunObserver


def test_a_complete_ensemble_is_neither_trained_nor_combined_again(
    handmade_run: HandmadeRun,
) -> None:
    """Its predictions during training are deleted, so its time to quality would be lost."""
    bag = {"models": 2, "bootstrap": "poisson", "seed": 1}
    records = [a_job(1 + k, repeat=0, ranks=1, bag={**bag, "model": k}) for k in range(2)]
    handmade_run.plan(*records)
    for record in records:
        handmade_run.attempt(record.job, 1000.0, *course(0.9))
    said: list[str] = []
    folder, complete = handmade_run.folder, (1, 2)
    with folder.start_attempt(job=0) as log:
        ensemble = Ensembled(
            workload=records[0].workload,
            repeat=0,
            planned=2,
            jobs=complete,
            evaluated=200,
            sizes=(EnsembleSize(models=2, quality=0.9),),
            took_s=0.1,
        )
        log.write("ensemble", **ensemble.model_dump(mode="json"))
        observer = RunObserver(step=said.append)
        jobs.run_ensembles(folder, log, records, jobs.JobOrder(records), observer)
    assert said == []
    assert len(folder.history(0).events("ensemble")) == 1
