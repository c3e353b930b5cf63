"""What a worker takes next: what it left, what it is offered; the first rank decides for all."""

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
from vflops.workloads.automl.backoff import Pause
from vflops.workloads.automl.candidate import Deadline
from vflops.workloads.automl.candidate_buffer import Buffer
from vflops.workloads.automl.claiming import Taken, Taking
from vflops.workloads.automl.search_events import Turn
from vflops.workloads.automl.worker_history import Half


@dataclass
class FakeContext:
    stop: Any
    told: list[tuple[str, Any]] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    record: Any = field(default_factory=lambda: SimpleNamespace(job=1))

    def write_event(self, kind: str, payload: Any, *, sync: bool = True) -> None:
        self.told.append((kind, payload))


@dataclass
class Later:
    """Offers that come after some looks."""

    looks: int
    turns: Sequence[Turn] | None
    why: str | None = "nothing within the limits"

    def now(self) -> Sequence[Turn] | None:
        self.looks -= 1
        return self.turns if self.looks < 0 else ()


def taking(place: Path, *left: Half, left_s: float = 60, **facts: Any) -> Any:
    """Of a worker of one rank; ``agree``: what ranks agree on, whatever this one wishes."""
    context = FakeContext(SimpleNamespace(signal=None))
    agree = facts.pop("agree", lambda wish: wish)
    plan = SimpleNamespace(leads=facts.pop("leads", True), agree=agree)
    deadline = Deadline(context.stop, time.monotonic() + left_s)
    usual = {"worker": 0, "turn_s": 300.0, "clean": lambda name: None}
    own: Any = usual | facts
    buffer = Buffer(place)
    return Taking(context, plan, buffer, deadline, left=list(left), **own)  # type: ignore[arg-type]


def telling(wishes: list[int]) -> Callable[[int], int]:
    """What this rank wishes is agreed on, and kept."""

    def agree(wish: int) -> int:
        wishes.append(wish)
        return wish

    return agree


def kinds(made: Any) -> list[str]:
    return [kind for kind, _ in made.context.told]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pause, "next_s", 0.001)


def test_all_that_was_left_is_taken_up_before_anything_new(tmp_path: Path) -> None:
    halves = [Half(turn(3, 0), samples=9), Half(turn(1, 0)), Half(turn(2, 0), tries=2)]
    made = taking(tmp_path, *halves)
    assert made.next(None) == Taken(turn(3, 0), halves[0])
    assert made.next(None) == Taken(turn(1, 0), halves[1])
    assert made.next(None) == Taken(turn(2, 0), halves[2], hopeless=True)
    assert made.next(None) is None and kinds(made) == []


def test_what_was_trained_and_cannot_be_read_is_told_so_that_nobody_waits(tmp_path: Path) -> None:
    cleaned: list[str] = []
    lost = Half(turn(1, 0), lost=True)
    made = taking(tmp_path, Half(turn(2, 0)), lost, clean=cleaned.append)
    assert made.next(None) == Taken(turn(2, 0), Half(turn(2, 0)))
    ((kind, failed),) = made.context.told
    assert (kind, failed.candidate) == ("candidate-failed", turn(1, 0).name)
    assert "damaged" in failed.message and cleaned == [turn(1, 0).name] and made.done == 1


def test_what_has_no_time_left_is_cut_whatever_was_left(tmp_path: Path) -> None:
    made = taking(tmp_path, Half(turn(1, 0), samples=96), Half(turn(2, 0)), left_s=-1)
    assert made.next(None) is None
    cuts = [(kind, cut.candidate, cut.samples) for kind, cut in made.context.told]
    assert cuts == [
        ("candidate-cut", turn(1, 0).name, 96),
        ("candidate-cut", turn(2, 0).name, 0),
    ]


def test_the_next_offer_that_nobody_has_is_claimed(tmp_path: Path) -> None:
    made = taking(tmp_path, most=1)
    made.buffer.put(candidate(turn(0, 0)))
    made.buffer.claim(turn(0, 0), 1, 2)
    assert made.next(Later(2, [turn(0, 0), turn(0, 1)])) == Taken(turn(0, 1))
    assert made.buffer.claimed_by(turn(0, 1)) == 0 and made.waited_s > 0
    made.done = 1
    assert made.next(Later(0, [turn(5, 0)])) is None  # so many it was to train


def test_offers_that_end_are_told_with_the_reason(tmp_path: Path) -> None:
    for why, told in (("nothing within the limits", ["search-ended"]), (None, [])):
        made = taking(tmp_path)
        assert made.next(Later(0, None, why)) is None and kinds(made) == told


def test_who_waits_gives_signs_of_life_but_few(tmp_path: Path) -> None:
    made = taking(tmp_path, turn_s=0.08)
    assert made.next(Later(100, [turn(0, 0)])) == Taken(turn(0, 0))
    assert set(kinds(made)) == {"waiting"}
    assert 2 <= len(kinds(made)) <= 1 + made.waited_s / 0.02
    patient = taking(tmp_path)
    assert patient.next(Later(20, [turn(0, 1)])) == Taken(turn(0, 1)) and kinds(patient) == []


def test_other_ranks_hear_while_the_first_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else their message would take longer than messages may."""
    monkeypatch.setattr(claiming, "_AGREE_S", 0.005)
    wishes: list[int] = []
    made = taking(tmp_path, agree=telling(wishes))
    assert made.next(Later(60, [turn(3, 0)])) == Taken(turn(3, 0))
    other = taking(tmp_path, leads=False, agree=lambda wish: wishes.pop(0))
    assert len(wishes) > 3
    assert other.next(None) == Taken(turn(3, 0)) and wishes == []


def test_the_first_rank_decides_what_is_hopeless_and_the_others_follow(tmp_path: Path) -> None:
    said: list[int] = []
    first = taking(tmp_path, Half(turn(1, 0), tries=2), agree=telling(said))
    taken = first.next(None)
    assert taken.hopeless
    for left in ([], [Half(turn(1, 0), tries=1)], [Half(turn(7, 0), tries=2)]):
        other = taking(tmp_path, *left, leads=False, agree=lambda wish: said[0])
        found = other.next(None)
        assert (found.turn, found.hopeless) == (turn(1, 0), True)
        assert found.half == next((each for each in left if each.turn == turn(1, 0)), None)


def test_ranks_agree_on_the_end_and_on_a_stop_that_only_one_of_them_heard(tmp_path: Path) -> None:
    assert taking(tmp_path, agree=lambda wish: 0).next(None) is None
    with pytest.raises(Interrupted, match="a signal on another rank"):
        taking(tmp_path, agree=lambda wish: 1 << 62).next(None)
    made = taking(tmp_path)
    made.context.stop.signal = "SIGTERM"
    with pytest.raises(Interrupted, match="SIGTERM"):
        made.next(Later(0, [turn(0, 0)]))
    assert made.buffer.claimed_by(turn(0, 0)) is None
