"""Runs a reader on many damaged inputs in a child process with limits of time and memory.

A reader may return something or raise ``VflopsError``. Anything else is a failure: another
exception, more than a few seconds for one input, much memory, or the death of the process. The
inputs follow from a seed, and those that fail are kept as files.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.mutations import mutate
from vflops.errors import VflopsError
from vflops.record.files.document import Document

CPU_S = 4.0
"""The processor time that a reader may take for one small input."""
WALL_S = 60.0
"""The time after which a reader hangs, even if it does not use the processor."""
_COUNTER_BYTES = 8
_MAX_MESSAGE_LENGTH = 4000
_MAX_FAILURES = 50
"""After that many failures of one reader, the rest is not tried."""


@dataclass(frozen=True)
class Reader:
    """The files that it reads, as a pattern below the folder of good inputs, and how."""

    files: str
    read: Callable[[Path], object]
    share: float = 1.0
    """Share of the mutations that are tried; less for readers of whole runs, which take longer."""
    memory_bytes: int = 1 << 30
    """How much the address space may grow."""


@dataclass(frozen=True)
class Failure:
    """An input that a reader did not refuse as it should."""

    seed: str
    error: str
    """The exception and the line that raised it; equal for failures with the same cause."""
    input: str
    """Where the input is kept."""
    details: str


class TookTooLong(BaseException):
    """A reader used more processor time than it may."""


def matching(root: Path, reader: Reader) -> list[Path]:
    """Return the good inputs of a reader."""
    return sorted(path for path in root.glob(reader.files) if path.is_file())


def fuzz(reader: Reader, name: str, good: Path, place: Path, seeds: Sequence[str]) -> list[Failure]:
    """Damage the inputs of a reader once for each seed, and return its failures.

    ``good`` is the folder of good inputs, which is copied to ``place``. Failures are kept there.
    """
    copy, report = place / "inputs", place / "failures.jsonl"
    shutil.copytree(good, copy)
    tried = mmap.mmap(-1, _COUNTER_BYTES)  # shared with the child
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks: the child only reads
        child = os.fork()
    if child == 0:
        try:
            _try_all(Trial(reader, name, copy, place), seeds, tried)
        except BaseException:  # a fault of the harness
            traceback.print_exc(file=sys.__stderr__)
            os._exit(70)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    lines = report.read_text().splitlines() if report.exists() else []
    failures = [Failure(**json.loads(line)) for line in lines]
    if status:
        code = os.waitstatus_to_exitcode(status)
        error = f"the process hung for {WALL_S:g} s" if code == -signal.SIGALRM else f"died: {code}"
        seed = seeds[int.from_bytes(tried[:], "little")]
        failures.append(Trial(reader, name, good, place).kept(seed, error, ""))
    return failures


def summary(failures: Sequence[Failure]) -> str:
    """Return the causes of the failures with their numbers, and one input of each."""
    counts = Counter(failure.error for failure in failures)
    first = {failure.error: failure for failure in reversed(failures)}
    return "\n".join(
        f"{count} x {error}\n  seed {first[error].seed}, input {first[error].input}\n"
        f"{first[error].details}"
        for error, count in counts.most_common()
    )


class Trial:
    """A reader and its good inputs, which are damaged one at a time."""

    def __init__(self, reader: Reader, name: str, root: Path, place: Path) -> None:
        self._reader, self._name, self._place = reader, name, place
        self.report = place / "failures.jsonl"
        self._content = {path: path.read_bytes() for path in matching(root, reader)}

    def damaged(self, seed: str) -> tuple[Path, bytes]:
        """Return the file that a seed damages, and its damaged content."""
        draw = random.Random(seed)
        path = draw.choice(list(self._content))
        return path, mutate(path.name, self._content[path], draw)

    def kept(self, seed: str, error: str, details: str) -> Failure:
        """Write the input of a seed to a file, and return the failure."""
        path, damaged = self.damaged(seed)
        kept = self._place / f"{self._name.replace(' ', '-')}-{seed}-{path.name}"
        kept.write_bytes(damaged)
        return Failure(seed, error, str(kept), details)

    def run(self, seed: str) -> Failure | None:
        """Read the damaged input of a seed; return the failure, if it is one."""
        path, damaged = self.damaged(seed)
        _replace(path, damaged)
        try:
            fault = _fault(self._reader, path)
        finally:
            _replace(path, self._content[path])
        return None if fault is None else self.kept(seed, *fault)

    def limit_memory(self) -> None:
        """Limit the address space of this process."""
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + self._reader.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _replace(path: Path, content: bytes) -> None:
    """Write a file anew: ext4 waits for the disk where a file that has content is truncated."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def _try_all(trial: Trial, seeds: Sequence[str], tried: mmap.mmap) -> None:
    """Try all seeds in the child process, and write its failures to a file."""
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    os.fsync = lambda fd: None  # the inputs need not survive this machine
    trial.limit_memory()
    failures = 0
    for number, seed in enumerate(seeds):
        tried[:] = number.to_bytes(_COUNTER_BYTES, "little")
        failure = trial.run(seed)
        if failure is not None:
            failures += 1
            with trial.report.open("a") as report:
                report.write(json.dumps(asdict(failure)) + "\n")
        if failures >= _MAX_FAILURES and not os.environ.get("VFLOPS_FUZZ_ALL"):
            return


def _fault(reader: Reader, path: Path) -> tuple[str, str] | None:
    """Return what a reader did wrong with a file, and the traceback; None if it did well."""
    try:
        with limited_time():
            result: Any = reader.read(path)
            if isinstance(result, Document):
                result.to_json()
    except VflopsError as error:
        too_long = len(error.message) > _MAX_MESSAGE_LENGTH
        return ("a message that is too long", error.message) if too_long else None
    except BaseException as error:  # whatever it is, it is a failure
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "vflops" in frame.filename] or frames
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        return f"{type(error).__name__} at {where}", traceback.format_exc()[-3000:]
    return None


@contextmanager
def limited_time() -> Iterator[None]:
    """Raise in a block that computes for too long; end the process if it waits for too long."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    signal.signal(signal.SIGVTALRM, too_long)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, WALL_S)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
