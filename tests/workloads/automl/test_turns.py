"""Ordered search: what a turn waits for, and that nothing but the seed decides what is proposed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.automl_parts import (
    candidate,
    new_run,
    proposer,
    settings,
    trained,
    turn,
    write_event,
)
from vflops.record.log.events import EventWriter
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.search_events import Candidate, Turn
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.shared_results import SharedResults
from vflops.workloads.automl.turns import LAG, KnownResults, TurnOrder, all_known


class Meeting:
    """Two workers' buffer and ledger, with everything that the turns before ``until`` gave."""

    def __init__(self, folder: Path, until: Turn) -> None:
        self.folder = new_run(folder)
        self.buffer = CandidateBuffer(self.folder.path)
        self.shared = SharedResults(self.folder, {0: 1, 1: 2})
        self.order = TurnOrder(2, self.shared, self.buffer)
        self.logs: dict[int, EventWriter] = {}
        for n in range(until.round + 1):
            for worker in range(2 if n < until.round else until.worker):
                self.buffer.put(candidate(turn(n, worker)))
                if n <= until.round - LAG:
                    self.result(turn(n, worker))

    def log(self, worker: int) -> EventWriter:
        if worker not in self.logs:
            self.logs[worker] = self.folder.start_attempt(job=1 + worker)
        return self.logs[worker]

    def result(self, at: Turn) -> None:
        write_event(self.log(at.worker), "candidate-trained", trained(at.name, 0.5))

    def known(self, at: Turn) -> KnownResults | None:
        return self.order.known(at)

    def late(self, at: Turn) -> Turn | None:
        return self.order.first_late(at)


def test_a_turn_waits_for_the_results_two_rounds_before_and_all_proposals(tmp_path: Path) -> None:
    at = turn(3, 1)
    meeting = Meeting(tmp_path, at)
    known = meeting.known(at)
    assert known is not None
    assert [result.turn for result in known.results] == [turn(n, w) for n in (0, 1) for w in (0, 1)]
    before = [turn(n, w) for n in (0, 1, 2) for w in (0, 1)]
    assert known.proposed == (*before, turn(3, 0))
    # Results that are there already, but belong to no round that it may depend on, change nothing.
    meeting.result(turn(2, 0))
    meeting.buffer.put(candidate(turn(3, 1)))
    assert meeting.known(at) == known
    assert meeting.known(turn(4, 0)) is None  # round 2 of worker 1 has no result
    assert meeting.late(turn(4, 0)) == turn(2, 1)
    meeting.result(turn(2, 1))
    assert meeting.known(turn(4, 0)) is not None


@pytest.mark.parametrize("missing", [turn(0, 0), turn(1, 1), turn(2, 0), turn(3, 0)])
def test_a_proposal_that_is_missing_is_waited_for(tmp_path: Path, missing: Turn) -> None:
    at = turn(3, 1)
    meeting = Meeting(tmp_path, at)
    (meeting.folder.path / "buffer" / f"{missing.name}.json").unlink()
    assert meeting.known(at) is None
    assert meeting.late(at) == missing


def test_a_passed_turn_is_not_waited_for_and_never_known_even_if_it_comes(tmp_path: Path) -> None:
    at = turn(4, 0)
    meeting = Meeting(tmp_path, turn(3, 1))
    meeting.buffer.put(candidate(turn(3, 1)))
    meeting.result(turn(2, 0))
    assert meeting.late(at) == turn(2, 1)
    meeting.buffer.give_up(turn(2, 1), 0, 300.0)
    known = meeting.known(at)
    assert known is not None and meeting.late(at) is None
    assert turn(2, 1) not in [result.turn for result in known.results]
    assert turn(2, 1) in known.proposed  # what it proposed is not proposed again
    meeting.result(turn(2, 1))
    assert meeting.known(at) == known


