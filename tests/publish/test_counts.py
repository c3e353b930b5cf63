"""Tables of counts on terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.models.model_graph import graph_of
from vflops.publish.counts import as_tables


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("against", [False, True])
@pytest.mark.parametrize("by", ["kind", "layer"])
def test_no_number_and_no_name_is_cut(width: int, against: bool, by: str) -> None:
    graph = graph_of("resnet50")
    names = ["hpcai500", "executed"] if against else ["hpcai500"]
    out = io.StringIO()
    tables = as_tables([count(graph, convention(name)) for name in names], by, width)
    Console(file=out, width=width).print(tables)
    text = out.getvalue()
    assert "…" not in text
    assert ("8,174,272,512" if width >= 80 else "8.17 G") in text or by == "layer"
    for name in ("convolution", "normalization") if by == "kind" else ("stem.0", "classifier"):
        assert name in text
    assert max(map(len, text.splitlines())) <= width
