"""One submission → its entry, whatever it holds: a stranger's files never end a build."""

from __future__ import annotations

import hashlib
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pydantic import ValidationError

from vflops.errors import FolderError, VflopsError
from vflops.publish.ranking.entry import Entry, Result
from vflops.publish.ranking.graph_cache import SharedGraphs
from vflops.publish.ranking.judge import judge
from vflops.publish.ranking.submission_folders import MOST_ARCHIVE, Submission, bounded
from vflops.publish.ranking.summary import results
from vflops.publish.ranking.system_summary import framework, system_facts, system_name
from vflops.record.files.document import first_fault
from vflops.record.folder import History, RunFolder
from vflops.record.formats.system import SystemRecord
from vflops.results.score.scoring import score

LONGEST_S = 120
"""For one submission."""
_PLACES = re.compile(r"(?<![\w.…-])/(?:[^\s/:'\"]+/)+")
"""The folders of a path from the root on."""


class _Expired(BaseException):
    """The time is up; no exception that a rule would take for a failure of its own."""


def read(submission: Submission, signers: Path | None) -> Entry:
    """The entry of a submission, or one that says why there is nothing to rank."""
    path = submission.path
    try:
        with _time_limit(LONGEST_S), _folder(submission) as path:
            bounded(path)
            return _entry(submission, path, signers)
    except VflopsError as error:
        reason = error.message
    except ValidationError as error:
        reason = f"out of bounds: {first_fault(error).replace('value error, ', '')}"
    except _Expired:
        reason = f"not read within {LONGEST_S} s"
    except MemoryError:
        reason = "it takes more memory to read than a process may have"
    except ArithmeticError:
        reason = "it holds numbers that nothing can be computed from"
    except Exception as error:  # whatever a file of a stranger leads to
        reason = f"it holds what no run writes, and cannot be read ({type(error).__name__})"
    named = _public(reason, submission.path, path)
    return Entry(place=submission.place, source=submission.source, reasons=(named,))


def _public(reason: str, *paths: Path) -> str:
    """A reason without any place on this machine: the pages are for strangers."""
    for path in paths:
        reason = reason.removeprefix(f"{path}: ").replace(f"{path}/", "")
        reason = reason.replace(str(path), path.name)
    return _PLACES.sub("", reason)


@contextmanager
def _folder(submission: Submission) -> Iterator[Path]:
    if not submission.archive:
        yield submission.path
        return
    size = submission.path.stat().st_size
    if size > MOST_ARCHIVE:
        raise FolderError(f"it has {size >> 20} MiB, at most {MOST_ARCHIVE >> 20} are read")
    from vflops.publish.evidence.extract import extract

    with tempfile.TemporaryDirectory(prefix="vflops-ranking-") as place:
        yield extract(submission.path, Path(place))


def _entry(submission: Submission, path: Path, signers: Path | None) -> Entry:
    folder = RunFolder.open(path)
    contents = SharedGraphs(folder)
    verdict = judge(contents, signers)
    findings = verdict.findings
    found: tuple[Result, ...] = ()
    try:
        found = results(contents, contents.once(score))
    except ValidationError:
        if not verdict.reasons:  # else they say more: of a run that never began there is no time
            raise
    system = contents.read(SystemRecord, folder.system_file)
    return Entry.model_validate(
        {
            "place": submission.place,
            "source": verdict.signer or submission.source,
            "run": folder.record.id,
            "digest": verdict.digest,
            "course": course(contents.history),
            "day": folder.record.created_utc[:10],
            "profile": folder.record.settings.profile,
            "rule_set": f"{findings.rule_set}/{findings.rule_set_version}",
            "level": verdict.level,
            "system": system_name(system, found),
            "facts": system_facts(system),
            "framework": framework(system),
            "signer": verdict.signer,
            "tally": f"{findings.applying - len(findings.failures)} of {findings.applying} rules",
            "reasons": [_public(each, path) for each in verdict.reasons]
            or ([] if found else ["nothing was trained in it"]),
            "results": found,
        }
    )


def course(history: History) -> str:
    """A hash of when the jobs of a run noted what; the same under whatever id it is written again.

    The chain of a log does not tell: it begins at ``run.json``, so another id makes another chain.
    """
    notes = [
        [(event.kind, event.time_s) for log in logs for event in log.events]
        for job, logs in history.jobs.items()
        if job
    ]
    return hashlib.sha256(repr(sorted(notes)).encode(errors="replace")).hexdigest()


@contextmanager
def _time_limit(longest_s: float) -> Iterator[None]:
    """End the block after that time, where this is the main thread of its process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(signum: int, frame: FrameType | None) -> None:
        raise _Expired

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, longest_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
