"""What the command shows of trainings: the score at any width, the result of a run, the view."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import typer
from rich.console import Console

from tests.support.trained_runs import (
    HandmadeRun,
    course,
    evaluated,
    job,
    progress,
    resumed,
    started,
)
from vflops.cli.terminal import console
from vflops.cli.terminal.columns import columns
from vflops.cli.terminal.run_display import Progress
from vflops.cli.terminal.training_panel import TrainingView
from vflops.config.profiles import tiny
from vflops.errors import UsageError
from vflops.publish.report.report_page import write_report
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.findings import Finding
from vflops.results.score.scoring import score
from vflops.studies.audit.kept_states import discard_states

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


def in_terminal(folder: RunFolder, width: int) -> str:
    """Return what ``vflops score`` writes on a terminal of that width, without its colours."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "vflops", "score", folder.path],
        env={**os.environ, "COLUMNS": str(width)},
        stdout=slave,
        stderr=subprocess.DEVNULL,
    )
    os.close(slave)
    data = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not part:
            break
        data += part
    os.close(master)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", data.decode()).replace("\r\n", "\n")


@pytest.mark.parametrize("width", [60, 100])
def test_score_shows_trainings_first_and_fits_the_terminal(
    trained_folder: RunFolder, width: int
) -> None:
    text = in_terminal(trained_folder, width)
    too_wide = [line for line in text.splitlines() if len(line) > width]
    assert not too_wide
    assert text.startswith("image-classification, mean of 2 seeds\n")
    interval = r"3\.51\s+MVFLOPS\s+±\s+512\s+kVFLOPS"  # 12.7 · s / √2
    assert re.search(rf"open\s+VFLOPS\s+as\s+published\s+{interval}\s+1\.6\d\s+%", text)
    assert re.search(r"open\s+task\s+[0-9a-f]{12}:\s+target\s+0.8\s+instead\s+of", text)
    assert text.index("seed 1") < text.index("seed 2") < text.index("ceilings")
    assert "not measured: gemm peak fp8: this device has none" in text
    for figure in (
        "open VFLOPS      1.92 MVFLOPS (3.47 as published; own",
        "quality factor   1: the target was reached (1.802 =",
        "time to quality  59 s, epoch 3",
        "2, 500 samples repeated",
    ):
        assert figure in text
    assert "200 GFLOPS" in text


def test_score_does_not_pay_for_rich_or_torch(trained_folder: RunFolder) -> None:
    code = (
        "import sys\nfrom vflops.cli import main\n"
        f"sys.argv = ['vflops', 'score', {str(trained_folder.path)!r}]\n"
        "try:\n    main()\nfinally:\n"
        "    print({'torch', 'altair', 'rich'} & set(sys.modules))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("set()\n")


def test_score_says_why_there_is_no_figure(vflops: Vflops, handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job())
    handmade_run.attempt(1, 0.0, *course(0.5)[:-1])
    result = vflops("score", handmade_run.folder.path)
    assert result.returncode == 0, result.stderr
    assert "has not finished: epoch 1.00" in result.stdout
    assert "0.09537 = (0.5 / 0.8)^5, a penalty for quality below the target" in result.stdout
    assert "time to quality  not reached" in result.stdout
    assert "power not measured (nothing was sampled)" in result.stdout
    assert "MFU              — (no ceiling was measured in fp32)" in result.stdout


def test_score_of_a_job_that_has_not_started_has_no_empty_figures(
    vflops: Vflops, handmade_run: HandmadeRun
) -> None:
    record = job()
    facts = {"floor": 1.5180980983747803, "vocabulary": 64}
    data = record.data.model_copy(update={"facts": facts})
    handmade_run.plan(record.model_copy(update={"data": data}))
    shown = vflops("score", handmade_run.folder.path).stdout
    assert "incomplete  has not started" in shown and "quality     no " in shown
    assert "floor 1.518, vocabulary 64" in shown
    assert "—" not in shown.partition("image-classification: ")[0] and "0 s" not in shown


def test_a_run_in_progress_is_called_so_and_nothing_of_it_is_kept(
    vflops: Vflops, run_folder: RunFolder
) -> None:
    log = run_folder.path / "jobs" / "0" / "0" / "events.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))  # before its end
    with run_folder.in_use():
        for command in ("score", "check"):
            output = vflops(command, run_folder.path).stderr
            assert "is in progress" in output and "resume" not in output
        write_report(Contents(run_folder))
    assert not run_folder.score_file.exists() and not run_folder.findings_file.exists()
    page = run_folder.report_file.read_text()
    assert "In progress" in page and "vflops resume" not in page
    after = vflops("score", run_folder.path)
    assert "it stopped after 'load'" in after.stderr and "resume" in after.stderr
    assert run_folder.score_file.exists()


def test_columns_that_do_not_fit_go_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    rows = [("a" * 12, "b" * 12, "c" * 12, "last 3 ms")]
    assert columns(rows) == "aaaaaaaaaaaa  bbbbbbbbbbbb\n    cccccccccccc  last 3 ms"
    assert columns([("name", "it took 56.5 ms in the first 12 s")]).splitlines() == [
        "name  it took 56.5 ms in the",
        "      first 12 s",
    ]


def test_a_pipe_is_as_wide_as_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("name", "word " * 30)]
    for given, width in (("40", 40), ("", 100), ("wide", 100), ("0", 100)):
        monkeypatch.setenv("COLUMNS", given)
        assert width - 5 <= max(map(len, columns(rows).splitlines())) <= width
        if given != "0":
            assert console.console().width == width


