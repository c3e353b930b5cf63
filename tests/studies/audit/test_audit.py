"""Parts of real trainings, ensembles and searches are trained again, bit by bit or nearly so."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.support import automl_runs, ensemble_runs
from tests.support.forged_runs import Forger
from tests.support.programs import start
from tests.support.train_runs import start_ranks
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.job_events import Checkpointed, Committed
from vflops.results.evidence.audit_record import AuditRecord
from vflops.results.evidence.manifest import write_manifest
from vflops.train.state_file import pack, unpack


def audited(folder: RunFolder, place: Path, *options: str, code: int | None = None) -> AuditRecord:
    """Run ``vflops audit`` as a user does, and return its record.

    Without ``code``, the speed may be unconfirmed: the machine is busy with other tests.
    """
    words = ["-m", "vflops", "audit", str(folder.path), "--json", "--quiet", *options]
    process = start(words, place, os.environ)
    out, err = process.communicate(timeout=400)
    assert process.returncode in ((0, 1) if code is None else (code,)), out + err
    data = json.loads(out)
    (written,) = place.glob("audits/*/audit.json")
    assert json.loads(written.read_text()) == data
    return AuditRecord.parse(data, written)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A training of 16 steps in one segment."""
    place = tmp_path_factory.mktemp("single")
    settings = ("--set", "train.segments=1", "--set", "train.commit_every=3")
    return ensemble_runs.ended(ensemble_runs.started(place, *settings), place)


def copied(folder: RunFolder, place: Path) -> RunFolder:
    return RunFolder.open(shutil.copytree(folder.path, place / "copy" / folder.path.name))


def elsewhere(folder: RunFolder, place: Path) -> RunFolder:
    """A copy of a run, as if it had been made with other software."""
    copy = copied(folder, place)
    system = json.loads(copy.system_file.read_text())
    framework = next(layer for layer in system["layers"] if layer["name"] == "framework")
    framework["facts"][0]["value"] = "another"
    copy.system_file.write_text(json.dumps(system))
    forger = Forger(copy.path)
    forger.lines("described")[0]["data"]["sha256"] = file_hash(copy.system_file)
    sealed = forger.sealed()
    sealed.manifest_file.unlink()
    for path in (sealed.findings_file, sealed.report_file):
        path.unlink()
    write_manifest(sealed)
    return sealed


def test_the_log_of_a_training_commits_to_its_states(single: RunFolder) -> None:
    history = single.history(1)
    committed = [event.payload(Committed) for event in history.events("commitment")]
    assert [item.step for item in committed] == [0, 3, 6, 9, 12, 15]
    assert [item.loss is None for item in committed] == [True] + [False] * 5
    checkpoints = [event.payload(Checkpointed) for event in history.events("checkpoint")]
    assert [(item.step, item.kept) for item in checkpoints] == [(8, False), (16, True)]
    for item in checkpoints:
        path = single.job_file(1).parent / "checkpoint" / item.file
        assert (file_hash(path), path.stat().st_size) == (item.sha256, item.size_bytes)


def test_all_of_a_training_is_the_same_again(single: RunFolder, tmp_path: Path) -> None:
    record = audited(single, tmp_path, "--segments", "2")
    assert record.same_stack
    assert {row.verdict for row in record.segments} == {"same bits"}
    assert {(row.first, row.last) for row in record.segments} == {(0, 16), (16, 16)}
    assert (record.segments_total, record.steps_total, record.steps_audited) == (1, 16, 16)
    assert not list(tmp_path.glob("audits/*/jobs/*/checkpoint")), "states are left behind"


def test_parts_that_cannot_be_compared_count_as_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("halves")
    for name in ("before", "after"):
        (place / name).mkdir()
    folder = ensemble_runs.ended(ensemble_runs.started(place, "--set", "train.segments=3"), place)
    record = audited(folder, place / "before", "--segments", "2")
    assert (record.segments_drawn, record.steps_total, record.steps_audited) == (1, 16, 16)
    for state in (folder.job_file(1).parent / "checkpoint").glob("*.state"):
        state.unlink()
    record = audited(folder, place / "after", "--segments", "2", code=1)
    assert [row.verdict for row in record.segments].count("not audited") == 3
    assert (record.segments_drawn, record.steps_audited) == (0, 6)


