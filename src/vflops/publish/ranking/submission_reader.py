"""Reading of submissions; no content of an untrusted file can end a build."""

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
from vflops.publish.ranking.judge import TrustedKeys, judge
from vflops.publish.ranking.measured_sketch import event_sketch, telemetry_sketch
from vflops.publish.ranking.run_nodes import run_nodes
from vflops.publish.ranking.submission_contents import SubmissionContents
from vflops.publish.ranking.submission_folders import (
    LIMITS,
    MAX_ARCHIVE_BYTES,
    Submission,
    check_limits,
)
from vflops.publish.ranking.summary import results
from vflops.publish.ranking.system_summary import framework, system_facts, system_name
from vflops.record.files.document import first_fault
from vflops.record.files.machine_faults import is_machine_fault
from vflops.record.files.read_once import is_file, read_once
from vflops.record.folder import History, RunFolder
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.trained_frameworks import other_frameworks
from vflops.results.evidence.manifest import manifest_file
from vflops.results.score.scoring import score

TIME_LIMIT_S = 120
"""The time limit for reading one submission."""
_FOLDERS = re.compile(r"(?<![\w.…-])/(?:[^\s/:'\"]+/)+")
"""The folders of an absolute path."""


class _TimeLimitPassed(BaseException):
    """The time limit has passed; not an Exception, so that no rule catches it."""


def read(submission: Submission, trusted: TrustedKeys) -> Entry:
    """Return the entry of a submission; if it cannot be read, the entry says why."""
    path = submission.path
    try:
        with _time_limit(TIME_LIMIT_S), _open_folder(submission) as path:
            check_limits(path)
            return _entry(submission, path, trusted)
    except (Exception, _TimeLimitPassed) as error:  # an untrusted file may raise anything
        reason = _without_paths(_reason(error), submission.path, path)
        retry = isinstance(error, _TimeLimitPassed) or is_machine_fault(error)
        return Entry(
            place=submission.place, source=submission.source, reasons=(reason,), retry=retry
        )


def _reason(error: BaseException) -> str:
    """Return why a submission cannot be read."""
    match error:
        case VflopsError():
            return error.message
        case ValidationError():
            return f"out of bounds: {first_fault(error).replace('value error, ', '')}"
        case _TimeLimitPassed():
            return f"not read within {TIME_LIMIT_S} s"
        case MemoryError():
            return "reading it takes more memory than allowed"
        case OSError():
            return f"it cannot be read: {error.strerror or type(error).__name__}"
        case ArithmeticError():
            return "it holds numbers that cannot be computed with"
        case _:
            return f"it cannot be read: vflops never writes such content ({type(error).__name__})"


def _without_paths(reason: str, *paths: Path) -> str:
    """Return ``reason`` without paths of this machine, since the pages are public."""
    for path in paths:
        reason = reason.removeprefix(f"{path}: ").replace(f"{path}/", "")
        reason = reason.replace(str(path), path.name)
    return _FOLDERS.sub("", reason)


@contextmanager
def _open_folder(submission: Submission) -> Iterator[Path]:
    if not submission.archive:
        yield submission.path
        return
    size = submission.path.stat().st_size
    if size > MAX_ARCHIVE_BYTES:
        raise FolderError(
            f"it has {size >> 20} MiB, but the limit is {MAX_ARCHIVE_BYTES >> 20} MiB"
        )
    from vflops.publish.evidence.extract import extract

    with tempfile.TemporaryDirectory(prefix="vflops-ranking-") as temporary:
        extracted = extract(submission.path, Path(temporary), LIMITS)
        with read_once(extracted):
            yield extracted


def _entry(submission: Submission, path: Path, trusted: TrustedKeys) -> Entry:
    contents = SubmissionContents(RunFolder.open(path))
    try:
        return _entry_of(contents, submission, path, trusted)
    finally:
        contents.release()


def _entry_of(
    contents: SubmissionContents, submission: Submission, path: Path, trusted: TrustedKeys
) -> Entry:
    folder = contents.folder
    verdict = judge(contents, trusted)
    findings = verdict.findings
    ranked: tuple[Result, ...] = ()
    try:
        ranked = results(contents, contents.once(score))
    except ValidationError:
        if not verdict.reasons:  # otherwise they say more: a run that never began has no time
            raise
    manifest = manifest_file(folder.path)
    system = contents.read(SystemRecord, folder.system_file)
    nodes = [] if folder.record.on_this_machine else run_nodes(contents)
    return Entry.model_validate(
        {
            "place": submission.place,
            "source": verdict.signer or submission.source,
            "run": folder.record.id,
            "run_sha256": folder.anchor,
            "manifest_sha256": contents.hash(manifest) if is_file(manifest) else "",
            "digest": verdict.digest,
            "course": course(contents.history),
            "durations": event_sketch(contents.history),
            "readings": telemetry_sketch(contents),
            "day": folder.record.created_utc[:10],
            "profile": folder.record.settings.profile,
            "rule_set": f"{findings.rule_set}/{findings.rule_set_version}",
            "level": verdict.level,
            "system": system_name(system, ranked, nodes),
            "facts": system_facts(system, nodes),
            "framework": other_frameworks(contents) or framework(system),
            "signer": verdict.signer,
            "key": verdict.key,
            "challenge": verdict.challenge,
            "tally": f"{findings.applying - len(findings.failures)} of {findings.applying} rules",
            "reasons": [_without_paths(reason, path) for reason in verdict.reasons]
            or ([] if ranked else ["nothing was trained"]),
            "results": ranked,
            "retry": verdict.machine_fault,
        }
    )


def course(history: History) -> str:
    """Return a hash of the times of all job events, which does not depend on the run id.

    The hash chain of a log does depend on the id, since it begins with ``run.json``.
    """
    events = [
        [(event.kind, event.time_s) for log in logs for event in log.events]
        for job, logs in history.jobs.items()
        if job
    ]
    return hashlib.sha256(repr(sorted(events)).encode(errors="replace")).hexdigest()


@contextmanager
def _time_limit(limit_s: float) -> Iterator[None]:
    """Raise ``_TimeLimitPassed`` after ``limit_s`` seconds, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(signum: int, frame: FrameType | None) -> None:
        raise _TimeLimitPassed

    previous_handler = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)
