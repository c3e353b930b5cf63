"""The figures of runs as OpenMetrics text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from vflops.publish.export.metrics_text import Family, Labels, openmetrics
from vflops.publish.export.scored_passes import QUANTITIES, Pass, passes
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.score_file import CeilingScore
from vflops.results.score.scoring import score

_CEILINGS = {
    "FLOPS": ("ceiling_flops", "flops"),
    "B/s": ("ceiling_bytes_per_second", "bytes_per_second"),
    "IO/s": ("ceiling_io_per_second", "io_per_second"),
}


def runs_openmetrics(runs: Iterable[Contents]) -> str:
    """Return all runs as OpenMetrics text: passes, ceilings, and rules by verdict."""
    run_info: list[tuple[Labels, float]] = []
    verdicts: list[tuple[Labels, float]] = []
    ceilings: list[tuple[Labels, CeilingScore]] = []
    scored_passes: list[Pass] = []
    for contents in runs:
        record, scored = contents.folder.record, contents.once(score)
        run = {"run": record.id, **_mark(rehearsal=scored.rehearsal)}
        version = record.versions.get("vflops") or ""
        profile = record.settings.profile
        names = {"workload": record.workload, "profile": profile, "version": version}
        run_info.append(({**run, **names}, 1.0))
        scored_passes += passes(contents)
        ceilings += [(run, ceiling) for ceiling in scored.ceilings]
        tally = Counter(finding.verdict for finding in check(contents).findings)
        verdicts += [({**run, "verdict": verdict}, count) for verdict, count in tally.items()]
    return openmetrics(
        (
            Family("run", "A run that was measured.", tuple(run_info), kind="info"),
            *_pass_families(scored_passes),
            *_ceiling_families(ceilings),
            Family("rules", "Rules of the run's rule set by verdict.", tuple(verdicts)),
        )
    )


def _pass_families(scored_passes: list[Pass]) -> Iterator[Family]:
    for quantity in QUANTITIES:
        samples = tuple(
            (_labels(scored), value)
            for scored in scored_passes
            if (value := scored.figures.get(quantity.name)) is not None
        )
        yield Family(quantity.metric, quantity.help, samples, unit=quantity.metric_unit)


def _labels(scored: Pass) -> Labels:
    return {
        "run": scored.run,
        "workload": scored.workload,
        "kind": scored.kind,
        "job": "" if scored.job is None else str(scored.job),
        "repeat": str(scored.repeat),
        "data": scored.facts.get("data", ""),
        **_mark(rehearsal=scored.facts.get("rehearsal") == "yes"),
    }


def _mark(*, rehearsal: bool) -> Labels:
    """Return the label of a rehearsal; other runs have none."""
    return {"rehearsal": "yes"} if rehearsal else {}


def _ceiling_families(ceilings: list[tuple[Labels, CeilingScore]]) -> Iterator[Family]:
    for unit, (name, metric_unit) in _CEILINGS.items():
        samples = tuple(
            (
                {
                    **run,
                    "benchmark": ceiling.benchmark,
                    "case": ceiling.case,
                    "precision": ceiling.precision or "",
                    "device": ceiling.device,
                    **({"node": ceiling.node} if ceiling.node else {}),
                },
                ceiling.value,
            )
            for run, ceiling in ceilings
            if ceiling.unit == unit and ceiling.value is not None
        )
        yield Family(
            name, "Measured maximum performance of the machine.", samples, unit=metric_unit
        )
