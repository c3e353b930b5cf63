"""Ctrl-C and SIGTERM: they end a command once, between two writes, and within seconds.

The first signal raises ``Signalled``, a ``KeyboardInterrupt``, in the main thread. Further signals
do not disturb the clean-up. If a command is still running ``LIMIT_S`` after a signal, because a
library is in a long call or has caught the exception, a thread ends the process: files are written
atomically, so that is safe at any time.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, Self

from vflops.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Ctrl-C; what schedulers send when the time limit is reached; and their warning before that."""
LIMIT_S = 4.0
"""The longest time between a signal and the end of the process."""
_IMPORT_LIMIT_S = 1.0
"""The longest time between a signal and the end of the process while it imports modules."""
_POLL_S, _NEVER_S = 0.05, float("inf")
_ONE_SIGNAL_S = 1.0
"""A signal that is repeated within this time counts only once."""


class Signalled(KeyboardInterrupt):
    """Raised in the main thread by a signal that asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.cause = cause_of(number)


def cause(error: BaseException) -> str:
    """Return what stopped the work: "stopped by the user" or "stopped by SIGTERM"."""
    return error.cause if isinstance(error, Signalled) else cause_of(signal.SIGINT)


def cause_of(number: int) -> str:
    """Return how a signal is named in messages."""
    return "stopped by " + ("the user" if number == signal.SIGINT else signal.Signals(number).name)


class _State:
    """What this process does about signals; a process has only one set of handlers."""

    handled = False
    """Whether a block of ``handled`` is active."""
    received: int | None = None
    """The signal that has been raised as an exception."""
    protected = 0
    """The number of active blocks of ``protected``."""
    pending: int | None = None
    """The signal that arrived in such a block."""
    postponed: int | None = None
    """The signal that arrived during an import, and is sent again until it has ended."""
    wakeup = -1
    """The file descriptor by which the watching thread learns of signals."""
    unlimited = 0
    """The number of active blocks of ``unlimited``."""
    hint: str | None = None
    """What to do after the process was ended."""


def interrupt(number: int, frame: FrameType | None = None) -> None:
    """Raise ``Signalled`` for the first signal, after imports and a block of ``protected``."""
    if _State.received is not None:
        return
    if _State.protected:
        _State.pending = number
    elif is_importing(frame):
        _State.postponed = number
        os.write(_State.wakeup, b"\0")
    else:
        _State.received = number
        raise Signalled(number)


def is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: an exception then makes torch abort the process."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def leave(number: int, frame: FrameType | None = None) -> None:
    """End the process with a message, unless a signal is being handled already.

    This is the handler for the time before a command is started.
    """
    if _State.received is None:
        end_process(f"error: {cause_of(number)}")


def run_and_end(program: Callable[..., int], *arguments: Any) -> NoReturn:
    """Call ``program`` and end this process with the exit code that it returns.

    Python is not finalised, so nothing that is registered with ``atexit`` runs: ``program`` must
    have closed its files. That is how every process ends that has used torch.distributed, whose
    threads may want the interpreter's lock while Python finalises; Python 3.11 then ends them in
    a way that aborts the process, after all of its work is done.
    """
    code = 1
    try:
        code = program(*arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if code and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # no stream, or a full disk
                stream.flush()
        os._exit(code)


def end_process(*lines: str) -> NoReturn:
    """Print lines and end the process at once with the exit code of an interruption.

    Libraries are not finalised, which for torch can take seconds.
    """
    try:
        os.write(2, "".join(f"{line}\n" for line in lines).encode())
    finally:
        os._exit(Interrupted.exit_code)


def install(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> dict[int, Any]:
    """Set the handler of all signals that end a command; return the previous handlers.

    A process that was started with Ctrl-C ignored, as shells do in the background, keeps that.
    """
    return {
        number: signal.signal(number, handler)
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }


@contextmanager
def handled(hint: str | None = None) -> Iterator[None]:
    """Let signals raise ``Signalled`` in the block, and end the process if that takes too long.

    ``hint`` says what to do next after the process had to be ended.
    """
    _State.hint = hint or _State.hint
    if _State.handled or threading.current_thread() is not threading.main_thread():
        with recovered():
            yield
        return
    _State.handled, _State.received, _State.pending, _State.postponed = True, None, None, None
    watchdog = _Watchdog()
    before = install(interrupt)
    try:
        with recovered():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        watchdog.close()
        _State.handled, _State.hint = False, None


@contextmanager
def recovered() -> Iterator[None]:
    """Raise ``Signalled`` again if a library, such as pydantic, made another error of it."""
    try:
        yield
    except Interrupted:
        raise
    except Exception:
        if _State.received is None:
            raise
        raise Signalled(_State.received) from None


def watch() -> None:
    """End this process ``LIMIT_S`` after a signal, unless it is in a block of ``unlimited``."""
    _Watchdog()


@contextmanager
def protected() -> Iterator[None]:
    """Delay ``Signalled`` to the end of the block, for example while a log line is written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _State.protected += 1
    try:
        yield
    finally:
        _State.protected -= 1
        if _State.pending is not None and not _State.protected:
            number, _State.pending = _State.pending, None
            interrupt(number)


