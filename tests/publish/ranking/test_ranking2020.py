"""The list of 2020: the same rows as the metrics' own test, and marked for what it is."""

from __future__ import annotations

import pytest

from vflops.publish.ranking.lists import Ranking
from vflops.publish.ranking.ranking2020 import RANKING_2020, Published
from vflops.publish.ranking.ranking_pages import index_page


@pytest.mark.parametrize("row", RANKING_2020, ids=lambda row: row.source)
def test_a_row_follows_within_a_percent_unless_it_is_in_doubt(row: Published) -> None:
    assert abs(row.deviation) < 0.01 or row.disputed


def test_the_order_is_that_of_the_published_figures() -> None:
    assert [row.rank for row in RANKING_2020] == list(range(1, 10))
    values = [row.published for row in RANKING_2020]
    assert values == sorted(values, reverse=True)
    assert RANKING_2020[0].recomputed == pytest.approx(31.405, abs=5e-4)


def test_a_page_without_submissions_still_has_it() -> None:
    page = index_page(Ranking((), ()), Ranking((), ()))
    assert "Collected from papers, unverified" in page
    for row in RANKING_2020:
        assert f"{row.recomputed:.3f}" in page
        assert row.accelerators in page
