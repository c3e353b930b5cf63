"""A job is judged by its log, whose end is written when the files of every rank are complete.

The ranks are real processes that run a script: they need not import torch.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command_runs import GOOD, run
from vflops.errors import RunFailed, VflopsError
from vflops.launch import attempt, rank_completion
from vflops.record.folder import RunFolder, latest

OF_RANK_1 = "if os.environ['RANK'] == '1':\n"


def at_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Have rank 1 do something when it leaves, as the last thing of its process."""
    code = (
        "import os\n"
        "if os.environ.get('RANK') == '1' and 'VFLOPS_HEARTBEAT' in os.environ:\n"
        "    import signal, time\n"
        "    leave = os._exit\n"
        "    def last(code):\n"
        f"        {statement}\n"
        "        leave(code)\n"
        "    os._exit = last\n"
    )
    (folder / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")


def events(folder: RunFolder) -> list[str]:
    (log,) = folder.job_history(1)
    return [event.kind for event in log.events]


@pytest.mark.parametrize("statement", ["os.abort()", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_rank_that_dies_after_its_files_are_complete_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    at_the_end(tmp_path, monkeypatch, statement)
    folder = run(tmp_path, GOOD, train={"ranks": 2})
    assert folder.history().state.complete
    assert events(folder)[-1] == "end"
    attempt_folder = folder.attempt_folder(1, 0)
    assert not list(attempt_folder.glob("*.done")) and not list(attempt_folder.glob("*error*"))


def test_a_rank_that_does_not_leave_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_the_end(tmp_path, monkeypatch, "time.sleep(600)")
    monkeypatch.setattr(attempt, "GRACE_S", 1.0)
    start_s = time.monotonic()
    folder = run(tmp_path, GOOD, train={"ranks": 2})
    assert events(folder)[-1] == "end"
    assert time.monotonic() - start_s < 300


def test_the_job_has_not_ended_before_the_last_rank(tmp_path: Path) -> None:
    """The first rank's script ends long before that of the second one, which then fails."""
    with pytest.raises(RunFailed, match="rank 1: the command ended with code 7"):
        run(tmp_path, OF_RANK_1 + "    time.sleep(2)\n    sys.exit(7)\n" + GOOD, train={"ranks": 2})
    path = latest(tmp_path / "runs")
    assert path is not None
    assert {"finished", "end"} & set(events(RunFolder.open(path))) == {"finished"}


def test_the_first_rank_names_those_that_are_not_complete(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "jobs" / "1" / "0"
    folder.mkdir(parents=True)
    rank_completion.complete(folder, 2)
    with pytest.raises(RunFailed, match=r"not all others within 0 s: 1, 3\n"):
        rank_completion.wait_for_ranks(folder, 4, 0.0, lambda: None)
    rank_completion.complete(folder, 1)
    rank_completion.complete(folder, 3)
    rank_completion.wait_for_ranks(folder, 4, 0.0, lambda: None)


def test_a_rank_that_cannot_say_that_it_is_complete_fails_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(VflopsError, match=r"cannot write .*rank-1\.done"):
        rank_completion.complete(tmp_path / "file", 1)


CALLED_BY_GLOO = """
import subprocess
import sys
import time
import torch, torch.distributed as dist
from vflops.interruption import run_and_end

def main():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    future.then(lambda done: [time.sleep(0.001) for _ in range(1000)])
    print("done")
    return 3

run_and_end(main)
"""


def test_a_thread_of_gloo_that_runs_python_does_not_abort_a_process_that_ends() -> None:
    """With ``sys.exit`` most such processes abort in Python 3.11."""
    command = [sys.executable, "-c", CALLED_BY_GLOO]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\n", "")
