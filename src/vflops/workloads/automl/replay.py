"""A finished search as fixed work: what it trained, written down so that any machine can repeat it.

``ledger.json`` of a run folder holds every candidate that was trained: network, weights to start
from, batch, epochs, seed. A replay trains them all, parents before children, and searches nothing.
It keeps the ledger that it was given as ``ledger-replayed.json``: what it did is held against that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from vflops.config.profiles import for_one
from vflops.config.settings import Settings
from vflops.errors import FolderError, UsageError
from vflops.record.files.document import Data, Document
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.job import DataFacts, JobRecord
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.candidate_history import CandidateHistory
from vflops.workloads.automl.search_events import Candidate, CandidateTrained
from vflops.workloads.automl.search_history import SearchHistory
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.contract.run_settings import load, profile

_NO_END_S = 30 * 86400.0
"""A replay takes as long as it takes."""
_DAMAGED = "the ledger is damaged: take it from the run folder again"
REPLAYED_LEDGER = "ledger-replayed.json"
"""In the folder of a replay: the ledger that it was given."""
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
    }
)
"""Settings of the workload that leave the work as it is."""


class ReplayedCandidate(Data):
    """One candidate of a ledger."""

    candidate: Candidate
    trained: CandidateTrained
    """What came of it in the search."""
    samples: int
    """That it was trained on there."""
    ops: int
    """Of training and evaluation, by the rules that score it."""


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
    reasons: dict[str, str]
    """Why each of them was left out, by its name."""
    candidates: tuple[ReplayedCandidate, ...]

    @classmethod
    def find(cls, path: Path) -> SearchLedger:
        """The ledger in a run folder, or the file itself."""
        file = path / "ledger.json" if path.is_dir() else path
        if not file.is_file():
            raise FolderError(
                f"{path} holds no ledger.json" if path.is_dir() else f"{path} does not exist",
                hint="give the run folder of a search that came to its end, or its ledger.json",
            )
        found = cls.read(file)
        for fault in found._faults():
            raise FolderError(f"{file}: {fault}", hint=_DAMAGED)
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
                hint="search for longer, then replay that",
            )
        file = path / "ledger.json" if path.is_dir() else path
        section = {
            **self.settings,
            "search": {**self.settings["search"], "candidates": None, "duration_s": _NO_END_S},
        }
        base = for_one(profile(self.profile, ["automl"]))
        base = base.model_copy(update={"seed": self.seed, "workloads": {"automl": section}})
        given = [f"{key}={value}" for key, value in flags.items() if value is not None]
        ledger = f"search.ledger={json.dumps(str(file.resolve()))}"
        chosen = load(base, None, [*assignments, *given, ledger])
        self._refuse_other_work(load(base, None, [ledger]), chosen)
        return chosen

    def _refuse_other_work(self, own: Settings, chosen: Settings) -> None:
        """Refuse settings under which the candidates would be other work than they were."""
        before, after = ({"seed": x.seed, **_leaves(x.workloads["automl"])} for x in (own, chosen))
        for name, value in after.items():
            if name not in _MAY_DIFFER and before.get(name) != value:
                raise UsageError(
                    f"{name} = {value!r}: {self.run} searched with {before.get(name)!r}, and a "
                    "replay does the same work",
                    hint="leave it out; to try another value, search with it: vflops run automl",
                )

    def refuse_unshared(self, settings: AutomlSettings) -> None:
        """Refuse ranks that cannot share the batch of every candidate: it would be left out."""
        train = settings.train
        apart = train.accumulate * train.ghosts
        batches = [each.candidate.hyper.batch for each in self.candidates]
        fitting = [n for n in range(1, train.ranks) if not any(b % (n * apart) for b in batches)]
        for each in self.candidates:
            if each.candidate.hyper.batch % (train.ranks * apart):
                raise UsageError(
                    f"{each.candidate.turn.name} has a batch of {each.candidate.hyper.batch}, "
                    f"which {train.ranks} ranks × {train.accumulate} accumulation × "
                    f"{train.ghosts} ghosts cannot share evenly",
                    hint=f"all candidates fit with --ranks {fitting[-1]}"
                    if fitting
                    else "all candidates fit with --set train.accumulate=1",
                )

    def refuse_other(self, data: DataFacts) -> None:
        """Refuse data that the search did not have: the work would not be the same."""
        if data.fingerprint != self.data_fingerprint:
            raise UsageError(
                f"this is not the data that {self.run} searched with: its fingerprint is "
                f"{data.fingerprint[:16]}, expected {self.data_fingerprint[:16]}",
                hint="give that data with --data, and change no setting of it",
            )

    @property
    def left_out_by_reason(self) -> dict[str, list[str]]:
        """The candidates that are not in it, under what they have in common."""
        found: dict[str, list[str]] = {}
        for name, reason in self.reasons.items():
            found.setdefault(reason, []).append(name)
        return found

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
    replayed_sha256: str | None = None
    """Of a replay: of the ledger that it was given."""


def write_ledger(folder: RunFolder, records: Sequence[JobRecord]) -> LedgerWritten:
    """Write the ledger of a search that ended into its run folder."""
    ledger = ledger_of(folder, records)
    repeat = records[0].repeat
    path = folder.path / ("ledger.json" if repeat == 0 else f"ledger-{repeat}.json")
    ledger.write(path)
    given = folder.path / REPLAYED_LEDGER
    return LedgerWritten(
        file=path.name,
        sha256=file_hash(path),
        candidates=len(ledger.candidates),
        replayed_sha256=file_hash(given) if given.is_file() else None,
    )


def ledger_of(folder: RunFolder, records: Sequence[JobRecord]) -> SearchLedger:
    """What the workers of a search trained.

    What cannot be replayed is left out and told: a line of a log may be damaged, and the rest of
    the search is worth no less for it.
    """
    first = records[0]
    logs = [folder.job_history(record.job) for record in records]
    stories = SearchHistory(logs).candidates
    buffer = CandidateBuffer(folder.path)
    found, reasons = dict[str, ReplayedCandidate](), dict[str, str]()
    for story in stories:
        name, row = story.begun.candidate, _row(story, buffer)
        if isinstance(row, ReplayedCandidate):
            found[name] = row
        else:
            reasons[name] = row
    while orphans := [each for each in found.values() if _orphan(each, found)]:
        for each in orphans:
            name = each.candidate.turn.name
            reasons[name] = f"it starts from {each.candidate.parent}, which has no result"
            del found[name]
    return SearchLedger(
        run=folder.record.id,
        profile=folder.record.settings.profile,
        seed=first.seed,
        workers=len(records),
        settings=first.settings,
        data_fingerprint=first.data.fingerprint,
        left_out=len(stories) - len(found),
        reasons=dict(sorted(reasons.items())),
        candidates=tuple(found.values()),
    )


def _row(story: CandidateHistory, buffer: CandidateBuffer) -> ReplayedCandidate | str:
    """A candidate of the ledger, or why it is none."""
    if story.trained is None:
        return story.message or _UNTRAINED[story.state]
    try:
        candidate = buffer.get(story.turn)
    except FolderError as error:
        return error.message
    if candidate is None:
        return "its proposal is missing"
    return ReplayedCandidate(
        candidate=candidate, trained=story.trained, samples=story.samples, ops=story.ops
    )


def _orphan(each: ReplayedCandidate, found: Mapping[str, ReplayedCandidate]) -> bool:
    parent = each.candidate.parent
    return each.trained.inherited and parent is not None and parent not in found


def _leaves(section: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Every setting under its whole name."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        inner = isinstance(value, Mapping)
        found |= _leaves(value, f"{path}{key}.") if inner else {f"{path}{key}": value}
    return found
