"""The placement of M models of P ranks: one slot per rank, and models are not split needlessly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vflops.errors import UsageError
from vflops.launch.placement import (
    THIS_MACHINE,
    Node,
    Plan,
    capacity,
    defaults,
    nearest_pairs,
    plan,
)


def equal_nodes(number: int, slots: int) -> list[Node]:
    return [Node(f"n{index}", slots) for index in range(number)]


def places(planned: Plan) -> list[list[tuple[str, int]]]:
    """Return node and slot of every rank of every model."""
    return [
        [(name, slot) for name, slots in placement.places for slot in slots]
        for placement in planned.placements
    ]


different = st.lists(st.integers(1, 9), min_size=1, max_size=8).map(
    lambda slots: [Node(f"n{index}", count) for index, count in enumerate(slots)]
)


@given(nodes=different, models=st.integers(1, 40), ranks=st.integers(1, 20))
def test_every_rank_of_a_wave_has_its_own_slot(nodes: list[Node], models: int, ranks: int) -> None:
    at_once = capacity(nodes, ranks)
    if at_once == 0:
        with pytest.raises(UsageError):
            plan(nodes, models, ranks, waves=True)
        return
    planned = plan(nodes, models, ranks, waves=True)
    all_slots = {(node.name, slot) for node in nodes for slot in range(node.slots)}
    assert [placement.model for placement in planned.placements] == list(range(models))
    waves: dict[int, Counter[tuple[str, int]]] = {}
    for placement, used in zip(planned.placements, places(planned), strict=True):
        assert len(used) == ranks
        waves.setdefault(placement.wave, Counter()).update(used)
    assert list(waves) == list(range(planned.waves))
    for used_once in waves.values():
        assert set(used_once) <= all_slots
        assert max(used_once.values()) == 1
    for wave in range(planned.waves - 1):  # all but the last are full
        assert len(waves[wave]) == at_once * ranks
        with pytest.raises(UsageError):
            plan(nodes, at_once + 1, ranks)
    assert planned.scale == min(models, at_once) * ranks
    assert planned.claims_weak_scaling == (models <= at_once)


@given(nodes=different, ranks=st.integers(1, 20))
def test_a_model_is_split_only_if_no_node_can_take_it(nodes: list[Node], ranks: int) -> None:
    free = Counter({node.name: node.slots for node in nodes})
    slots = dict(free)
    models = capacity(nodes, ranks)
    assume(models)
    for placement in plan(nodes, models, ranks).placements:
        parts = [(name, len(used)) for name, used in placement.places]
        need = sum(number for _, number in parts)
        for name, number in parts:
            if number < need:  # a part fills a whole node, because no node could take the rest
                assert max(free.values()) < need
                assert number == slots[name] == free[name]
                assert number == max(count for n, count in slots.items() if free[n] == count)
            free[name] -= number
            need -= number


@given(number=st.integers(1, 12), slots=st.integers(1, 9), ranks=st.integers(1, 40))
def test_a_model_uses_as_few_equal_nodes_as_possible(number: int, slots: int, ranks: int) -> None:
    nodes = equal_nodes(number, slots)
    whole, rest = divmod(ranks, slots)

    def fits(models: int) -> bool:  # whole nodes for each, and the remainders share others
        shared = -(-models // (slots // rest)) if rest else 0
        return models * whole + shared <= number

    expected = max(models for models in range(number * slots + 1) if fits(models))
    assert capacity(nodes, ranks) == expected
    if expected:
        for placement in plan(nodes, expected, ranks).placements:
            assert len(placement.places) == -(-ranks // slots)


def test_small_models_fill_a_node_before_the_next() -> None:
    assert places(plan(equal_nodes(2, 4), 3, 2)) == [
        [("n0", 0), ("n0", 1)],
        [("n0", 2), ("n0", 3)],
        [("n1", 0), ("n1", 1)],
    ]


def test_a_large_model_takes_whole_nodes() -> None:
    planned = plan(equal_nodes(4, 4), 2, 8)
    assert [[name for name, _ in placement.places] for placement in planned.placements] == [
        ["n0", "n1"],
        ["n2", "n3"],
    ]


def test_remainders_share_a_node() -> None:
    first, second = plan(equal_nodes(3, 8), 2, 12).placements
    assert first.places == (("n0", tuple(range(8))), ("n1", (0, 1, 2, 3)))
    assert second.places == (("n2", tuple(range(8))), ("n1", (4, 5, 6, 7)))


def test_a_model_goes_to_the_smallest_node_that_can_take_it() -> None:
    nodes = [Node("large", 8), Node("small", 4), Node("other", 4)]
    assert [placement.places for placement in plan(nodes, 2, 4).placements] == [
        (("small", (0, 1, 2, 3)),),
        (("other", (0, 1, 2, 3)),),
    ]
    assert [
        [name for name, _ in placement.places] for placement in plan(nodes, 2, 8).placements
    ] == [
        ["large"],
        ["small", "other"],
    ]


@pytest.mark.parametrize(("slots", "ranks"), [(8, 1), (16, 2), (64, 8)])
def test_thousands_of_models_are_planned(slots: int, ranks: int) -> None:
    planned = plan(equal_nodes(512, slots), 4096, ranks)
    assert (planned.models, planned.scale) == (4096, 512 * slots)


def test_more_models_than_fit_run_in_waves_and_claim_no_weak_scaling() -> None:
    planned = plan(equal_nodes(2, 4), 5, 4, waves=True)
    assert [placement.wave for placement in planned.placements] == [0, 0, 1, 1, 2]
    assert (planned.waves, planned.scale) == (3, 8)
    assert not planned.claims_weak_scaling
    assert plan(equal_nodes(2, 4), 2, 4, waves=True).claims_weak_scaling


@pytest.mark.parametrize(
    ("nodes", "models", "ranks", "message", "hint"),
    [
        (
            equal_nodes(1, 8),
            3,
            4,
            "no room for 3 models of 4 ranks (12 slots) on 1 node with 8 slots",
            "choose 2 models of 4 ranks, 3 of 2 or 4 of 2; or run them in waves with --waves",
        ),
        (
            equal_nodes(3, 4),
            4,
            3,
            "of 4 models of 3 ranks only 3 fit on 3 nodes with 12 slots:"
            " free slots of several nodes are not combined",
            "choose 3 models of 3 ranks, 4 of 2 or 3 of 4; or run them in waves with --waves",
        ),
        (
            equal_nodes(1, 2),
            1,
            3,
            "no room for 1 model of 3 ranks (3 slots) on 1 node with 2 slots",
            "choose 1 model of 2 ranks or 2 of 1",
        ),
        (
            equal_nodes(1, 1),
            1,
            2,
            "no room for 1 model of 2 ranks (2 slots) on 1 node with 1 slot",
            "choose 1 model of 1 rank",
        ),
        (
            [Node(THIS_MACHINE, 1)],
            512,
            1,
            "no room for 512 models of 1 rank (512 slots) on 1 node with 1 slot",
            "choose 1 model of 1 rank; or run them in waves with --waves; or on the nodes of a"
            " cluster with --on slurm",
        ),
        (equal_nodes(1, 8), 0, 4, "models is 0", "use a whole number of at least 1"),
        (equal_nodes(1, 8), 2, -1, "ranks is -1", "use a whole number of at least 1"),
        ([], 1, 1, "there are no nodes to run on", "name at least one"),
        ([Node("a", 0)], 1, 1, "node a has 0 slots", "leave it out, or give it slots"),
        ([Node("a", 1)] * 2, 1, 1, "node a is listed twice", "list every node once"),
    ],
)
def test_models_that_do_not_fit_are_refused_with_alternatives(
    nodes: list[Node], models: int, ranks: int, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        plan(nodes, models, ranks)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@given(nodes=different, models=st.integers(1, 99), ranks=st.integers(1, 99))
def test_every_suggested_pair_fits(nodes: list[Node], models: int, ranks: int) -> None:
    pairs = nearest_pairs(nodes, models, ranks)
    assert 1 <= len(pairs) == len(set(pairs)) <= 3
    for pair in pairs:
        plan(nodes, *pair)


def test_by_default_each_model_fills_a_node_and_the_machine_is_full() -> None:
    assert defaults(equal_nodes(4, 8)) == (4, 8)
    assert defaults([Node("a", 8), Node("b", 4)]) == (3, 4)
    assert defaults(equal_nodes(4, 8), ranks=16) == (2, 16)
    assert defaults(equal_nodes(4, 8), models=3) == (3, 8)
    assert defaults(equal_nodes(4, 8), models=3, ranks=2) == (3, 2)


def test_more_models_than_nodes_have_fewer_ranks_by_default() -> None:
    assert defaults(equal_nodes(1, 2), models=2) == (2, 1)
    assert defaults(equal_nodes(1, 8), models=3) == (3, 2)
    assert defaults(equal_nodes(1, 8), models=9) == (9, 8)  # no P fits: for waves


def test_ranks_that_fit_nowhere_have_no_default() -> None:
    with pytest.raises(UsageError, match=r"no room for 1 model of 9 ranks"):
        defaults(equal_nodes(2, 4), ranks=9)


@pytest.mark.parametrize("scale", range(8, 65, 8))
def test_the_scales_of_the_paper_have_its_models_and_ranks(scale: int) -> None:
    """V3.0, section 5: 8 nodes of 8 GPUs, and M = 1 to 8 for 8 to 64 GPUs."""
    assert defaults(equal_nodes(8, 8), scale=scale) == (scale // 8, 8)


def test_with_a_scale_models_times_ranks_equal_it() -> None:
    nodes = equal_nodes(4, 8)
    assert defaults(nodes, scale=16) == (2, 8)
    assert defaults(nodes, scale=8) == (1, 8)
    assert defaults(nodes, scale=12, models=2) == (2, 6)
    assert defaults(nodes, scale=16, models=1) == (1, 16)
    assert defaults(nodes, scale=16, ranks=4) == (4, 4)
    assert defaults(nodes, scale=16, models=4, ranks=4) == (4, 4)


@pytest.mark.parametrize(
    ("models", "ranks", "scale", "message", "hint"),
    [
        (
            3,
            None,
            16,
            "3 models × P ranks do not make the scale 16 (equation 5) on 4 nodes with 32 slots",
            "choose 2 models of 8 ranks, 4 of 4 or 1 of 16",
        ),
        (
            2,
            4,
            16,
            "2 models × 4 ranks do not make the scale 16 (equation 5) on 4 nodes with 32 slots",
            "choose 2 models of 8 ranks, 4 of 4 or 1 of 16",
        ),
        (
            None,
            None,
            12,
            "M models × P ranks do not make the scale 12 (equation 5) on 4 nodes with 32 slots,"
            " where P is the 8 slots of a node",
            "choose 2 models of 6 ranks, 3 of 4 or 4 of 3 with --ranks; or --scale 8 or 16",
        ),
        (
            None,
            None,
            4,
            "M models × P ranks do not make the scale 4 (equation 5) on 4 nodes with 32 slots,"
            " where P is the 8 slots of a node",
            "choose 1 model of 4 ranks, 2 of 2 or 4 of 1 with --ranks; or --scale 8",
        ),
        (
            None,
            3,
            16,
            "M models × 3 ranks do not make the scale 16 (equation 5) on 4 nodes with 32 slots",
            "choose 4 models of 4 ranks, 8 of 2 or 2 of 8; or --scale 15 or 18",
        ),
        (
            None,
            None,
            33,
            "the scale 33 is too large for 4 nodes with 32 slots",
            "choose at most 32",
        ),
        (None, None, 0, "scale is 0", "use a whole number of at least 1"),
    ],
)
def test_a_scale_that_differs_from_models_times_ranks_is_refused(
    models: int | None, ranks: int | None, scale: int, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        defaults(equal_nodes(4, 8), models, ranks, scale=scale)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@given(nodes=different, models=st.none() | st.integers(1, 60))
def test_defaults_can_be_planned(nodes: list[Node], models: int | None) -> None:
    m, p = defaults(nodes, models)
    enough = models is None or models <= sum(node.slots for node in nodes)
    assert plan(nodes, m, p, waves=not enough).models == m
