"""The data duplicator: packed data on a node's own storage, copied once for all jobs of the node.

LOCAL/vflops-<fingerprint>.lock   held by the one process of the node that looks or copies
LOCAL/vflops-<fingerprint>/       the copy
RUN/staging/slot-<k>.lock         held by a node that copies; as many as may at once
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO

from vflops.data.local_copy import LocalCopy, NotStagedError, PackedSource
from vflops.record.files import atomic
from vflops.record.files.document import read_json
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord, Staged

STAGED = "VFLOPS_STAGED"
"""The variable that tells ranks where their node has the job's data."""

_LONGEST_PAUSE_S = 5.0
_LOOK_S = 0.2

Say = Callable[[str], None]


def stage_attempt(
    folder: RunFolder, record: JobRecord, local: str | None, place: Path, node: int, nodes: int
) -> Mapping[str, str]:
    """Stage the data of an attempt at a job to ``local``; what its ranks on this node are told.

    What came of it is left in ``place``, the attempt's folder. Ranks may meet when all nodes of
    the attempt are ready: until then this waits.
    """
    if local is None or not record.data.path:
        return {}
    host = socket.gethostname()

    def say(text: str) -> None:
        print(f"{host}: {text}", file=sys.stderr, flush=True)

    staged = stage(
        Path(record.data.path),
        record.data.fingerprint,
        local,
        folder.path / "staging",
        folder.record.settings.bagging.staging_readers,
        say,
    )
    atomic.write_json(_left(place, node), staged.model_dump(mode="json"))
    _meet(place, nodes, say)
    return {STAGED: staged.folder} if staged.where == "local" else {}


def staged_nodes(place: Path) -> list[Staged]:
    """How each node of an attempt got its data; none where nothing is staged."""
    found = sorted(place.glob("staged-*.json"), key=lambda path: int(path.stem.split("-")[1]))
    return [Staged.model_validate(read_json(path)) for path in found]


def read_staged(record: JobRecord, environment: Mapping[str, str] = os.environ) -> JobRecord:
    """The job as a rank of this node runs it: its data is read from the node's copy."""
    folder = environment.get(STAGED)
    if not folder:
        return record
    return record.model_copy(update={"data": record.data.model_copy(update={"path": folder})})


def stage(
    source: Path, fingerprint: str, local: str, slots: Path, readers: int, say: Say
) -> Staged:
    """Copy the packed data ``source`` below ``local``, unless it is there; what came of it.

    At most ``readers`` nodes copy at once, counted by locks in ``slots``, which all nodes see.
    Where ``local`` cannot take it, the data is read where it is. Damaged data is an error.
    """
    host = socket.gethostname()
    try:
        if not local:
            raise NotStagedError("the path of the node's own storage is empty")
        place = Path(local).absolute()
        place.mkdir(exist_ok=True)
        copy = LocalCopy(
            PackedSource.open(source, fingerprint), place / f"vflops-{fingerprint[:16]}"
        )
        with _alone(copy.target.with_suffix(".lock"), say) as waited_s:
            missing = copy.missing()
            with _turn(slots, readers, say) if missing else nullcontext(0.0) as turn_s:
                started_s = time.monotonic()
                copy.complete(missing)
                took_s = time.monotonic() - started_s
    except (NotStagedError, OSError) as error:
        say(f"the data is read from {source}: {error}")
        return Staged(node=host, where="shared", folder=str(source), reason=str(error))
    size = sum(file.bytes for file in missing)
    return Staged(
        node=host,
        where="local",
        folder=str(copy.target),
        bytes=size,
        seconds=took_s if missing else 0.0,
        bandwidth=size / took_s if missing else None,
        waited_s=waited_s + turn_s,
        reason=None if missing else "it was there already",
    )


@contextmanager
def _alone(lock: Path, say: Say) -> Iterator[float]:
    """Hold ``lock`` among the processes of this node; the seconds that it took to get it."""
    started_s = time.monotonic()
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            say(f"waiting for process {owner}, which copies the data to {lock.with_suffix('')}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield time.monotonic() - started_s


@contextmanager
def _turn(slots: Path, readers: int, say: Say) -> Iterator[float]:
    """Be one of ``readers`` nodes that read the shared file system; the seconds of waiting."""
    started_s, pause_s = time.monotonic(), 0.1
    atomic.make_folder(slots)
    while (slot := _free_slot(slots, readers, say)) is None:
        if pause_s == 0.1:
            say(f"waiting: {readers} nodes copy data now, as bagging.staging_readers allows")
        time.sleep(pause_s * random.uniform(0.5, 1.0))  # nodes that began together do not stay so
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    with slot:
        yield time.monotonic() - started_s


def _free_slot(slots: Path, readers: int, say: Say) -> IO[str] | None:
    for number in random.sample(range(readers), readers):
        path = slots / f"slot-{number}.lock"
        try:
            file = path.open("a")
        except OSError as error:
            raise atomic.cannot_write(path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                file.close()
                continue
            say(f"{path} cannot be locked ({error.strerror}): nodes that copy are not limited")
        return file
    return None


def _left(place: Path, node: int) -> Path:
    return place / f"staged-{node}.json"


def _meet(place: Path, nodes: int, say: Say) -> None:
    """Until every node of the attempt is ready; the scheduler ends all where one fails."""
    told = False
    while away := [node for node in range(nodes) if not _left(place, node).is_file()]:
        if not told:
            say(f"waiting for the data of {len(away)} more nodes of {nodes}")
            told = True
        time.sleep(_LOOK_S)
