"""What a worker trains next: unfinished candidates, then available ones; the first rank decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.automl_parts import candidate, turn
from vflops.errors import Interrupted
from vflops.train.phase_clock import Clock
from vflops.workloads.automl import claiming
from vflops.workloads.automl.backoff import Backoff
from vflops.workloads.automl.candidate import Deadline
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.claiming import CandidateClaimer, ClaimedCandidate
from vflops.workloads.automl.search_events import ConvergedEnd, Turn
from vflops.workloads.automl.worker_history import UnfinishedCandidate


@dataclass
class FakeContext:
    stop: Any
    events: list[tuple[str, Any]] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    record: Any = field(default_factory=lambda: SimpleNamespace(job=1))

    def write_event(self, kind: str, payload: Any, *, sync: bool = True) -> None:
        self.events.append((kind, payload))


@dataclass
class Later:
    """A source whose candidates become available after some calls."""

    calls: int
    turns: Sequence[Turn] | None
    end_reason: str | None = "nothing within the limits"

    def available(self) -> Sequence[Turn] | None:
        self.calls -= 1
        return self.turns if self.calls < 0 else ()


def claimer(folder: Path, *left: UnfinishedCandidate, left_s: float = 60, **facts: Any) -> Any:
    """The claimer of one rank; ``agree`` maps its choice to what all ranks agree on."""
    context = FakeContext(SimpleNamespace(signal=None))
    agree = facts.pop("agree", lambda choice: choice)
    plan = SimpleNamespace(leads=facts.pop("leads", True), agree=agree)
    deadline = Deadline(context.stop, time.monotonic() + left_s)
    usual = {"worker": 0, "turn_s": 300.0, "clean": lambda name: None}
    own: Any = usual | facts
    buffer = CandidateBuffer(folder)
    return CandidateClaimer(context, plan, buffer, deadline, unfinished=list(left), **own)  # type: ignore[arg-type]


def recording(choices: list[int]) -> Callable[[int], int]:
    """An ``agree`` that accepts this rank's choice and records it."""

    def agree(choice: int) -> int:
        choices.append(choice)
        return choice

    return agree


def kinds(claims: Any) -> list[str]:
    return [kind for kind, _ in claims.context.events]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "next_s", 0.001)


def test_all_that_was_left_is_taken_up_before_anything_new(tmp_path: Path) -> None:
    unfinished = [
        UnfinishedCandidate(turn(3, 0), samples=9),
        UnfinishedCandidate(turn(1, 0)),
        UnfinishedCandidate(turn(2, 0), tries=2),
    ]
    claims = claimer(tmp_path, *unfinished)
    assert claims.next(None) == ClaimedCandidate(turn(3, 0), unfinished[0])
    assert claims.next(None) == ClaimedCandidate(turn(1, 0), unfinished[1])
    assert claims.next(None) == ClaimedCandidate(turn(2, 0), unfinished[2], hopeless=True)
    assert claims.next(None) is None and kinds(claims) == []


def test_what_was_trained_and_cannot_be_read_is_told_so_that_nobody_waits(tmp_path: Path) -> None:
    cleaned: list[str] = []
    lost = UnfinishedCandidate(turn(1, 0), lost=True)
    claims = claimer(tmp_path, UnfinishedCandidate(turn(2, 0)), lost, clean=cleaned.append)
    assert claims.next(None) == ClaimedCandidate(turn(2, 0), UnfinishedCandidate(turn(2, 0)))
    ((kind, failed),) = claims.context.events
    assert (kind, failed.candidate) == ("candidate-failed", turn(1, 0).name)
    assert "damaged" in failed.message and cleaned == [turn(1, 0).name] and claims.done == 1


def test_what_has_no_time_left_is_cut_whatever_was_left(tmp_path: Path) -> None:
    claims = claimer(
        tmp_path,
        UnfinishedCandidate(turn(1, 0), samples=96),
        UnfinishedCandidate(turn(2, 0)),
        left_s=-1,
    )
    assert claims.next(None) is None
    cuts = [(kind, cut.candidate, cut.samples) for kind, cut in claims.context.events]
    assert cuts == [
        ("candidate-cut", turn(1, 0).name, 96),
        ("candidate-cut", turn(2, 0).name, 0),
    ]


def test_the_next_offer_that_nobody_has_is_claimed(tmp_path: Path) -> None:
    claims = claimer(tmp_path, max_candidates=1)
    claims.buffer.put(candidate(turn(0, 0)))
    claims.buffer.claim(turn(0, 0), 1, 2)
    assert claims.next(Later(2, [turn(0, 0), turn(0, 1)])) == ClaimedCandidate(turn(0, 1))
    assert claims.buffer.claimed_by(turn(0, 1)) == 0 and claims.waited_s > 0
    claims.done = 1
    assert claims.next(Later(0, [turn(5, 0)])) is None  # so many it was to train


