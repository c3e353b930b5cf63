"""The controller with a fake launcher: attempts, pauses, and Ctrl-C in a terminal."""

from __future__ import annotations

import io
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.cores import needs_two_cores
from tests.support.ensemble_runs import SMALL, processes_of, wait_for
from tests.support.paths import ROOT
from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.errors import DiskFull, Interrupted, RunFailed
from vflops.launch import agent, controller, factory
from vflops.launch.agent_report import AgentReport
from vflops.launch.controller import Controller, JobProgress
from vflops.launch.job_history import attempt_histories
from vflops.launch.launcher import Ending, How, Launcher
from vflops.launch.placement import Node
from vflops.launch.rank_failures import RankFailure
from vflops.record.files.lock import is_locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts, Goal, JobRecord, SampleUnit
from vflops.record.formats.job_events import JobBegun, JobGivenUp, JobLost
from vflops.run import jobs as run_jobs
from vflops.run import pipeline
from vflops.run.observer import RunObserver


class FakeLauncher(Launcher):
    """Jobs that a test ends, and the calls that the controller made."""

    name = "fake"

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.running: set[int] = set()
        self.started: list[tuple[float, dict[int, int]]] = []
        self.stopped = False
        self.invisible: str | None = None
        self.shown: set[str] = set()
        self.elsewhere: set[int] = set()
        self.how: How = "fault"
        self.report: AgentReport | None = None

    @classmethod
    def nodes(cls, settings: LaunchSettings, device: str) -> list[Node]:
        return []

    def kill(self) -> None:
        self.running.clear()

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        self.started.append((time.monotonic(), dict(jobs)))
        self.running |= set(jobs)
        return list(jobs)

    def active_jobs(self) -> Collection[int]:
        return set(self.running)

    def location(self, job: int) -> str:
        return f"node {job}"

    def ending(self, job: int) -> Ending:
        how: How = "elsewhere" if job in self.elsewhere else self.how
        return Ending(how, "a test ended it", self.report, [f"node {job}"])

    def stop(self) -> None:
        self.stopped = True
        self.running.clear()

    def invisible_reason(self, job: int) -> str | None:
        return self.invisible

    def attempt(self, job: int, *kinds: str) -> None:
        """Claim a folder for an attempt at the job, and write these events."""
        number = self.folder.claim_attempt(job)
        if kinds:
            with self.folder.log(job, number) as log:
                for kind in kinds:
                    log.write(kind)


def run_of(parent: Path, jobs: int = 1) -> tuple[RunFolder, list[JobRecord]]:
    """Return a run folder with jobs that nothing trains."""
    folder = RunFolder.create(parent, "image-classification", tiny())
    records = [
        JobRecord(
            job=job,
            workload="image-classification",
            repeat=0,
            seed=1,
            ranks=1,
            goal=Goal(quality="accuracy", better="higher", target=0.7, exponent=1),
            settings={},
            data=DataFacts(path="", synthetic=True, fingerprint="", train=1, validation=1),
        )
        for job in range(1, jobs + 1)
    ]
    for record in records:
        folder.job_file(record.job).parent.mkdir(parents=True)
        record.write(folder.job_file(record.job))
    return folder, records


def run_controller(
    folder: RunFolder, launcher: FakeLauncher, script: Sequence[Callable[[], None]], attempts: int
) -> None:
    """Run a controller; after each poll the next step of the script is called."""
    records = [JobRecord.read(folder.job_file(1))]
    steps = iter(script)

    def show(jobs: Sequence[JobProgress]) -> None:
        next(steps, lambda: None)()
        launcher.shown.update(job.location for job in jobs)

    with folder.start_attempt(job=0) as events:
        Controller(folder, events, launcher, records, attempts=attempts, show=show).run()


