"""Proposals: within limits, built as tuned, of a parent that is known."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.automl_parts import DATA, candidate, proposer, settings, trained, turn
from vflops.workloads.automl import proposer as propose
from vflops.workloads.automl.architecture import architecture_cost, morphs
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.step_memory import StepMemory
from vflops.workloads.automl.proposer import first_network, grow_kernels, limits_of
from vflops.workloads.automl.search.searcher import SearchSpaceExhausted
from vflops.workloads.automl.search.tuning import Setting, Space, TuningResult
from vflops.workloads.automl.search_events import (
    Candidate,
    CandidateTrained,
    Hyperparameters,
    Turn,
)
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.shared_results import CandidateResult
from vflops.workloads.automl.turns import KnownResults
from vflops.workloads.image_classification.settings import ResNetSettings


def searched(
    chosen: AutomlSettings, rounds: int, seed: int = 1, memory: StepMemory | None = None
) -> list[Candidate]:
    """One worker's candidates, each known with a made-up result before the next is proposed."""
    candidates: dict[str, Candidate] = {}
    proposes = replace(proposer(chosen, candidates, seed), memory=memory)
    results: list[CandidateResult] = []
    for n in range(rounds):
        at = turn(n, 0)
        known = KnownResults(tuple(results), tuple(result.turn for result in results))
        found = candidates[at.name] = proposes.propose(at, known)
        accuracy = int(found.architecture.digest[:6], 16) / 16**6
        ended = trained(at.name, accuracy).model_copy(update={"hyper": found.hyper})
        results.append(CandidateResult(at, ended))
    return list(candidates.values())


def kernels(network: Architecture) -> list[int]:
    return [layer.kernel for layer in network.layers if layer.kind == "conv" and layer.kernel > 1]


@pytest.mark.parametrize("searcher", ["evolution", "random", "bayesian"])
def test_candidates_keep_the_limits_differ_and_come_from_a_parent_that_is_known(
    searcher: str,
) -> None:
    first = first_network(settings(), DATA)
    limits = {"parameters": 2 * first.parameters, "depth": first.depth + 3}
    chosen = settings(searcher=searcher, limits=limits)
    found = searched(chosen, 9)
    assert found[0].architecture == first and found[0].parent is None and not found[0].morphs
    seen = {item.turn.name: item.architecture for item in found}
    for item in found[1:]:
        assert morphs.is_within_limits(item.architecture, limits_of(chosen))
        assert item.parent in seen and item.parent < item.turn.name
        network = seen[item.parent]
        for morph in item.morphs:
            network = morphs.apply(network, morph)
        assert network == item.architecture  # the morphs lead from the parent to it
        assert item.known == item.turn.round
    whole = [(item.architecture.digest, item.hyper.batch) for item in found]
    assert len(set(whole)) == len(whole)


def test_the_first_rounds_train_with_the_workloads_own_batch_and_the_fifth_is_tuned() -> None:
    found = searched(settings(), 8)
    assert [item.tuned for item in found] == [False] * 4 + [True] * 4
    for item in found[:4]:
        assert (item.hyper.batch, item.hyper.kernel) == (settings().train.batch, None)
    for item in found[4:]:
        assert item.hyper.batch in settings().batches
    assert [item.epochs for item in found[:5]] == [1, 1, 2, 2, 2]


def test_tuning_can_begin_with_the_first_round_and_kernels_that_are_tuned_are_built() -> None:
    found = searched(settings(tune_from=1, kernels=(7,), batches=(32,)), 4)
    for item in found:
        assert item.hyper.kernel == 7 and set(kernels(item.architecture)) == {7}
    first = first_network(settings(), DATA)
    assert set(kernels(first)) == {3, 5}
    assert architecture_cost.ops(found[0].architecture).total > architecture_cost.ops(first).total


def test_kernels_never_shrink_and_the_record_has_the_size_that_is_there() -> None:
    """TPE may ask for 3 where the parent has 7: what ran is what is told, and learnt from."""
    chosen = settings(tune_from=1, kernels=(7,), batches=(32,))
    candidates = {item.turn.name: item for item in searched(chosen, 1)}
    result = trained(turn(0, 0).name, 0.5).model_copy(
        update={"hyper": candidates[turn(0, 0).name].hyper}
    )
    known = KnownResults((CandidateResult(turn(0, 0), result),), (turn(0, 0),))
    three = settings(tune_from=1, kernels=(3,), batches=(32,))
    found = proposer(three, candidates).propose(turn(1, 0), known)
    # A block that was just put in may have a kernel of its own.
    assert found.hyper.kernel == min(kernels(found.architecture))
    assert found.hyper.kernel == 7 or any(morph.kind == "deepen" for morph in found.morphs)


