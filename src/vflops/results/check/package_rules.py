"""The rule for the code of a run: every node ran the package that started it."""

from __future__ import annotations

from vflops.record.formats.node import node_file
from vflops.record.readout.contents import Contents
from vflops.results.check.rule import Outcome
from vflops.units import count

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
    folders = [folder for job in jobs for folder in job.folders]
    nodes = [(folder, node) for folder in folders for node in contents.nodes_of(folder)]
    for folder, node in nodes:
        if node.package_sha256 != expected:
            path = node_file(folder, node.node).relative_to(contents.folder.path)
            return Outcome("fail", _difference(node.package_sha256, expected), path.as_posix())
    if not nodes:
        return Outcome("not applicable", "no node is recorded")
    return Outcome("pass", f"{count(len(nodes), 'node record')} with the hash {expected[:_SHOWN]}")


def _difference(found: str | None, expected: str) -> str:
    ran = f"the package with the hash {found[:_SHOWN]}" if found else "a package without a hash"
    return f"the node ran {ran}, but the run was started by {expected[:_SHOWN]}"
