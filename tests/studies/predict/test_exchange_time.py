"""Times of exchanges: values worked out by hand, and what holds for all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflops.errors import UsageError
from vflops.studies.predict.exchange_time import (
    EXCHANGES,
    ExchangeMode,
    Group,
    Link,
    exposed_time,
    hierarchical,
    ring,
    shorter_torus_side,
    torus,
    tree,
)

WITHIN, BETWEEN = Link(100e9, 1e-6), Link(1e9, 1e-3)
TWO_NODES = Group(16, 8, WITHIN, BETWEEN)
EIGHT_NODES = Group(64, 8, WITHIN, BETWEEN)

modes = st.sampled_from(list(EXCHANGES))
sizes = st.floats(1e3, 1e11)
links = st.builds(Link, st.floats(1e6, 1e12), st.floats(0, 1e-2))
groups = st.builds(
    lambda node, nodes, within, between: Group(node * nodes, node, within, between),
    st.integers(1, 16),
    st.integers(1, 200),
    links,
    links,
)


def test_a_ring_sends_every_byte_almost_twice_and_pays_each_step() -> None:
    # 2 · 15/16 · 1 GB at 1 GB/s, and 30 steps of 1 ms.
    assert ring(TWO_NODES, 1e9) == pytest.approx(1.875 + 0.030)
    assert ring(Group(4, 8, WITHIN, None), 1e9) == pytest.approx(1.5e9 / 100e9 + 6e-6)


def test_a_tree_of_two_sends_every_byte_once_and_of_more_twice() -> None:
    # 2 ⌈log₂ 2⌉ of 1 ms between nodes, 2 ⌈log₂ 8⌉ of 1 µs within.
    assert tree(TWO_NODES, 1e9) == pytest.approx(1.0 + 0.002 + 6e-6)
    assert tree(EIGHT_NODES, 1e9) == pytest.approx(2.0 + 0.006 + 6e-6)
    assert tree(Group(2, 8, WITHIN, None), 1e9) == pytest.approx(0.01 + 2e-6)


def test_levels_reduce_in_the_node_then_between_leaders_then_back() -> None:
    # Twice 10 ms and 7 µs within; 2 · 7/8 s and 14 ms between eight leaders.
    assert hierarchical(EIGHT_NODES, 1e9) == pytest.approx(2 * (0.01 + 7e-6) + 1.75 + 0.014)


def test_levels_of_single_ranks_are_rows_of_the_squarest_torus() -> None:
    # 2 × 2: to a leader and back, 1 s and 1 ms each, and half of the bytes twice between two.
    found = hierarchical(Group(4, 1, None, BETWEEN), 1e9)
    assert found == pytest.approx(2 * (1 + 0.001) + 1 + 0.002)
    assert hierarchical(Group(3, 1, None, BETWEEN), 1e9) == pytest.approx(4 / 3 + 0.004)


def test_a_torus_of_nodes_shares_the_link_of_each_node() -> None:
    assert torus(EIGHT_NODES, 1e9) == pytest.approx(2 * (0.00875 + 7e-6) + 1.75 + 0.014)


def test_a_torus_of_single_ranks_is_as_square_as_it_can_be() -> None:
    alone = Group(12, 1, None, BETWEEN)
    # 3 × 4: twice 2/3 s and 2 ms along rows, 2 · 3/4 of a third of a second and 6 ms along columns.
    assert torus(alone, 1e9) == pytest.approx(2 * (2 / 3 + 0.002) + 0.5 + 0.006)
    assert [shorter_torus_side(n) for n in (1, 7, 12, 36)] == [1, 1, 3, 6]


def test_latencies_are_paid_once_a_bucket_and_bytes_once() -> None:
    for mode in (ring, tree, hierarchical, torus):
        one, ten = mode(EIGHT_NODES, 1e9, 1), mode(EIGHT_NODES, 1e9, 10)
        nothing = mode(EIGHT_NODES, 1e-9, 1)
        assert ten - one == pytest.approx(9 * nothing)


def test_the_last_bucket_is_always_waited_for() -> None:
    assert exposed_time(1.0, hidden_s=0.3, last=0.25) == pytest.approx(0.7)
    assert exposed_time(1.0, hidden_s=9.0, last=0.25) == pytest.approx(0.25)
    assert exposed_time(1.0, hidden_s=9.0, last=1.0) == 1.0


def test_a_link_that_is_not_known_is_named() -> None:
    with pytest.raises(UsageError, match=r"link\.bandwidth is not known, but 16 ranks") as caught:
        ring(Group(16, 8, WITHIN, None), 1.0)
    assert caught.value.hint == "give it: --set link.bandwidth=…"


@settings(max_examples=60)
@given(modes, groups, sizes, st.floats(1.0, 100.0))
def test_a_slower_link_never_helps(
    mode: ExchangeMode, group: Group, size: float, slower: float
) -> None:
    assert group.within is not None and group.between is not None
    time_s = EXCHANGES[mode](group, size, 1)
    for name in ("within", "between"):
        link = getattr(group, name)
        worse = Link(link.bandwidth / slower, link.latency_s * slower)
        slow = replace(group, within=worse) if name == "within" else replace(group, between=worse)
        after = EXCHANGES[mode](slow, size, 1)
        assert after >= time_s * (1 - 1e-12)


@settings(max_examples=60)
@given(modes, groups, sizes)
def test_no_exchange_beats_the_bytes_that_must_leave_a_node(
    mode: ExchangeMode, group: Group, size: float
) -> None:
    """A node has to send 2(k−1)/k of the bytes, whatever the algorithm; with two nodes just B."""
    time_s = EXCHANGES[mode](group, size, 1)
    assert time_s >= 0
    if group.ranks == 1:
        assert time_s == 0
    elif group.nodes > 1:
        assert group.between is not None
        least = 2 * (group.nodes - 1) / group.nodes * size / group.between.bandwidth
        assert time_s >= least * (1 - 1e-12)


@given(st.integers(1, 5000), links, sizes)
def test_a_ring_of_more_ranks_takes_longer(ranks: int, link: Link, size: float) -> None:
    fewer, more = (ring(Group(n, 1, None, link), size) for n in (ranks, ranks + 1))
    assert more > fewer
    assert more <= 2 * size / link.bandwidth + 2 * ranks * link.latency_s + 1e-9


@pytest.mark.parametrize("mode", ["ring", "hierarchical", "torus"])
@pytest.mark.parametrize(("ranks", "node"), [(16, 4), (8, 2)])
def test_nodes_send_the_bytes_that_are_counted_in_a_run(
    mode: ExchangeMode, ranks: int, node: int
) -> None:
    counted = pytest.importorskip("vflops.metrics.traffic")
    elements = 1 << 20
    sent = counted.bytes_sent(mode.replace("ring", "all-reduce"), "fp32", ranks, node, elements)
    free = Link(1e30, 0.0)
    time_s = EXCHANGES[mode](Group(ranks, node, free, Link(1.0, 0.0)), 4 * elements, 1)
    assert time_s * (ranks // node) == pytest.approx(sent.far)