def test_tuning_learns_from_tuned_rounds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[Setting]] = []

    def suggest(space: Space, tried: Sequence[TuningResult], seed: int) -> Setting:
        asked.append([item.setting for item in tried])
        return Setting(16, 5)

    monkeypatch.setattr(propose, "suggest", suggest)
    found = searched(settings(tune_from=3), 5)
    tuned = [Setting(item.hyper.batch, item.hyper.kernel or 0) for item in found[2:]]
    assert asked == [[], tuned[:1], tuned[:2]]


@pytest.mark.parametrize(("tuning", "workers"), [("pooled", (0, 1, 2)), ("separate", (1,))])
def test_a_worker_tunes_from_the_results_of_all_or_from_its_own(
    monkeypatch: pytest.MonkeyPatch, tuning: str, workers: tuple[int, ...]
) -> None:
    tried: list[TuningResult] = []

    def suggest(space: Space, results: Sequence[TuningResult], seed: int) -> Setting:
        tried.extend(results)
        return Setting(16, 5)

    monkeypatch.setattr(propose, "suggest", suggest)
    candidates = {turn(0, worker).name: candidate(turn(0, worker)) for worker in range(3)}
    results = tuple(
        CandidateResult(at, trained(at.name, worker / 4, hyper=Hyperparameters(batch=32, kernel=3)))
        for worker in range(3)
        for at in [turn(0, worker)]
    )
    known = KnownResults(results, tuple(result.turn for result in results))
    proposer(settings(tune_from=2, tuning=tuning), candidates).propose(turn(1, 1), known)
    assert [result.accuracy for result in tried] == [worker / 4 for worker in workers]


def test_a_worker_that_tunes_on_its_own_trains_its_own_proposals_in_any_order() -> None:
    """The search proposes with all results, but the worker that tuned a candidate trains it."""
    own = {
        (order, tuning): settings(order=order, tuning=tuning).own_proposals
        for order in ("ordered", "free")
        for tuning in ("pooled", "separate")
    }
    assert [key for key, value in own.items() if not value] == [("free", "pooled")]


def test_patience_counts_evaluations_however_far_apart_they_are() -> None:
    own = settings().train.model_copy(update={"epochs": 60, "evaluate_every": 4})
    (found,) = searched(settings().model_copy(update={"train": own}), 1)
    assert found.patience == 2  # 6 epochs: the second evaluation is after 8


def test_the_first_network_can_be_v1_as_the_paper_has_it() -> None:
    size = {"size": 224, "resize": 256, "network": ResNetSettings()}
    for v1, operations in ((False, 24_680_967_192), (True, 23_289_486_360)):
        own = settings(v1=v1).model_copy(update=size)
        data = DATA.model_copy(update={"facts": {"classes": 1000}})
        assert architecture_cost.ops(first_network(own, data), "aiperf").total == operations


def test_kernels_that_do_not_fit_are_left_alone_and_the_record_says_so() -> None:
    first = first_network(settings(), DATA)
    grown, _ = grow_kernels(first, 5)
    limits = {"parameters": grown.parameters - 1}
    (found,) = searched(settings(tune_from=1, kernels=(5,), batches=(32,), limits=limits), 1)
    assert found.hyper.kernel == 3 and found.architecture == first


def test_a_batch_that_needs_more_memory_than_there_may_be_is_not_taken() -> None:
    first = first_network(settings(), DATA)
    room = architecture_cost.memory_bytes(first, 48, 4)
    chosen = settings(tune_from=1, kernels=(3,), limits={"memory_bytes": room})
    batches = {item.hyper.batch for seed in range(8) for item in searched(chosen, 2, seed)}
    assert batches == {16, 32}  # 64 is among the choices
    for item in searched(chosen, 6):
        limits = limits_of(chosen, item.hyper.batch)
        assert limits.batch == item.hyper.batch
        assert morphs.is_within_limits(item.architecture, limits)


def test_limits_that_leave_nothing_end_the_search() -> None:
    first = first_network(settings(), DATA)
    with pytest.raises(SearchSpaceExhausted, match="no new architecture within"):
        searched(settings(limits={"parameters": first.parameters}), 2)


def test_growing_kernels_touches_only_smaller_ones_of_3_and_more() -> None:
    first = first_network(settings(), DATA)
    five, steps = grow_kernels(first, 5)
    assert set(kernels(five)) == {5} and len(steps) == kernels(first).count(3)
    assert grow_kernels(five, 3) == (five, [])
    ones = [layer for layer in first.layers if layer.kind == "conv" and layer.kernel == 1]
    assert ones and all(five.layer[layer.id].kernel == 1 for layer in ones)


