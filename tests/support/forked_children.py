"""Processes that a forked program starts with this Python are forked too, from a template of it.

A template is a child of the program, forked before the program ran any code: it has imported
everything and has one thread. A process that it forks becomes a child of the program, which waits
for it and signals it as ever, and dies with the program where it asks for that. It has the words of
its command, which tests look for among all processes.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOM = "." * 2048
"""The last word of the server's command: memory for the words of the processes it forks."""
TEMPLATE = "template"
"""The word of a program that is a template; its standard output is the socket of its requests."""
_SET_CHILD_SUBREAPER = 36
_LONGEST = 1 << 20
"""The size of a request, in bytes."""
_STARTING_COMMANDS = {"accept", "audit", "replay", "resume", "run", "scale"}
_AGENT, _RANK = "vflops.launch.agent", "vflops.train.rank"
_THREADS = "OMP_NUM_THREADS"
"""OpenMP reads it at the start, but a rank also sets torch's number of threads from it."""
_CALL = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]

Serves = Callable[[Mapping[str, str]], bool]
"""Whether variables act on a forked process as on a new interpreter."""


def fork_children(words: list[str], serves: Serves) -> list[str]:
    """Have this program fork its agents and ranks; return the words of this process.

    It returns in the program itself and in each of its children, with their words.
    """
    if words[0] == TEMPLATE:
        return fork_children(_serve(socket.socket(fileno=sys.stdout.fileno())), serves)
    if not _starts_processes(words):
        return words
    calls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        calls.close()
        os.setsid()  # signals to the program's group are not for it
        _show([sys.executable, TEMPLATE])  # it is not to be taken for an agent
        _leave()
        return fork_children(_serve(theirs), serves)
    theirs.close()
    _adopt(calls, serves)
    return words


@contextmanager
def forked_by(calls: socket.socket, serves: Serves) -> Iterator[None]:
    """Have a template, to which ``calls`` leads, fork the agents and ranks of this process."""
    usual = subprocess.Popen
    _adopt(calls, serves)
    try:
        yield
    finally:
        subprocess.Popen = usual  # type: ignore[misc]
        _become_parent_of_orphans(False)


def _adopt(calls: socket.socket, serves: Serves) -> None:
    _become_parent_of_orphans(True)
    _Forked.calls, _Forked.serves = calls, staticmethod(serves)
    subprocess.Popen = _Forked  # type: ignore[misc]


def _become_parent_of_orphans(becomes: bool) -> None:
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(becomes))


def enter(cwd: str, environment: Mapping[str, str], files: Sequence[int], session: bool) -> None:
    """Give this process a folder, variables, the standard streams and maybe its own session."""
    if session:
        os.setsid()
    for number, file in enumerate(files, start=3 - len(files)):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None  # TMPDIR may be another
    importlib.invalidate_caches()


def _leave() -> None:
    """Hold no folder and no file of the program, which may be on a disk to be unmounted."""
    os.chdir("/")
    with Path(os.devnull).open("r+b") as nothing:
        for number in range(3):
            os.dup2(nothing.fileno(), number)


def _starts_processes(words: Sequence[str]) -> bool:
    """Whether a program is an agent, or a command that starts agents or ranks."""
    return _AGENT in words or (
        list(words[:2]) == ["-m", "vflops"] and not _STARTING_COMMANDS.isdisjoint(words[2:3])
    )


class _Forked(subprocess.Popen[Any]):
    """A process that was forked where the command allows it, and a new interpreter elsewhere."""

    calls: socket.socket
    serves: Serves
    _lock = threading.Lock()

    def _execute_child(self, *arguments: Any) -> None:
        call = _CALL.bind(self, *arguments).arguments
        if not self._is_forkable(call):
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        streams = [call[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        files = [number if file == -1 else file for number, file in enumerate(streams)]
        words, session = list(call["args"][1:]), call["start_new_session"]
        cores = list(os.sched_getaffinity(0))
        request = json.dumps([words, str(Path.cwd()), dict(call["env"]), session, cores]).encode()
        with self._lock:
            socket.send_fds(self.calls, [request], files)
            self.pid = int(self.calls.recv(_LONGEST))
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(call[name] for name in pipes))  # type: ignore[attr-defined]

    def _is_forkable(self, call: Mapping[str, Any]) -> bool:
        words = call["args"]
        plain = not (call["preexec_fn"] or call["pass_fds"] or call["cwd"] or call["shell"])
        ours = isinstance(words, list) and words[:3] == [sys.executable, "-P", "-m"]
        if not (plain and ours and call["env"] is not None):
            return False
        read = {name: value for name, value in call["env"].items() if name != _THREADS}
        if _THREADS in os.environ:  # as when the server started
            read[_THREADS] = os.environ[_THREADS]
        return self.serves(read if words[3] == _RANK else call["env"])


def _serve(calls: socket.socket) -> list[str]:
    """Fork for each request; return in the child, with its words."""
    while True:
        call, files, _, _ = socket.recv_fds(calls, _LONGEST, 3)
        if not call:
            os._exit(0)
        numbers, theirs = os.pipe()
        begin, adopted = os.pipe()
        relay = os.fork()
        if relay == 0:
            pid = os.fork()
            if pid == 0:
                calls.close()
                for file in (numbers, theirs, adopted):
                    os.close(file)
                os.read(begin, 1)
                os.close(begin)
                return _begin(call, files)
            os.write(theirs, str(pid).encode())
            os._exit(0)
        for file in (theirs, begin, *files):
            os.close(file)
        os.waitpid(relay, 0)  # now its child is the program's
        calls.send(os.read(numbers, 20))
        os.close(numbers)
        os.close(adopted)


def _begin(call: bytes, files: Sequence[int]) -> list[str]:
    """Become the process that was asked for; return its words."""
    words, cwd, environment, session, cores = json.loads(call)
    os.sched_setaffinity(0, cores)
    enter(cwd, environment, files, session)
    _show([sys.executable, *words])
    return list(words)


def _show(words: Sequence[str]) -> None:
    """Change the command line that other processes see; slashes fill its room."""
    facts = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(facts[45]), int(facts[46])  # arg_start and arg_end of proc(5)
    line = b"".join(word.encode() + b"\0" for word in words)
    assert len(line) <= end - start, "too long for the room of the server's command"
    ctypes.memmove(start, line.rjust(end - start, b"/"), end - start)
