"""Staging: copy packed data to a node's local storage once, for all jobs on the node.

LOCAL/vflops-<fingerprint>.lock   locked by the process of the node that checks or copies
LOCAL/vflops-<fingerprint>/       the copy
RUN/staging/slot-<k>.lock         locked by a copying node; the number of slots limits how many copy
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

import numpy as np

from vflops.data.bag import read_samples
from vflops.data.local_copy import LocalCopy, NotStagedError, PackedSource
from vflops.data.present_samples import Mask, is_partial, present_samples, require_present
from vflops.data.shard_samples import open_packed
from vflops.errors import FolderError
from vflops.record.files import atomic
from vflops.record.files.document import read_json
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Staged

STAGED = "VFLOPS_STAGED"
"""The environment variable with the folder of the node's copy, for the ranks of a job."""

_MAX_PAUSE_S = 5.0
_POLL_S = 0.2

Log = Callable[[str], None]
"""Called with a message for the user."""


def stage_attempt(
    folder: RunFolder, record: JobRecord, local: str | None, attempt: Path, node: int, nodes: int
) -> Mapping[str, str]:
    """Stage the data of a job attempt to ``local`` and return environment variables for its ranks.

    The outcome is recorded in ``attempt``, the attempt's folder. The call returns when all nodes of
    the attempt are ready, because ranks may start only then.
    """
    if local is None or not record.data.path:
        return {}
    host = socket.gethostname()

    def log(text: str) -> None:
        print(f"{host}: {text}", file=sys.stderr, flush=True)

    staged = stage(
        Path(record.data.path),
        record.data.fingerprint,
        local,
        folder.path / "staging",
        folder.record.settings.bagging.staging_readers,
        log,
        _drawn_samples(record, log),
    )
    atomic.write_json(_outcome_file(attempt, node), staged.model_dump(mode="json"))
    _wait_for_nodes(attempt, nodes, log)
    return {STAGED: staged.folder} if staged.where == "local" else {}


def staged_nodes(attempt: Path) -> list[Staged]:
    """Return how each node of an attempt got its data; empty if nothing was staged."""
    paths = sorted(attempt.glob("staged-*.json"), key=lambda path: int(path.stem.split("-")[1]))
    return [Staged.model_validate(read_json(path)) for path in paths]


def read_staged(record: JobRecord, environment: Mapping[str, str] = os.environ) -> JobRecord:
    """Return the job record with the path of the node's copy, if the data was staged."""
    folder = environment.get(STAGED)
    if not folder:
        return record
    return record.model_copy(update={"data": record.data.model_copy(update={"path": folder})})


def require_staged(record: JobRecord, environment: Mapping[str, str] = os.environ) -> None:
    """Raise ``FolderError`` unless the node's copy has every training sample that the job reads."""
    folder = Path(environment.get(STAGED, ""))
    if not environment.get(STAGED) or not is_partial(folder):
        return
    present = present_samples(folder, open_packed(folder).index.splits["train"].shards)
    if present is None:
        return
    needed = needed_samples(record)
    if needed is not None and len(needed) != len(present):
        raise FolderError(
            f"{folder} has part of {len(present):,} training samples, but the job has "
            f"{len(needed):,}",
            hint="delete this copy when no job runs: the next job copies the data again",
        )
    numbers = np.arange(len(present)) if needed is None else np.flatnonzero(needed)
    require_present(present, numbers, f"train in {folder}")


def needed_samples(record: JobRecord) -> Mask | None:
    """Return the training samples that a job reads; None for all.

    Only workloads whose samples are compared with digests are known to read no others.
    """
    if record.bag is None or record.worker is not None or not record.data.contents:
        return None
    return read_samples(record.bag, record.data.train)


def _drawn_samples(record: JobRecord, log: Log) -> Mask | None:
    """Return what ``needed_samples`` does; None if drawing fails, which the ranks will report."""
    try:
        return needed_samples(record)
    except Exception as error:  # the bootstrap may come from another package
        log(f"the whole data is copied: the bag of the job cannot be drawn: {error}")
        return None


def stage(
    source: Path,
    fingerprint: str,
    local: str,
    slots: Path,
    readers: int,
    log: Log,
    needed: Mask | None = None,
) -> Staged:
    """Copy the packed data ``source`` below ``local`` unless it is there; return the outcome.

    Of the training split, only the samples in ``needed`` are copied, if it can be copied in part.
    At most ``readers`` nodes copy at the same time, counted by locks in ``slots``, which all nodes
    share. If the data cannot be copied, it is read from ``source``. Damaged data is an error.
    """
    host = socket.gethostname()
    try:
        if not local:
            raise NotStagedError("the path of the node's local storage is empty")
        storage = Path(local).absolute()
        storage.mkdir(exist_ok=True)
        copy = LocalCopy(
            PackedSource.open(source, fingerprint),
            storage / f"vflops-{fingerprint[:16]}",
            None if needed is None or needed.all() else needed,
        )
        with _node_lock(copy.target.with_suffix(".lock"), log) as waited_s:
            missing = copy.missing()
            with _slot(slots, readers, log) if missing else nullcontext(0.0) as slot_s:
                started_s = time.monotonic()
                copy.complete(missing)
                took_s = time.monotonic() - started_s
            samples = copy.present(missing)
    except (NotStagedError, OSError) as error:
        log(f"the data is read from {source}: {error}")
        return Staged(node=host, where="shared", folder=str(source), reason=str(error))
    size = missing.bytes
    return Staged(
        node=host,
        where="local",
        folder=str(copy.target),
        bytes=size,
        samples=samples,
        seconds=took_s if missing else 0.0,
        bandwidth=size / took_s if missing else None,
        waited_s=waited_s + slot_s,
        reason=None if missing else "it was there already",
    )


@contextmanager
def _node_lock(lock: Path, log: Log) -> Iterator[float]:
    """Hold ``lock`` against other processes of this node; yield the seconds spent waiting."""
    started_s = time.monotonic()
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            log(f"waiting for process {owner}, which copies the data to {lock.with_suffix('')}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield time.monotonic() - started_s


@contextmanager
def _slot(slots: Path, readers: int, log: Log) -> Iterator[float]:
    """Hold one of the ``readers`` slots for copying; yield the seconds spent waiting."""
    started_s, pause_s = time.monotonic(), 0.1
    atomic.make_folder(slots)
    while (slot := _free_slot(slots, readers, log)) is None:
        if pause_s == 0.1:
            log(f"waiting: {readers} nodes, the limit of bagging.staging_readers, are copying data")
        time.sleep(pause_s * random.uniform(0.5, 1.0))  # so that nodes do not retry in step
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)
    with slot:
        yield time.monotonic() - started_s


def _free_slot(slots: Path, readers: int, log: Log) -> IO[str] | None:
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
            log(
                f"cannot lock {path} ({error.strerror}): the number of copying nodes is not limited"
            )
        return file
    return None


def _outcome_file(attempt: Path, node: int) -> Path:
    return attempt / f"staged-{node}.json"


def _wait_for_nodes(attempt: Path, nodes: int, log: Log) -> None:
    """Wait until every node of the attempt is ready; if one fails, the scheduler stops all."""
    reported = False
    while waiting := [n for n in range(nodes) if not _outcome_file(attempt, n).is_file()]:
        if not reported:
            log(f"waiting for {len(waiting)} of {nodes} nodes to stage their data")
            reported = True
        time.sleep(_POLL_S)
