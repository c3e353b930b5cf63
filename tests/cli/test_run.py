"""A whole run: to its end, killed and resumed, interrupted, and with nowhere to write."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from mlperf_logging.compliance_checker import mlp_compliance

from tests.support.programs import start
from vflops.record.folder import RunFolder, latest

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_tiny_run_ends_with_a_report_and_passes_its_check(
    vflops_alone: Vflops, vflops: Vflops, tmp_path: Path
) -> None:
    metrics = tmp_path / "vflops.prom"
    shorter = (
        "image-classification.train.epochs=2",
        "extreme-weather.train.epochs=1",
        "language-model.synthetic.train=32768",
    )
    sets = [word for setting in shorter for word in ("--set", setting)]
    result = vflops_alone(
        "run", "--profile", "tiny", "--seed", "3", "--metrics-file", metrics, *sets
    )
    assert result.returncode in (0, 1), result.stderr  # 1: other tests kept the machine busy
    path = latest(tmp_path / "runs")
    assert path is not None
    assert f"report  {path.relative_to(tmp_path)}/report.html" in result.stdout
    assert result.stderr.count("\nnext: ") == 1
    folder = RunFolder.open(path)
    assert folder.record.settings.seed == 3
    for name in ("run.json", "system.json", "score.json", "findings.json", "report.html"):
        assert (path / name).stat().st_size > 0
    score = json.loads(folder.score_file.read_text())
    assert score["complete"] is True
    models = {model["model"] for model in score["models"]}
    trained = {"image-classification", "extreme-weather", "automl", "language-model"}
    assert models == {"resnet50", "resnet50-v1"} | trained
    assert score["trainings"][0]["speed"]["vflops"] > 0
    tasks = {task["workload"]: (task["kind"], task["differences"]) for task in score["tasks"]}
    assert tasks == {
        "automl": ("closed", []),
        "image-classification": ("open", ["train.epochs 2 instead of 8"]),
        "extreme-weather": ("open", ["train.epochs 1 instead of 10"]),
        "language-model": ("open", ["synthetic.train 32768 instead of 262144"]),
    }
    values = {(c["benchmark"], c["precision"]): c for c in score["ceilings"]}
    assert values["gemm", "fp32"]["value"] > 1e9
    assert all((c["value"] is None) != (c["reason"] is None) for c in score["ceilings"])
    vflops("check", path)
    findings = json.loads(folder.findings_file.read_text())["findings"]
    bad = ("fail", "cannot tell")
    failed = {finding["rule"] for finding in findings if finding["verdict"] in bad}
    assert failed <= {"quiet", "plausible"}  # other tests run beside this one
    ended = len(score["trainings"]) + len(score["searches"])  # of one worker
    assert f'vflops_jobs{{run="{path.name}",state="ended"}} {ended}.0\n' in metrics.read_text()
    assert f'vflops_run_active{{run="{path.name}"}} 0.0\n' in metrics.read_text()
    exported = vflops("export", "mllog", path)
    assert exported.returncode == 0, exported.stderr
    (log,) = (tmp_path / "mlperf").glob("results/*/resnet/result_0.txt")
    checker = mlp_compliance.make_checker("training", "4.0.0", quiet=True, werror=True)
    assert checker.check_file(str(log), "training_4.0.0/common.yaml")


def started(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Return a run in its own process group, with one measurement already in its log."""
    process = start(["-m", "vflops", *arguments], tmp_path, os.environ)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        path = latest(tmp_path / "runs")
        if path is not None and RunFolder.open(path).history().events("measurement"):
            return process
        time.sleep(0.05)
    raise AssertionError(f"no measurement came: {process.communicate()}")


RUN = ("micro", "gemm", "memory", "--precision", "fp32", "--precision", "fp64", "--budget", "4")


def test_a_run_killed_at_any_moment_can_be_read_and_resumed(vflops: Vflops, tmp_path: Path) -> None:
    process = started(tmp_path, *RUN)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    path = latest(tmp_path / "runs")
    assert path is not None
    before = [e.data for e in RunFolder.open(path).history().events("measurement")]
    assert vflops("check", path).returncode == 1
    result = vflops("resume", path)
    assert result.returncode in (0, 1), result.stderr
    folder = RunFolder.open(path)
    assert folder.history().state.complete
    after = [e.data for e in folder.history().events("measurement")]
    assert after[: len(before)] == before
    keys = [(data["benchmark"], data["case"], data["precision"]) for data in after]
    assert len(keys) == len(set(keys)) == 4
    (path / "report.html").unlink()
    assert vflops("resume", path).returncode in (0, 1)  # only the conclusion was missing
    assert (path / "report.html").exists()
    assert len(RunFolder.open(path).history().logs) == 2
    again = vflops("resume", path)
    assert again.returncode == 2
    assert "is complete: there is nothing to resume" in again.stderr


def test_a_run_that_is_still_going_cannot_be_resumed(vflops: Vflops, tmp_path: Path) -> None:
    process = started(tmp_path, *RUN)
    result = vflops("resume")
    assert result.returncode == 2
    assert f"is in use by process {process.pid}" in result.stderr
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = started(tmp_path, *RUN)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in error
    assert "vflops resume" in error
    assert "Traceback" not in error
    path = latest(tmp_path / "runs")
    assert path is not None
    assert RunFolder.open(path).history().state.reason == "it was stopped by the user"
    assert not list(path.rglob("*.tmp"))


@pytest.mark.parametrize("out", ["/proc/runs", "file/runs"])
def test_an_output_folder_that_cannot_be_made(vflops: Vflops, tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("in the way")
    result = vflops("run", "--profile", "tiny", "--out", out)
    assert result.returncode == 2
    assert f"cannot write {out}" in result.stderr
    assert "choose another folder" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_full_disk_is_exit_code_3_and_leaves_no_half_written_file(
    vflops: Vflops, small_disk: Path
) -> None:
    (small_disk / "ballast").write_bytes(bytes((1 << 20) - 40_000))
    result = vflops("run", "--profile", "tiny", "--out", small_disk / "runs")
    assert result.returncode == 3
    assert "No space left" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(small_disk.rglob("*.tmp"))


def test_no_room_for_a_folder_leaves_none(vflops: Vflops, small_disk: Path) -> None:
    (small_disk / "runs").mkdir()
    with suppress(OSError):  # until nothing more fits
        (small_disk / "ballast").write_bytes(bytes(2 << 20))
    result = vflops("run", "--profile", "tiny", "--out", small_disk / "runs")
    assert result.returncode == 3
    assert list((small_disk / "runs").iterdir()) == []


def test_a_read_only_run_can_be_read_and_judged(
    vflops: Vflops, run_folder: RunFolder, small_disk: Path
) -> None:
    vflops("score", run_folder.path)
    shutil.copytree(run_folder.path, small_disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for command in ("score", "check"):
        result = vflops(command, small_disk / "run")
        assert result.returncode == 0, result.stderr
        assert "not written: cannot write" in result.stderr
    result = vflops("report", small_disk / "run")
    assert result.returncode == 2
    assert "Read-only file system" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_begun_on_another_machine_is_not_resumed_here(
    vflops: Vflops, run_folder: RunFolder
) -> None:
    log = run_folder.path / "jobs" / "0" / "0" / "events.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    result = vflops("resume", run_folder.path)
    assert result.returncode == 2
    assert "started on another machine: cpu model Test CPU" in result.stderr
