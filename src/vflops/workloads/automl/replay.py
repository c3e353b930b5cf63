"""Replays a finished search as fixed work, which any machine can repeat.

``ledger.json`` in a run folder lists every candidate that was trained: network, initial weights,
batch, epochs, seed. A replay trains all of them, parents before children, without searching. It
stores the ledger that it was given as ``ledger-replayed.json``, which its results are checked
against.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from vflops.config.flatten import differences
from vflops.config.profiles import for_single_workload
from vflops.config.settings import Settings
from vflops.errors import FolderError, Hint, UsageError
from vflops.record.files.document import Data, Document
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.bounded_numbers import NonNegative, Operations, Processes
from vflops.record.formats.job import DataFacts, JobRecord
from vflops.record.formats.recorded_names import RecordedName
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.candidate_history import CandidateHistory
from vflops.workloads.automl.search_events import Candidate, CandidateTrained
from vflops.workloads.automl.search_history import SearchHistory
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.contract.run_settings import load, profile

_NO_END = {"candidates": None, "duration_s": 30 * 86400.0, "end": "time"}
"""A replay ends with its work; settings require a time limit."""
_DAMAGED = "the ledger is damaged: copy it from the run folder again"
REPLAYED_LEDGER = "ledger-replayed.json"
"""The file name of the ledger that a replay was given."""
_UNTRAINED = {
    "training": "its log holds no result of it",
    "trained": "its log holds no result of it",
    "failed": "it failed",
    "cut": "the time was up",
}
_MAY_DIFFER = frozenset(
    {
        "data",
        "search.ledger",
        "search.workers",
        "search.turn_s",
        "train.ranks",
        "train.accumulate",
        "train.device",
        "train.precision",
        "train.compile",
        "train.deterministic",
        "train.readers",
        "train.checkpoint_s",
        "train.checkpoint_share",
        "train.commit_every",
        "train.segments",
    }
)
"""Settings of the workload that may differ, since they do not change the work."""


class ReplayedCandidate(Data):
    """One candidate in a ledger."""

    candidate: Candidate
    trained: CandidateTrained
    """Its result in the search."""
    samples: NonNegative
    """Samples trained on in the search."""
    ops: Operations
    """Operations of training and evaluation, by the convention that scores a search."""


class SearchLedger(Document):
    """``ledger.json``: all candidates that a search trained, in the order of their turns."""

    schema_name: ClassVar[str] = "vflops.ledger"

    run: str
    """The id of the run that searched."""
    profile: str
    seed: int
    workers: Processes
    settings: dict[str, Any]
    """The workload settings of the search."""
    data_fingerprint: str
    left_out: NonNegative
    """The number of candidates without a result, because the time was up or they failed."""
    reasons: dict[str, str]
    """Why each of these candidates was left out, by name."""
    candidates: tuple[ReplayedCandidate, ...]

    @classmethod
    def find(cls, path: Path) -> SearchLedger:
        """Read the ledger at ``path``: a file, or a run folder that contains it."""
        file = path / "ledger.json" if path.is_dir() else path
        if not file.is_file():
            raise FolderError(
                f"{path} contains no ledger.json" if path.is_dir() else f"{path} does not exist",
                hint="give the run folder of a finished search, or its ledger.json",
            )
        ledger = cls.read(file)
        for fault in ledger._faults():
            raise FolderError(f"{file}: {fault}", hint=_DAMAGED)
        return ledger

    def _faults(self) -> Iterator[str]:
        """Yield inconsistencies that would make a replay do other work or wait forever."""
        if not isinstance(self.settings.get("search"), dict):
            yield "its settings have no search section"
        parents = {row.candidate.turn.name: row.candidate.parent for row in self.candidates}
        if len(parents) < len(self.candidates):
            yield "it contains a candidate twice"
        for name, row in zip(parents, self.candidates, strict=False):
            if row.trained.candidate != name:
                yield f"{name} has the result of {row.trained.candidate}"
            trained_epochs, max_epochs = row.trained.epochs, row.candidate.epochs
            if not 1 <= trained_epochs <= max_epochs:
                yield f"{name} was trained for {trained_epochs} of {max_epochs} epochs"
            if row.candidate.hyper.batch < 1:
                yield f"{name} has a batch of {row.candidate.hyper.batch}"
            ancestry = [name]
            while (parent := parents.get(ancestry[-1])) is not None and parent not in ancestry:
                ancestry.append(parent)
            if parent is not None:
                yield f"{parent} is its own ancestor"
            if ancestry[-1] not in parents and row.trained.inherited:
                yield f"{name} starts from {ancestry[-1]}, which is missing"

    def replay_settings(
        self, path: Path, flags: Mapping[str, object], assignments: Sequence[str]
    ) -> Settings:
        """Return the settings of a run that replays the ledger at ``path``.

        Raise ``UsageError`` if a setting would change the work.
        """
        if not self.candidates:
            raise UsageError(
                f"the ledger of {self.run} contains no trained candidate",
                hint="search for longer, with a longer --for, then replay that search",
            )
        file = path / "ledger.json" if path.is_dir() else path
        section = {
            **self.settings,
            "search": {**self.settings["search"], **_NO_END},
        }
        base = for_single_workload(profile(self.profile, ["automl"]))
        base = base.model_copy(update={"seed": self.seed, "workloads": {"automl": section}})
        flag_assignments = [f"{key}={value}" for key, value in flags.items() if value is not None]
        ledger = f"search.ledger={json.dumps(str(file.resolve()))}"
        chosen = load(base, None, [*assignments, *flag_assignments, ledger])
        self._check_work(load(base, None, [ledger]), chosen)
        return chosen

    def _check_work(self, original: Settings, chosen: Settings) -> None:
        """Raise ``UsageError`` if the candidates would not be the same work as in the search."""
        before, after = (
            {"seed": settings.seed, **settings.workloads["automl"]}
            for settings in (original, chosen)
        )
        for name, (old, new) in differences(before, after).items():
            if name not in _MAY_DIFFER:
                raise UsageError(
                    f"{name} is {new!r}, but {self.run} searched with {old!r}, and a replay must "
                    "do the same work",
                    hint=Hint(
                        "leave it out; to try another value, search with it", "vflops run automl"
                    ),
                )

    def check_batches(self, settings: AutomlSettings) -> None:
        """Raise ``UsageError`` if the ranks cannot share the batch of every candidate evenly."""
        train = settings.train
        parts = train.accumulate * train.ghosts
        batches = [row.candidate.hyper.batch for row in self.candidates]
        fitting = [n for n in range(1, train.ranks) if not any(b % (n * parts) for b in batches)]
        for row in self.candidates:
            if row.candidate.hyper.batch % (train.ranks * parts):
                raise UsageError(
                    f"{row.candidate.turn.name} has a batch of {row.candidate.hyper.batch}, "
                    f"which {train.ranks} ranks × {train.accumulate} accumulation × "
                    f"{train.ghosts} ghosts cannot share evenly",
                    hint=f"all candidates fit with --ranks {fitting[-1]}"
                    if fitting
                    else "all candidates fit with --set train.accumulate=1",
                )

    def check_data(self, data: DataFacts) -> None:
        """Raise ``UsageError`` if this is not the data of the search."""
        if data.fingerprint != self.data_fingerprint:
            raise UsageError(
                f"this is not the data that {self.run} searched with: its fingerprint is "
                f"{data.fingerprint[:16]}, expected {self.data_fingerprint[:16]}",
                hint="give that data with --data, and do not change its settings",
            )

    @property
    def left_out_by_reason(self) -> dict[str, list[str]]:
        """The names of the candidates that were left out, by reason."""
        names: dict[str, list[str]] = {}
        for name, reason in self.reasons.items():
            names.setdefault(reason, []).append(name)
        return names

    def fixed_work(self) -> list[Candidate]:
        """Return the candidates of a replay, each to train for as many epochs as in the search."""
        return [
            row.candidate.model_copy(update={"end_epoch": row.trained.epochs, "patience": None})
            for row in self.candidates
        ]


class LedgerWritten(Data):
    """The ledger of a search was written."""

    file: RecordedName
    sha256: str
    candidates: NonNegative
    replayed_sha256: str | None = None
    """The hash of the ledger that was replayed; None if this is not a replay."""


def write_ledger(folder: RunFolder, records: Sequence[JobRecord]) -> LedgerWritten:
    """Write the ledger of a finished search into its run folder."""
    ledger = ledger_of(folder, records)
    repeat = records[0].repeat
    path = folder.path / ("ledger.json" if repeat == 0 else f"ledger-{repeat}.json")
    ledger.write(path)
    replayed = folder.path / REPLAYED_LEDGER
    return LedgerWritten(
        file=path.name,
        sha256=file_hash(path),
        candidates=len(ledger.candidates),
        replayed_sha256=file_hash(replayed) if replayed.is_file() else None,
    )


def ledger_of(folder: RunFolder, records: Sequence[JobRecord]) -> SearchLedger:
    """Return the ledger of a search.

    Candidates that cannot be replayed, for instance because of a damaged line in a log, are left
    out, and the reasons are listed.
    """
    first = records[0]
    logs = [folder.job_history(record.job) for record in records]
    histories = SearchHistory(logs).candidates
    buffer = CandidateBuffer(folder.path)
    rows, reasons = dict[str, ReplayedCandidate](), dict[str, str]()
    for history in histories:
        name, row = history.begun.candidate, _row(history, buffer)
        if isinstance(row, ReplayedCandidate):
            rows[name] = row
        else:
            reasons[name] = row
    while orphans := [row for row in rows.values() if _is_orphan(row, rows)]:
        for orphan in orphans:
            name = orphan.candidate.turn.name
            reasons[name] = f"it starts from {orphan.candidate.parent}, which has no result"
            del rows[name]
    return SearchLedger(
        run=folder.record.id,
        profile=folder.record.settings.profile,
        seed=first.seed,
        workers=len(records),
        settings=first.settings,
        data_fingerprint=first.data.fingerprint,
        left_out=len(histories) - len(rows),
        reasons=dict(sorted(reasons.items())),
        candidates=tuple(rows.values()),
    )


def _row(history: CandidateHistory, buffer: CandidateBuffer) -> ReplayedCandidate | str:
    """Return a row of the ledger, or why there is none."""
    if history.trained is None:
        return history.message or _UNTRAINED[history.state]
    try:
        candidate = buffer.get(history.turn)
    except FolderError as error:
        return error.message
    if candidate is None:
        return "its proposal is missing"
    return ReplayedCandidate(
        candidate=candidate, trained=history.trained, samples=history.samples, ops=history.ops
    )


def _is_orphan(row: ReplayedCandidate, rows: Mapping[str, ReplayedCandidate]) -> bool:
    parent = row.candidate.parent
    return row.trained.inherited and parent is not None and parent not in rows