@contextmanager
def ctrl_c_blocked() -> Iterator[None]:
    """Block Ctrl-C, which a terminal sends to the whole group, in processes started here.

    This process is interrupted as soon as the block ends, and then stops the others. The block is
    protected too, because a thread that does not block the signal may receive it.
    """
    with protected():
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


@contextmanager
def unlimited() -> Iterator[None]:
    """Do not end the process in the block, where another handler limits the time."""
    _State.unlimited += 1
    try:
        yield
    finally:
        _State.unlimited -= 1


class SignalCounter:
    """Counts the signals that ask this process to stop, inside a ``with`` block."""

    def __init__(self) -> None:
        self.count = 0
        self.why = ""
        self.warned = False
        """Whether one of them was a scheduler's warning before the time limit."""
        self._number, self._at_s = 0, 0.0
        self._before: dict[int, Any] = {}
        self._unlimited = unlimited()

    def __enter__(self) -> Self:
        self._unlimited.__enter__()
        self._before = {number: signal.signal(number, self._received) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._unlimited.__exit__(None, None, None)

    def _received(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        # `timeout` and some schedulers signal both the process and its group.
        repeated = number == self._number and now_s - self._at_s < _ONE_SIGNAL_S
        self._number, self._at_s = number, now_s
        self.warned = self.warned or number == signal.SIGUSR1
        if repeated and number != signal.SIGINT:
            return
        self.count += 1
        _State.received = number  # what follows the block is not disturbed by further signals
        self.why = cause_of(number).removeprefix("stopped")


class _Watchdog:
    """A thread that learns of signals even while the main thread is in a long call."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        _State.wakeup = self._write
        threading.Thread(target=self._watch, name="vflops-signals", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        signal.set_wakeup_fd(self._before)
        os.close(self._write)

    def _watch(self) -> None:
        end_s, import_end_s, number = _NEVER_S, _NEVER_S, 0
        while True:
            if select.select([self._read], [], [], None if end_s == _NEVER_S else _POLL_S)[0]:
                received = os.read(self._read, 64)
                if not received:
                    os.close(self._read)
                    return
                if received[0] in SIGNALS and end_s == _NEVER_S:
                    end_s, number = time.monotonic() + LIMIT_S, received[0]
            if _State.unlimited:
                end_s = _NEVER_S
            if _State.postponed is not None:
                import_end_s = min(import_end_s, time.monotonic() + _IMPORT_LIMIT_S)
                if time.monotonic() > import_end_s and not _State.unlimited:
                    _abandon(number, "an import")
                again, _State.postponed = _State.postponed, None
                time.sleep(_POLL_S)
                signal.pthread_kill(threading.main_thread().ident or 0, again)
            if time.monotonic() > end_s:
                _abandon(number, "a step that takes long")


def _abandon(number: int, what: str) -> None:
    hint = _State.hint or "run the same command again"
    end_process(f"error: {cause_of(number)} during {what}", f"       {hint}")