def test_a_worker_whose_search_is_over_is_waited_for_no_more(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, turn(2, 0))
    for n in (2, 3):
        meeting.buffer.put(candidate(turn(n, 0)))
        meeting.result(turn(n - 1, 0))
    assert meeting.known(turn(4, 0)) is None
    assert meeting.late(turn(4, 0)) == turn(1, 1)
    meeting.result(turn(1, 1))
    meeting.buffer.end_turns(turn(2, 1))
    known = meeting.known(turn(4, 0))
    assert known is not None
    assert [result.turn for result in known.results] == [
        turn(0, 0), turn(0, 1), turn(1, 0), turn(1, 1), turn(2, 0)
    ]  # fmt: skip


def test_the_hash_of_what_is_known_tells_accuracies_apart(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, turn(2, 0))
    first = meeting.known(turn(2, 0))
    other = Meeting(tmp_path / "other", turn(2, 0))
    assert first is not None
    assert first.sha256 == other.known(turn(2, 0)).sha256  # type: ignore[union-attr]
    write_event(other.logs[0], "candidate-trained", trained("r00000-w00000", 0.5000001))
    assert first.sha256 != other.known(turn(2, 0)).sha256  # type: ignore[union-attr]
    assert all_known(other.shared, other.buffer).results[0].trained is not None


def _made_up(found: Candidate) -> float:
    """An accuracy that only the architecture decides."""
    return int(found.architecture.digest[:6], 16) / 16**6


class Simulation:
    """Workers of some speeds that propose and train, one event of the simulation after the other.

    ``patience`` is in its time. One that trains or waits gives signs of life, a dead one none.
    """

    def __init__(
        self, parent: Path, chosen: AutomlSettings, speeds: tuple[float, ...], seed: int = 1
    ) -> None:
        folder, workers = new_run(parent), len(speeds)
        self.buffer, self.speeds = CandidateBuffer(folder.path), speeds
        self.shared = SharedResults(folder, {w: 1 + w for w in range(workers)})
        self.orders = [TurnOrder(workers, self.shared, self.buffer) for _ in speeds]
        self.logs = [folder.start_attempt(job=1 + worker) for worker in range(workers)]
        self.candidates: dict[str, Candidate] = {}
        self.passed: list[Turn] = []
        self.proposes = proposer(chosen, self.candidates, seed)
        self.ahead, self.done = [0] * workers, [0] * workers
        self.busy_until, self.heard = [0.0] * workers, [0.0] * workers
        self.dice = random.Random(str(speeds))

    def run(
        self, rounds: int, patience: float = 1e9, dies: tuple[int, int] | None = None
    ) -> dict[str, Candidate]:
        """All that is proposed in so many rounds; ``dies``: a worker, and after how many."""
        workers = range(len(self.speeds))
        for now in range(10_000):
            alive = [w for w in workers if dies is None or w != dies[0] or self.done[w] < dies[1]]
            for worker in self.dice.sample(alive, len(alive)):  # whoever looks first
                self.heard[worker] = now
                if self.ahead[worker] < rounds:
                    self.search(turn(self.ahead[worker], worker), now, patience)
                if self.done[worker] < self.ahead[worker] and now >= self.busy_until[worker]:
                    self.train(turn(self.done[worker], worker), now)
            if min(self.done[worker] for worker in alive) == rounds:
                return self.candidates
        raise AssertionError("the workers wait for each other")

    def search(self, at: Turn, now: float, patience: float) -> None:
        order = self.orders[at.worker]
        if known := order.known(at):
            self.candidates[at.name] = self.proposes.propose(at, known)
            self.buffer.put(self.candidates[at.name])
            self.ahead[at.worker] += 1
        elif late := order.turn_to_give_up(at, patience, lambda worker: now - self.heard[worker]):
            self.buffer.give_up(late, at.worker, 0.0)
            self.passed.append(late)

    def train(self, at: Turn, now: float) -> None:
        result = trained(at.name, _made_up(self.candidates[at.name]))
        write_event(self.logs[at.worker], "candidate-trained", result)
        self.done[at.worker] += 1
        self.busy_until[at.worker] = now + self.dice.random() * self.speeds[at.worker]


def _essence(candidates: dict[str, Candidate]) -> dict[str, object]:
    """Everything of the candidates but the time that proposing took."""
    return {name: item.model_copy(update={"took_s": 0.0}) for name, item in candidates.items()}