def test_a_next_step_on_a_narrow_terminal_has_a_hanging_indent_and_can_be_copied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    command = ["run", "image-classification", "--set", "a=b c d e f", "--set", "train.epochs=2"]
    console.next_step(shlex.join(["vflops", *command]), "train longer: the target was not reached")
    first, *rest = capsys.readouterr().err.strip().splitlines()
    assert first.startswith("next: ") and all(line.startswith("      ") for line in rest)
    assert max(map(len, (first, *rest))) <= 40
    typed = "\n".join((first.removeprefix("next: "), *rest)).partition("(train")[0]
    assert shlex.split(typed.replace("\\\n", ""))[1:] == command  # as a shell reads it


def test_the_address_of_a_page_is_never_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    page = Path("/runs") / "with spaces" / ("long-" * 20) / "report.html"
    console.open_page(page, "the report")
    assert capsys.readouterr().err.splitlines() == [
        "",
        "next: open the report in a browser:",
        page.as_uri(),
    ]


def test_a_run_of_ceilings_has_one_next_step(
    run_folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    score(Contents(run_folder)).write(run_folder.score_file)
    micro = run_folder.record.model_copy(update={"workload": "micro"})
    findings = check(Contents(run_folder)).model_copy(update={"findings": ()})
    Progress(quiet=True).summary(RunFolder(run_folder.path, micro), findings)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("next: vflops roofline ")


def test_a_run_says_what_its_checkpoints_take(
    run_folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    score(Contents(run_folder)).write(run_folder.score_file)
    findings = check(Contents(run_folder)).model_copy(update={"findings": ()})
    Progress(quiet=True).summary(run_folder, findings)
    assert "disk" not in capsys.readouterr().out
    state = run_folder.path / "jobs" / "1" / "checkpoint" / "step-000000001.state"
    state.parent.mkdir(parents=True)
    state.write_bytes(bytes(3_000_000))
    Progress(quiet=True).summary(run_folder, findings)
    text = " ".join(capsys.readouterr().out.split())
    assert "disk 3.00 MB of checkpoints are kept for audits only; to delete them: vflops" in text
    discard_states(run_folder)
    assert not state.parent.exists()
    Progress(quiet=True).summary(run_folder, findings)
    assert "disk" not in capsys.readouterr().out


def test_a_run_ends_with_what_to_do_about_a_rule_that_is_not_met(
    run_folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    score(Contents(run_folder)).write(run_folder.score_file)
    broken = Finding(rule="quiet", title="", verdict="fail", evidence="other programs used 63 %")
    findings = check(Contents(run_folder)).model_copy(update={"findings": (broken,)})
    with pytest.raises(typer.Exit):
        Progress(quiet=True).summary(run_folder, findings)
    text = " ".join(capsys.readouterr().out.split())
    assert "checks 1 fails" in text
    assert "not met: quiet: other programs used 63 % → end these programs, and run it again" in text


def test_the_newest_interrupted_run_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [RunFolder.create(Path("runs"), "micro", tiny()) for _ in range(3)]
    ended, stopped, running = sorted(folders, key=lambda folder: folder.path, reverse=True)
    with ended.start_attempt(job=0) as log:
        log.write("end")
    for file in ended.result_files:
        file.touch()
    with stopped.start_attempt(job=0) as log:
        log.write("stopped", message="stopped by the user")
    with running.in_use():
        assert console.open_interrupted_run(None).path == stopped.path
        assert console.open_interrupted_run(ended.path).path == ended.path  # as it was named
    for file in stopped.result_files:
        file.touch()
    with stopped.start_attempt(job=0) as log:
        log.write("end")
    with running.in_use():
        assert console.open_interrupted_run(None).path == running.path
    shutil.rmtree(running.path)
    with pytest.raises(UsageError, match="holds no interrupted run"):
        console.open_interrupted_run(None)


def test_a_run_ends_with_the_result_of_each_training(
    trained_folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = Contents(trained_folder)
    score(contents).write(trained_folder.score_file)
    findings = check(contents).model_copy(update={"findings": ()})
    write_report(contents)
    Progress(quiet=True).summary(trained_folder, findings)
    output = capsys.readouterr()
    lines = output.out.splitlines()
    words = " ".join(" ".join(lines[1:5]).split())
    assert words.startswith(
        "image-classification, seed 1 0.9 top-1 accuracy (target 0.8) "
        "1.92 MFLOPS × quality factor 1 = 1.92 MVFLOPS (3.47 as published) "
        "reached after 59 s"
    )
    mean = "2.06 MVFLOPS (3.51 as published), mean of 2 seeds, ± 1.77 MVFLOPS at 95 % confidence"
    assert mean in " ".join(lines)
    address = trained_folder.report_file.as_uri()
    assert output.err == f"\nnext: open the report in a browser:\n{address}\n"
    assert any(line.startswith("run     ") for line in lines)


def view(*, terminal: bool) -> tuple[TrainingView, StringIO]:
    out = StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, _environ={})
    return TrainingView(console, job(2), " (2 of 3)", 1_000_000), out


def test_the_view_in_a_terminal_shows_where_training_stands() -> None:
    shown, out = view(terminal=True)
    for kind, data in course(0.4, 0.9)[:-2]:
        shown.event(kind, data)
    shown.close()
    *_, panel, last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue()).split("training image")
    left = (
        "-classification, seed 2 (2 of 3): epoch 2.00 of 3, loss 0.6667, top-1 accuracy 0.9 (target"
    )
    assert " ".join(last.split()).startswith(left) and "device" not in last
    for name, value in (
        ("epoch", "2.00 of 3"),
        ("loss", "0.6667"),
        ("top-1 accuracy", "0.9 (target 0.8, reached)"),
        ("left", "about 11.4 s"),
        ("device", "Test GPU, 2 ranks, fp32, compiled"),
        ("curve", "▄█"),
    ):
        assert re.search(rf"{name}\s+{re.escape(value)}", panel), (name, panel)


@pytest.mark.parametrize(("noted", "has_loss"), [(18, False), (20, True)])
def test_the_last_block_has_the_loss_of_the_last_step_or_none(noted: int, has_loss: bool) -> None:
    """Which step was noted last is the clock's choice: equal runs would show different losses."""
    shown, out = view(terminal=True)
    notes = course(0.4, 0.9)
    for kind, data in notes[:-1]:
        if kind != "progress" or data["step"] <= noted:
            shown.event(kind, data)
    shown.close()
    last = out.getvalue().split("training image")[-1]
    assert ("loss" in last) is has_loss


def test_the_view_elsewhere_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    shown, _ = view(terminal=False)
    events = (
        started(),
        resumed(10),
        progress(12, 1.5, first_step=10),
        evaluated(20, 0.5, first_step=10, evaluations=1),
    )
    for kind, data in events:
        shown.event(kind, data)
    shown.close()
    assert capsys.readouterr().err.splitlines() == [
        "training image-classification, seed 2 (2 of 3) …",
        "  on Test GPU, 2 ranks, fp32, compiled, 1,504 parameters, batch 100",
        "  resumes at step 10, epoch 1.00, from step-000000010.state",
        "  epoch 2: top-1 accuracy 0.5 (target 0.8)",
    ]