def test_another_stack_is_compared_within_a_measured_tolerance(
    single: RunFolder, tmp_path: Path
) -> None:
    copy = elsewhere(single, tmp_path)
    (copy.job_file(1).parent / "checkpoint" / "step-000000016.state").unlink()
    record = audited(copy, tmp_path, "--segments", "0", code=1)
    assert not record.same_stack
    first, last = record.segments
    assert first.verdict == "within tolerance"
    assert {item.figure for item in first.differences} == {"loss", "quality"}
    assert all(item.tolerance > 0 for item in first.differences)
    assert last.verdict == "not audited"
    assert last.detail == "its checkpoint step-000000016.state is missing"
    assert record.verdict == "not conclusive"


def test_a_trusted_run_gives_the_tolerance(single: RunFolder, tmp_path: Path) -> None:
    """It is the same run here, so that its repetitions differ by nothing."""
    words = ("--segments", "0", "--trusted", str(single.path))
    record = audited(elsewhere(single, tmp_path), tmp_path, *words)
    assert record.trusted_run == single.record.id
    assert {row.verdict for row in record.segments} == {"within tolerance"}
    least = {item.figure: item.tolerance for row in record.segments for item in row.differences}
    assert least["loss"] == 1e-6
    assert least["quality"] == 5 / ensemble_runs.VALIDATION


def test_a_checkpoint_that_the_log_does_not_know_is_refused_at_resume(
    single: RunFolder, tmp_path: Path
) -> None:
    """Other weights with a matching hash beside them."""
    copy = copied(single, tmp_path)
    path = copy.job_file(1).parent / "checkpoint" / "step-000000016.state"
    state = unpack(path.read_bytes(), path.name)
    state["model"] = {name: value * 2 for name, value in state["model"].items()}
    path.write_bytes(pack(state).to_bytes())
    marker = json.loads(path.with_suffix(".json").read_text())
    marker["sha256"] = file_hash(path)
    path.with_suffix(".json").write_text(json.dumps(marker))
    processes = start_ranks(copy)
    while processes.running():
        time.sleep(0.02)
    assert processes.poll() == [3]
    error = json.loads((copy.path / "jobs/1/1/rank-0.error.json").read_text())
    assert "does not come from this training" in error["message"]
    assert not copy.history(1).events("resumed")


def test_the_checkpoints_can_be_discarded(single: RunFolder, tmp_path: Path) -> None:
    copy = copied(single, tmp_path)
    words = ["-m", "vflops", "audit", str(copy.path), "--discard"]
    process = start(words, tmp_path, os.environ)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "can no longer be audited" in out and " archive " in err.partition("next:")[2]
    assert not list(copy.path.glob("jobs/*/checkpoint"))


def test_the_models_of_an_ensemble_are_the_same_again(tmp_path: Path) -> None:
    words = ("--models", "2", "--set", "train.segments=1")
    folder = ensemble_runs.ended(ensemble_runs.started(tmp_path, *words), tmp_path)
    record = audited(folder, tmp_path, "--segments", "0")
    parts = {(row.job, row.first, row.last): row.verdict for row in record.segments}
    steps = ((0, 16), (16, 16))
    assert parts == {(job, *part): "same bits" for job in (1, 2) for part in steps}
    (ensemble,) = record.ensembles
    assert ensemble.quality_here == ensemble.quality_recorded


def test_candidates_of_a_search_are_trained_again(tmp_path: Path) -> None:
    settings = (
        "search.candidates=2",
        "train.epochs=2",
        "train.commit_every=2",
        "train.segments=1",
    )
    folder = automl_runs.searched(tmp_path, *settings)
    record = audited(folder, tmp_path, "--segments", "2")
    assert len({row.candidate for row in record.segments}) == 2
    assert {row.verdict for row in record.segments} == {"same bits"}, record.detail
    assert all(row.commitments for row in record.segments)


def test_two_ranks_give_the_same_states_again(tmp_path: Path) -> None:
    settings = ("train.segments=1", "train.commit_every=3", "train.warmup_epochs=0")
    words = ("--ranks", "2", *(word for item in settings for word in ("--set", item)))
    folder = ensemble_runs.ended(ensemble_runs.started(tmp_path, *words, epochs=1), tmp_path)
    record = audited(folder, tmp_path, "--segments", "0")
    assert {row.verdict for row in record.segments} == {"same bits"}, record.detail
    assert record.segments[0].commitments == 4