def test_speeds_and_the_order_of_results_change_no_proposal_and_shorter_is_a_prefix(
    tmp_path: Path,
) -> None:
    chosen = settings(workers=3)
    one = _essence(Simulation(tmp_path / "1", chosen, (1.0, 1.0, 1.0)).run(6))
    two = _essence(Simulation(tmp_path / "2", chosen, (9.0, 1.0, 3.0)).run(6))
    short = _essence(Simulation(tmp_path / "3", chosen, (1.0, 7.0, 2.0)).run(3))
    assert one == two
    assert short == {name: one[name] for name in short}
    assert len(one) == 18 and len(short) == 9
    other = _essence(Simulation(tmp_path / "4", chosen, (1.0, 1.0, 1.0), seed=2).run(2))
    assert other["r00000-w00000"] == one["r00000-w00000"]  # the first network
    assert other["r00000-w00001"] != one["r00000-w00001"]


def test_who_waits_for_a_slow_worker_is_not_passed_and_a_dead_one_is(tmp_path: Path) -> None:
    chosen, speeds = settings(workers=3), (40.0, 1.0, 2.0)
    calm = Simulation(tmp_path / "1", chosen, speeds)
    patient = Simulation(tmp_path / "2", chosen, speeds)
    assert _essence(patient.run(4, patience=3)) == _essence(calm.run(4))
    assert patient.passed == []
    dead = Simulation(tmp_path / "3", chosen, speeds)
    found = dead.run(5, patience=3, dies=(1, 2))
    # Its proposals stay; what waited for results of it, or for later proposals, waits no more.
    assert dead.passed == [turn(2, 1), turn(3, 1), turn(4, 1)][: len(dead.passed)] != []
    assert sum(name.endswith(("w00000", "w00002")) for name in found) == 10
    assert len({item.architecture.digest for item in found.values()}) == len(found)


def test_only_the_first_late_turn_may_be_passed(tmp_path: Path) -> None:
    """The slow worker's own result is what the silent one waits for."""
    meeting = Meeting(tmp_path, turn(3, 1))
    meeting.buffer.put(candidate(turn(3, 1)))
    at, silent = turn(4, 1), lambda worker: 1000.0 if worker == 0 else 0.0
    meeting.result(turn(2, 0))
    assert meeting.late(at) == turn(2, 1)  # and turn(4, 0) is late too, because of it
    assert meeting.order.turn_to_give_up(at, 300, silent) is None
    meeting.result(turn(2, 1))
    assert meeting.order.turn_to_give_up(at, 300, silent) == turn(4, 0)


def test_a_result_that_cannot_be_read_is_waited_for_by_nobody(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, turn(3, 1))
    meeting.buffer.put(candidate(turn(3, 1)))
    meeting.result(turn(2, 0))
    log, at = meeting.log(1), turn(4, 1)
    meeting.buffer.put(candidate(turn(4, 0)))
    log.write("candidate", candidate=turn(2, 1).name)
    log.write("worker")  # a new attempt goes on with it
    log.write("candidate", candidate=turn(2, 1).name)
    assert meeting.order.turn_to_give_up(at, 300, lambda _: 0.0) is None
    log.write("candidate", candidate=turn(3, 1).name)  # the line before was damaged
    assert meeting.order.turn_to_give_up(at, 300, lambda _: 0.0) == turn(2, 1)
    meeting.result(turn(2, 1))
    assert meeting.order.turn_to_give_up(at, 300, lambda _: 0.0) is None


def test_what_all_have_done_is_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = Meeting(tmp_path, turn(8, 0))
    assert meeting.known(turn(8, 0)) is not None
    asked: list[str] = []
    has = meeting.buffer.has

    def asks(at: Turn) -> bool:
        asked.append(at.name)
        return has(at)

    monkeypatch.setattr(meeting.buffer, "has", asks)
    assert meeting.late(turn(9, 0)) == turn(7, 0)
    assert asked == [turn(7, 0).name]
