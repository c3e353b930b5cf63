"""The runs of these tests are handmade."""

from __future__ import annotations

from tests.support.handmade_graphs import handmade_graphs

__all__ = ["handmade_graphs"]
