"""Parts of real trainings, ensembles and searches are trained again, bit by bit or nearly so."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support import automl_runs, ensemble_runs
from tests.support.fork_server import server
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Checkpointed, Committed, Resumed
from vflops.results.evidence.audit_record import AuditRecord

KEPT = ("--set", "train.segments=2", "--set", "train.commit_every=3")


def audited(folder: RunFolder, place: Path, *options: str, code: int = 0) -> AuditRecord:
    """Run ``vflops audit`` as a user does, and return its record."""
    words = ["-m", "vflops", "audit", str(folder.path), "--json", "--quiet", *options]
    process = server().start(words, place, os.environ)
    out, err = process.communicate(timeout=400)
    assert process.returncode == code, out + err
    data = json.loads(out)
    (written,) = place.glob("audits/*/audit.json")
    assert json.loads(written.read_text()) == data
    return AuditRecord.parse(data, written)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    place = tmp_path_factory.mktemp("ensemble")
    process = ensemble_runs.started(place, "--models", "2", *KEPT)
    return ensemble_runs.ended(process, place)


def test_the_log_of_a_training_commits_to_its_states(ensemble: RunFolder) -> None:
    for job in (1, 2):
        history = ensemble.history(job)
        committed = [event.payload(Committed) for event in history.events("commitment")]
        assert [item.step for item in committed] == [0, 3, 6, 9, 12, 15]
        assert [item.loss is None for item in committed] == [True] + [False] * 5
        checkpoints = [event.payload(Checkpointed) for event in history.events("checkpoint")]
        assert [(item.step, item.kept) for item in checkpoints] == [(8, True), (16, True)]
        for item in checkpoints:
            path = ensemble.job_file(job).parent / "checkpoint" / item.file
            assert path.stat().st_size == item.size_bytes
    first = [ensemble.history(job).events("commitment")[0].data["sha256"] for job in (1, 2)]
    assert first[0] != first[1], "both models start from the same weights"


def test_all_of_an_ensemble_is_the_same_again(ensemble: RunFolder, tmp_path: Path) -> None:
    record = audited(ensemble, tmp_path, "--segments", "4")
    assert record.verdict == "confirmed"
    assert record.same_stack
    assert {row.verdict for row in record.segments} == {"same bits"}
    parts = {(row.job, row.first, row.last) for row in record.segments}
    assert parts == {(job, *steps) for job in (1, 2) for steps in ((0, 8), (8, 16), (16, 16))}
    assert (record.segments_total, record.steps_total, record.steps_audited) == (4, 32, 32)
    assert not list(tmp_path.glob("audits/*/jobs/*/checkpoint")), "states are left behind"


def test_another_stack_is_compared_within_a_measured_tolerance(
    ensemble: RunFolder, tmp_path: Path
) -> None:
    """As if the run had been made with other software: nothing must be equal to the last bit."""
    copy = RunFolder.open(shutil.copytree(ensemble.path, tmp_path / "copy" / ensemble.path.name))
    system = json.loads(copy.system_file.read_text())
    framework = next(layer for layer in system["layers"] if layer["name"] == "framework")
    framework["facts"][0]["value"] = "another"
    copy.system_file.write_text(json.dumps(system))
    for checkpoint in copy.path.glob("jobs/2/checkpoint"):
        shutil.rmtree(checkpoint)
    record = audited(copy, tmp_path, "--segments", "0", code=1)
    assert not record.same_stack
    by_job = {(row.job, row.first): row for row in record.segments}
    for first in (0, 16):
        row = by_job[1, first]
        assert row.verdict == "within tolerance"
        assert any(item.tolerance > 0 for item in row.differences)
    assert by_job[2, 0].verdict == "within tolerance"
    assert by_job[2, 16].verdict == "cannot tell"
    assert by_job[2, 16].detail == "its checkpoint step-000000016.state is missing"
    assert record.verdict == "not conclusive"


def test_a_checkpoint_from_elsewhere_is_refused_at_resume_and_by_the_audit(
    ensemble: RunFolder, tmp_path: Path
) -> None:
    """Weights of another model with a matching hash beside them: the log does not know them."""
    copy = RunFolder.open(shutil.copytree(ensemble.path, tmp_path / "copy" / ensemble.path.name))
    mine, other = (copy.path / "jobs" / str(job) / "checkpoint" for job in (1, 2))
    for name in ("step-000000016.state", "step-000000016.json"):
        shutil.copy(other / name, mine / name)
    record = audited(copy, tmp_path, "--segments", "0", code=1)
    (row,) = [row for row in record.segments if row.job == 1 and row.first == 16]
    assert row.detail == "its checkpoint step-000000016.state is not the one that the log has"
    process = server().start(
        ["-m", "vflops.train.rank", str(copy.path), "1", "1"],
        tmp_path,
        {**os.environ, "RANK": "0", "VFLOPS_LAUNCHER": str(os.getpid())},
    )
    process.communicate(timeout=200)
    assert process.returncode == 3
    error = json.loads((copy.path / "jobs/1/1/rank-0.error.json").read_text())
    assert "does not come from this training" in error["message"]
    assert not [e.payload(Resumed) for e in copy.history(1).events("resumed")]


def test_the_checkpoints_can_be_discarded(ensemble: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder.open(shutil.copytree(ensemble.path, tmp_path / ensemble.path.name))
    words = ["-m", "vflops", "audit", str(copy.path), "--discard"]
    process = server().start(words, tmp_path, os.environ)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "can no longer be audited" in out
    assert not list(copy.path.glob("jobs/*/checkpoint"))


def test_candidates_of_a_search_are_trained_again(tmp_path: Path) -> None:
    settings = ("search.candidates=3", "train.epochs=2", "train.commit_every=2")
    folder = automl_runs.searched(tmp_path, *settings)
    record = audited(folder, tmp_path, "--segments", "3")
    names = {row.candidate for row in record.segments}
    assert len(names) == 3
    assert {row.verdict for row in record.segments} == {"same bits"}, record.detail
    assert all(row.commitments for row in record.segments)


def test_two_ranks_give_the_same_states_again(tmp_path: Path) -> None:
    process = ensemble_runs.started(tmp_path, "--ranks", "2", *KEPT)
    folder = ensemble_runs.ended(process, tmp_path)
    record = audited(folder, tmp_path, "--segments", "2")
    assert record.verdict == "confirmed"
    assert {row.verdict for row in record.segments} == {"same bits"}
