"""Runs a command as a child process of its rank: reads its output, and stops it."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from vflops.errors import RunFailed

_GRACE_S = 30.0
"""How long a command may take to save its state when it is asked to stop."""
_DRAIN_S = 5.0
"""How long to wait for its last lines; a grandchild may keep the pipe open forever."""
_KEPT_LINES = 8
"""Lines of standard error that an error message shows."""
_SET_PARENT_DEATH_SIGNAL = 1


class Process:
    """A running command; everything it prints is copied to the rank's log."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        self._errors: deque[str] = deque(maxlen=_KEPT_LINES)
        try:
            self._child = subprocess.Popen(
                list(command),
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=_parent_death_hook(),
            )
        except OSError as error:
            raise RunFailed(
                f"the command {command[0]!r} cannot be started: {error.strerror or error}",
                hint="check that it exists and may be executed",
            ) from error
        assert self._child.stdout is not None and self._child.stderr is not None
        self._readers = [
            _reader(self._child.stdout, sys.stdout.buffer, self._lines.put),
            _reader(self._child.stderr, sys.stderr.buffer, self._errors.append),
        ]

    def next_line(self, wait_s: float) -> str | None:
        """Return the next line of standard output; None if there is none within ``wait_s``."""
        with suppress(queue.Empty):
            return self._lines.get(timeout=wait_s)
        return None

    def has_ended(self) -> bool:
        """Whether it has ended; if so, its remaining lines can be read without waiting."""
        if self._child.poll() is None:
            return False
        end_s = time.monotonic() + _DRAIN_S
        for reader in self._readers:
            reader.join(max(end_s - time.monotonic(), 0.0))
        return True

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._child.poll()

    @property
    def last_errors(self) -> str:
        """The last lines of its standard error."""
        return "\n".join(line.rstrip() for line in self._errors if line.strip())

    def stop(self) -> None:
        """Ask the command to stop, wait while it saves its state, then kill it if needed."""
        if self._child.poll() is not None:
            return
        self._terminate()
        try:
            self._child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _terminate(self) -> None:
        # A rank leads a process group. The whole group gets the signal, because a shell does not
        # pass it on to the programs that it runs. The rank itself only records the signal.
        with suppress(ProcessLookupError):
            if os.getpgid(0) == os.getpid() and callable(signal.getsignal(signal.SIGTERM)):
                os.killpg(0, signal.SIGTERM)
            else:
                self._child.terminate()


def _reader(source: IO[bytes], log: IO[bytes], keep: Callable[[str], object]) -> threading.Thread:
    def copy_lines() -> None:
        for line in source:
            with suppress(OSError):  # if the disk is full, writing events stops the rank
                log.write(line)
                log.flush()
            keep(line.decode("utf-8", errors="replace"))

    thread = threading.Thread(target=copy_lines, name="vflops-command-reader", daemon=True)
    thread.start()
    return thread


def _parent_death_hook() -> Callable[[], None] | None:
    """Return a function by which a child asks to be killed with its rank; None if unsupported."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None

    def ask() -> None:
        prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

    return ask
