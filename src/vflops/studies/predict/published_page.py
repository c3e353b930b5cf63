"""The HTML page of published scaling results and their predictions."""

from __future__ import annotations

from pathlib import Path

from vflops.publish.pages.page import chart_library, render
from vflops.record.files import atomic
from vflops.studies.predict.predict_charts import Row, over_accelerators
from vflops.studies.predict.predict_text import calibration, published_rows
from vflops.studies.predict.published_scaling import GPUS_PER_NODE, Validation
from vflops.studies.scale.scale_charts import Curve

_EFFICIENCY, _GAIN = "efficiency", "gain of compression"


def curves(validation: Validation) -> list[Curve]:
    """Return charts of the efficiency and of the gain of compression.

    Predictions are lines, and published figures are points.
    """
    return [
        _curve(validation, _EFFICIENCY, "Efficiency relative to one node of 8 GPUs", 1.0),
        _curve(validation, _GAIN, "Gain of compression: FLOPS with it over FLOPS without", 2.0),
    ]


def _curve(validation: Validation, figure: str, title: str, top: float) -> Curve:
    cells = [cell for cell in validation.cells if cell.figure == figure]
    names = list(dict.fromkeys(cell.series for cell in cells))
    # Efficiencies are relative to one node, so they start there at 1.
    rows = [Row(GPUS_PER_NODE, 1.0, name) for name in names if figure == _EFFICIENCY]
    rows += [Row(cell.gpus, cell.predicted, cell.series) for cell in cells]
    rows += [Row(cell.gpus, cell.published, cell.series, measured=True) for cell in cells]
    chart = over_accelerators(rows, figure, names=names, top=top, across="GPUs")
    return Curve(figure.partition(" ")[0], title, chart)


def write_page(validation: Validation, path: Path) -> None:
    """Write the page; it works offline."""
    page = render(
        "published.html",
        title="Published and predicted scaling",
        curves=curves(validation),
        rows=published_rows(validation),
        note=calibration(validation),
        library=chart_library(),
    )
    atomic.write_text(path, page)
