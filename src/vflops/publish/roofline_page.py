"""The roofline of a run as a page or an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vflops.counting.count import Count
from vflops.errors import UsageError
from vflops.record.files import atomic
from vflops.record.folder import RunRecord
from vflops.record.formats.measurement import Measurement
from vflops.results.roofline.analysis import Bound, Ceilings, bound, measured_ceilings
from vflops.results.roofline.roofline_text import sentences


@dataclass(frozen=True)
class Roofline:
    """Models under the ceilings that one run measured."""

    run: RunRecord
    machine: Ceilings
    bounds: tuple[Bound, ...]

    @classmethod
    def from_counts(
        cls,
        run: RunRecord,
        measurements: Sequence[Measurement],
        counts: Sequence[Count],
        precision: str | None,
    ) -> Roofline:
        """Return the roofline of models, in the fastest precision that was measured by default."""
        machine = measured_ceilings(measurements)
        known = machine.precisions()
        if not known or machine.memory is None:
            raise UsageError(
                f"run {run.id} lacks measurements for a roofline (gemm, convolution, memory)",
                hint="measure them: vflops micro gemm convolution memory all-reduce",
            )
        if precision is not None and precision not in known:
            raise UsageError(
                f"run {run.id} has no ceilings in {precision!r}",
                hint=f"it has both matrix product and convolution in: {', '.join(known)}",
            )
        chosen = precision or known[0]
        bounds = tuple(bound(count, machine, chosen) for count in counts)
        idle = [bound_.model for bound_ in bounds if not bound_.step_s]
        if idle:
            raise UsageError(f"model {idle[0]} moves no data, so no ceiling limits it")
        return cls(run, machine, bounds)

    @property
    def sentences(self) -> list[str]:
        """Sentences that say what limits each model."""
        return [sentence for bound_ in self.bounds for sentence in sentences(bound_)]

    def write(self, path: Path, format: str) -> None:
        """Write the page (``html``) or the image (``svg``, ``png``)."""
        from vflops.publish.pages import roofline_chart
        from vflops.publish.pages.page import chart_library, render

        chart = roofline_chart.roofline(self.machine, self.bounds)
        if format != "html":
            roofline_chart.save(chart, path, format)
            return
        names = ", ".join(bound_.model for bound_ in self.bounds) or "this machine"
        page = render(
            "roofline.html",
            title=f"Roofline of {names}",
            run=self.run,
            bounds=self.bounds,
            sentences=self.sentences,
            roofline=chart,
            library=chart_library(),
        )
        atomic.write_text(path, page)