def test_jobs_that_cannot_be_asked_to_end_are_no_failure_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.0)
    folder, _ = run_of(tmp_path)
    launcher = FakeLauncher(folder)

    def unreachable() -> None:
        raise RunFailed("slurm did not answer for 120 s")

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launcher, "stop", unreachable)
    with pytest.raises(Interrupted) as stopped:
        run_controller(folder, launcher, [interrupt], attempts=1)
    assert "could not be asked to end: slurm did not answer for 120 s" in stopped.value.message
    assert stopped.value.hint == f"end them: vflops cancel {folder.path}"
    assert not folder.history().events("jobs-asked")  # so that `cancel` asks them

    monkeypatch.setattr(launcher, "kill", unreachable)
    monkeypatch.setattr(controller, "_PATIENCE_S", 0.0)
    ends = [lambda: launcher.attempt(1, "end")]  # while a copy is still in the queue
    run_controller(folder, launcher, ends, attempts=1)


def test_an_attempt_that_the_launcher_started_is_recorded_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.0)
    folder, _ = run_of(tmp_path)
    launcher = FakeLauncher(folder)
    script = [
        lambda: launcher.attempt(1, "checkpoint"),
        lambda: launcher.attempt(1),
        launcher.running.clear,
    ]
    run_controller(folder, launcher, script, attempts=2)
    history = folder.history()
    begun = [event.payload(JobBegun).attempt for event in history.events("job-begun")]
    lost = [event.payload(JobLost).reason for event in history.events("job-lost")]
    assert begun == [1, 2]
    assert lost[0].startswith("it died after 'checkpoint'")
    assert lost[1].startswith("it died before it wrote anything")
    (given_up,) = history.events("job-given-up")
    assert given_up.payload(JobGivenUp).attempts == 2
    assert launcher.started[0][1] == {1: 2} and len(launcher.started) == 1


def test_pauses_between_attempts_double_and_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.01)
    folder, _ = run_of(tmp_path)
    launcher = FakeLauncher(folder)

    def fail() -> None:
        if launcher.running:
            launcher.attempt(1)
            launcher.running.clear()

    run_controller(folder, launcher, [fail] * 2000, attempts=3)
    times_s = [at_s for at_s, _ in launcher.started]
    pauses_s = [later - before for before, later in pairwise(times_s)]
    assert pauses_s[0] >= 1 and pauses_s[1] >= 2
    assert [jobs[1] for _, jobs in launcher.started] == [3, 2, 1]
    assert {"again in 1 s", "again in 2 s"} <= launcher.shown


def test_a_first_job_that_does_not_see_the_run_folder_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.0)
    monkeypatch.setattr(controller, "_CHECK_S", 0.0)
    folder, _ = run_of(tmp_path)
    launcher = FakeLauncher(folder)
    launcher.invisible = "n7: nothing here"
    with pytest.raises(RunFailed, match="is not visible from the nodes: n7: nothing here") as error:
        run_controller(folder, launcher, [], attempts=3)
    assert str(folder.path) in error.value.message and "--out" in (error.value.hint or "")
    assert launcher.stopped and len(launcher.started) == 1


def lost_of(folder: RunFolder) -> list[JobLost]:
    return [event.payload(JobLost) for event in folder.history().events("job-lost")]


def test_attempts_are_counted_over_controllers_and_deaths_between_them_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.0)
    folder, _ = run_of(tmp_path)
    first = FakeLauncher(folder)

    def die() -> None:
        first.attempt(1, "checkpoint")
        raise RuntimeError("the controller dies")

    with pytest.raises(RuntimeError):
        run_controller(folder, first, [die], attempts=3)
    folder.claim_attempt(1)  # by a script that itself retries a step
    assert not lost_of(folder)
    second = FakeLauncher(folder)  # none of its jobs is running
    script = [lambda: None, lambda: second.attempt(1), second.running.clear]
    monkeypatch.setattr(controller, "_LONGEST_PAUSE_S", 0.0)
    run_controller(folder, second, script, attempts=3)
    history = folder.history()
    assert [event.payload(JobBegun).attempt for event in history.events("job-begun")] == [1, 2, 3]
    assert [loss.reason.partition(";")[0] for loss in lost_of(folder)] == [
        "it died after 'checkpoint'",
        "it died before it wrote anything",
        "it died before it wrote anything",
    ]
    assert [jobs for _, jobs in second.started] == [{1: 1}]
    (given_up,) = history.events("job-given-up")
    assert given_up.payload(JobGivenUp).attempts == 3
    # Another controller does not retry it; a run that failed and is resumed does.
    third = FakeLauncher(folder)
    run_controller(folder, third, [], attempts=3)
    assert not third.started
    with folder.start_attempt(job=0) as events:
        events.write("failed", message="no model came to its end")
    assert (
        attempt_histories(folder)[1].losses == 0 and attempt_histories(folder)[1].given_up is None
    )


