"""The page and the table of an experiment that compares frameworks."""

from __future__ import annotations

import pytest

from tests.support.scale_points import point, scale
from vflops.errors import UsageError
from vflops.results.score.node_usage import NodeUsage
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.framework_comparison import framework_variants
from vflops.studies.scale.scale_result import Point, Scale


def of_framework(name: str, flops: float, **facts: object) -> Point:
    plain = point(1, 1, flops)
    assert plain.figures
    usage = NodeUsage(hosts=1, accelerators=0, run_memory_b=3e8)
    figures = plain.figures.model_copy(update={"usage": usage, "window_s": 60.0, **facts})
    return plain.model_copy(update={"variant": name, "figures": figures})


@pytest.fixture
def found() -> Scale:
    refused = Point(
        jobs=1, ranks=1, variant="mindspore", refused="MindSpore is not installed", run=None,
        figures=None,
    )  # fmt: skip
    made = scale(
        of_framework("pytorch", 2e9, compilation_s=0.0, framework_version="2.13.0"),
        of_framework("jax", 1e9, compilation_s=22.0, own_count_share=1.024),
        refused,
        kind="frameworks",
    )
    variants = framework_variants("pytorch,jax,mindspore")
    return made.model_copy(update={"variants": variants}).with_efficiency()


def test_the_table_has_what_a_framework_costs(found: Scale) -> None:
    axis = axis_of("frameworks", found.variants)
    header, first, second, third = axis.table(found)
    assert header[:3] == ("framework", "M × P", "samples/s")
    rows = [dict(zip(header, row, strict=True)) for row in (first, second)]
    assert [row["speed-up"] for row in rows] == ["1.00 ×", "0.50 ×"]
    assert [row["compilation"] for row in rows] == ["0 s", "22 s"]
    assert [row["own count"] for row in rows] == ["—", "1.024 ×"]
    assert [row["memory"] for row in rows] == ["300 MB", "300 MB"]
    assert third[-1] == "refused"
    remarks = axis.remarks(found)
    assert ("mindspore", "refused: MindSpore is not installed") in remarks
    assert ("pytorch", "version 2.13.0") in remarks


def test_the_page_draws_every_figure(found: Scale) -> None:
    axis = axis_of("frameworks", found.variants)
    names = [curve.id for curve in axis.curves(found)]
    assert {"flops", "time-to-quality", "compilation", "memory"} <= set(names)
    assert axis.title == "Frameworks"


def test_all_frameworks_are_compared_by_default() -> None:
    names = [variant.name for variant in framework_variants(None)]
    assert names == ["pytorch", "jax", "tensorflow", "mindspore"]
    with pytest.raises(UsageError, match="unknown framework 'torch' in --frameworks"):
        framework_variants("torch")
