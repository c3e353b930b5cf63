"""``vflops.Run``: the contents of a run folder as tables."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from vflops.config.flatten import flatten
from vflops.errors import unknown_name
from vflops.record.folder import RunFolder
from vflops.record.formats.node import telemetry_files
from vflops.record.formats.telemetry import Telemetry
from vflops.record.log.imported_power import imported_files
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.schema_rules import EVENTS
from vflops.results.figures import Figure, Figures, Subject, figures
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score

_EDGES = ("start", "stopped", "failed", "end")
"""The kinds of events at the edges of an attempt, which have no type of their own."""


class SubjectRow(TypedDict):
    """What a figure describes."""

    kind: str
    """``training``, ``base model``, ``ensemble``, ``search`` or ``ceiling``."""
    workload: str
    """The name of the workload; for a ceiling, that of the benchmark."""
    job: int | None
    """None if several jobs produced the figure together."""
    repeat: int
    seed: int
    complete: bool
    """False for a training that did not finish, and for an ensemble with missing models."""
    task: str | None
    """``closed``, or ``open`` if VFLOPS are not comparable with those of others; None for a
    ceiling."""


class FigureRow(SubjectRow):
    """One figure of a run."""

    key: str
    """The name of the figure's column in ``Run.score``."""
    name: str
    unit: str | None
    better: str | None
    """``higher`` or ``lower``; None if neither is better."""
    value: float | None
    """None if it was not measured."""


class SeriesRow(TypedDict):
    """One sensor reading that telemetry holds as a column."""

    id: str
    title: str
    unit: str
    kind: str
    """``gauge`` or ``counter``."""
    part: str
    """The part of the machine that it belongs to."""
    source: str
    """Where it is read."""


class FindingRow(TypedDict):
    """The verdict of one rule."""

    rule: str
    title: str
    verdict: str
    """``pass``, ``fail``, ``cannot tell`` or ``not applicable``."""
    evidence: str
    where: str | None
    """The file and line of the evidence."""


class _Readings(NamedTuple):
    """The telemetry of one node in one attempt; an imported log belongs to no job."""

    job: int | None
    attempt: int | None
    telemetry: Telemetry


