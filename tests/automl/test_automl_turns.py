"""Ordered search: what a turn waits for, and that nothing but the seed decides what is proposed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from automl_parts import candidate, new_run, proposer, settings, tell, trained, turn

from vflops.automl.buffer import Buffer
from vflops.automl.ledger import Ledger
from vflops.automl.record import Candidate, Turn
from vflops.automl.turns import LAG, Known, known_before, known_now, late
from vflops.record.events import EventWriter
from vflops.workloads.automl.settings import AutomlSettings


class Meeting:
    """Two workers' buffer and ledger, with everything that the turns before ``until`` gave."""

    def __init__(self, place: Path, until: Turn) -> None:
        self.folder = new_run(place)
        self.buffer = Buffer(self.folder.path)
        self.ledger = Ledger(self.folder, {0: 1, 1: 2})
        self.logs: dict[int, EventWriter] = {}
        for n in range(until.round + 1):
            for worker in range(2 if n < until.round else until.worker):
                self.buffer.put(candidate(turn(n, worker)))
                if n <= until.round - LAG:
                    self.result(turn(n, worker))

    def result(self, place: Turn) -> None:
        if place.worker not in self.logs:
            self.logs[place.worker] = self.folder.start_attempt(job=1 + place.worker)
        tell(self.logs[place.worker], "candidate-trained", trained(place.name, 0.5))

    def known(self, place: Turn) -> Known | None:
        return known_before(place, 2, self.ledger, self.buffer)

    def late(self, place: Turn) -> list[Turn]:
        self.buffer.look()
        self.ledger.read()
        return late(place, 2, self.ledger, self.buffer)


def test_a_turn_waits_for_the_results_two_rounds_before_and_all_proposals(tmp_path: Path) -> None:
    at = turn(3, 1)
    meeting = Meeting(tmp_path, at)
    known = meeting.known(at)
    assert known is not None
    assert [each.turn for each in known.results] == [turn(n, w) for n in (0, 1) for w in (0, 1)]
    before = [turn(n, w) for n in (0, 1, 2) for w in (0, 1)]
    assert known.proposed == (*before, turn(3, 0))
    # Results that are there already, but belong to no round that it may depend on, change nothing.
    meeting.result(turn(2, 0))
    meeting.buffer.put(candidate(turn(3, 1)))
    assert meeting.known(at) == known
    assert meeting.known(turn(4, 0)) is None  # round 2 of worker 1 has no result
    assert meeting.late(turn(4, 0)) == [turn(2, 1)]
    meeting.result(turn(2, 1))
    assert meeting.known(turn(4, 0)) is not None


@pytest.mark.parametrize("missing", [turn(0, 0), turn(1, 1), turn(2, 0), turn(3, 0)])
def test_a_proposal_that_is_missing_is_waited_for(tmp_path: Path, missing: Turn) -> None:
    at = turn(3, 1)
    meeting = Meeting(tmp_path, at)
    (meeting.folder.path / "buffer" / f"{missing.name}.json").unlink()
    assert meeting.known(at) is None
    assert meeting.late(at) == [missing]


def test_a_passed_turn_is_not_waited_for_and_never_known_even_if_it_comes(tmp_path: Path) -> None:
    at = turn(4, 0)
    meeting = Meeting(tmp_path, turn(3, 1))
    meeting.buffer.put(candidate(turn(3, 1)))
    meeting.result(turn(2, 0))
    assert meeting.late(at) == [turn(2, 1)]
    meeting.buffer.give_up(turn(2, 1), 0, 300.0)
    known = meeting.known(at)
    assert known is not None and meeting.late(at) == []
    assert turn(2, 1) not in [each.turn for each in known.results]
    meeting.result(turn(2, 1))
    assert meeting.known(at) == known


