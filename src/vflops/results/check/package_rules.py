"""The rule for the code of a run: every node ran the package that started it."""

from __future__ import annotations

from pathlib import Path

from vflops.record.formats.node import NodeRecord, node_record_files
from vflops.record.readout.contents import Contents
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count

_SHOWN = 12
"""The number of characters of a hash in the evidence."""


def check_package(contents: Contents) -> Outcome:
    """Fail if a node of an attempt ran other code than the process that started the run."""
    record = contents.folder.record
    if record.package is None:
        evidence = f"vflops {record.versions.get('vflops')} did not record the hash of its package"
        return Outcome("not applicable", evidence, "run.json")
    expected = record.package.sha256
    if expected is None:
        return Outcome("cannot tell", "the files of the package could not be read", "run.json")
    jobs = (*contents.training_jobs, *contents.workers)
    paths = [path for job in jobs for folder in job.folders for path in node_record_files(folder)]
    for path in paths:
        found = contents.read(NodeRecord, path).package_sha256
        if found != expected:
            return Outcome("fail", _difference(found, expected), _location(path, contents))
    if not paths:
        return Outcome("not applicable", "no node is recorded")
    return Outcome("pass", f"{count(len(paths), 'node record')} with the hash {expected[:_SHOWN]}")


def _difference(found: str | None, expected: str) -> str:
    ran = f"the package with the hash {found[:_SHOWN]}" if found else "a package without a hash"
    return f"the node ran {ran}, but the run was started by {expected[:_SHOWN]}"


def _location(path: Path, contents: Contents) -> str:
    return path.relative_to(contents.folder.path).as_posix()
