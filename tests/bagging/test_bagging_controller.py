"""The controller with jobs that are only said to run: tries, pauses, and Ctrl-C in a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from ensemble_runs import SMALL, processes_of, wait_for
from vflops.bagging import controller as module
from vflops.bagging.controller import Controller, JobStanding
from vflops.config.profiles import tiny
from vflops.errors import RunFailed
from vflops.launch.jobs import Launcher
from vflops.record.folder import RunFolder
from vflops.record.lock import is_held
from vflops.record.training import DataFacts, Goal, JobBegun, JobGivenUp, JobLost, JobRecord


class Stage(Launcher):
    """Jobs that a test ends, and what was wished of them."""

    name = "stage"

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.running: set[int] = set()
        self.started: list[tuple[float, dict[int, int]]] = []
        self.stopped = False
        self.blind: str | None = None
        self.shown: set[str] = set()

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        self.started.append((time.monotonic(), dict(jobs)))
        self.running |= set(jobs)
        return list(jobs)

    def alive(self) -> Collection[int]:
        return set(self.running)

    def where(self, job: int) -> str:
        return f"place {job}"

    def ending(self, job: int) -> str | None:
        return "a test ended it"

    def stop(self) -> None:
        self.stopped = True
        self.running.clear()

    def unseen(self, job: int) -> str | None:
        return self.blind

    def attempt(self, job: int, *kinds: str) -> None:
        """An attempt at the job claims its folder and writes these events."""
        number = self.folder.claim_attempt(job)
        if kinds:
            with self.folder.log(job, number) as log:
                for kind in kinds:
                    log.write(kind)


def run_of(place: Path, jobs: int = 1) -> tuple[RunFolder, list[JobRecord]]:
    """A run folder with jobs that nothing trains."""
    folder = RunFolder.create(place, "image-classification", tiny())
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


def seen_through(
    folder: RunFolder, stage: Stage, script: Sequence[Callable[[], None]], attempts: int
) -> None:
    """A controller's work; at each of its looks the next thing of the script happens."""
    records = [JobRecord.read(folder.job_file(1))]
    happens = iter(script)

    def show(jobs: Sequence[JobStanding]) -> None:
        next(happens, lambda: None)()
        stage.shown.update(each.where for each in jobs)

    with folder.start_attempt(job=0) as events:
        Controller(folder, events, stage, records, attempts=attempts, show=show).run()


def test_an_attempt_that_the_launcher_began_itself_is_recorded_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.0)
    folder, _ = run_of(tmp_path)
    stage = Stage(folder)
    script = [
        lambda: stage.attempt(1, "checkpoint"),
        lambda: stage.attempt(1),
        stage.running.clear,
    ]
    seen_through(folder, stage, script, attempts=2)
    history = folder.history()
    begun = [event.payload(JobBegun).attempt for event in history.events("job-begun")]
    lost = [event.payload(JobLost).reason for event in history.events("job-lost")]
    assert begun == [1, 2]
    assert lost[0].startswith("it died after 'checkpoint'")
    assert lost[1].startswith("it died before it wrote anything")
    (given_up,) = history.events("job-given-up")
    assert given_up.payload(JobGivenUp).attempts == 2
    assert stage.started[0][1] == {1: 2} and len(stage.started) == 1


def test_pauses_between_attempts_double_and_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    folder, _ = run_of(tmp_path)
    stage = Stage(folder)

    def fail() -> None:
        if stage.running:
            stage.attempt(1)
            stage.running.clear()

    seen_through(folder, stage, [fail] * 2000, attempts=3)
    times_s = [at_s for at_s, _ in stage.started]
    pauses_s = [later - before for before, later in pairwise(times_s)]
    assert 1 <= pauses_s[0] < 2 <= pauses_s[1] < 4
    assert [jobs[1] for _, jobs in stage.started] == [3, 2, 1]
    assert {"again in 1 s", "again in 2 s"} <= stage.shown


def test_a_first_job_whose_node_has_another_folder_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.0)
    monkeypatch.setattr(module, "_CHECK_S", 0.0)
    folder, _ = run_of(tmp_path)
    stage = Stage(folder)
    stage.blind = "n7: nothing here"
    with pytest.raises(RunFailed, match="is not seen from the nodes: n7: nothing here") as error:
        seen_through(folder, stage, [], attempts=3)
    assert str(folder.path) in error.value.message and "--out" in (error.value.cure or "")
    assert stage.stopped and len(stage.started) == 1


