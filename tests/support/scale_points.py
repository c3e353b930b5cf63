"""Points of scaling experiments, made by hand, and the values in the charts that show them."""

from __future__ import annotations

from typing import Any

from vflops.results.score.node_usage import Course, NodeUsage
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_result import Kind, Point, Scale


def point(models: int, ranks: int, flops: float | None, quality: float = 0.5) -> Point:
    found = EnsembleFigures(
        repeats=1,
        partial=False,
        attempts=1,
        checks_failed=0,
        window_s=10.0,
        flops=flops,
        flops_least=flops,
        flops_most=flops,
        vflops=None if flops is None else flops * quality,
        vflops_published=None if flops is None else flops * quality,
        quality=quality,
        quality_alone=quality,
        samples_per_s=1000 * ranks / models,
    )
    return Point(jobs=models, ranks=ranks, run=f"{models}x{ranks}/run", figures=found)


def scale(*points: Point, kind: Kind = "weak") -> Scale:
    return Scale(
        workload="image-classification",
        kind=kind,
        profile="tiny",
        on="local",
        cores_per_rank=1,
        same_batch="rank",
        quality_name="top-1 accuracy",
        target=0.8,
        points=points,
    ).with_efficiency()


def used(models: int, sent: float | None = None, **facts: Any) -> Point:
    """A point of ``models`` models whose usage is ``facts``."""
    plain = point(models, 1, models * 1e9)
    assert plain.figures
    course = Course(name="utilisation", points=((0.5, 90.0), (1.5, 100.0)))
    usage = NodeUsage.model_validate(
        {"hosts": models, "accelerators": 0, "courses": (course,), **facts}
    )
    update = {"usage": usage, "sent_near_b_per_s": sent, "sent_far_b_per_s": sent}
    return plain.model_copy(update={"figures": plain.figures.model_copy(update=update)})


def values(chart: dict[str, Any], series: str) -> list[tuple[Any, Any]]:
    found = [row for rows in chart["layer"] for row in rows.get("data", {}).get("values", ())]
    found = found or [row for rows in chart.get("datasets", {}).values() for row in rows]
    found = found or chart["data"]["values"]
    return list(dict.fromkeys((r["at"], r["value"]) for r in found if r.get("series") == series))
