"""A command as a process: told to stop, started again, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.command_runs import GOOD, HEADER, run, scored, script
from vflops.errors import RunFailed, UsageError
from vflops.record.folder import RunFolder, latest
from vflops.run import pipeline
from vflops.run.observer import RunObserver
from vflops.workloads.command.process import Process

RESUMABLE = """
import signal
kept = os.path.join(os.environ["VFLOPS_CHECKPOINT"], "state")
done = int(open(kept).read()) if os.path.exists(kept) else 0
def keep(*_):
    open(kept, "w").write(str(done))
    sys.exit(0)
signal.signal(signal.SIGTERM, keep)
say(samples=done)
if done:
    say(samples=100, quality=0.9, evaluated=20)
    sys.exit(0)
done = 60
say(samples=60, quality=0.5, evaluated=20)
time.sleep(120)
"""


def test_it_is_told_to_stop_and_goes_on(tmp_path: Path) -> None:
    start = f"""
from pathlib import Path
from tests.support.command_runs import run
run(Path({str(tmp_path)!r}), {RESUMABLE!r})
"""
    process = subprocess.Popen([sys.executable, "-c", start], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: any('"evaluation"' in log.read_text() for log in logs(tmp_path)))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert b"interrupted (stopped by SIGTERM" in errors
    folder = latest(tmp_path / "runs")
    assert folder is not None
    assert (folder / "jobs/1/checkpoint/state").read_text() == "60"
    pipeline.resume(RunFolder.open(folder), RunObserver())
    score = scored(RunFolder.open(folder))
    assert score.complete
    assert (score.attempts, score.samples_trained, score.samples_redone) == (2, 100, 0)
    assert score.samples_evaluated == 40


def test_a_shell_and_what_it_runs_are_both_told_to_stop(tmp_path: Path) -> None:
    start = """
import os
from pathlib import Path
from vflops.train.signals import StopRequest
from vflops.workloads.command.process import Process
stop = StopRequest()
command = "sleep 60 & echo $!; wait"
process = Process(["sh", "-c", command], Path("."), os.environ)
pid = int(process.next_line(30))
process.stop()
print("ended", pid, process.exit_code)
"""
    done = subprocess.run(
        [sys.executable, "-c", start],
        capture_output=True,
        text=True,
        start_new_session=True,  # as a rank is started
        check=False,
    )
    word, pid, code = done.stdout.split()[-3:]
    assert (word, int(code)) == ("ended", -signal.SIGTERM), done.stderr
    wait_until(lambda: not psutil.pid_exists(int(pid)))


def test_another_script_is_another_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed):
        run(tmp_path, "sys.exit(1)")
    (tmp_path / "script.py").write_text(HEADER + GOOD)
    folder = latest(tmp_path / "runs")
    assert folder is not None
    with pytest.raises(UsageError, match="script has changed"):
        pipeline.resume(RunFolder.open(folder), RunObserver())


def test_who_does_not_stop_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflops.workloads.command.process._GRACE_S", 0.5)
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay(x=1)\ntime.sleep(60)"
    process = Process(
        script(tmp_path, deaf).split(), tmp_path, {**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert process.next_line(30) is not None
    process.stop()
    assert process.exit_code == -signal.SIGKILL


def test_it_does_not_outlive_its_rank(tmp_path: Path) -> None:
    start = """
import os
from pathlib import Path
from vflops.workloads.command.process import Process
process = Process(["sleep", "60"], Path("."), os.environ)
print(process._child.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, check=False)
    wait_until(lambda: not psutil.pid_exists(int(done.stdout)))


def logs(folder: Path) -> list[Path]:
    return list((folder / "runs").glob("*/jobs/1/0/events.jsonl"))


def wait_until(true: Callable[[], bool], limit_s: float = 60) -> None:
    end_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end_s, "it did not come"
        time.sleep(0.05)