class Run:
    """A run folder, read without torch.

    Every method returns a new table that ``pandas.DataFrame`` takes as it is: a list of rows, or a
    dictionary of columns. Values that were not measured are None.

    :param path: the folder, as ``vflops run`` printed it.
    :raises VflopsError: if the folder is not a run, or a newer version of vflops wrote it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._contents = Contents(RunFolder.open(Path(path)))

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._contents.folder.path

    @property
    def id(self) -> str:
        """The run's id."""
        return self._contents.folder.record.id

    @property
    def workload(self) -> str:
        """The workload, or ``suite`` for several."""
        return self._contents.folder.record.workload

    @property
    def created(self) -> datetime:
        """When the run was created."""
        return datetime.fromisoformat(self._contents.folder.record.created_utc)

    @property
    def version(self) -> str | None:
        """The version of vflops that made the run."""
        return self._contents.folder.record.versions.get("vflops")

    @property
    def complete(self) -> bool:
        """Whether the run finished."""
        return self._contents.state.complete

    def settings(self) -> dict[str, Any]:
        """Return every setting by its dotted name, as for ``vflops run --set``."""
        return flatten(self._contents.folder.record.settings.model_dump(mode="json"))

    def score(self) -> list[dict[str, Any]]:
        """Return one row per training, ensemble and search, with one column per figure.

        The columns ``kind``, ``workload``, ``job``, ``repeat``, ``seed``, ``complete`` and ``task``
        say what a row describes. The other columns are the keys of ``Run.figures``, which has their
        units. Figures are computed from the folder, not read from ``score.json``.
        """
        results = [by_key for by_key in figures(self._score) if _subject(by_key).kind != "ceiling"]
        keys = dict.fromkeys(key for by_key in results for key in by_key)
        return [
            {
                **_subject_row(_subject(by_key)),
                **{key: by_key[key].value if key in by_key else None for key in keys},
            }
            for by_key in results
        ]

    def figures(self) -> list[FigureRow]:
        """Return one row per figure: those of ``Run.score``, and the measured ceilings."""
        return [
            _figure_row(figure) for by_key in figures(self._score) for figure in by_key.values()
        ]

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return one row per event in the logs of all jobs.

        The columns are ``job``, ``attempt``, ``kind``, ``utc`` (a ``datetime``), ``time_s`` (the
        monotonic clock of the process that wrote it) and the data of the event by dotted names,
        such as ``data.quality``. A damaged line is left out with a warning.

        :param kind: only events of this kind, such as ``evaluation`` or ``progress``.
        :raises VflopsError: if neither vflops nor this run has such a kind.
        """
        history, rows = self._contents.history, []
        if kind is not None:
            logged = {e.kind for logs in history.jobs.values() for log in logs for e in log.events}
            if kind not in (valid := {*EVENTS, *_EDGES, *logged}):
                raise unknown_name("kind of event", kind, valid)
        for job, logs in history.jobs.items():
            folders = self._contents.folder.logged_attempts(job)
            for folder, log in zip(folders, logs, strict=True):
                _warn_of(log.faults)
                rows += [
                    {
                        "job": job,
                        "attempt": int(folder.name),
                        "kind": event.kind,
                        "utc": _utc(event.utc_s),
                        "time_s": event.time_s,
                        **flatten(event.data, "data.", keep_empty=True),
                    }
                    for event in log.events
                    if kind in (None, event.kind)
                ]
        return rows

    def telemetry(self) -> dict[str, list[Any]]:
        """Return the readings of all sensors as columns, one entry per sample of a node.

        The columns are ``job``, ``attempt`` (both None for an imported power log), ``node``,
        ``utc`` (a ``datetime``), ``time_s`` (the clock of the job's events; Unix time in an
        imported log) and one per series, which ``Run.series`` describes. A damaged line is left out
        with a warning.
        """
        readings = list(self._readings())
        columns: dict[str, list[Any]] = {
            name: [] for name in ("job", "attempt", "node", "utc", "time_s")
        }
        columns |= {row["id"]: [] for row in _series_rows(readings)}
        for job, attempt, telemetry in readings:
            _warn_of(telemetry.faults)
            size = len(telemetry)
            own: dict[str, list[Any]] = {
                "job": [job] * size,
                "attempt": [attempt] * size,
                "node": [telemetry.header.node] * size,
                "utc": [_utc(utc_s) for utc_s in telemetry.utc_s],
                "time_s": list(telemetry.times_s),
                **{series.id: telemetry.column(series.id) for series in telemetry.series()},
            }
            for name, column in columns.items():
                column += own.get(name, [None] * size)
        return columns

    def series(self) -> list[SeriesRow]:
        """Return one row per series of ``Run.telemetry``, with its unit and its source."""
        return _series_rows(self._readings())

    def findings(self, rules: str | None = None) -> list[FindingRow]:
        """Return the verdict of every rule, as ``vflops check`` does.

        :param rules: the rule set; by default, the one that the run was made for.
        """
        return [
            {
                "rule": finding.rule,
                "title": finding.title,
                "verdict": finding.verdict,
                "evidence": finding.evidence,
                "where": finding.where,
            }
            for finding in check(self._contents, rules).findings
        ]

    def __repr__(self) -> str:
        return f"<vflops.Run: {self.path}{'' if self.complete else ', incomplete'}>"

    @cached_property
    def _score(self) -> Score:
        return score(self._contents)

    def _readings(self) -> Iterator[_Readings]:
        folder = self._contents.folder
        for job in self._contents.history.jobs:
            for attempt in folder.logged_attempts(job):
                for path in telemetry_files(attempt):
                    yield _Readings(job, int(attempt.name), self._contents.telemetry(path))
        for path in imported_files(folder.path):
            yield _Readings(None, None, self._contents.telemetry(path))


def _subject(by_key: Figures) -> Subject:
    return next(iter(by_key.values())).subject


def _subject_row(subject: Subject) -> SubjectRow:
    return {
        "kind": subject.kind,
        "workload": subject.name,
        "job": subject.job,
        "repeat": subject.repeat,
        "seed": subject.seed,
        "complete": subject.complete,
        "task": subject.task,
    }


def _figure_row(figure: Figure) -> FigureRow:
    return {
        **_subject_row(figure.subject),
        "key": figure.key,
        "name": figure.label,
        "unit": figure.unit,
        "better": figure.better,
        "value": figure.value,
    }


def _series_rows(readings: Iterable[_Readings]) -> list[SeriesRow]:
    by_id: dict[str, SeriesRow] = {}
    for item in readings:
        for series in item.telemetry.series():
            row: SeriesRow = {
                "id": series.id,
                "title": series.title,
                "unit": series.unit,
                "kind": series.kind,
                "part": series.part,
                "source": series.source,
            }
            by_id.setdefault(series.id, row)
    return list(by_id.values())


def _utc(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)


def _warn_of(faults: Iterable[str]) -> None:
    for fault in faults:
        warnings.warn(f"the run is damaged: {fault}", stacklevel=3)
