"""Searches: pure functions that propose what is new, within the limits, and get better at it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

import pytest

from vflops.errors import UsageError
from vflops.workloads.automl.architecture import morphs, starting_networks
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Limits
from vflops.workloads.automl.search.bayesian import Annealing, BayesianSearch, Model, _select_ranks
from vflops.workloads.automl.search.evolution import EvolutionarySearch, RandomSearch
from vflops.workloads.automl.search.searcher import Searcher, SearchSpaceExhausted, Trial, rank
from vflops.workloads.automl.search.searchers import searcher, searchers

NAMES = ("bayesian", "evolution", "random")
QUICK = BayesianSearch(Annealing(children=4, cooling_factor=0.25))
FREE = Limits()


def some(name: str) -> Searcher:
    return QUICK if name == "bayesian" else searcher(name)


def grown(architecture: Architecture) -> float:
    """An accuracy that only larger kernels raise: a search may find that out."""
    kernels = [kernel for _, _, kernel, _ in architecture.signature_layers()]
    return 0.2 + 0.02 * sum(kernel - 3 for kernel in kernels if kernel > 3)


def history(count: int, seed: int = 0) -> list[Trial]:
    rng = random.Random(seed)
    found = {(start := starting_networks.small()).digest: start}
    while len(found) < count:
        drawn = morphs.sample(rng.choice(list(found.values())), rng, FREE)
        assert drawn is not None
        found[drawn[1].digest] = drawn[1]
    return [Trial(f"t{index:03d}", item, grown(item)) for index, item in enumerate(found.values())]


TRIALS = history(12)


@pytest.mark.parametrize("name", NAMES)
def test_a_proposal_is_new_and_its_morphs_lead_to_it(name: str) -> None:
    pending: list[str] = []
    parents = {trial.id: trial.architecture for trial in TRIALS}
    for seed in range(5):
        proposal = some(name).propose(TRIALS, random.Random(seed), FREE, pending=pending)
        architecture = parents[proposal.parent]
        for morph in proposal.morphs:
            architecture = morphs.apply(architecture, morph)
        digest = proposal.architecture.digest
        assert architecture.digest == digest
        assert digest not in {trial.architecture.digest for trial in TRIALS}
        assert digest not in pending
        pending.append(digest)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_pending_is_not_proposed_again(name: str) -> None:
    first = some(name).propose(TRIALS, random.Random(3), FREE)
    digest = first.architecture.digest
    second = some(name).propose(TRIALS, random.Random(3), FREE, pending=[digest])
    assert second.architecture.digest != digest


@pytest.mark.parametrize("name", NAMES)
def test_the_same_arguments_give_the_same_proposal_in_any_order(name: str) -> None:
    first = some(name).propose(TRIALS, random.Random(7), FREE)
    assert some(name).propose(TRIALS, random.Random(7), FREE) == first
    assert some(name).propose(TRIALS[::-1], random.Random(7), FREE) == first
    others = [some(name).propose(TRIALS, random.Random(seed), FREE) for seed in range(8, 12)]
    assert any(other.architecture.digest != first.architecture.digest for other in others)


def test_another_process_proposes_the_same() -> None:
    code = (
        "import sys\n"
        "from tests.workloads.automl.search.test_searchers import said\n"
        "print(said()); assert 'torch' not in sys.modules"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == said()


def said() -> str:
    pending = [trial.architecture.digest for trial in history(20, seed=1)]
    found = [some(n).propose(TRIALS, random.Random(5), FREE, pending=pending) for n in NAMES]
    return " ".join(f"{proposal.architecture.digest} {proposal.why}" for proposal in found)


@pytest.mark.parametrize("name", NAMES)
def test_limits_are_kept(name: str) -> None:
    start = TRIALS[0].architecture
    limits = Limits(depth=start.depth, parameters=2 * start.parameters)
    for seed in range(3):
        proposal = some(name).propose(TRIALS[:1], random.Random(seed), limits)
        assert proposal.architecture.depth == start.depth
        assert proposal.architecture.parameters <= 2 * start.parameters


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_space_is_said_to_be_empty(name: str) -> None:
    with pytest.raises(
        SearchSpaceExhausted, match=f"{name} search found no new architecture"
    ) as caught:
        some(name).propose(TRIALS[:2], random.Random(1), Limits(parameters=1))
    assert "raise the limits" in str(caught.value.hint)


@dataclass(frozen=True)
class Lattice:
    """Networks that are one number: a space that is small and known to the last corner."""

    number: int

    @property
    def digest(self) -> str:
        return str(self.number)

    def signature_layers(self) -> tuple[tuple[str, int, int, int], ...]:
        return (("conv", 1, 3, 1),) * self.number

    def skips(self) -> tuple[()]:
        return ()


@pytest.mark.parametrize("name", NAMES)
def test_a_small_space_is_searched_to_its_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(at: Lattice, rng: random.Random, _: object) -> tuple[str, Lattice]:
        steps = [item for item in (at.number - 1, at.number + 1) if 1 <= item <= 12]
        return ("step", Lattice(rng.choice(steps)))

    class Steps:
        def __init__(self, at: Lattice, _: object) -> None:
            self.at = at

        def draw(self, rng: random.Random) -> tuple[str, Lattice]:
            return step(self.at, rng, None)

    monkeypatch.setattr(morphs, "sample", step)
    monkeypatch.setattr(morphs, "MorphSampler", Steps)
    found = [5]
    while len(found) < 12:
        trials: list[Trial] = [Trial(str(item), Lattice(item), item / 20) for item in found[:4]]  # type: ignore[arg-type]
        pending = [str(item) for item in found[4:]]
        reach = Annealing(max_morphs=12)
        search = BayesianSearch(reach) if name == "bayesian" else _far(name)
        proposal = search.propose(trials, random.Random(len(found)), FREE, pending=pending)
        found.append(int(proposal.architecture.digest))
    assert sorted(found) == list(range(1, 13))
    with pytest.raises(SearchSpaceExhausted, match="4 were tried, 8 are pending"):
        search.propose(trials, random.Random(1), FREE, pending=[str(item) for item in found[4:]])


def _far(name: str) -> Searcher:
    return RandomSearch(max_morphs=40) if name == "random" else EvolutionarySearch(max_morphs=40)


@pytest.mark.parametrize("name", NAMES)
def test_there_must_be_something_to_start_from(name: str) -> None:
    with pytest.raises(UsageError, match="no trial"):
        some(name).propose([], random.Random(1), FREE)
    broken = Trial("t1", TRIALS[0].architecture, float("nan"))
    with pytest.raises(ValueError, match="trial t1 is nan"):
        some(name).propose([broken], random.Random(1), FREE)


def test_trials_rank_by_accuracy_then_by_id() -> None:
    start = TRIALS[0].architecture
    trials = [Trial("b", start, 0.5), Trial("a", start, 0.5), Trial("c", start, 0.9)]
    assert [trial.id for trial in rank(trials)] == ["c", "a", "b"]


def test_the_tournament_presses_towards_the_best() -> None:
    def ranks(tournament: int) -> list[int]:
        search = EvolutionarySearch(tournament=tournament)
        rng = random.Random(1)
        return [search.choose_parent(10, rng) for _ in range(400)]

    assert mean(ranks(1)) == pytest.approx(4.5, abs=0.6)
    assert mean(ranks(5)) == pytest.approx(5 / 6, abs=0.2)  # the least of 5 out of 0…9
    assert set(ranks(10)) == set(ranks(99)) == {0}
    proposal = EvolutionarySearch(tournament=99).propose(TRIALS, random.Random(1), FREE)
    assert proposal.parent == rank(TRIALS)[0].id
    assert proposal.why.figures() == {"parent_rank": 0, "tried": 1}


def test_bayesian_figures_are_those_of_the_model() -> None:
    proposal = QUICK.propose(TRIALS, random.Random(2), FREE)
    why = proposal.why
    assert why.mean is not None
    assert why.std is not None
    assert why.acquisition == pytest.approx(why.mean + 2.576 * why.std, abs=1e-8)
    model = Model(rank(TRIALS), 2.576)
    again = model.candidates([(0, (), proposal.architecture)])[0]
    assert (again.mean, again.std) == pytest.approx((why.mean, why.std))
    assert rank(TRIALS)[why.parent_rank].id == proposal.parent
    assert set(why.figures()) == {"parent_rank", "tried", "mean", "std", "acquisition"}


def test_a_proposal_has_a_greater_bound_than_a_random_one() -> None:
    model = Model(rank(TRIALS), 2.576)
    drawn = [RandomSearch().propose(TRIALS, random.Random(seed), FREE) for seed in range(20)]
    bounds = [
        candidate.bound for candidate in model.candidates([(0, (), d.architecture) for d in drawn])
    ]
    found = BayesianSearch().propose(TRIALS, random.Random(1), FREE).why.acquisition
    assert found is not None
    assert found > max(bounds)


def test_the_annealing_keeps_its_settings() -> None:
    short = BayesianSearch(Annealing(max_morphs=1, children=3, cooling_factor=0.1))
    proposals = [short.propose(TRIALS, random.Random(seed), FREE) for seed in range(4)]
    assert {len(proposal.morphs) for proposal in proposals} == {1}
    assert all(proposal.why.tried <= 3 * 5 for proposal in proposals)  # 1, 0.1 … 1e-4 with rounding
    greedy = BayesianSearch(Annealing(confidence=0.0, children=4, cooling_factor=0.25))
    why = greedy.propose(TRIALS, random.Random(1), FREE).why
    assert why.mean == pytest.approx(why.acquisition)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cooling_factor": 1.0},
        {"min_temperature": 2.0},
        {"children": 0},
        {"max_morphs": 0},
        {"min_temperature": 0.0},
    ],
)
def test_an_annealing_that_would_not_end_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Annealing(**wrong)  # type: ignore[arg-type]


def test_a_long_history_is_modelled_by_its_best_and_an_even_choice() -> None:
    assert _select_ranks(5, 10) == [0, 1, 2, 3, 4]
    places = _select_ranks(1000, 10)
    assert places[:5] == [0, 1, 2, 3, 4]
    assert places[-1] == 999
    assert len(set(places)) == 10
    assert _select_ranks(11, 10) == sorted(set(_select_ranks(11, 10)))
    short = BayesianSearch(Annealing(children=2, max_trials=4))
    proposal = short.propose(TRIALS, random.Random(1), FREE)
    assert proposal.architecture.digest not in {trial.architecture.digest for trial in TRIALS}


def liked(architecture: Architecture) -> float:
    """An accuracy with an optimum: some more layers, some larger kernels, a few skips."""
    layers, skips = architecture.signature_layers(), architecture.skips()
    kernels = sum(kernel - 3 for _, _, kernel, _ in layers if kernel > 3)
    return 0.9 - 0.03 * abs(len(layers) - 13) - 0.02 * abs(len(skips) - 4) - abs(kernels - 8) / 100


@pytest.mark.parametrize(
    ("accuracy", "candidates", "seeds", "margin"), [(grown, 10, 5, 0.08), (liked, 12, 3, 0.03)]
)
def test_learning_beats_chance_with_the_same_budget(
    accuracy: Callable[[Architecture], float], candidates: int, seeds: int, margin: float
) -> None:
    # Kernels alone, which the plain edit distance hardly sees beside layers and skips, and a mix.
    # Margins are half of what 10 seeds gave. Few children: it has to be quick.
    start = starting_networks.small()
    limits = Limits(parameters=8 * start.parameters)
    quick = BayesianSearch(Annealing(children=6, cooling_factor=0.25))

    def best(search: Searcher, seed: int) -> float:
        trials = [Trial("t000", start, accuracy(start))]
        rng = random.Random(seed)
        for number in range(1, candidates + 1):
            found = search.propose(trials, rng, limits).architecture
            trials.append(Trial(f"t{number:03d}", found, accuracy(found)))
        return max(trial.accuracy for trial in trials)

    chance = mean(best(RandomSearch(), seed) for seed in range(20))
    assert mean(best(quick, seed) for seed in range(seeds)) > chance + margin
    assert mean(best(EvolutionarySearch(), seed) for seed in range(20)) > chance


def test_searches_are_found_by_name() -> None:
    assert tuple(searchers()) == NAMES
    assert isinstance(searcher("evolution"), EvolutionarySearch)
    with pytest.raises(UsageError, match="unknown search 'baysian'") as caught:
        searcher("baysian")
    assert caught.value.hint == "did you mean bayesian?"
    with pytest.raises(UsageError, match="tournament is 0"):
        EvolutionarySearch(tournament=0)
