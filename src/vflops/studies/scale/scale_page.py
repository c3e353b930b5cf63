"""``scale.html``: the charts and the table of an experiment."""

from __future__ import annotations

from pathlib import Path

from vflops.publish.pages.page import chart_library, render
from vflops.record.files import atomic
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.scale_result import Scale


def write_page(scale: Scale, path: Path) -> None:
    """Write the page; incomplete points appear only in its table."""
    axis = axis_of(scale.kind, scale.same_batch, scale.variants, scale.sharing)
    page = render(
        "scale.html",
        title=f"{axis.title}: {scale.workload}",
        scale=scale,
        axis=axis,
        failed=[p for p in scale.points if p.figures and p.figures.checks_failed],
        library=chart_library(),
    )
    atomic.write_text(path, page)
