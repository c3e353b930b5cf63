"""Programs that tests start: the command in this process, and Python in processes of its own."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.support.paths import ROOT
from vflops import cli, interruption
from vflops.publish.pages import chart_style

_READ_AT_START = ("PYTHON", "OMP_", "GOMP_", "MKL_", "KMP_", "LC_", "LANG", "TORCH_", "LD_", "TZ")
"""How the names of variables begin that have an effect only if they are set when Python starts."""
_drawn = chart_style.specification_of
_MAIN = str(ROOT / "src" / "vflops" / "__main__.py")


def needs_process(environment: Mapping[str, str]) -> bool:
    """Whether a command with these variables cannot run in this process."""
    changed = {name for name, _ in environment.items() ^ os.environ.items()}
    return threading.current_thread() is not threading.main_thread() or any(
        name.startswith(_READ_AT_START) for name in changed
    )


def run_here(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process; processes that it starts are real ones."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with _as_a_process([_MAIN, *words], cwd, environment, out, err):
            code = _exit_code()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return subprocess.CompletedProcess(["vflops", *words], code, *texts)


def _exit_code() -> int:
    try:
        cli.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def _as_a_process(
    words: list[str],
    cwd: Path,
    environment: Mapping[str, str],
    out: IO[bytes],
    err: IO[bytes],
) -> Iterator[None]:
    """Give this process what a new one has, and take it back.

    The files of standard streams are replaced, because processes that are started inherit them.
    """
    variables, folder, path = dict(os.environ), Path.cwd(), list(sys.path)
    kept = sys.argv, sys.stdin, sys.stdout, sys.stderr, gc.get_threshold()
    specification = chart_style.specification_of
    handlers = {number: signal.getsignal(number) for number in interruption.SIGNALS}
    threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    modules = set(sys.modules)
    for stream in kept[2:4]:
        stream.flush()
    copies = [os.dup(number) for number in range(3)]
    with Path(os.devnull).open("rb") as nothing:
        for number, file in enumerate((nothing, out, err)):
            os.dup2(file.fileno(), number)
    try:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # TMPDIR may be another
        sys.argv, sys.path[0] = words, str(cwd)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            for number, mode in enumerate("rww")
        )
        chart_style.specification_of = _drawn  # as for users: altair does not check charts
        interruption.install(signal.SIG_DFL)
        with warnings.catch_warnings():
            yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):  # the command has closed it
                stream.flush()
        for number, copy in enumerate(copies):
            os.dup2(copy, number)
            os.close(copy)
        sys.argv, sys.stdin, sys.stdout, sys.stderr, threshold = kept
        gc.set_threshold(*threshold)
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(folder)
        tempfile.tempdir = None
        sys.path[:] = path
        chart_style.specification_of = specification
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if threads is not None:
            sys.modules["torch"].set_num_threads(threads)
        for name in set(sys.modules) - modules:  # the user's own code: other tests have others
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(cwd)):
                del sys.modules[name]


class Program(subprocess.Popen[str]):
    """A Python program in its own session; its output goes to files, so that it never waits."""

    def __init__(
        self, words: Sequence[str], cwd: Path, environment: Mapping[str, str], log: Path | None
    ) -> None:
        self._out: IO[bytes] = log.open("w+b") if log else tempfile.TemporaryFile()  # noqa: SIM115
        self._err: IO[bytes] = self._out if log else tempfile.TemporaryFile()  # noqa: SIM115
        super().__init__(
            [sys.executable, *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )

    def communicate(
        self, input: str | None = None, timeout: float | None = None
    ) -> tuple[str, str]:
        """Wait for the end and return stdout and stderr."""
        self.wait(timeout)
        for file in (self._out, self._err):
            file.seek(0)
        return self._out.read().decode(), self._err.read().decode()

    def said(self) -> bytes:
        """Return what it has written to stderr so far."""
        return os.pread(self._err.fileno(), 1 << 20, 0)


def start(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], log: Path | None = None
) -> Program:
    """Start ``python WORDS``; ``log`` is the file it writes to, if ``communicate`` is not used."""
    return Program(words, cwd, environment, log)
