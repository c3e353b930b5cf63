"""Bytes of an exchange, against sums over messages written out by hand."""

from __future__ import annotations

import pytest

from vflops.metrics.traffic import (
    Sent,
    bytes_sent,
    near_ranks,
    powersgd_elements,
    sharded_sent,
)


def test_a_ring_sends_every_rank_s_share_twice_round() -> None:
    """8 ranks, 8 numbers: 14 messages of 4 bytes from each; 2 of the 8 edges leave a node."""
    assert bytes_sent("all-reduce", "fp32", 8, 4, 8) == Sent(6 * 14 * 4, 2 * 14 * 4)
    assert bytes_sent("all-reduce", "fp32", 8, 8, 8) == Sent(8 * 14 * 4, 0)
    assert bytes_sent("all-reduce", "fp32", 8, 1, 8) == Sent(0, 8 * 14 * 4)
    assert bytes_sent("all-reduce", "bf16", 8, 8, 8).all == 8 * 14 * 2


def test_nodes_may_be_uneven() -> None:
    """Ranks 0, 1 and 2: of the three edges two leave a node; of the six pairs four do."""
    assert bytes_sent("all-reduce", "fp32", 3, 2, 3) == Sent(1 * 4 * 4, 2 * 4 * 4)
    assert bytes_sent("all-reduce", "int8", 3, 2, 3) == Sent((2 + 2) * 5, (4 + 4) * 5)


def test_levels_send_far_only_between_leaders() -> None:
    """6 ranks in rows of 3, 12 numbers of 2 bytes: two to each leader and back; a ring of two."""
    assert bytes_sent("hierarchical", "fp16", 6, 3, 12) == Sent(2 * (2 + 2) * 24, 2 * 24)
    int8 = Sent(2 * (2 * (12 + 4) + 2 * (12 + 8)), 2 * 2 * (6 + 4))
    assert bytes_sent("hierarchical", "int8", 6, 3, 12) == int8


def test_a_torus_sends_pieces() -> None:
    """Each rank of a row of 3 sends two pieces of 4 numbers; a column has two ranks."""
    assert bytes_sent("torus", "fp32", 6, 3, 12) == Sent(6 * (2 + 2) * 16, 6 * 2 * 8)
    int8 = Sent(6 * 2 * (4 + 4) + 6 * 2 * (2 * (2 + 4)), 6 * 2 * (2 + 4))
    assert bytes_sent("torus", "int8", 6, 3, 12) == int8


def test_numbers_are_padded_to_the_ranks() -> None:
    assert bytes_sent("torus", "fp32", 4, 2, 13) == bytes_sent("torus", "fp32", 4, 2, 16)


def test_one_rank_sends_nothing() -> None:
    assert bytes_sent("all-reduce", "int8", 1, 1, 100) == Sent(0, 0)


@pytest.mark.parametrize(
    ("ranks", "node", "near", "row"),
    [(8, 4, None, 4), (8, 8, None, 2), (16, 16, None, 4), (6, 4, None, 2), (8, 4, 2, 2)],
)
def test_rows_are_nodes_where_they_can_be(
    ranks: int, node: int, near: int | None, row: int
) -> None:
    assert near_ranks(ranks, node, near) == row


def test_powersgd_sends_two_narrow_matrices_where_that_pays() -> None:
    assert powersgd_elements([(64, 3, 3, 64), (64,), (8, 8)], 4) == (64 + 576) * 4 + 64 + 64


@pytest.mark.parametrize(
    ("mode", "precision", "near"),
    [("ring", "fp32", 2), ("torus", "powersgd", 2), ("torus", "fp32", 3), ("torus", "fp32", 0)],
)
def test_what_there_is_no_formula_for_is_refused(mode: str, precision: str, near: int) -> None:
    with pytest.raises(ValueError, match=r"ring|powersgd_elements|expected a divisor|near is 0"):
        bytes_sent(mode, precision, 4, near, 8)


def test_shards_are_gathered_where_they_are_needed() -> None:
    """3 ranks, a block of 12 bytes and 6 others: each sends 8 twice and 4, then 8 and 4 back."""
    assert sharded_sent(12, 6, 3, backend="nccl") == 3 * (8 + 8 + 4 + 8 + 4)
    assert sharded_sent(12, 6, 3, backend="gloo") == 3 * (8 + 8 + 4 + 16 + 8)
    assert sharded_sent(12, 6, 1, backend="gloo") == 0
