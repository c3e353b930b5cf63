"""A finished search as fixed work: what it trained, written down so that any machine can repeat it.

``ledger.json`` of a run folder holds every candidate that was trained: network, weights to start
from, batch, epochs, seed. A replay trains them all, parents before children, and searches nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from vflops.automl.buffer import Buffer
from vflops.automl.record import Candidate, CandidateTrained
from vflops.automl.story import Search
from vflops.config.profiles import for_one, profile
from vflops.config.settings import Settings, load
from vflops.errors import FolderError, UsageError
from vflops.record.folder import RunFolder, file_hash
from vflops.record.schema import Data, Document
from vflops.record.training import DataFacts, JobRecord

_NO_END_S = 30 * 86400.0
"""A replay takes as long as it takes."""
_DAMAGED = "the ledger is damaged: take it from the run folder again"


class Replayed(Data):
    """One candidate of a ledger."""

    candidate: Candidate
    trained: CandidateTrained
    """What came of it in the search."""


class SearchLedger(Document):
    """``ledger.json``: all that a search trained, in the order of its turns."""

    schema_name: ClassVar[str] = "vflops.ledger"

    run: str
    """The run that searched."""
    profile: str
    seed: int
    workers: int
    settings: dict[str, Any]
    """The workload's own, as the search had them."""
    data_fingerprint: str
    left_out: int
    """Candidates without a result: the time was up, or they failed."""
    candidates: tuple[Replayed, ...]

    @classmethod
    def find(cls, path: Path) -> SearchLedger:
        """The ledger in a run folder, or the file itself."""
        file = path / "ledger.json" if path.is_dir() else path
        if not file.is_file():
            raise FolderError(
                f"{path} holds no ledger.json" if path.is_dir() else f"{path} does not exist",
                cure="give the run folder of a search that came to its end, or its ledger.json",
            )
        found = cls.read(file)
        for fault in found._faults():
            raise FolderError(f"{file}: {fault}", cure=_DAMAGED)
        return found

    def _faults(self) -> Iterator[str]:
        """What no search writes down: a replay would train something else, or wait for ever."""
        if not isinstance(self.settings.get("search"), dict):
            yield "its settings have no section search"
        parents = {each.candidate.turn.name: each.candidate.parent for each in self.candidates}
        if len(parents) < len(self.candidates):
            yield "a candidate is in it twice"
        for name, each in zip(parents, self.candidates, strict=False):
            if each.trained.candidate != name:
                yield f"the result of {name} is that of {each.trained.candidate}"
            done, whole = each.trained.epochs, each.candidate.epochs
            if not 1 <= done <= whole:
                yield f"{name} was trained for {done} of {whole} epochs"
            if each.candidate.hyper.batch < 1:
                yield f"{name} has a batch of {each.candidate.hyper.batch}"
            line = [name]
            while (parent := parents.get(line[-1])) is not None and parent not in line:
                line.append(parent)
            if parent is not None:
                yield f"{parent} is its own ancestor"
            if line[-1] not in parents and each.trained.inherited:
                yield f"{name} starts from {line[-1]}, which is not in it"

    def replay_settings(
        self, path: Path, flags: Mapping[str, object], assignments: Sequence[str]
    ) -> Settings:
        """The settings of a run that replays the ledger at ``path``."""
        if not self.candidates:
            raise UsageError(
                f"the ledger of {self.run} holds no candidate that was trained",
                cure="search for longer, then replay that",
            )
        file = path / "ledger.json" if path.is_dir() else path
        section = {
            **self.settings,
            "search": {**self.settings["search"], "candidates": None, "duration_s": _NO_END_S},
        }
        base = for_one(profile(self.profile, ["automl"]))
        base = base.model_copy(update={"seed": self.seed, "workloads": {"automl": section}})
        given = [f"{key}={value}" for key, value in flags.items() if value is not None]
        return load(
            base, None, [*assignments, *given, f"search.ledger={json.dumps(str(file.resolve()))}"]
        )

    def refuse_other(self, data: DataFacts) -> None:
        """Refuse data that the search did not have: the work would not be the same."""
        if data.fingerprint != self.data_fingerprint:
            raise UsageError(
                f"this is not the data that {self.run} searched with: its fingerprint is "
                f"{data.fingerprint[:16]}, expected {self.data_fingerprint[:16]}",
                cure="give that data with --data, and change no setting of it",
            )

    def fixed_work(self) -> list[Candidate]:
        """The candidates as a replay trains them: for as many epochs as they were, no fewer."""
        return [
            each.candidate.model_copy(update={"end_epoch": each.trained.epochs, "patience": None})
            for each in self.candidates
        ]


class LedgerWritten(Data):
    """What a search trained is written down, for replays."""

    file: str
    sha256: str
    candidates: int


def keep_ledger(folder: RunFolder, records: Sequence[JobRecord]) -> LedgerWritten:
    """Write the ledger of a search that ended into its run folder."""
    ledger = ledger_of(folder, records)
    repeat = records[0].repeat
    path = folder.path / ("ledger.json" if repeat == 0 else f"ledger-{repeat}.json")
    ledger.write(path)
    return LedgerWritten(file=path.name, sha256=file_hash(path), candidates=len(ledger.candidates))


def ledger_of(folder: RunFolder, records: Sequence[JobRecord]) -> SearchLedger:
    """What the workers of a search trained."""
    first = records[0]
    logs = [folder.job_history(record.job) for record in records]
    stories = Search(logs).candidates
    buffer = Buffer(folder.path)
    found = []
    for story in stories:
        candidate = buffer.get(story.turn)
        if story.trained is not None and candidate is not None:
            found.append(Replayed(candidate=candidate, trained=story.trained))
    _check_parents(found)
    return SearchLedger(
        run=folder.record.id,
        profile=folder.record.settings.profile,
        seed=first.seed,
        workers=len(records),
        settings=first.settings,
        data_fingerprint=first.data.fingerprint,
        left_out=len(stories) - len(found),
        candidates=tuple(found),
    )


def _check_parents(found: Sequence[Replayed]) -> None:
    names = {each.candidate.turn.name for each in found}
    for each in found:
        parent = each.candidate.parent
        if parent is not None and each.trained.inherited and parent not in names:
            raise UsageError(
                f"{each.candidate.turn.name} starts from {parent}, which has no result",
                cure=_DAMAGED,
            )
