"""Starts ranks quickly: one process that has imported torch forks into the hosts.

``Starter`` runs ``python links_start.py``; each line of JSON on its input is a call, each line of
its output an answer. Otherwise every rank would spend seconds on imports before it trains.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from vflops.launch.parent_death import die_with

_CLONE_NEWNET = 0x40000000
_POLL_S = 0.02


class Starter:
    """Starts programs on hosts, and waits for them; ends with the ``with`` block."""

    def __enter__(self) -> Starter:
        variables = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.kill()  # the processes that it started die with it
        self._server.wait()

    def start(
        self, program: Sequence[str], host: str, core: int, log: Path, variables: Mapping[str, str]
    ) -> int:
        """Start a program, a file or ``-m`` and a module with arguments; return its process id."""
        return int(
            self._call(
                program=list(program),
                host=host,
                core=core,
                log=str(log),
                variables=dict(variables),
            )
        )

    def wait(self, processes: Sequence[int], limit_s: float) -> list[int | None]:
        """Return their exit codes; if one fails or takes too long, kill the others (code None)."""
        codes: list[int | None] = self._call(wait=list(processes), limit_s=limit_s)
        return codes

    def _call(self, **call: object) -> Any:
        assert self._server.stdin and self._server.stdout
        self._server.stdin.write(json.dumps(call) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())


def _serve() -> None:
    import torch._dynamo  # noqa: F401  (DDP imports it on first use)

    import vflops.train.rank  # noqa: F401
    from vflops.extensions import import_object
    from vflops.train import loop
    from vflops.workloads.contract.registry import workload

    import_object(workload("image-classification").runner)
    loop._REPORT_S = 0.0  # every step is recorded, with its time
    for line in sys.stdin:
        call = json.loads(line)
        answer: object = _wait(**call) if "wait" in call else _start(**call)
        print(json.dumps(answer), flush=True)


def _start(program: list[str], host: str, core: int, log: str, variables: dict[str, str]) -> int:
    server = os.getpid()
    child = os.fork()
    if child:
        return child
    die_with(server)
    os.environ.update(variables, VFLOPS_LAUNCHER=str(server))
    os.sched_setaffinity(0, {core})
    with Path(log).open("wb") as file, Path(os.devnull).open("rb") as nothing:
        for number, stream in ((0, nothing), (1, file), (2, file)):
            os.dup2(stream.fileno(), number)
    _run(program, host)


def _run(program: list[str], host: str) -> NoReturn:
    code = 1
    try:
        with Path("/run/netns", host).open("rb") as namespace:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"host {host} cannot be entered")
        module = program[0] == "-m"
        sys.argv = program[module:]
        run = runpy.run_module if module else runpy.run_path
        run(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(wait: list[int], limit_s: float) -> list[int | None]:
    end_s = time.monotonic() + limit_s
    codes: dict[int, int] = {}
    while len(codes) < len(wait) and not any(codes.values()) and time.monotonic() < end_s:
        time.sleep(_POLL_S)
        for process in set(wait) - set(codes):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                codes[process] = os.waitstatus_to_exitcode(status)
    for process in set(wait) - set(codes):
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return [codes.get(process) for process in wait]


if __name__ == "__main__":
    _serve()