def test_recorded_losses_leave_fewer_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.0)
    folder, _ = run_of(tmp_path)
    with folder.start_attempt(job=0) as events:
        for attempt in (1, 2):
            begun = JobBegun(job=1, launcher="fake", where="", attempt=attempt)
            events.write("job-begun", **begun.model_dump())
            events.write("job-lost", **JobLost(job=1, reason="", where="").model_dump(mode="json"))
            folder.claim_attempt(1)
    launcher = FakeLauncher(folder)
    run_controller(folder, launcher, [launcher.running.clear] * 9999, attempts=3)
    assert [jobs for _, jobs in launcher.started] == [{1: 1}]
    (given_up,) = folder.history().events("job-given-up")
    assert given_up.payload(JobGivenUp).attempts == 3


def test_a_job_that_the_user_stopped_is_not_lost(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    with folder.start_attempt(job=0) as events:
        begun = JobBegun(job=1, launcher="fake", where="", attempt=1)
        events.write("job-begun", **begun.model_dump())
        events.write("stopped", message="it was left", left=True)
    assert attempt_histories(folder)[1].running
    with folder.start_attempt(job=0) as events:
        events.write("stopped", message="cancelled by the user")
    attempts = attempt_histories(folder)[1]
    assert (attempts.running, attempts.started, attempts.losses) == (False, 1, 0)


def test_a_job_that_another_agent_runs_is_not_lost_and_its_end_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.0)
    folder, _ = run_of(tmp_path)
    launcher = FakeLauncher(folder)
    launcher.elsewhere = {1}
    log = folder.attempt_folder(1, 0) / "events.jsonl"

    def finish_elsewhere() -> None:
        with folder.log(1, 0) as events:
            events.write("end")

    script = [lambda: launcher.attempt(1), launcher.running.clear, lambda: None, finish_elsewhere]
    run_controller(folder, launcher, script, attempts=1)
    assert log.is_file() and len(launcher.started) == 1
    history = folder.history()
    assert not history.events("job-lost") and not history.events("job-given-up")
    assert [event.data for event in history.events("job-ended")] == [{"job": 1}]


def test_the_end_of_a_job_is_recorded_while_others_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.0)
    folder, records = run_of(tmp_path, jobs=2)
    launcher = FakeLauncher(folder)

    def show(jobs: Sequence[JobProgress]) -> None:
        if not folder.next_attempt(1):
            launcher.attempt(1, "end")
        if folder.history(0).events("job-ended") and not folder.next_attempt(2):
            launcher.attempt(2, "end")
            launcher.running.clear()

    with folder.start_attempt(job=0) as events:
        Controller(folder, events, launcher, records, attempts=1, show=show).run()
    ended = folder.history(0).events("job-ended")
    assert [event.data for event in ended] == [{"job": 1}, {"job": 2}]


def test_a_job_that_reports_an_error_makes_no_node_suspect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.0)
    for kind, suspects in (("failed", ()), ("stopped", ()), ("checkpoint", ("node 1",))):
        folder, _ = run_of(tmp_path / kind)
        launcher = FakeLauncher(folder)
        script: list[Callable[[], None]] = [
            partial(launcher.attempt, 1, kind),
            launcher.running.clear,
        ]
        run_controller(folder, launcher, script, attempts=1)
        assert [loss.suspects for loss in lost_of(folder)] == [suspects]


class FullDiskLauncher(FakeLauncher):
    """Jobs of which every attempt ends as a rank reports a failure."""

    disk_full = True

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        for job in jobs:
            self.attempt(job, "failed")
            hint = "free some space there"
            failure = RankFailure(0, "error", "no space", hint, disk_full=self.disk_full)
            failure.write(self.folder.logged_attempts(job)[-1])
        return list(jobs)


