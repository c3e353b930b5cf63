"""Studies read handmade runs, whose graphs are small enough to be counted on paper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.forgeries import small_graphs


@pytest.fixture(autouse=True, scope="package")
def handmade_graphs() -> Iterator[None]:
    with small_graphs():
        yield