def test_workers_that_look_at_once_do_not_all_try_the_same_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, tried = [turn(0, worker) for worker in range(20)], list[Turn]()
    original = CandidateBuffer.claim

    def counted(self: CandidateBuffer, wanted: Turn, worker: int, job: int) -> bool:
        tried.append(wanted)
        return original(self, wanted, worker, job)

    monkeypatch.setattr(CandidateBuffer, "claim", counted)
    claimed = [claimer(tmp_path, worker=worker).next(Later(0, turns)) for worker in range(20)]
    assert [own.turn for own in claimed] == turns
    assert len(tried) == 20
    late = claimer(tmp_path, worker=3)
    later = [*turns, turn(1, 0)]
    assert late.next(Later(0, later)).turn == turn(1, 0)  # everything else was claimed


def test_offers_that_end_are_told_with_the_reason(tmp_path: Path) -> None:
    for why, told in (("nothing within the limits", ["search-ended"]), (None, [])):
        claims = claimer(tmp_path)
        assert claims.next(Later(0, None, why)) is None and kinds(claims) == told


def test_who_waits_gives_signs_of_life_but_few(tmp_path: Path) -> None:
    claims = claimer(tmp_path, turn_s=0.08)
    assert claims.next(Later(100, [turn(0, 0)])) == ClaimedCandidate(turn(0, 0))
    assert set(kinds(claims)) == {"waiting"}
    assert 2 <= len(kinds(claims)) <= 1 + claims.waited_s / 0.02
    patient = claimer(tmp_path)
    assert (
        patient.next(Later(20, [turn(0, 1)])) == ClaimedCandidate(turn(0, 1))
        and kinds(patient) == []
    )


def test_other_ranks_hear_while_the_first_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the other ranks would time out."""
    monkeypatch.setattr(claiming, "_ANNOUNCE_S", 0.005)
    choices: list[int] = []
    claims = claimer(tmp_path, agree=recording(choices))
    assert claims.next(Later(60, [turn(3, 0)])) == ClaimedCandidate(turn(3, 0))
    other = claimer(tmp_path, leads=False, agree=lambda choice: choices.pop(0))
    assert len(choices) > 3
    assert other.next(None) == ClaimedCandidate(turn(3, 0)) and choices == []


def test_the_first_rank_decides_what_is_hopeless_and_the_others_follow(tmp_path: Path) -> None:
    said: list[int] = []
    first = claimer(tmp_path, UnfinishedCandidate(turn(1, 0), tries=2), agree=recording(said))
    taken = first.next(None)
    assert taken.hopeless
    for left in (
        [],
        [UnfinishedCandidate(turn(1, 0), tries=1)],
        [UnfinishedCandidate(turn(7, 0), tries=2)],
    ):
        other = claimer(tmp_path, *left, leads=False, agree=lambda choice: said[0])
        found = other.next(None)
        assert (found.turn, found.hopeless) == (turn(1, 0), True)
        assert found.unfinished == next((one for one in left if one.turn == turn(1, 0)), None)


def test_ranks_agree_on_the_end_and_on_a_stop_that_only_one_of_them_heard(tmp_path: Path) -> None:
    assert claimer(tmp_path, agree=lambda choice: 0).next(None) is None
    with pytest.raises(Interrupted, match="a signal on another rank"):
        claimer(tmp_path, agree=lambda choice: 1 << 62).next(None)
    claims = claimer(tmp_path)
    claims.context.stop.signal = "SIGTERM"
    with pytest.raises(Interrupted, match="SIGTERM"):
        claims.next(Later(0, [turn(0, 0)]))
    assert claims.buffer.claimed_by(turn(0, 0)) is None


def test_a_search_that_has_converged_is_over_also_for_a_worker_that_resumes(
    tmp_path: Path,
) -> None:
    end = ConvergedEnd(worker=1, utc_s=1e9, duration_s=4320, ops_per_s=1.0, variation=0.001)
    decided: list[str] = []
    convergence: Any = SimpleNamespace(end=end, decide=lambda: decided.append("asked"))
    claims = claimer(tmp_path, UnfinishedCandidate(turn(1, 0), samples=96), convergence=convergence)
    claims.deadline = Deadline(claims.context.stop, time.monotonic() + 60, convergence)
    assert claims.next(None) is None and not decided
    (cut, (kind, ended)) = claims.context.events
    assert cut[0] == "candidate-cut" and kind == "search-ended"
    assert (ended.converged, ended.message) == (end, "the search has converged after 72 min 00 s")
    assert claims.next(Later(0, [turn(5, 0)])) is None and decided == ["asked"]
