"""Where candidates wait between search and training: files that are made once and never changed.

RUN/buffer/<candidate>.json         a proposal
RUN/buffer/<candidate>.passed.json  a turn that is no longer waited for
RUN/buffer/<candidate>.last.json    a turn from which on its worker proposes nothing
RUN/claims/<candidate>.json         who trains it
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from vflops.errors import FolderError
from vflops.record.files import atomic
from vflops.record.files.document import Document
from vflops.record.folder import file_hash
from vflops.workloads.automl.search_events import Candidate, Claim, Turn, TurnPassed


class CandidateBuffer:
    """The candidates of a run that were proposed, by whomever."""

    def __init__(self, run: Path) -> None:
        self._proposals, self._claims = run / "buffer", run / "claims"
        for folder in (self._proposals, self._claims):
            atomic.make_folder(folder)
        self._names: set[str] = set()
        self._proposed: set[str] = set()
        self._given_up: set[str] = set()
        self._lasts: dict[int, int] = {}
        self.look()

    def look(self) -> None:
        """See what is there now, with one listing; what was there stays and is not looked at."""
        listed = {path.name for path in self._proposals.glob("r*-w*.json")}
        for file in listed - self._names:
            name, _, what = file.removesuffix(".json").partition(".")
            if not is_turn(name):  # a person may have put something there
                continue
            if what == "":
                self._proposed.add(name)
            elif what == "passed":
                self._given_up.add(name)
            elif what == "last":
                turn = Turn.named(name)
                last = self._lasts.get(turn.worker, turn.round)
                self._lasts[turn.worker] = min(last, turn.round)
        self._names |= listed

    def put(self, proposal: Candidate) -> bool:
        """Offer a candidate; False where its turn has one already."""
        return _make_once(proposal, self._proposal(proposal.turn))

    def get(self, turn: Turn) -> Candidate | None:
        """The candidate of a turn, once there is one."""
        path = self._proposal(turn)
        return Candidate.read(path) if path.is_file() else None

    def proposal_sha256(self, turn: Turn) -> str:
        """Of its file."""
        return file_hash(self._proposal(turn))

    def claim(self, turn: Turn, worker: int, job: int) -> bool:
        """Take a candidate to train it; False where another has it."""
        return _make_once(Claim(worker=worker, job=job), self._claims / f"{turn.name}.json")

    def claimed_by(self, turn: Turn) -> int | None:
        """The worker that has a candidate; None: nobody yet."""
        path = self._claims / f"{turn.name}.json"
        return Claim.read(path).worker if path.is_file() else None

    def claims_of(self, worker: int) -> tuple[Turn, ...]:
        """The candidates that a worker has claimed, in their order."""
        names = (path.name.removesuffix(".json") for path in self._claims.glob("r*-w*.json"))
        turns = (Turn.named(name) for name in sorted(filter(is_turn, names)))
        return tuple(turn for turn in turns if self.claimed_by(turn) == worker)

    def give_up(self, turn: Turn, by: int, waited_s: float) -> bool:
        """No longer wait for a worker's turn; False where another has said so."""
        self._given_up.add(turn.name)
        return _make_once(TurnPassed(turn=turn, by=by, waited_s=waited_s), self._passed(turn))

    def end(self, turn: Turn) -> bool:
        """Say that its worker proposes nothing for this turn, nor for any later one."""
        return _make_once(TurnPassed(turn=turn, by=turn.worker, waited_s=0.0), self._last(turn))

    def given_up(self, turn: Turn) -> bool:
        """Whether nobody waited for this turn any more, at the last look."""
        last = self._lasts.get(turn.worker)
        return self.passed(turn) or (last is not None and turn.round >= last)

    def passed(self, turn: Turn) -> bool:
        """Whether that is because its worker was silent for too long."""
        return turn.name in self._given_up

    def has(self, turn: Turn) -> bool:
        """Whether the turn had its candidate, at the last look."""
        return turn.name in self._proposed

    def turns(self) -> tuple[Turn, ...]:
        """Of all proposals at the last look, in their order."""
        return tuple(Turn.named(name) for name in sorted(self._proposed))

    def waiting(self) -> tuple[Turn, ...]:
        """Of those, the ones that nobody has claimed by now."""
        taken = {path.name.removesuffix(".json") for path in self._claims.glob("r*-w*.json")}
        return tuple(turn for turn in self.turns() if turn.name not in taken)

    def _proposal(self, turn: Turn) -> Path:
        return self._proposals / f"{turn.name}.json"

    def _passed(self, turn: Turn) -> Path:
        return self._proposals / f"{turn.name}.passed.json"

    def _last(self, turn: Turn) -> Path:
        return self._proposals / f"{turn.name}.last.json"


def is_turn(name: str) -> bool:
    """Whether a file's name is that of a candidate."""
    try:
        return bool(Turn.named(name))
    except (FolderError, ValidationError):
        return False


def _make_once(document: Document, path: Path) -> bool:
    """Write the document whole, by one of all who try at once; whether this was the one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(3).hex()}")
    document.write(draft)
    try:
        os.link(draft, path)  # a rename would replace another's; a link is refused
    except FileExistsError:  # over NFS the answer to a link that was made may have been lost
        return draft.stat().st_nlink > 1
    except OSError as error:
        raise atomic.cannot_write(path, error) from error
    finally:
        draft.unlink(missing_ok=True)
    return True
