"""Candidates are offered and claimed by many at once: one of them is the one."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from tests.support.automl_parts import candidate, turn
from vflops.errors import FolderError
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.search_events import Turn

_RIVALS = 8
_TURNS = 25


def _claim_all(run: Path, worker: int, gate: object, wins: object) -> None:
    buffer = CandidateBuffer(run)
    gate.wait()  # type: ignore[attr-defined]
    won = [n for n in range(_TURNS) if buffer.claim(turn(n, 0), worker, 1 + worker)]
    wins.put((worker, won))  # type: ignore[attr-defined]


def test_of_many_processes_that_claim_at_once_exactly_one_wins(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    gate, wins = fork.Barrier(_RIVALS), fork.Queue()
    rivals = [
        fork.Process(target=_claim_all, args=(tmp_path, worker, gate, wins))
        for worker in range(_RIVALS)
    ]
    for rival in rivals:
        rival.start()
    won = dict(wins.get(timeout=30) for _ in rivals)
    for rival in rivals:
        rival.join()
    assert sorted(n for item in won.values() for n in item) == list(range(_TURNS))
    buffer = CandidateBuffer(tmp_path)
    for worker, turns in won.items():
        assert buffer.claims_of(worker) == tuple(turn(n, 0) for n in turns)
        assert all(buffer.claimed_by(turn(n, 0)) == worker for n in turns)


def test_a_turn_has_one_proposal_and_the_first_stays(tmp_path: Path) -> None:
    buffer = CandidateBuffer(tmp_path)
    assert buffer.put(candidate(turn(0, 0), epochs=1))
    assert not buffer.put(candidate(turn(0, 0), epochs=7))
    found = buffer.get(turn(0, 0))
    assert found is not None and found.epochs == 1
    assert [path.name for path in (tmp_path / "buffer").iterdir()] == ["r00000-w00000.json"]


def test_a_claim_whose_answer_got_lost_on_the_way_is_still_a_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over NFS: the link is made, the answer is lost, the client asks again."""

    def link_twice(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(target)

    link = os.link
    buffer = CandidateBuffer(tmp_path)
    monkeypatch.setattr(os, "link", link_twice)
    assert buffer.claim(turn(0, 0), 0, 1)
    monkeypatch.undo()
    assert not buffer.claim(turn(0, 0), 1, 2)
    assert buffer.claimed_by(turn(0, 0)) == 0


def test_what_waits_is_what_nobody_claimed(tmp_path: Path) -> None:
    buffer = CandidateBuffer(tmp_path)
    for at in (turn(1, 0), turn(0, 1), turn(0, 0)):
        buffer.put(candidate(at))
    assert buffer.turns() == ()  # not before it looks
    buffer.refresh()
    assert buffer.turns() == (turn(0, 0), turn(0, 1), turn(1, 0))
    assert buffer.claimed_by(turn(0, 1)) is None
    buffer.claim(turn(0, 1), 3, 4)
    assert buffer.unclaimed() == (turn(0, 0), turn(1, 0))
    assert buffer.has(turn(0, 1)) and not buffer.has(turn(2, 0))
    assert buffer.get(turn(2, 0)) is None


def test_files_of_others_and_torn_ones_are_not_seen(tmp_path: Path) -> None:
    buffer = CandidateBuffer(tmp_path)
    buffer.put(candidate(turn(0, 0)))
    foreign = (
        "r-w.json",
        "r1-w1.json",
        "report-weights.json",
        "r00000-w00000 (copy).json",
        "r00001-w00000.json.swp",
        "r00001-w00000.draft.json",
        "r00001-w99999999.json",
        ".r00001-w00000.json.123-abcdef",
    )
    for folder in ("buffer", "claims"):
        for name in foreign:
            (tmp_path / folder / name).write_text("{")
    buffer.refresh()
    assert buffer.turns() == buffer.unclaimed() == (turn(0, 0),)
    assert buffer.claims_of(0) == ()
    assert not buffer.is_given_up(turn(1, 0))


def test_a_damaged_proposal_is_named(tmp_path: Path) -> None:
    buffer = CandidateBuffer(tmp_path)
    (tmp_path / "buffer" / "r00000-w00000.json").write_text('{"schema": "vflops.candi')
    with pytest.raises(FolderError, match=r"r00000-w00000\.json"):
        buffer.get(turn(0, 0))


def test_a_turn_is_given_up_once_and_a_last_one_with_all_after_it(tmp_path: Path) -> None:
    buffer = CandidateBuffer(tmp_path)
    assert buffer.give_up(turn(3, 1), 0, 7.5)
    assert not buffer.give_up(turn(3, 1), 2, 8.0)
    assert buffer.end_turns(turn(5, 2)) and buffer.end_turns(turn(6, 2))
    buffer.refresh()
    assert buffer.is_given_up(turn(3, 1)) and not buffer.is_given_up(turn(4, 1))
    given_up = [buffer.is_given_up(turn(n, 2)) for n in range(8)]
    assert given_up == [False] * 5 + [True] * 3
    assert buffer.turns() == ()


@pytest.mark.parametrize("name", ["r0-w0", "r00000w00000", "r00000-w00000 ", "r-1-w00000", ""])
def test_what_is_no_turn_is_refused(name: str) -> None:
    with pytest.raises(FolderError, match="not the name of a candidate"):
        Turn.named(name)


def test_turns_have_names_and_numbers_that_come_back() -> None:
    for at in (turn(0, 0), turn(4, 11), turn(123456, 65535)):
        assert Turn.named(at.name) == at == Turn.numbered(at.number)
