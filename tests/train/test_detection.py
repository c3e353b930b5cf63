"""Detection in the same training loop: resumed, shared between ranks, tested and shown."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.train_runs import evaluations, losses, planned, run_ranks, start_ranks, weights
from vflops.record.folder import RunFolder
from vflops.record.formats import job_events
from vflops.record.readout.contents import Contents

SMALL = (
    "synthetic.height=48",
    "synthetic.width=72",
    "network.width=8",
    "network.channels=16",
    "network.hidden=32",
    "synthetic.train=16",
    "synthetic.validation=7",
    "synthetic.test=5",
    "train.batch=4",
    "train.learning_rate=0.0005",
)
"""8 steps of a small network."""
LIMIT = 1e-10
"""For the losses of the same training on one and on two ranks, in double precision.

In single precision the roundings of these 8 steps grow to a few percent, how many depends on the
CPU. Roundings in double precision are 2^29 times smaller: 5 % become 1e-10.
"""


def detection(directory: Path, *assignments: str) -> RunFolder:
    return planned(directory, *SMALL, *assignments, workload="extreme-weather")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """One rank that nothing disturbed."""
    folder = detection(tmp_path_factory.mktemp("alone"))
    run_ranks(folder)
    return folder


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """One rank, in double precision."""
    folder = detection(tmp_path_factory.mktemp("one"))
    run_ranks(folder, DOUBLE="1")
    return folder


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two ranks with synchronised batch norm, in double precision."""
    path = tmp_path_factory.mktemp("two")
    folder = detection(path, "train.ranks=2", "train.batch_norm=synchronised")
    run_ranks(folder, 2, DOUBLE="1")
    return folder


def test_kill_9_then_resume_gives_the_same_weights_bit_by_bit(
    alone: RunFolder, tmp_path: Path
) -> None:
    folder = detection(tmp_path)
    processes = start_ranks(folder, KILL_AFTER="6")
    while processes.running():
        time.sleep(0.02)
    assert processes.poll() == [-signal.SIGKILL]
    log = run_ranks(folder)
    assert losses(log) == losses(alone.history().jobs[1][0])[4:]
    assert weights(folder) == weights(alone)


def test_two_ranks_train_and_evaluate_as_one(one_rank: RunFolder, two_ranks: RunFolder) -> None:
    two, one = two_ranks.history().jobs[1][0], one_rank.history().jobs[1][0]
    assert len(losses(one)) == 8
    assert losses(two) == pytest.approx(losses(one), rel=LIMIT)
    for log in (one, two):
        assert [evaluation.evaluated for evaluation in evaluations(log)] == [7, 7]


def test_the_trained_model_is_tested_and_shown(alone: RunFolder) -> None:
    log = alone.history().jobs[1][0]
    kinds = [event.kind for event in log.events]
    assert kinds.index("finished") < kinds.index("tested") < kinds.index("exhibit")
    tested = next(
        event.payload(job_events.Tested) for event in log.events if event.kind == "tested"
    )
    assert tested.evaluated == 5
    exhibit = next(
        event.payload(job_events.Exhibited) for event in log.events if event.kind == "exhibit"
    )
    with np.load(alone.attempt_folder(1, 0) / exhibit.file, allow_pickle=False) as arrays:
        assert arrays["frames"].tolist() == [0, 2, 4]
        assert arrays["average_precision"].shape == (4,)
    (job,) = Contents(alone).training_jobs
    assert job.exhibit is not None and job.tested == tested


def test_two_ranks_show_what_one_shows(one_rank: RunFolder, two_ranks: RunFolder) -> None:
    """The exhibit has the frames of all ranks."""
    shown = []
    for folder in (one_rank, two_ranks):
        with np.load(folder.attempt_folder(1, 0) / "exhibit.npz", allow_pickle=False) as arrays:
            shown.append({name: arrays[name] for name in ("frames", "truth_boxes", "fields")})
    for name in shown[0]:
        np.testing.assert_array_equal(shown[0][name], shown[1][name])


def test_a_kill_after_the_end_changes_no_figure(alone: RunFolder, tmp_path: Path) -> None:
    """What is left is done off the clock: the target is not reached a second time."""
    folder = detection(tmp_path)
    processes = start_ranks(folder, KILL_WHEN_FINISHED="1")
    while processes.running():
        time.sleep(0.02)
    (before,) = Contents(folder).training_jobs
    assert before.finished is not None and before.tested is None
    log = run_ranks(folder)
    kinds = [event.kind for event in log.events]
    assert kinds == ["job", "resumed", "tested", "exhibit", "data-read", "end"]
    (after,) = Contents(folder).training_jobs
    assert after.evaluations == before.evaluations
    assert (after.wall_s, after.phases) == (before.wall_s, before.phases)
    assert after.exhibit is not None and after.tested == Contents(alone).training_jobs[0].tested


def test_a_rank_without_frames_evaluates_none(tmp_path: Path) -> None:
    small = ("train.epochs=1", "synthetic.validation=1", "synthetic.test=1")
    log = run_ranks(detection(tmp_path, "train.ranks=2", *small), 2)
    assert [evaluation.evaluated for evaluation in evaluations(log)] == [1]
    tested = next(
        event.payload(job_events.Tested) for event in log.events if event.kind == "tested"
    )
    assert tested.evaluated == 1


def test_a_training_of_which_nothing_can_be_shown_still_ends(tmp_path: Path) -> None:
    folder = detection(tmp_path, "train.epochs=1")
    log = run_ranks(folder, SHOW_NOTHING="1")
    assert log.events[-1].kind == "end"
    assert "exhibit" not in [event.kind for event in log.events]
    (skipped,) = (event for event in log.events if event.kind == "exhibit-skipped")
    assert "No space left" in skipped.payload(job_events.ExhibitSkipped).reason
    assert "No space left" in (folder.attempt_folder(1, 0) / "rank-0.log").read_text()
