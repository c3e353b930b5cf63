"""The figures of runs as metrics."""

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
    """All runs as the text of OpenMetrics: passes, ceilings, and what the rules say."""
    about: list[tuple[Labels, float]] = []
    verdicts: list[tuple[Labels, float]] = []
    ceilings: list[tuple[Labels, CeilingScore]] = []
    found: list[Pass] = []
    for contents in runs:
        record, scored = contents.folder.record, contents.once(score)
        run = {"run": record.id}
        version = record.versions.get("vflops") or ""
        profile = record.settings.profile
        names = {"workload": record.workload, "profile": profile, "version": version}
        about.append(({**run, **names}, 1.0))
        found += passes(contents)
        ceilings += [(run, each) for each in scored.ceilings]
        tally = Counter(finding.verdict for finding in check(contents).findings)
        verdicts += [({**run, "verdict": verdict}, count) for verdict, count in tally.items()]
    return openmetrics(
        (
            Family("run", "A run that was measured.", tuple(about), kind="info"),
            *_pass_families(found),
            *_ceiling_families(ceilings),
            Family("rules", "Rules of the run's rule set by verdict.", tuple(verdicts)),
        )
    )


def _pass_families(found: list[Pass]) -> Iterator[Family]:
    for each in QUANTITIES:
        samples = tuple(
            (_labels(it), value) for it in found if (value := it.figures.get(each.name)) is not None
        )
        yield Family(each.metric, each.help, samples, unit=each.metric_unit)


def _labels(it: Pass) -> Labels:
    job = "" if it.job is None else str(it.job)
    return {
        "run": it.run,
        "workload": it.workload,
        "kind": it.kind,
        "job": job,
        "repeat": str(it.repeat),
        "data": it.facts.get("data", ""),
    }


def _ceiling_families(ceilings: list[tuple[Labels, CeilingScore]]) -> Iterator[Family]:
    for unit, (name, metric_unit) in _CEILINGS.items():
        samples = tuple(
            (
                {
                    **run,
                    "benchmark": each.benchmark,
                    "case": each.case,
                    "precision": each.precision or "",
                    "device": each.device,
                },
                each.value,
            )
            for run, each in ceilings
            if each.unit == unit and each.value is not None
        )
        yield Family(name, "What the machine can do at most.", samples, unit=metric_unit)
