"""The runs that are judged: where they ran, and what keeps one from being evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from vflops import __version__
from vflops.errors import UsageError
from vflops.results.check.background_load import unjudged_load
from vflops.results.check.checking import check
from vflops.studies.accept import closed_task
from vflops.studies.accept.acceptance import (
    JudgedRun,
)
from vflops.studies.accept.measured_figures import (
    MACHINE,
    MeasuredFigures,
    measured_figures,
    named_nodes,
    recorded_hosts,
)
from vflops.studies.accept.reference import Reference
from vflops.studies.accept.task_settings import differing_settings
from vflops.studies.compare.run_view import RunView, read_run_view

_MAX_NAMED = 4
"""The largest number of settings, hosts or runs that a text names."""


class MeasuredRun(Protocol):
    """What is judged of a run: its figures."""

    @property
    def id(self) -> str:
        """The name of the run in messages."""

    @property
    def figures(self) -> MeasuredFigures:
        """The figures of the run."""


@dataclass(frozen=True)
class RunUnderTest:
    """A run of the test; ``node`` names its node if the user does."""

    view: RunView
    node: str | None = None

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.view.id

    @cached_property
    def figures(self) -> MeasuredFigures:
        """The figures of the run."""
        return measured_figures(self.view, self.node)

    @cached_property
    def nodes(self) -> set[str]:
        """The nodes that the run used, as they are called in the outcome."""
        return named_nodes(self.view) if self.node is None else {self.node}

    @cached_property
    def hosts(self) -> set[str]:
        """The host names that the run recorded; empty if it records none."""
        return recorded_hosts(self.view)

    @property
    def manifest_hash(self) -> str | None:
        """The hash of the manifest; None if the run has none."""
        path = self.view.contents.folder.manifest_file
        return self.view.contents.hash(path) if path.is_file() else None


def read_runs(arguments: Sequence[str]) -> list[RunUnderTest]:
    """Read the runs named on the command line as ``RUN`` or ``NODE=RUN``; each may appear once."""
    runs = [_read_run(argument) for argument in arguments]
    for id, times in Counter(run.view.id for run in runs).items():
        if times > 1:
            raise UsageError(
                f"run {id} is given {times} times", hint="give each run once: a copy is no repeat"
            )
    return runs


def _read_run(argument: str) -> RunUnderTest:
    node, separator, path = argument.partition("=")
    if separator and not Path(argument).exists():
        return RunUnderTest(read_run_view(Path(path)), node)
    return RunUnderTest(read_run_view(Path(argument)))


def judge_run(reference: Reference, run: RunUnderTest, runs: Sequence[RunUnderTest]) -> JudgedRun:
    """Return a run with its faults, which keep it from being evidence."""
    view = run.view
    broken = tuple(
        f"not valid: rule {finding.rule} is not met ({finding.text})"
        for finding in check(view.contents).failures
    )
    return JudgedRun(
        run=view.id,
        path=str(view.contents.folder.path),
        created_utc=view.record.created_utc,
        machine=view.machine_text,
        nodes=tuple(sorted(run.nodes)),
        hosts=tuple(sorted(run.hosts)),
        manifest_sha256=run.manifest_hash,
        is_valid=not broken,
        faults=(*broken, *_task_faults(reference, run), *_label_faults(run, runs)),
    )


def _task_faults(reference: Reference, run: RunUnderTest) -> Iterator[str]:
    view, task = run.view, reference.task
    if disturbed := unjudged_load(view.contents):
        yield f"the machine was not quiet: {disturbed}"
    if view.id in reference.runs:
        yield "the reference was written from this run, so it proves nothing"
    if view.record.workload != task.workload:
        yield f"workload is {view.record.workload}, and {task.workload} in the reference"
        return
    for name, digest in task.definition.items():
        state = closed_task.task_state(view.score, name)
        if state is not None and state.digest is not None and state.digest != digest:
            yield f"{name} is another task: {state.digest}, and {digest} in the reference"
    changed = list(differing_settings(task, view.record.settings, by_hand=not reference.runs))
    if changed:
        yield f"other settings: {some_of(changed, '; ')}{_version_hint(reference)}"
    for name, fingerprint in task.data.items():
        trained = view.data.get(name)
        if trained is not None and trained != fingerprint:
            yield (
                f"{name} was trained on other data: {trained[:12]}, and {fingerprint[:12]} in the"
                " reference"
            )


def _label_faults(run: RunUnderTest, runs: Sequence[RunUnderTest]) -> Iterator[str]:
    """Yield how ``NODE=RUN`` contradicts the hosts that the runs recorded."""
    if run.node is not None and len(run.hosts) > 1:
        yield f"it is given as node {run.node}, but recorded the hosts {some_of(sorted(run.hosts))}"
    for host in sorted(run.hosts):
        labels = {other.node or host for other in runs if host in other.hosts}
        others = sorted(labels - {run.node or host})
        if others:
            yield f"host {host} is given as node {run.node or host}, and also as {some_of(others)}"


def used_nodes(runs: Sequence[RunUnderTest]) -> set[str]:
    """Return the nodes that took part: recorded hosts, and ``NODE`` where a run records none."""
    hosts = {host for run in runs for host in run.hosts}
    labels = {run.node for run in runs if run.node is not None and not run.hosts}
    recorded = {run.node for run in runs if run.hosts}
    return hosts | (labels - recorded) or {MACHINE}


def some_of(items: Sequence[str], separator: str = ", ") -> str:
    """Return the first items as a list in words, with the number of the others."""
    more = [f"{len(items) - _MAX_NAMED} more"] if len(items) > _MAX_NAMED else []
    return separator.join([*items[:_MAX_NAMED], *more])


def _version_hint(reference: Reference) -> str:
    """Return that the profile may have changed since the reference was written."""
    if reference.vflops in ("", __version__):
        return ""
    return f" (written by vflops {reference.vflops}, whose profile may differ from this version's)"
