"""The figures in docs/explanation/counting.md are those that the code gives."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import DOCS
from vflops.counting.capture import InputSpec, capture, cross_entropy
from vflops.counting.conventions import convention
from vflops.counting.count import Count, count
from vflops.models.resnet import resnet50, resnet50_v1
from vflops.record.formats.graph import Graph

PAGE = (DOCS / "explanation" / "counting.md").read_text()
KINDS = {
    "convolution": "convolution",
    "dense": "dense",
    "batch normalization": "normalization",
    "ReLU": "activation",
    "max-pooling": "max-pool",
    "average-pooling": "global-pool",
    "add": "elementwise",
    "softmax": "softmax",
}
TRAIN, VALIDATION = 1_281_167, 50_000


@pytest.fixture(scope="module")
def v1() -> Graph:
    image = [InputSpec((3, 224, 224))]
    return capture(resnet50_v1, image, name="resnet50-v1", loss=cross_entropy)


def table(title_cell: str) -> dict[str, list[str]]:
    """Return the rows of the table whose heading has ``title_cell``, by their first cell."""
    lines = PAGE[PAGE.index(title_cell) :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def figures(counted: Count) -> dict[str, tuple[int, int]]:
    rows = {row.name: row.ops for row in counted.by_kind}
    by_name = {name: rows[kind] for name, kind in KINDS.items()}
    by_name["total"] = counted.total
    return {name: (ops.forward, ops.backward + ops.update) for name, ops in by_name.items()}


def test_table_iii_cell_by_cell(v1: Graph) -> None:
    rows = table("table III FP")
    printed, original = (figures(count(v1, convention(n))) for n in ("aiperf", "aiperf-original"))
    assert set(rows) == {*KINDS, "total"}
    for name, cells in rows.items():
        forward, backward = zip(printed[name], original[name], strict=True)
        shown = [int(cell.replace(",", "")) for cell in (*cells[1:3], *cells[4:6])]
        assert shown == [*forward, *backward], name


def test_table_vii_cell_by_cell(v1: Graph) -> None:
    rows = table("tf.profiler (paper)")
    for column, name in enumerate(("aiperf", "aiperf-original", "executed"), start=3):
        total = count(v1, convention(name)).total
        back = total.backward + total.update
        expected = {
            "FP, training": total.forward * TRAIN,
            "BP, training": back * TRAIN,
            "FP, validation": total.forward * VALIDATION,
            "all": (total.forward + back) * TRAIN + total.forward * VALIDATION,
        }
        for row, value in expected.items():
            assert float(rows[row][column]) == float(f"{value:.2e}"), (row, name)


def test_totals_in_the_text(v1: Graph) -> None:
    text = " ".join(PAGE.split())
    v15 = capture(resnet50, [InputSpec((3, 224, 224))], name="resnet50", loss=cross_entropy)
    for graph in (v1, v15):
        assert f"{count(graph, convention('hpcai500')).total.forward:,}" in text
    for name, words in (("aiperf", "as printed"), ("aiperf-original", "by the program")):
        assert re.search(f"{count(v1, convention(name)).total.total:,} {words}", text)
