"""A fixture for tests of handmade runs, whose graphs are small enough to be counted on paper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.forgeries import small_graphs


@pytest.fixture(autouse=True, scope="module")
def handmade_graphs() -> Iterator[None]:
    """Let these graphs count as those of the settings."""
    with small_graphs():
        yield