@pytest.mark.parametrize("disk_full", [True, False])
def test_jobs_that_a_full_disk_ended_say_how_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, disk_full: bool
) -> None:
    folder, records = run_of(tmp_path, jobs=2)
    launcher = FullDiskLauncher(folder)
    launcher.disk_full = disk_full
    monkeypatch.setattr(factory, "launcher", lambda folder, wave: launcher)
    monkeypatch.setattr(run_jobs, "ops_per_sample", lambda folder, record: 1)
    monkeypatch.setattr(controller, "_LONGEST_PAUSE_S", 0.0)
    with (
        pytest.raises(RunFailed, match=r"no model of .* finished: .*no space") as ended,
        pipeline._interruptible(folder),
        folder.start_attempt(job=0) as events,
    ):
        run_jobs.run_side_by_side(folder, events, records, RunObserver())
    assert isinstance(ended.value, DiskFull) == disk_full
    resume = f"free some space there; then resume it: vflops resume {folder.path}"
    assert (ended.value.hint == resume) == disk_full


@pytest.mark.parametrize(
    ("cause", "suspects"),
    [
        (RankFailure(1, "hung", "hangs", node="n2"), ("n2",)),
        (RankFailure(0, "hung", "hangs", one_of=(0, 1), nodes=("n1", "n2")), ("n1", "n2")),
        (RankFailure(0, "hung", "hangs"), ("n1", "n2", "n3")),  # the other nodes did not report
        (RankFailure(0, "hung", "hangs", nodes=("n1", "n9")), ("n1", "n2", "n3")),
    ],
)
def test_the_nodes_of_all_ranks_that_may_hang_are_suspects(
    cause: RankFailure, suspects: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.0)
    folder, _ = run_of(tmp_path)
    launcher = FakeLauncher(folder)
    suspected = Ending(suspects=["n1", "n2", "n3"])
    monkeypatch.setattr(launcher, "ending", lambda job: suspected)
    script: list[Callable[[], None]] = [
        partial(launcher.attempt, 1, "checkpoint"),
        lambda: cause.write(folder.attempt_folder(1, 0)),
        launcher.running.clear,
    ]
    run_controller(folder, launcher, script, attempts=1)
    (loss,) = lost_of(folder)
    assert loss.hung and loss.suspects == suspects


def test_the_pause_between_polls_grows_with_the_jobs(tmp_path: Path) -> None:
    folder, records = run_of(tmp_path, jobs=2)
    with folder.start_attempt(job=0) as events:
        pauses_s = [
            Controller(
                folder,
                events,
                FakeLauncher(folder),
                [records[0].model_copy(update={"job": job}) for job in range(1, jobs + 1)],
                attempts=1,
            )._pause_s
            for jobs in (1, 1000, 9000)
        ]
    assert pauses_s == pytest.approx([0.251, 1.25, 5.0])


def keyboard_main(parent: str) -> None:
    """Run jobs that never end; the tests below start this in a terminal."""
    from vflops.cli.terminal.console import console
    from vflops.cli.terminal.jobs_table import JobsView
    from vflops.errors import Interrupted

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as a run has it
    folder, records = run_of(Path(parent))
    launcher, view = FakeLauncher(folder), JobsView(console())
    with folder.start_attempt(job=0) as events:
        try:
            Controller(folder, events, launcher, records, attempts=1, show=view.show).run()
        except Interrupted as error:
            view.close()
            print(f"{error.message}|{error.hint}|stopped {launcher.stopped}", flush=True)