def test_a_worker_whose_search_is_over_is_waited_for_no_more(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, turn(2, 0))
    for n in (2, 3):
        meeting.buffer.put(candidate(turn(n, 0)))
        meeting.result(turn(n - 1, 0))
    assert meeting.known(turn(4, 0)) is None
    assert meeting.late(turn(4, 0)) == [turn(1, 1), turn(2, 1), turn(3, 1)]
    meeting.result(turn(1, 1))
    meeting.buffer.end(turn(2, 1))
    known = meeting.known(turn(4, 0))
    assert known is not None
    assert [each.turn for each in known.results] == [
        turn(0, 0), turn(0, 1), turn(1, 0), turn(1, 1), turn(2, 0)
    ]  # fmt: skip


def test_the_hash_of_what_is_known_tells_accuracies_apart(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, turn(2, 0))
    first = meeting.known(turn(2, 0))
    other = Meeting(tmp_path / "other", turn(2, 0))
    assert first is not None
    assert first.sha256 == other.known(turn(2, 0)).sha256  # type: ignore[union-attr]
    tell(other.logs[0], "candidate-trained", trained("r00000-w00000", 0.5000001))
    assert first.sha256 != other.known(turn(2, 0)).sha256  # type: ignore[union-attr]
    assert known_now(other.ledger, other.buffer).results[0].trained is not None


def _made_up(found: Candidate) -> float:
    """An accuracy that only the architecture decides."""
    return int(found.architecture.digest[:6], 16) / 16**6


def _simulate(
    place: Path, chosen: AutomlSettings, speeds: tuple[float, ...], rounds: int, seed: int = 1
) -> dict[str, Candidate]:
    """All that workers of these speeds propose, one event of the simulation after the other."""
    folder = new_run(place)
    workers = len(speeds)
    buffer, ledger = Buffer(folder.path), Ledger(folder, {w: 1 + w for w in range(workers)})
    logs = [folder.start_attempt(job=1 + worker) for worker in range(workers)]
    candidates: dict[str, Candidate] = {}
    proposes = proposer(chosen, candidates, seed)
    ahead, done, busy_until = [0] * workers, [0] * workers, [0.0] * workers
    dice = random.Random(str(speeds))
    for now in range(100_000):
        for worker in dice.sample(range(workers), workers):  # whoever looks first
            at = turn(ahead[worker], worker)
            if at.round < rounds and (known := known_before(at, workers, ledger, buffer)):
                candidates[at.name] = proposes.propose(at, known)
                buffer.put(candidates[at.name])
                ahead[worker] += 1
            if done[worker] < ahead[worker] and now >= busy_until[worker]:
                name = turn(done[worker], worker).name
                tell(logs[worker], "candidate-trained", trained(name, _made_up(candidates[name])))
                done[worker] += 1
                busy_until[worker] = now + dice.random() * speeds[worker]
        if min(done) == rounds:
            return candidates
    raise AssertionError("the workers wait for each other")


def _essence(candidates: dict[str, Candidate]) -> dict[str, object]:
    """Everything of the candidates but the time that proposing took."""
    return {name: each.model_copy(update={"took_s": 0.0}) for name, each in candidates.items()}


def test_speeds_and_the_order_of_results_change_no_proposal_and_shorter_is_a_prefix(
    tmp_path: Path,
) -> None:
    chosen = settings(workers=3)
    one = _essence(_simulate(tmp_path / "1", chosen, (1.0, 1.0, 1.0), rounds=6))
    two = _essence(_simulate(tmp_path / "2", chosen, (9.0, 1.0, 3.0), rounds=6))
    short = _essence(_simulate(tmp_path / "3", chosen, (1.0, 7.0, 2.0), rounds=3))
    assert one == two
    assert short == {name: one[name] for name in short}
    assert len(one) == 18 and len(short) == 9
    other = _essence(_simulate(tmp_path / "4", chosen, (1.0, 1.0, 1.0), rounds=2, seed=2))
    assert other["r00000-w00000"] == one["r00000-w00000"]  # the first network
    assert other["r00000-w00001"] != one["r00000-w00001"]
