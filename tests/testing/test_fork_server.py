"""The server that forks programs for tests: a program is as one that Python was started for."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.fork_server import server

PROGRAM = """
import atexit, os, sys, threading, time
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.3), print("thread"))).start()
print(os.getcwd(), os.environ.get("WORD"), "HOME" in os.environ, os.getsid(0) == os.getpid())
print(sys.argv[1:], "torch" in sys.modules, "psij" in sys.modules, __name__)
print("wrong", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""

PARENT = """
import os, subprocess, sys
from pathlib import Path

def start(code, **variables):
    words = ["-P", "-m", "timeit", "-n", "1", "-r", "1", "-s", code]
    environment = {**os.environ, **variables}
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    return process, words

core = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {core})
code = "import os, sys; print(os.getppid(), 'torch' in sys.modules, os.environ.get('WORD'))"
own = "; print(os.getsid(0) == os.getpid(), *os.sched_getaffinity(0), '' in sys.path)"
for variables in ({"WORD": "x"}, {"PYTHONHASHSEED": "7"}):
    process, _ = start(code + own, **variables)
    first, second, *_ = process.communicate()[0].decode().splitlines()
    assert process.returncode == 0
    print(first.replace(str(os.getpid()), "parent"), second.replace(f" {core} ", " core "))
process, words = start("import time; time.sleep(60)")
line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\\0")
while line[1:-1] != words:  # until it is the process that was asked for
    line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\\0")
print(Path(line[0]).samefile(sys.executable))
process.kill()
print(process.wait())
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_a_program_has_its_words_folder_variables_and_exit_code(
    program: str, tmp_path: Path
) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "HOME"}
    process = server().start([program, "7"], tmp_path, {**kept, "WORD": "ü"})
    out, err = process.communicate(timeout=60)
    assert process.returncode == process.poll() == 7
    assert out.splitlines() == [
        f"{tmp_path} ü False True",
        "['7'] True False __main__",
        "thread",
        "at exit",
    ]
    assert err == "wrong\n"


def test_programs_run_at_once_and_can_be_killed(tmp_path: Path) -> None:
    waits = tmp_path / "waits.py"
    waits.write_text("import time; time.sleep(60)")
    processes = [server().start([str(waits)], tmp_path, os.environ) for _ in range(2)]
    assert [process.poll() for process in processes] == [None, None]
    with pytest.raises(subprocess.TimeoutExpired):
        processes[0].wait(timeout=0.1)
    os.killpg(processes[0].pid, signal.SIGKILL)
    processes[1].send_signal(signal.SIGTERM)
    assert [process.wait(60) for process in processes] == [-signal.SIGKILL, -signal.SIGTERM]


def test_a_fault_is_code_1_and_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("1 / 0")
    process = server().start([str(tmp_path / "bad.py")], tmp_path, os.environ)
    assert "ZeroDivisionError" in process.communicate(timeout=60)[1]
    assert process.returncode == 1


def test_what_only_a_new_python_reads_is_not_served() -> None:
    assert server().serves({**os.environ, "WORD": "x"})
    assert not server().serves({**os.environ, "PYTHONHASHSEED": "7"})
    assert not server().serves({**os.environ, "OMP_NUM_THREADS": "7"})


def test_what_an_agent_starts_is_forked_too_and_is_its_child(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    words = [str(tmp_path / "parent.py"), "vflops.launch.agent"]
    process = server().start(words, tmp_path, os.environ)
    out, err = process.communicate(timeout=120)
    assert out.splitlines() == [
        "parent True x True core False",
        "parent False None True core False",  # a variable that only a new Python reads
        "True",
        str(-signal.SIGKILL),
    ], err