def keyboard_main(place: str) -> None:
    """What the tests below start in a terminal: jobs that never end."""
    from vflops.cli.console import console
    from vflops.cli.jobs import JobsView
    from vflops.errors import Interrupted

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as a run has it
    folder, records = run_of(Path(place))
    stage, view = Stage(folder), JobsView(console())
    with folder.start_attempt(job=0) as events:
        try:
            Controller(folder, events, stage, records, attempts=1, show=view.show).run()
        except Interrupted as error:
            view.close()
            print(f"{error.message}|{error.cure}|stopped {stage.stopped}", flush=True)


@pytest.mark.parametrize(
    ("keys", "asked", "words"),
    [
        (["\x03", "l\n"], True, "its jobs were left running|pick them up: vflops attach "),
        (["\x03", "e\n"], True, "its jobs were asked to keep checkpoints|None|stopped True"),
        (["\x03", "\x03"], True, "its jobs were asked to keep checkpoints|None|stopped True"),
        (["\x03", "\n", "\x03", "l\n"], True, "its jobs were left running"),
        (["TERM"], False, "its jobs were asked to keep checkpoints|None|stopped True"),
    ],
)
def test_ctrl_c_in_a_terminal_asks(
    tmp_path: Path, keys: list[str], asked: bool, words: str
) -> None:
    outer, inner = pty.openpty()
    code = f"import test_bagging_controller as t; t.keyboard_main({str(tmp_path)!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
        env={
            **os.environ,
            "TERM": "xterm",
            "COLUMNS": "200",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        },
    )
    os.close(inner)
    said = until(outer, "", "running")
    for number, key in enumerate(keys, start=1):
        if key == "TERM":
            process.send_signal(signal.SIGTERM)
        elif key == "\x03":
            process.send_signal(signal.SIGINT)  # what the terminal makes of the key
            said = until(outer, said, "or go on (Enter)?") if number < len(keys) else said
        else:
            os.write(outer, key.encode())
            said = until(outer, said, "running") if number < len(keys) else said
    said = until(outer, said, "stopped ")
    process.wait(timeout=20)
    os.close(outer)
    assert words in " ".join(said.split())
    assert ("leave the jobs running (l)" in said) == asked


def test_jobs_that_are_left_go_on_and_the_command_says_how_to_find_them(tmp_path: Path) -> None:
    outer, inner = pty.openpty()
    run = "run image-classification --profile tiny --models 2 --set train.epochs=100".split()
    command = [sys.executable, "-m", "vflops", *run]
    for each in SMALL:
        command += ["--set", each]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
    )
    os.close(inner)
    said = until(outer, "", "2 running")
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    process.send_signal(signal.SIGINT)
    said = until(outer, said, "or go on (Enter)?")
    os.write(outer, b"l\n")
    words = " ".join(until(outer, said, "vflops attach").split())
    assert "interrupted, its jobs were left running" in words
    assert process.wait(timeout=60) == 130
    assert all(is_held(folder.job_lock(job)) for job in (1, 2))
    vflops = [sys.executable, "-m", "vflops", "cancel", str(folder.path)]
    done = subprocess.run(vflops, capture_output=True, text=True, timeout=100, check=False)
    assert "ended: 2 jobs, 2 with a checkpoint" in done.stdout
    os.close(outer)
    assert processes_of(folder) == []


def until(terminal: int, said: str, word: str) -> str:
    """What a terminal shows once a word has come after what was said before."""
    before = len(said)
    with suppress(OSError):  # the other side has gone
        while word not in said[before:] and select.select([terminal], [], [], 30)[0]:
            said += os.read(terminal, 4096).decode(errors="replace")
    assert word in said[before:], said
    return said


def test_the_speed_of_a_job_is_that_of_its_newest_attempt(tmp_path: Path) -> None:
    (record,) = run_of(tmp_path)[1]
    standing = JobStanding(record, ops_per_sample=10)
    assert standing.flops is None
    phases = {"training": 1.5, "data": 0.5, "evaluation": 9.0}
    standing.take("progress", {"epoch": 1.0, "samples": 100, "phases": phases})
    assert standing.flops == 500
    standing.take("job", {})
    standing.take("resumed", {"samples": 80})
    standing.take("progress", {"epoch": 1.0, "samples": 100, "phases": {"training": 1.0}})
    assert standing.flops == 200
