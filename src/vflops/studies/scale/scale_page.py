"""``scale.html``: the charts and the tables of an experiment."""

from __future__ import annotations

from pathlib import Path

from vflops.publish.pages.page import chart_library, render
from vflops.record.files import atomic
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.scale_result import Scale
from vflops.studies.scale.usage_view import usage_note


def write_page(scale: Scale, path: Path) -> None:
    """Write the page; incomplete points appear only in its table."""
    axis = axis_of(scale.kind, scale.variants, scale.sharing)
    page = render(
        "scale.html",
        title=f"{axis.title}: {scale.workload}",
        scale=scale,
        axis=axis,
        usage_note=usage_note(scale),
        library=chart_library(),
    )
    atomic.write_text(path, page)
