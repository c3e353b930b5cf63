"""What a user can get wrong: a line with its hint, and no run folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from PIL import Image

from tests.support.train_runs import (
    SMALL,
    losses,
    planned,
    run_ranks,
    start_command,
    start_ranks,
    training_run,
)
from vflops.cli import options
from vflops.errors import RunFailed, UsageError
from vflops.launch.attempt import run_job
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job import JobRecord
from vflops.run import jobs, pipeline
from vflops.run.observer import RunObserver


def refused(directory: Path, *assignments: str) -> UsageError:
    """Why a run with these settings is not begun."""
    with pytest.raises(UsageError) as caught:
        settings = options.settings(
            "tiny", None, None, [*SMALL, *assignments], workloads="image-classification"
        )
        pipeline.start(directory / "runs", "image-classification", settings, RunObserver())
    assert not (directory / "runs").exists()
    return caught.value


def images(folder: Path, classes: int = 2, count: int = 20) -> Path:
    """Return an image folder of plain colours."""
    for split in ("train", "val"):
        for label in range(classes):
            directory = folder / split / f"class-{label}"
            directory.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (16, 16), (80 * label, 10 * number, 0)).save(
                    directory / f"{number}.png"
                )
    return folder


@pytest.mark.parametrize(
    ("assignments", "message", "hint"),
    [
        (["target=1.5"], "target = 1.5", ""),
        (["target=0"], "target = 0", ""),
        (["train.batch=512"], "batch 512 is larger than the data: 256", "train.batch=256"),
        (["train.batch=33", "train.accumulate=2"], "batch 33 cannot be divided evenly", ""),
        (
            ["train.ranks=4096", "train.batch=4096"],
            "4096 ranks do not fit on this machine",
            "--ranks",
        ),
        (["train.nesterov=true", "train.momentum=0"], "nesterov needs", ""),
        (["train.ghosts=2", "train.batch_norm=synchronised"], "ghosts split a batch", ""),
        (["train.warmup_epochs=2"], "is not less than the 2 epochs", ""),
        (["train.schedule=step"], "do not fit schedule", ""),
        (["train.milestones=[1]"], "do not fit schedule", ""),
        (["train.power=1"], "power 1 and end_rate 0 do not fit schedule 'cosine'", ""),
        (["train.schedule=polynomial", "train.power=0"], "train.power = 0", ""),
        (["train.schedule=polynomial", "train.end_rate=0.2"], "end_rate 0.2 is more than 0.1", ""),
        (["train.schedule_epochs=1"], "schedule_epochs 1 is less than the 2 epochs", ""),
        (["train.precision=tf32"], "tf32", "precision"),
        (["train.precision=int3"], "int3", ""),
        (["train.optimizer=lion"], "lion", ""),
        (["train.device=cuda"], "'cuda' is not available", "cpu"),
        (["train.epoch=3"], "unknown setting 'train.epoch'", "train.epochs"),
        (["size=64", "resize=32"], "resize 32 is less than size 64", ""),
        (["synthetic.classes=1"], "synthetic.classes = 1", ""),
        (["crop_area=[0.5,0.1]"], "is not a range within 0 and 1", ""),
    ],
)
def test_a_wrong_setting_begins_no_run(
    tmp_path: Path, assignments: list[str], message: str, hint: str
) -> None:
    error = refused(tmp_path, *assignments)
    assert message in error.message
    assert hint in str(error.hint)


def test_data_that_cannot_be_used_begins_no_run(tmp_path: Path) -> None:
    def fault(folder: Path) -> str:
        return refused(tmp_path, f"data={folder}", "target=0.5").message

    assert "nowhere" in fault(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "empty" in fault(tmp_path / "empty")
    assert "one class" in fault(images(tmp_path / "one", classes=1))
    broken = images(tmp_path / "broken")
    (broken / "train" / "class-0" / "3.png").write_bytes(b"no image")
    assert "train/class-0/3.png" in fault(broken)


def test_own_images_need_a_target_of_their_own(tmp_path: Path) -> None:
    error = refused(tmp_path, f"data={images(tmp_path / 'own')}")
    assert "--set target" in str(error.hint)


def test_own_images_train_and_what_is_skipped_is_counted(tmp_path: Path) -> None:
    folder = images(tmp_path / "own", count=24)
    (folder / "train" / "class-1" / "5.png").write_bytes(b"no image")
    run = planned(
        tmp_path / "runs", f"data={folder}", "target=0.9", "unreadable=skip", "train.batch=16"
    )
    record = JobRecord.read(run.job_file(1))
    assert (record.data.train, record.data.skipped) == (47, 1)
    assert record.data.facts["classes"] == 2
    assert not record.data.synthetic
    log = run_ranks(run)
    assert len(losses(log)) == -(-2 * 47 // 16)


def test_images_of_val_that_are_trained_on_are_named_before_anything_is_trained(
    tmp_path: Path,
) -> None:
    folder = images(tmp_path / "own", count=16)  # train and val hold the same images
    assignments = [*SMALL, f"data={folder}", "target=0.9", "train.batch=16"]
    settings = options.settings("tiny", None, None, assignments, workloads="image-classification")
    prepared = jobs.prepare(settings, lambda what, done, whole: None)
    (warning,) = jobs.data_warnings(prepared)
    assert warning.startswith(
        "image-classification: 32 validation samples are also trained on: "
        "val/class-0/0.png equals train/class-0/0.png, "
    )
    assert warning.endswith(" and 27 more")


def test_a_loss_that_is_not_finite_stops_with_step_checkpoint_and_advice(tmp_path: Path) -> None:
    folder = planned(tmp_path, "train.learning_rate=1e18")
    record = JobRecord.read(folder.job_file(1))
    with pytest.raises(RunFailed) as caught:
        run_job(folder, record, lambda kind, data: None)
    assert "the loss is nan at step" in caught.value.message
    assert "there is no checkpoint yet" in caught.value.message
    assert "train.learning_rate" in str(caught.value.hint)
    assert folder.history().jobs[1][0].events[-1].kind == "failed"


def test_a_rank_that_cannot_start_is_named_with_its_output(tmp_path: Path) -> None:
    folder = planned(tmp_path)
    record = JobRecord.read(folder.job_file(1))
    folder.job_file(1).write_text("{}")  # the rank cannot read its job
    with pytest.raises(RunFailed, match="rank 0 ended with code 1") as caught:
        run_job(folder, record, lambda kind, data: None)
    output = Path(str(caught.value.hint).removeprefix("see its output: ").partition(";")[0])
    assert "job.json is not a vflops.job file" in output.read_text()


def test_changed_data_is_refused_on_resume(tmp_path: Path) -> None:
    folder = planned(tmp_path)
    record = JobRecord.read(folder.job_file(1))
    changed = record.model_copy(
        update={"data": record.data.model_copy(update={"fingerprint": "0" * 64})}
    )
    changed.write(folder.job_file(1))
    processes = start_ranks(folder)
    while processes.running():
        pass
    assert processes.poll() == [2]
    assert "has changed since this run began" in str(
        folder.history().jobs[1][0].events[-1].data["message"]
    )


def test_a_disk_that_fills_in_an_epoch_loses_no_good_checkpoint(small_disk: Path) -> None:
    sets = ("network.width=9", "train.epochs=3")
    process = start_command(small_disk, *training_run(*sets))
    _, error = process.communicate(timeout=120)
    assert process.returncode == 3, error
    assert "No space left on device" in error
    path = latest(small_disk / "runs")
    assert path is not None
    kept = sorted((path / "jobs" / "1" / "checkpoint").glob("*.json"))
    assert [file.stem for file in kept] == ["step-000000008", "step-000000016"]
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    resumed = start_command(small_disk, "resume")
    _, error = resumed.communicate(timeout=120)
    assert resumed.returncode in (0, 1), error
    assert RunFolder.open(path).history().ended(1)
