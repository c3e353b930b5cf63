"""Python programs in forked processes that have already imported torch, so that they start fast.

There is one server per pytest worker: it has imported everything, has one thread, and forks for
each program. A program has the caller's folder, variables and files, its own session, and a parent
that waits only for it. Variables that only a new interpreter reads, for example
``PYTHONHASHSEED``, need a new one: see ``serves``.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NoReturn

from tests.support.forked_children import ROOM, TEMPLATE, enter, fork_children, forked_by
from tests.support.huge_pages import collapse

_READ_AT_START = ("PYTHON", "OMP_", "GOMP_", "MKL_", "KMP_", "LC_", "LANG", "TORCH_", "LD_")
_LONGEST = 1 << 20
"""The size of a request, in bytes."""
_WITH_THREADS = "vflops.launch.psij.executors"
"""Modules that start a thread when they are imported, which a fork would not copy."""


class Forked(subprocess.Popen[str]):
    """A program that was started; its output is in files."""

    def __init__(self, args: Sequence[str], out: IO[bytes], err: IO[bytes], report: int) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self._files = (out, err)
        self._report = os.fdopen(report)
        self.pid = int(self._report.readline())

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def communicate(
        self, input: str | None = None, timeout: float | None = None
    ) -> tuple[str, str]:
        """Wait for the end and return stdout and stderr."""
        self.wait(timeout)
        for file in self._files:
            file.seek(0)
        out, err = (file.read().decode() for file in self._files)
        return out, err

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            self.returncode = int(self._report.readline())
        return self.returncode


class ForkServer:
    """Starts programs for one process."""

    def __init__(self) -> None:
        self._variables = dict(os.environ)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), ROOM],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Whether these variables act on a forked program as on a new interpreter."""
        return _acts_alike(environment, self._variables)

    def start(
        self,
        words: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        log: Path | None = None,
    ) -> Forked:
        """Start ``python WORDS``, which begin with ``-m`` and a module, or with a file.

        ``log`` is the file that it writes to; None: ``communicate`` returns its output.
        """
        assert self.serves(environment), "read when Python starts"
        out: IO[bytes] = log.open("w+b") if log else tempfile.TemporaryFile()  # noqa: SIM115
        err: IO[bytes] = out if log else tempfile.TemporaryFile()  # noqa: SIM115
        report = self._request(words, cwd, environment, (out.fileno(), err.fileno()))
        return Forked(words, out, err, report)

    @contextmanager
    def forked_ranks(self) -> Iterator[None]:
        """Have agents and ranks that this process starts in the block forked too."""
        calls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with calls, theirs, tempfile.TemporaryFile() as err:
            files = (theirs.fileno(), err.fileno())
            report = self._request([TEMPLATE], Path.cwd(), os.environ, files)
            template = Forked([TEMPLATE], err, err, report)
            theirs.close()
            try:
                with forked_by(calls, self.serves):
                    yield
            finally:
                template.kill()
                template.wait()

    def _request(
        self, words: Sequence[str], cwd: Path, environment: Mapping[str, str], files: Sequence[int]
    ) -> int:
        """Ask for a program; return the pipe that reports its process id and its exit code."""
        report, theirs = os.pipe()
        call = json.dumps([list(words), str(cwd), dict(environment)]).encode()
        socket.send_fds(self._socket, [call], [*files, theirs])
        os.close(theirs)
        return report


def _acts_alike(environment: Mapping[str, str], at_start: Mapping[str, str]) -> bool:
    names = {name for name, _ in environment.items() ^ at_start.items()}
    return not any(name.startswith(_READ_AT_START) for name in names)


def start_alone(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Start ``python WORDS`` in a new interpreter, for tests of whole process trees."""
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )


@functools.cache
def server() -> ForkServer:
    """Return the server of this process; it ends with the process."""
    return ForkServer()


def _import_everything() -> None:
    import vflops

    for name in (
        "torch",
        "torch._dynamo",
        "altair",
    ):  # torch imports the second one on first use
        importlib.import_module(name)
    for module in pkgutil.walk_packages(vflops.__path__, "vflops."):
        if not module.name.endswith("__main__") and module.name != _WITH_THREADS:
            with suppress(ImportError):  # of an optional library
                importlib.import_module(module.name)
    from vflops.publish.pages.page import templates

    environment = templates(None)  # as `render` calls it: the cache knows calls by their arguments
    for template in environment.list_templates():
        environment.get_template(template)
    _compute_once()


def _compute_once() -> None:
    """Compute what commands would compute anew in every process: hashes, and tables of altair."""
    import altair as alt

    from vflops.publish.pages.chart_style import apply_style, data, tooltips
    from vflops.record.installed_package import installed_package

    installed_package()
    chart = alt.Chart(data([{"a": 1}])).mark_line().encode(y=alt.Y("a:Q"), tooltip=tooltips("a:Q"))
    apply_style(alt.layer(chart))


def _serve(calls: socket.socket) -> list[str]:
    """Fork for each request; return in the program's process, with its words."""
    while True:
        call, files, _, _ = socket.recv_fds(calls, _LONGEST, 3)
        if not call:
            os._exit(0)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        if os.fork() == 0:
            calls.close()
            out, err, report = files
            pid = os.fork()
            if pid == 0:
                os.close(report)
                words, cwd, environment = json.loads(call)
                enter(cwd, environment, (out, err), session=True)
                return list(words)
            os.write(report, f"{pid}\n".encode())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.write(report, f"{code}\n".encode())
            os._exit(0)
        for file in files:
            os.close(file)


def _run(words: list[str]) -> None:
    first, *rest = words
    if first == "-P":
        del sys.path[0]
        sys.argv = rest[1:]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    elif first == "-m":
        sys.path[0], sys.argv = str(Path.cwd()), rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0], sys.argv = str(Path(first).parent), words
        runpy.run_path(first, run_name="__main__")


def _end(code: object) -> NoReturn:
    """End as Python does, but without tearing down (and so copying) what the server shares."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    gc.disable()
    _import_everything()
    gc.freeze()  # shared objects are not visited by the collectors of all programs
    gc.enable()
    for shared in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        shared.atexit = False  # of torch's libraries: no program need take apart what it shares
    collapse()
    at_start = dict(os.environ)
    words = _serve(socket.socket(fileno=int(sys.argv[1])))
    words = fork_children(words, functools.partial(_acts_alike, at_start=at_start))
    try:
        _run(words)
    except SystemExit as ended:
        _end(ended.code)
    _end(0)
