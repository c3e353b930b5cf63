"""Ensembles on this machine, from the command to the ensemble's quality, and through faults."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.support.ensemble_runs import ended, processes_of, started, wait_for
from vflops.data.bootstrap import bag, out_of_bag
from vflops.record.files.lock import is_locked
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import (
    Ensembled,
    EvaluationPredicted,
    JobBegun,
    OutOfBag,
    Predicted,
)
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score
from vflops.train.checkpoint import Checkpoints
from vflops.train.ensemble.predictions import KeptPredictions


def agent_of(folder: RunFolder, job: int) -> psutil.Process:
    assert is_locked(folder.job_lock(job))
    return psutil.Process(int(folder.job_lock(job).read_text()))


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Of two models; the first job's agent was killed once."""
    directory = tmp_path_factory.mktemp("ensemble")
    process = started(directory, "--models", "2", epochs=4)
    folder = wait_for(directory, "checkpoint", 1)
    checkpoints = Checkpoints(folder.path / "jobs" / "1" / "checkpoint")
    deadline = time.monotonic() + 60  # the event comes before the files that make it complete
    while checkpoints.latest() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    agent_of(folder, 1).kill()
    return ended(process, directory)


def test_each_model_has_its_own_seed_bag_and_place(ensemble: RunFolder) -> None:
    records = [JobRecord.read(ensemble.job_file(job)) for job in (1, 2)]
    assert [record.seed for record in records] == [1, 2]
    bags = [record.bag for record in records]
    assert [item.model for item in bags if item] == [0, 1]
    assert {item.seed for item in bags if item} == {1}
    begun = [event.payload(JobBegun) for event in ensemble.history().events("job-begun")]
    assert len({item.where for item in begun}) == 2


def test_a_model_learns_as_many_samples_as_the_data_has_whatever_was_drawn(
    ensemble: RunFolder,
) -> None:
    history = ensemble.history()
    sizes = {len(bag("poisson", 1, model, 256)) for model in (0, 1)}
    assert sizes != {256}
    finished = [history.events("finished", job=job)[0].data for job in (1, 2)]
    assert [item["samples"] for item in finished] == [1024, 1024]
    assert finished[0]["weights_sha256"] != finished[1]["weights_sha256"]


def test_samples_outside_of_the_bag_judge_a_model_too(ensemble: RunFolder) -> None:
    for model, job in enumerate((1, 2)):
        (event,) = ensemble.history().events("out-of-bag", job=job)
        payload = event.payload(OutOfBag)
        outside = len(out_of_bag("poisson", 1, model, 256))
        assert payload.available == payload.evaluated == outside
        assert 0 <= payload.quality <= 1


def test_the_ensembles_quality_is_that_of_the_mean_prediction(ensemble: RunFolder) -> None:
    history = ensemble.history()
    tables = []
    for job in (1, 2):
        (event,) = history.events("predictions", job=job)
        directory = ensemble.logged_attempts(job)[-1]
        tables.append(KeptPredictions.open(directory, event.payload(Predicted).files))
    labels = tables[0].truth[0]
    mean = (tables[0].rows(0, 60).astype(np.float64) + tables[1].rows(0, 60)) / 2
    (event,) = history.events("ensemble")
    payload = event.payload(Ensembled)
    assert (payload.jobs, payload.planned, payload.evaluated) == ((1, 2), 2, 60)
    assert [size.models for size in payload.sizes] == [1, 2]
    assert payload.sizes[1].quality == pytest.approx((mean.argmax(1) == labels).mean())
    alone = history.events("evaluation", job=1)[-1].data["quality"]
    assert payload.sizes[0].quality == pytest.approx(alone)


def test_the_models_are_combined_at_every_evaluation_and_timed_by_the_last_of_them(
    ensemble: RunFolder,
) -> None:
    history = ensemble.history()
    (event,) = history.events("ensemble")
    payload = event.payload(Ensembled)
    assert [(item.step, item.epoch) for item in payload.evaluations] == [
        (8, 1.0),
        (16, 2.0),
        (24, 3.0),
        (32, 4.0),
    ]
    assert payload.evaluations[-1].quality == payload.sizes[-1].quality
    for job in (1, 2):
        stored = history.events("evaluation-predictions", job=job)
        assert {event.payload(EvaluationPredicted).step for event in stored} == {8, 16, 24, 32}
    assert not list(ensemble.path.glob("jobs/*/*/evaluations"))
    (scored,) = score(Contents(ensemble)).ensembles
    jobs = [job for job in Contents(ensemble).training_jobs if job.record.job in payload.jobs]
    ends_s = [max(timed.event.utc_s for timed in job.evaluations) for job in jobs]
    timed = [event for job in jobs for log in job.logs for event in log.events]
    timed = [event for event in timed if event.kind == "job" or "phases" in event.data]
    began_s = min(event.utc_s - sum(event.data.get("phases", {}).values()) for event in timed)
    assert scored.moments[-1].time_s == pytest.approx(max(ends_s) - began_s, abs=0.1)
    assert [moment.step for moment in scored.moments] == [8, 16, 24, 32]


def test_nothing_of_a_run_is_left_behind(ensemble: RunFolder) -> None:
    assert processes_of(ensemble) == []


def test_a_job_that_is_killed_is_tried_again_and_the_ensemble_is_whole(
    ensemble: RunFolder,
) -> None:
    history = ensemble.history()
    assert [event.data["job"] for event in history.events("job-lost")] == [1]
    assert len(history.jobs[1]) == 2
    assert history.events("resumed", job=1)
    (event,) = history.events("ensemble")
    assert event.payload(Ensembled).jobs == (1, 2)


def test_more_models_than_cores_are_refused_with_pairs_that_fit(tmp_path: Path) -> None:
    process = started(tmp_path, "--models", "4096")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "no room for 4096 models of 1 rank" in err
    assert latest(tmp_path / "runs") is None