@pytest.mark.parametrize(
    ("keys", "asked", "words"),
    [
        (["\x03", "l\n"], True, "its jobs were left running|follow them again: vflops attach "),
        (["\x03", "e\n"], True, "its jobs were asked to write checkpoints|None|stopped True"),
        (["\x03", "\x03"], True, "its jobs were asked to write checkpoints|None|stopped True"),
        (["\x03", "\n", "\x03", "l\n"], True, "its jobs were left running"),
        (["TERM"], False, "its jobs were asked to write checkpoints|None|stopped True"),
    ],
)
def test_ctrl_c_in_a_terminal_asks(
    tmp_path: Path, keys: list[str], asked: bool, words: str
) -> None:
    outer, inner = pty.openpty()
    code = f"import tests.launch.test_controller as t; t.keyboard_main({str(tmp_path)!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
        env={
            **os.environ,
            "TERM": "xterm",
            "COLUMNS": "200",
        },
    )
    os.close(inner)
    shown = until(outer, "", "1 waiting")
    for number, key in enumerate(keys, start=1):
        if key == "TERM":
            process.send_signal(signal.SIGTERM)
        elif key == "\x03":
            process.send_signal(signal.SIGINT)  # as the terminal does
            shown = until(outer, shown, "or continue (Enter)?") if number < len(keys) else shown
        else:
            os.write(outer, key.encode())
            shown = until(outer, shown, "1 waiting") if number < len(keys) else shown
    shown = until(outer, shown, "stopped ")
    process.wait(timeout=20)
    os.close(outer)
    assert words in " ".join(shown.split())
    assert ("leave the jobs running (l)" in shown) == asked


@needs_two_cores
def test_jobs_that_are_left_keep_running_and_the_command_shows_how_to_attach(
    tmp_path: Path,
) -> None:
    outer, inner = pty.openpty()
    run = "run image-classification --profile tiny --models 2 --set train.epochs=100".split()
    command = [sys.executable, "-m", "vflops", *run]
    for setting in SMALL:
        command += ["--set", setting]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
    )
    os.close(inner)
    shown = until(outer, "", "2 running")
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    process.send_signal(signal.SIGINT)
    shown = until(outer, shown, "or continue (Enter)?")
    os.write(outer, b"l\n")
    words = " ".join(until(outer, shown, "vflops attach").split())
    assert "interrupted (its jobs were left running" in words
    assert process.wait(timeout=60) == 130
    assert all(is_locked(folder.job_lock(job)) for job in (1, 2))
    vflops = [sys.executable, "-m", "vflops", "cancel", str(folder.path)]
    done = subprocess.run(vflops, capture_output=True, text=True, timeout=100, check=False)
    assert "ended: 2 jobs, 2 with a checkpoint" in done.stdout
    os.close(outer)
    assert processes_of(folder) == []


def until(terminal: int, shown: str, word: str) -> str:
    """Return the output of a terminal, once a word has appeared after the output so far."""
    before = len(shown)
    with suppress(OSError):  # the process has ended
        while word not in shown[before:] and select.select([terminal], [], [], 30)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    assert word in shown[before:], shown
    return shown


def test_a_question_without_an_answer_ends_the_jobs_with_checkpoints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from vflops.cli.terminal import jobs_table

    monkeypatch.setattr(jobs_table, "ANSWER_S", 0.1)
    reader, writer = os.pipe()
    with os.fdopen(reader) as silent, os.fdopen(writer, "w"):
        monkeypatch.setattr(sys, "stdin", silent)
        keyboard = jobs_table.Keyboard()
        try:
            with pytest.raises(KeyboardInterrupt):
                keyboard.ask()
        finally:
            keyboard.close()
    assert "no answer within 0.1 s: the jobs end with checkpoints" in capsys.readouterr().err


def test_a_job_that_dies_is_said_at_once_with_its_retry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vflops.cli.terminal import jobs_table
    from vflops.cli.terminal.console import console

    monkeypatch.setattr(jobs_table, "_LINE_EVERY_S", math.inf)
    (record,) = run_of(tmp_path)[1]
    view = jobs_table.JobsView(console())
    progress = JobProgress(record, state="running", attempts=1, max_attempts=2)
    view.show([progress])
    progress.losses, progress.reason = 1, "rank 0 was killed by SIGKILL"
    progress.state, progress.retry_s = "waiting", time.monotonic() + 4.2
    view.show([progress])
    view.show([progress])  # once is enough
    progress.losses, progress.attempts, progress.state = 2, 2, "given up"
    view.show([progress])
    assert capsys.readouterr().err.splitlines() == [
        "  model 1 died (rank 0 was killed by SIGKILL): attempt 2 of 2 in 4 s",
        "  model 1 died (rank 0 was killed by SIGKILL): given up after 2 attempts",
    ]