def test_a_warm_up_result_counts_by_its_prediction_and_a_failed_one_not_at_all() -> None:
    candidates: dict[str, Candidate] = {}
    proposes = proposer(settings(), candidates)
    none = KnownResults((), ())
    for worker in range(3):
        at = turn(0, worker)
        candidates[at.name] = proposes.propose(at, none)

    def result(worker: int, **facts: object) -> CandidateResult:
        name = turn(0, worker).name
        ended = CandidateTrained.model_validate(trained(name, 0.5).model_dump() | facts)
        return CandidateResult(turn(0, worker), ended)

    results = (result(0, predicted=0.9), result(1, accuracy=0.8), CandidateResult(turn(0, 2), None))
    known = KnownResults(results, tuple(turn(0, worker) for worker in range(3)))
    again = KnownResults((result(0, predicted=0.8), *results[1:]), known.proposed)
    assert again.sha256 != known.sha256  # it is known by what proposals go by
    trials = proposes._trials(known)
    assert [(trial.id, trial.accuracy) for trial in trials] == [
        ("r00000-w00000", 0.9),
        ("r00000-w00001", 0.8),
    ]


def test_streams_of_turns_and_seeds_differ() -> None:
    candidates: dict[str, Candidate] = {}
    digests = set()
    for seed, worker in itertools.product((1, 2), range(1, 5)):
        at = Turn(round=0, worker=worker)
        found = proposer(settings(), candidates, seed).propose(at, KnownResults((), ()))
        digests.add(found.architecture.digest)
    assert len(digests) >= 7  # of 8; chance may draw one twice


def test_tuning_offers_batches_that_fit_and_hears_of_those_that_did_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spaces: list[Space] = []
    heard: list[TuningResult] = []

    def suggest(space: Space, results: Sequence[TuningResult], seed: int) -> Setting:
        spaces.append(space)
        heard.extend(results)
        return Setting(space.batches[-1], 3)

    monkeypatch.setattr(propose, "suggest", suggest)
    failed = candidate(turn(0, 1)).model_copy(
        update={"hyper": Hyperparameters(batch=64, kernel=3), "tuned": True}
    )
    candidates = {turn(0, 0).name: candidate(turn(0, 0)), failed.turn.name: failed}
    known = KnownResults(
        (
            CandidateResult(turn(0, 0), trained(turn(0, 0).name, 0.5)),
            CandidateResult(failed.turn, None, out_of_memory=True),
        ),
        (turn(0, 0), failed.turn),
    )
    chosen = settings(tune_from=2)
    first = candidates[turn(0, 0).name].architecture
    limits = limits_of(chosen, chosen.batches[-1])
    bytes_needed = architecture_cost.memory_bytes(first, limits.batch, limits.bytes_per_value)
    unlimited = proposer(chosen, candidates)
    unlimited.propose(turn(1, 0), known)
    half = StepMemory(worker=0, usable_bytes=bytes_needed // 2)
    replace(unlimited, memory=half).propose(turn(1, 0), known)
    assert spaces[0].batches == chosen.batches
    assert spaces[1].batches and set(spaces[1].batches) < set(chosen.batches)
    assert [(tried.setting, tried.accuracy) for tried in heard[:1]] == [(Setting(64, 3), None)]


def room_for(network: Architecture, batch: int, **changes: float) -> StepMemory:
    """Just as much memory as a step takes, in fp32 and with one rank."""
    needed = architecture_cost.memory_bytes(network, batch, 4)
    return StepMemory.model_validate({"worker": 0, "usable_bytes": needed, **changes})


@pytest.mark.parametrize(
    ("changes", "batch"), [({}, 32), ({"factor": 1.1}, 16), ({"fixed_bytes": 1}, 16)]
)
def test_a_candidate_of_an_early_round_has_a_batch_that_fits_the_measured_memory(
    changes: dict[str, float], batch: int
) -> None:
    chosen = settings()
    first = first_network(chosen, DATA)
    memory = room_for(first, 32, **changes)
    limited = replace(proposer(chosen, {}), memory=memory)
    proposal = limited.propose(turn(0, 0), KnownResults((), ()))
    assert (proposal.architecture, proposal.hyper.batch) == (first, batch)


def test_every_network_fits_the_memory_with_its_batch_also_with_grown_kernels() -> None:
    chosen = settings(tune_from=2, kernels=(3, 5, 7))
    first = first_network(chosen, DATA)
    memory = room_for(first, 28)  # 16 is the smallest batch
    for seed in range(6):
        found = searched(chosen, 6, seed, memory)
        assert all(memory.fits(item.architecture, item.hyper.batch, 4) for item in found)
    wide = StepMemory(worker=0, usable_bytes=1 << 40)
    assert any(
        not memory.fits(item.architecture, item.hyper.batch, 4)
        for item in searched(chosen, 6, 0, wide)
    )
