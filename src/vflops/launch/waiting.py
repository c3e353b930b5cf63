"""Waiting for files of other nodes on a shared file system."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from vflops.errors import UsageError
from vflops.record.folder import RunFolder

LATE_S = 5.0
"""How long a new folder may take to appear on a shared file system."""


class UnseenFolder(UsageError):
    """A node does not have the file system of the run folder."""

    def __init__(self, run: Path) -> None:
        super().__init__(
            f"the node does not see the run folder {run}",
            hint="put runs on a file system that all nodes share: choose it with --out",
        )


def wait_for(paths: Iterable[Path], limit_s: float) -> list[Path]:
    """Wait until the files exist; return those that did not appear in time."""
    end_s = time.monotonic() + limit_s
    missing = list(paths)
    while missing := [path for path in missing if not path.is_file()]:
        if time.monotonic() > end_s:
            break
        with suppress(OSError):
            os.listdir(missing[0].parent)  # noqa: PTH208  drops what NFS caches as absent
        time.sleep(0.1)
    return missing


def refresh_listing(folder: Path) -> None:
    """Have the file system ask its server which files a folder has.

    NFS remembers for up to a minute that a file was absent, unless this machine changes the folder.
    """
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=folder, prefix=".look-"):
        pass


def open_run(path: Path) -> RunFolder:
    """Return the run folder; raise UnseenFolder if this node does not see it."""
    if wait_for([path / "run.json"], LATE_S):
        raise UnseenFolder(path)
    return RunFolder.open(path)


def reserved_port() -> socket.socket:
    """Return a socket that reserves a free port, without listening, until it is closed.

    A port that is only looked up may be taken before the process listens that is to use it.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store sets it
    reserved.bind(("", 0))
    return reserved


@contextmanager
def reserved_ports(number: int) -> Iterator[tuple[int, ...]]:
    """Reserve free ports for other processes while the context lasts."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(reserved_port()) for _ in range(number)]
        yield tuple(int(reserved.getsockname()[1]) for reserved in sockets)


def node_name() -> str:
    """Return the name of this node in the scheduler, or its host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
