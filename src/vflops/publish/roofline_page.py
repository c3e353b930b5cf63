"""The roofline of a run as a page or an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vflops.counting.count import Count, count
from vflops.errors import Hint, UsageError
from vflops.publish.pages.roofline_points import Achieved
from vflops.publish.report.training_blocks import roofline_models
from vflops.record.files import atomic
from vflops.record.folder import RunRecord
from vflops.record.formats.graph import Graph
from vflops.record.readout.contents import Contents
from vflops.results.roofline.analysis import Bound, Ceilings, bound, roofline_benchmarks
from vflops.results.roofline.roofline_text import sentences
from vflops.results.roofline.run_ceilings import measured_where, run_ceilings
from vflops.results.score.scoring import score
from vflops.results.score.scoring_convention import model_convention


@dataclass(frozen=True)
class Roofline:
    """Models under the ceilings that one run measured."""

    run: RunRecord
    machine: Ceilings
    bounds: tuple[Bound, ...]
    achieved: tuple[Achieved, ...] = ()
    """What trainings of the run achieved, drawn as stars."""
    results: tuple[str, ...] = ()
    """Sentences about what they achieved."""
    where: str | None = None
    """The compute nodes on which the ceilings were measured; None on one machine."""

    @classmethod
    def from_counts(
        cls,
        contents: Contents,
        counts: Sequence[Count],
        precision: str | None,
    ) -> Roofline:
        """Return the roofline of models, in the fastest precision that was measured by default."""
        run = contents.folder.record
        machine = run_ceilings(contents)
        known = _require_ceilings(run, machine, [count.graph for count in counts], precision)
        chosen = precision or known[0]
        bounds = tuple(bound(count, machine, chosen) for count in counts)
        idle = [bound_.model for bound_ in bounds if not bound_.step_s]
        if idle:
            raise UsageError(f"model {idle[0]} moves no data, so no ceiling limits it")
        return cls(run, machine, bounds, where=measured_where(contents))

    @classmethod
    def from_trainings(cls, contents: Contents, precision: str | None) -> Roofline | None:
        """Return the roofline of all models that the run trained, with what they achieved.

        The precision is that of each training by default, or the fastest one if its ceilings were
        not measured. None if no trained model has a counted graph.
        """
        run = contents.folder.record
        machine = run_ceilings(contents)
        models = roofline_models(contents, contents.once(score))
        if not models or machine.memory is None:
            return None
        bounds = [model.bound for model in models]
        if precision is not None:
            models = [model for model in models if model.bound.precision == precision]
            graphs = {graph.model: graph for graph in contents.graphs}
            _require_ceilings(run, machine, [graphs[b.model] for b in bounds], precision)
            counts = [count(graphs[b.model], model_convention(contents, b.model)) for b in bounds]
            bounds = [bound(counted, machine, precision) for counted in counts]
        return cls(
            run,
            machine,
            tuple(bounds),
            tuple(model.achieved for model in models if model.achieved is not None),
            tuple(model.sentence for model in models if model.sentence is not None),
            measured_where(contents),
        )

    @property
    def sentences(self) -> list[str]:
        """Sentences that say what was achieved, and what limits each model."""
        limits = (sentence for bound_ in self.bounds for sentence in sentences(bound_))
        return [*self.results, *limits, *([f"Ceilings {self.where}."] if self.where else [])]

    def write(self, path: Path, format: str) -> None:
        """Write the page (``html``) or the image (``svg``, ``png``)."""
        from vflops.publish.pages import roofline_chart
        from vflops.publish.pages.page import chart_library, render

        chart = roofline_chart.roofline(self.machine, self.bounds, self.achieved)
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


def _require_ceilings(
    run: RunRecord, machine: Ceilings, graphs: Sequence[Graph], precision: str | None
) -> list[str]:
    """Return the precisions in which all models have a roofline, the fastest one first.

    Raise if there are none, or if ``precision`` is not among them.
    """
    models: Sequence[Graph | None] = graphs or (None,)
    of_models = [machine.precisions(graph) for graph in models]
    known = [name for name in of_models[0] if all(name in names for names in of_models)]
    if not known or machine.memory is None:
        needed = dict.fromkeys(name for graph in models for name in roofline_benchmarks(graph))
        raise UsageError(
            f"run {run.id} lacks measurements for a roofline ({', '.join([*needed, 'memory'])})",
            hint=Hint("measure them", f"vflops micro {' '.join(needed)} memory all-reduce"),
        )
    if precision is not None and precision not in known:
        raise UsageError(
            f"run {run.id} has no ceilings in {precision!r}",
            hint=f"all that a roofline needs was measured in: {', '.join(known)}",
        )
    return known