def test_the_progress_of_one_job_is_no_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from vflops.cli.terminal.console import console
    from vflops.cli.terminal.jobs_table import JobsView

    (record,) = run_of(tmp_path)[1]
    name, told = record.goal.quality, []
    one = JobProgress(record, state="ended", epoch=1.0, quality=0.25)
    other = JobProgress(record, state="ended", epoch=2.0, quality=0.5)
    for jobs in ([one], [one, other]):
        JobsView(console()).show(jobs)
        told.append(capsys.readouterr().err.strip())
    assert told == [
        f"1 model: 1 ended; epoch 1.00, {name} 0.25",
        f"2 models: 2 ended; epoch 1.00 to 2.00, {name} 0.25 to 0.5",
    ]


def test_the_table_shows_tokens_per_second_of_windows_of_tokens(tmp_path: Path) -> None:
    from rich.console import Console

    from vflops.cli.terminal.jobs_table import JobsView

    (record,) = run_of(tmp_path)[1]
    facts: dict[str, Any] = {"state": "ended", "samples": 200, "work_s": 2.0}
    text = record.data.model_copy(update={"unit": SampleUnit(name="tokens", count=64)})
    shown = []
    for mine in (record, record.model_copy(update={"data": text})):
        out = io.StringIO()
        view = JobsView(Console(file=out, force_terminal=True, width=100))
        view.show([JobProgress(mine, **facts), JobProgress(mine, **facts)])
        view.close()
        shown.append(out.getvalue())
    images, tokens = shown
    assert "samples/s" in images and re.search(r"ended .* 100 ", images)
    assert "samples/s" not in tokens and re.search(r"ended .* 6,400 ", tokens)
    assert "2 models: 2 ended; epoch 0.00, 12,800 tokens/s" in tokens


def test_ctrl_c_asks_only_while_there_are_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    from vflops.cli.terminal.jobs_table import JobsView

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    (record,) = run_of(tmp_path)[1]
    before = signal.getsignal(signal.SIGINT)
    with (tmp_path / "screen").open("w") as screen:
        view = JobsView(Console(file=screen, force_terminal=True))
        assert signal.getsignal(signal.SIGINT) == before
        progress = JobProgress(record, state="running")
        view.show([progress])
        assert signal.getsignal(signal.SIGINT) != before
        progress.state = "ended"
        view.show([progress])  # the last call of the controller
        assert signal.getsignal(signal.SIGINT) == before
        view.close()


def test_the_flops_of_a_job_are_those_of_its_newest_attempt(tmp_path: Path) -> None:
    (record,) = run_of(tmp_path)[1]
    progress = JobProgress(record, ops_per_sample=10)
    assert progress.flops is None
    phases = {"training": 1.5, "data": 0.5, "evaluation": 9.0}
    progress.take("progress", {"epoch": 1.0, "samples": 100, "phases": phases})
    assert progress.flops == 500
    progress.take("job", {})
    progress.take("resumed", {"samples": 80})
    progress.take("progress", {"epoch": 1.0, "samples": 100, "phases": {"training": 1.0}})
    assert progress.flops == 200


def test_copies_that_outlive_the_run_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_PATIENCE_S", 0.2)
    folder, records = run_of(tmp_path)
    launcher, ended = FakeLauncher(folder), list[str]()
    monkeypatch.setattr(launcher, "kill", lambda: ended.append("killed"), raising=False)
    launcher.running.add(1)  # the scheduler still has a copy of it
    launcher.attempt(1, "end")
    with folder.start_attempt(job=0) as events:
        Controller(folder, events, launcher, records, attempts=1).run()
    assert ended == ["killed"]


def test_an_agent_does_not_repeat_a_job_that_has_ended(tmp_path: Path) -> None:
    folder, (record,) = run_of(tmp_path)
    FakeLauncher(folder).attempt(1, "end")
    record.write(folder.job_file(1))
    assert agent.main(str(folder.path), "1") == 0
    assert folder.next_attempt(1) == 1
