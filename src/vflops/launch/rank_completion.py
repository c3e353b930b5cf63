"""The barrier at the end of a job: it has ended when the files of all of its ranks are on the disk.

Every rank but the first one creates an empty file when its own files are complete. The first rank
waits for all of them and then writes ``end``, by which a job is judged; what happens to a process
after that, or how a rank ends after its file was created, does not matter. Files work for every
framework, and for commands that do not communicate at all. A job with one rank needs none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vflops.errors import RunFailed
from vflops.record.files import atomic

_FIRST_POLL_S, _POLL_S = 0.01, 0.25
_LISTED = 8


def complete(attempt: Path, rank: int) -> None:
    """Say that all files of ``rank`` are on the disk; raise a ``VflopsError`` if that fails."""
    path = _file(attempt, rank)
    try:
        path.touch()
    except OSError as error:
        raise atomic.cannot_write(path, error) from error


def is_complete(attempt: Path, rank: int) -> bool:
    """Whether ``rank`` has said so."""
    return _file(attempt, rank).is_file()


def wait_for_ranks(
    attempt: Path, ranks: int, limit_s: float | None, on_poll: Callable[[], None]
) -> None:
    """Wait until all ranks but the first one are complete.

    The agents end the first rank if another one dies, and some time after the job was asked to
    stop. Raise ``RunFailed`` after ``limit_s``, if that is not None.
    """
    missing = {_file(attempt, rank).name for rank in range(1, ranks)}
    start_s, pause_s = time.monotonic(), _FIRST_POLL_S
    while missing := missing.difference(os.listdir(attempt)):  # noqa: PTH208  NFS refreshes it
        if limit_s is not None and time.monotonic() - start_s > limit_s:
            late = sorted(int(name.split("-")[1].split(".")[0]) for name in missing)
            listed = ", ".join(map(str, late[:_LISTED])) + (" …" if len(late) > _LISTED else "")
            raise RunFailed(
                f"rank 0 has finished, but not all others within {limit_s:g} s: {listed}",
                hint="see the logs of these ranks; to try again from the last checkpoint: "
                f"vflops resume {attempt.parents[2]}",
            )
        on_poll()
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_S)


def forget(attempt: Path, ranks: int) -> None:
    """Delete the files of all ranks, which nobody needs once the log has its end."""
    for rank in range(1, ranks):
        with suppress(OSError):
            _file(attempt, rank).unlink()


def _file(attempt: Path, rank: int) -> Path:
    return attempt / f"rank-{rank}.done"
