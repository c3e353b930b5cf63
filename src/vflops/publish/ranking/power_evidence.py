"""The evidence behind a figure per watt: which parts were measured, by which sensors, how long."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.metrics import mean
from vflops.publish.ranking.entry import PowerEvidence
from vflops.record.readout.contents import Contents
from vflops.results.power.run_power import NODE_MUST_COVER
from vflops.results.score.figure_text import numbers
from vflops.results.score.score_file import PowerScore, TrainingScore
from vflops.units import percent

MIN_COVERED = NODE_MUST_COVER
"""The share of the training time that readings of power must cover."""
_SCOPES = {
    ("node",): "whole node",
    ("accelerators", "processors"): "accelerators and processors",
    ("accelerators",): "accelerators only",
    ("processors",): "processors only",
}
_METHODS = {"NVML": "NVML", "/sys/class/powercap": "RAPL", "imported: ": "external meter"}
"""Names of sensors by the beginning of the source that telemetry records."""


def power_evidence(
    powers: Sequence[PowerScore], spans_s: Sequence[float], *, accelerated: bool
) -> PowerEvidence:
    """Return the evidence of repeats with these powers over spans of these lengths.

    ``accelerated`` says whether accelerators trained, whose power then has to be included.
    """
    reason = (
        _unmeasured_reason(powers)
        or _foreign_jobs_reason(powers)
        or _scope_reason(powers, accelerated)
        or _coverage_reason(powers, spans_s)
    )
    if reason:
        return PowerEvidence(reason=reason)
    return PowerEvidence(
        power_w=mean([power.power_w or 0.0 for power in powers]),
        scope=_scope(powers[0]),
        method=_method(powers),
    )


def training_span_s(contents: Contents, training: TrainingScore) -> float:
    """Return the seconds from the first to the last step, summed over the attempts of a job."""
    job = next(job for job in contents.training_jobs if job.record.job == training.job)
    spans = (attempt.span_s for attempt in job.attempts)
    return sum(span_s[1] - span_s[0] for span_s in spans if span_s is not None)


def _unmeasured_reason(powers: Sequence[PowerScore]) -> str | None:
    for power in powers:
        if power.power_w is None:
            return f"its power was not measured: {power.reason}"
    return None


def _foreign_jobs_reason(powers: Sequence[PowerScore]) -> str | None:
    jobs = {job for power in powers for job in power.shared_with}
    if not jobs:
        return None
    return f"its power includes that of other jobs at the same time: {numbers(sorted(jobs))}"


def _scope_reason(powers: Sequence[PowerScore], accelerated: bool) -> str | None:
    scopes = list(dict.fromkeys(map(_scope, powers)))
    if len(scopes) > 1:
        return f"its repeats measured different parts: {'; '.join(scopes)}"
    trained = "accelerators" if accelerated else "processors"
    if "node" not in powers[0].includes and trained not in powers[0].includes:
        return f"its power ({scopes[0]}) does not include the {trained}, which trained"
    return None


def _coverage_reason(powers: Sequence[PowerScore], spans_s: Sequence[float]) -> str | None:
    for power, span_s in zip(powers, spans_s, strict=True):
        share = (power.covered_s or 0.0) / span_s if span_s > 0 else 0.0
        if share < MIN_COVERED:
            covered = f"readings of power cover {percent(share)} of the training"
            return f"{covered}, but {percent(MIN_COVERED)} are required"
    return None


def _scope(power: PowerScore) -> str:
    return _SCOPES.get(power.includes, ", ".join(power.includes))


def _method(powers: Sequence[PowerScore]) -> str:
    sources = (source for power in powers for source in power.sources)
    return ", ".join(dict.fromkeys(map(_sensor, sources)))


def _sensor(source: str) -> str:
    names = (name for beginning, name in _METHODS.items() if source.startswith(beginning))
    return next(names, source)
