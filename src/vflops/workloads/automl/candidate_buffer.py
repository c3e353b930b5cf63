"""The buffer of candidates between search and training: files that are created once.

RUN/buffer/<candidate>.json         a proposal
RUN/buffer/<candidate>.passed.json  a turn that the other workers no longer wait for
RUN/buffer/<candidate>.last.json    a worker proposes nothing from this turn on
RUN/buffer/memory.json              the memory of a step, by which all workers propose
RUN/buffer/converged.json           the search ends, because its score has converged
RUN/claims/<candidate>.json         the worker that trains it
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from vflops.errors import FolderError
from vflops.record.files import atomic
from vflops.record.files.document import Document
from vflops.record.folder import file_hash
from vflops.workloads.automl.architecture.step_memory import StepMemory
from vflops.workloads.automl.search_events import (
    Candidate,
    Claim,
    ConvergedEnd,
    Turn,
    TurnPassed,
)


class CandidateBuffer:
    """The proposals and claims of all workers of a run."""

    def __init__(self, run: Path) -> None:
        self._proposals, self._claims = run / "buffer", run / "claims"
        for folder in (self._proposals, self._claims):
            atomic.make_folder(folder)
        self._files: set[str] = set()
        self._proposed: set[str] = set()
        self._passed: set[str] = set()
        self._last_rounds: dict[int, int] = {}
        self.refresh()

    def refresh(self) -> None:
        """List the folder once, and read the names of new files."""
        names = set(_candidate_files(self._proposals))
        for file_name in names - self._files:
            name, _, suffix = file_name.removesuffix(".json").partition(".")
            if not is_turn_name(name):  # some other file
                continue
            if suffix == "":
                self._proposed.add(name)
            elif suffix == "passed":
                self._passed.add(name)
            elif suffix == "last":
                turn = Turn.named(name)
                last = self._last_rounds.get(turn.worker, turn.round)
                self._last_rounds[turn.worker] = min(last, turn.round)
        self._files |= names

    def put(self, proposal: Candidate) -> bool:
        """Write a proposal; return False if its turn already has one."""
        return _create(proposal, self._proposal_file(proposal.turn))

    def get(self, turn: Turn) -> Candidate | None:
        """Return the candidate of a turn, if it was proposed."""
        path = self._proposal_file(turn)
        return Candidate.read(path) if path.is_file() else None

    def proposal_sha256(self, turn: Turn) -> str:
        """Return the hash of a proposal's file."""
        return file_hash(self._proposal_file(turn))

    def claim(self, turn: Turn, worker: int, job: int) -> bool:
        """Claim a candidate to train it; return False if another worker has it."""
        return _create(Claim(worker=worker, job=job), self._claims / f"{turn.name}.json")

    def claimed_by(self, turn: Turn) -> int | None:
        """Return the worker that claimed a candidate, if any."""
        path = self._claims / f"{turn.name}.json"
        return Claim.read(path).worker if path.is_file() else None

    def claims_of(self, worker: int) -> tuple[Turn, ...]:
        """Return the candidates that a worker has claimed, in the order of their turns."""
        names = (name.removesuffix(".json") for name in _candidate_files(self._claims))
        turns = (Turn.named(name) for name in sorted(filter(is_turn_name, names)))
        return tuple(turn for turn in turns if self.claimed_by(turn) == worker)

    def give_up(self, turn: Turn, by: int, waited_s: float) -> bool:
        """Stop waiting for a worker's turn; return False if another worker did so before."""
        self._passed.add(turn.name)
        passed = TurnPassed(turn=turn, by=by, waited_s=waited_s)
        return _create(passed, self._proposals / f"{turn.name}.passed.json")

    def end_turns(self, turn: Turn) -> bool:
        """Announce that the worker proposes nothing for this turn or any later one."""
        passed = TurnPassed(turn=turn, by=turn.worker, waited_s=0.0)
        return _create(passed, self._proposals / f"{turn.name}.last.json")

    def end_search(self, end: ConvergedEnd) -> bool:
        """End the search for all workers; return False if another worker has ended it."""
        return _create(end, self._end_file)

    def search_end(self) -> ConvergedEnd | None:
        """Return the decision to end the search, if there is one."""
        return ConvergedEnd.read(self._end_file) if self._end_file.is_file() else None

    def is_given_up(self, turn: Turn) -> bool:
        """Whether no worker waits for this turn any more, as of the last refresh."""
        last = self._last_rounds.get(turn.worker)
        return self.was_passed(turn) or (last is not None and turn.round >= last)

    def was_passed(self, turn: Turn) -> bool:
        """Whether a turn was given up because its worker was silent for too long."""
        return turn.name in self._passed

    def has(self, turn: Turn) -> bool:
        """Whether the turn had a proposal at the last refresh."""
        return turn.name in self._proposed

    def turns(self) -> tuple[Turn, ...]:
        """Return the turns of all proposals as of the last refresh, in order."""
        return tuple(Turn.named(name) for name in sorted(self._proposed))

    def unclaimed(self) -> tuple[Turn, ...]:
        """Return those of ``turns`` that no worker has claimed yet."""
        claimed = {name.removesuffix(".json") for name in _candidate_files(self._claims)}
        return tuple(Turn.named(name) for name in sorted(self._proposed - claimed))

    def share_memory(self, memory: StepMemory) -> None:
        """Let all workers propose by this memory of a step, unless another worker did so before."""
        _create(memory, self._memory_file)

    def step_memory(self) -> StepMemory | None:
        """Return the memory of a step by which all workers propose, once it is known."""
        return StepMemory.read(self._memory_file) if self._memory_file.is_file() else None

    @property
    def _memory_file(self) -> Path:
        return self._proposals / "memory.json"

    @property
    def _end_file(self) -> Path:
        return self._proposals / "converged.json"

    def _proposal_file(self, turn: Turn) -> Path:
        return self._proposals / f"{turn.name}.json"


def is_turn_name(name: str) -> bool:
    """Whether ``name`` is the name of a candidate."""
    try:
        return bool(Turn.named(name))
    except (FolderError, ValidationError):
        return False


def _candidate_files(folder: Path) -> list[str]:
    """Return the names of the files of candidates; many times faster than ``Path.glob``."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    return [name for name in names if name.startswith("r") and name.endswith(".json")]


def _create(document: Document, path: Path) -> bool:
    """Write a complete file that does not exist yet; return whether this process created it."""
    if path.exists():  # spares the draft, which many workers would write for one candidate
        return False
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(3).hex()}")
    document.write(draft)
    try:
        os.link(draft, path)  # fails if the file exists; a rename would replace it
    except FileExistsError:  # over NFS the reply to a successful link may have been lost
        return draft.stat().st_nlink > 1
    except OSError as error:
        raise atomic.cannot_write(path, error) from error
    finally:
        draft.unlink(missing_ok=True)
    return True
