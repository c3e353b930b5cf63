"""The data commands see which kind of data a folder holds, and say what the other kind lacks."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.main import get_command

from tests.support.trained_runs import HandmadeRun, course, job
from vflops.cli import application
from vflops.cli.terminal.run_display import Progress
from vflops.config.profiles import for_single_workload, tiny
from vflops.config.settings import Settings
from vflops.data.climate.check_years import ClimateReport
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.data_kind import DataKind, kind_of
from vflops.errors import FolderError, UsageError
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check as practice
from vflops.results.score.scoring import score
from vflops.workloads.contract.run_settings import load, profile

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


def accepted(stderr: str) -> Settings:
    """Return the settings of the `vflops run` in the next step."""
    (line,) = re.findall(r"^next: vflops run (.*?)(?:   \(.*\))?$", stderr, re.MULTILINE)
    workload, *words = [word for word in shlex.split(line) if word != "--kernels"]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    given = {name: value for name, value in pairs if name != "--set"}
    assignments = [value for name, value in pairs if name == "--set"]
    for option in ("seed", "data", "repeat"):
        assignments += [f"{option}={given[f'--{option}']}"] if f"--{option}" in given else []
    if "--kernels" in line:
        assignments.append("telemetry.kernels=true")
    chosen = given.get("--profile", "tiny")
    return for_single_workload(load(profile(chosen, [workload]), None, assignments))


def test_years_from_drawing_to_verifying(tmp_path: Path, vflops: Vflops) -> None:
    size = ("--frames", 8, "--height", 64, "--width", 96)
    made = vflops("data", "synth", "extreme-weather", "years", *size, "--gzip", "--seed", 3)
    assert made.returncode == 0, made.stderr
    assert "years: 3 files of 8 frames, 64x96" in made.stdout
    assert "next: vflops data check years" in made.stderr
    with h5py.File(tmp_path / "years/climo_1981.h5") as file:
        assert file["images"].shape == (8, 16, 64, 96) and file["images"].compression == "gzip"
        assert file["boxes"].shape == (8, 15, 5)

    checked = vflops("data", "check", "years")
    assert checked.returncode == 0, checked.stderr
    assert "climo_1980.h5" in checked.stdout and "validation" in checked.stdout
    assert "TMQ" in checked.stdout and "next: vflops data pack years" in checked.stderr
    printed = vflops("data", "check", "years", "--json")
    report = ClimateReport.parse(json.loads(printed.stdout), tmp_path)
    assert report.ok and list(report.years) == [1979, 1980, 1981]

    packed = vflops("data", "pack", "years")
    assert packed.returncode == 0, packed.stderr
    assert "train       1979: 8 frames with" in packed.stdout
    assert "the reference split" in packed.stdout
    assert "about 4.7 MB in total" in packed.stderr
    assert accepted(packed.stderr).workloads["extreme-weather"]["data"] == "years-packed-half"
    frames = PackedFrames.open(tmp_path / "years-packed-half")
    assert frames.index.synthetic and frames.index.recipe is not None

    verified = vflops("data", "verify", "years-packed-half")
    assert verified.returncode == 0 and "all hashes match" in verified.stdout
    assert accepted(verified.stderr).workloads["extreme-weather"]["target"] == 0.35
    with (tmp_path / "years-packed-half/test-00000.bin").open("r+b") as file:
        file.write(b"\x01\x02\x03\x04")
    damaged = vflops("data", "verify", "years-packed-half")
    assert damaged.returncode == 1 and "test-00000.bin" in damaged.stderr

    options = ("--validation-years", "1979", "--test-years", "1980", "--layout", "raw")
    other = vflops("data", "pack", "years", "mine", *options)
    assert other.returncode == 0 and "your own split" in other.stdout
    assert PackedFrames.open(tmp_path / "mine").index.years == {
        "train": (1981,),
        "validation": (1979,),
        "test": (1980,),
    }


def bad_year(folder: Path, *, nan: bool = True) -> None:
    folder.mkdir()
    rows = np.full((9, 15, 5), -1)
    rows[:, 0] = [1, 20, 6, 29, 2]
    rows[:, 1] = [3, 2, 6, 9, 0]
    for year in (1979, 1980, 1981):
        images = np.random.default_rng(year).random((9, 16, 12, 32)).astype(np.float32)
        if nan and year == 1980:
            images[4, 6, 1, 1] = np.nan
        with h5py.File(folder / f"climo_{year}.h5", "w") as file:
            file["images"], file["boxes"] = images, rows


@pytest.mark.parametrize(("years", "share"), [(3, 0), (2, 0), (3, 1), (2, 1), (3, 9)])
def test_the_command_that_check_proposes_works(
    tmp_path: Path, vflops: Vflops, years: int, share: int
) -> None:
    """``share`` of 9 boxes of a year reach out of the frame."""
    bad_year(tmp_path / "years", nan=False)
    for path in sorted((tmp_path / "years").iterdir())[years:]:
        path.unlink()
    for path in (tmp_path / "years").iterdir():
        with h5py.File(path, "r+") as file:
            file["boxes"][:share, 0, 3] = 40
    checked = vflops("data", "check", "years")
    if "repeat the command with" in checked.stderr:
        order = re.search(r"repeat the command with (--box-order \w+)", checked.stderr)
        assert order is not None
        checked = vflops("data", "check", "years", *order[1].split())
    assert checked.returncode == (1 if share else 0)
    proposed = re.search(r"vflops (data pack years[^(\n]*)", checked.stderr)
    assert proposed is not None, checked.stderr
    done = vflops(*proposed[1].split())
    assert done.returncode == 0, done.stderr
    assert ("mended" in done.stdout) == bool(share)


def test_one_year_is_not_proposed_to_be_packed(tmp_path: Path, vflops: Vflops) -> None:
    bad_year(tmp_path / "years", nan=False)
    for year in (1980, 1981):
        (tmp_path / "years" / f"climo_{year}.h5").unlink()
    checked = vflops("data", "check", "years")
    assert checked.returncode == 0 and "data pack" not in checked.stderr


def test_a_bad_frame_is_shown_and_can_be_left_out(tmp_path: Path, vflops: Vflops) -> None:
    bad_year(tmp_path / "years")
    checked = vflops("data", "check", "years")
    assert checked.returncode == 1 and "Traceback" not in checked.stderr
    assert "climo_1980.h5, frame 4: NaN or infinite values in TMQ" in checked.stdout
    assert "--policy skip" in checked.stderr
    refused = vflops("data", "pack", "years", "packed")
    assert refused.returncode == 2 and "climo_1980.h5: frame 4: NaN" in refused.stderr
    done = vflops("data", "pack", "years", "packed", "--policy", "skip")
    assert done.returncode == 0, done.stderr
    assert "8 frames with 16 boxes" in done.stdout and "1 frame left out" in done.stdout


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "pack years --short-side 64",
            "--short-side only applies to images, but years holds",
        ),
        ("pack images --layout raw", "--layout only applies to years of climate fields"),
        ("pack images --test-years 1980", "--test-years only applies to years of climate fields"),
        ("check images --box-order xyxyc", "--box-order only applies to years of climate fields"),
        ("pack years --train-years 79", "years '79': '79' is not a year"),
        ("pack years --validation-years=", "years '': '' is not a year"),
        ("verify years", "years is not a folder of packed data: it has no index.json"),
        ("check none", "none does not exist; expected a folder of data"),
    ],
)
def test_what_a_folder_does_not_allow_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, says: str
) -> None:
    bad_year(tmp_path / "years")
    (tmp_path / "images/train/cat").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        get_command(application(["data"]))(["data", *command.split()], standalone_mode=False)
    assert says in caught.value.message and caught.value.hint


def test_the_kind_of_data_is_detected_from_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no data of a known kind: it is empty"):
        kind_of(tmp_path)
    (tmp_path / "notes.pdf").write_text("words")
    with pytest.raises(UsageError, match=r"it holds notes.pdf") as caught:
        kind_of(tmp_path)
    assert "climo_1979.h5" in str(caught.value.hint) and "train/<class>" in str(caught.value.hint)
    (tmp_path / "train").mkdir()
    assert kind_of(tmp_path) == DataKind("images", packed=False)
    (tmp_path / "features.h5").write_bytes(b"")  # somebody's, beside the images
    assert kind_of(tmp_path) == DataKind("images", packed=False)
    (tmp_path / "train").rmdir()
    assert kind_of(tmp_path) == DataKind("years", packed=False)
    (tmp_path / "train").mkdir()
    (tmp_path / "climo_1979.h5").write_bytes(b"")
    assert kind_of(tmp_path) == DataKind("years", packed=False)
    index = tmp_path / "index.json"
    index.write_text('{"schema": "vflops.packed-frames/1"}')
    assert kind_of(tmp_path) == DataKind("years", packed=True)
    index.write_text('{"schema": "vflops.packed-images/1"}')
    assert kind_of(tmp_path) == DataKind("images", packed=True)
    index.write_text('{"schema": "vflops.run/1"}')
    with pytest.raises(FolderError, match=r"its schema is 'vflops.run/1'"):
        kind_of(tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        ("data=my data", "target=0.9"),
        ("target=0.9", "train.batch=32", "train.nesterov=false"),
        ("train.schedule=step", "train.milestones=[1]", "synthetic.train=128"),
        ("target=0.9", "micro.benchmarks=[]", "telemetry.kernels=true", "repeat=2"),
        ("target=0.9", "micro.precisions=fp32,bf16", "micro.budget_s=3", "count.models=resnet50"),
    ],
)
def test_after_a_missed_target_the_same_run_is_named_but_longer(
    handmade_run: HandmadeRun, capsys: pytest.CaptureFixture[str], given: tuple[str, ...]
) -> None:
    handmade_run.plan(job(1))
    handmade_run.attempt(1, 0.0, *course(0.4, 0.5))
    handmade_run.end()
    name = "image-classification"
    ran = for_single_workload(load(profile("tiny", [name]), None, [*given, "seed=5"]))
    record = handmade_run.folder.record.model_copy(update={"settings": ran})
    folder = RunFolder(handmade_run.folder.path, record)
    contents = Contents(folder)
    score(contents).write(folder.score_file)
    findings = practice(contents).model_copy(update={"findings": ()})
    Progress(quiet=True).summary(folder, findings)
    output = capsys.readouterr().err
    assert f"next: vflops run {name} --profile tiny" in output and "--seed 5" in output
    assert ("micro." in output) == any(setting.startswith("micro.") for setting in given)
    ran.workloads[name]["train"]["epochs"] = 4
    assert accepted(output) == ran


def test_where_no_longer_run_can_be_named_none_is(
    handmade_run: HandmadeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    handmade_run.plan(job(1))
    handmade_run.attempt(1, 0.0, *course(0.4))
    handmade_run.end()
    strange = tiny().model_copy(update={"workloads": {"image-classification": {"gone": 1}}})
    record = handmade_run.folder.record.model_copy(update={"settings": strange})
    folder = RunFolder(handmade_run.folder.path, record)
    contents = Contents(folder)
    score(contents).write(folder.score_file)
    findings = practice(contents).model_copy(update={"findings": ()})
    Progress(quiet=True).summary(folder, findings)
    output = capsys.readouterr().err
    assert "next: vflops report" in output and "vflops run" not in output
