"""The power of a training job, from what was sampled while it ran."""

from __future__ import annotations

import math

from vflops.record.folder import RunFolder
from vflops.score.record import PowerScore
from vflops.score.trained import Trained


def job_power(folder: RunFolder, trained: Trained) -> PowerScore:
    """Mean power from the first step to the last, over all attempts; or why there is none."""
    # Telemetry is read only here: commands that do not score do not pay for it.
    from vflops.telemetry.imported import read_imported
    from vflops.telemetry.power import PowerSummary, power_summary
    from vflops.telemetry.record import read

    logs = read_imported(folder.path)
    found: list[tuple[PowerSummary, float]] = []
    folders = folder.logged_attempts(trained.record.job)
    for place, attempt in zip(folders, trained.attempts, strict=True):
        path = place / "telemetry.jsonl"
        if attempt.span_s is not None and path.is_file():
            start_s, end_s = attempt.span_s
            summary = power_summary(read(path), start_s, end_s, logs)
            found.append((summary, end_s - start_s))
    measured = [(each, span_s) for each, span_s in found if each.energy_j is not None]
    if not found or len(measured) < len(found):
        reasons = [each.reason for each, _ in found if each.reason]
        return PowerScore(reason=reasons[0] if reasons else "nothing was sampled")
    if len({each.includes for each, _ in measured}) > 1:
        return PowerScore(reason="the attempts did not measure the same parts")
    energy_j = math.fsum(each.energy_j or 0.0 for each, _ in measured)
    # Mean power over what was covered, so a gap neither adds nor hides energy.
    covered_s = math.fsum(span_s * each.covered for each, span_s in measured)
    power_w = math.fsum((each.power_w or 0.0) * span_s for each, span_s in measured) / math.fsum(
        span_s for _, span_s in measured
    )
    return PowerScore(
        power_w=power_w,
        energy_j=energy_j,
        covered_s=round(covered_s, 3),
        includes=measured[0][0].includes,
        sources=measured[0][0].sources,
    )
