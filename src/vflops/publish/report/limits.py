"""What limits a workload, in one sentence."""

from __future__ import annotations

from vflops.metrics.summation import sum_in_order
from vflops.publish.report.training_blocks import RooflineModel
from vflops.record.formats.job_events import PHASES
from vflops.results.score.score_file import SearchScore, TrainingScore
from vflops.units import percent, quantity, seconds

_MAX_DATA_SHARE = 0.2
"""The share of the training time above which waiting for data is named as the limit."""
_MIN_ROOFLINE_SHARE = 0.5
"""Above this share of the roofline, the ceilings are named as the limit."""
_MAX_PHASE_SHARE = 0.3
"""The share of the wall time above which another phase than training is named."""
_MAX_IDLE_SHARE = 0.2
_NAMES = {"memory": "Memory bandwidth", "compute": "Arithmetic"}


def training_limit(
    training: TrainingScore, model: RooflineModel | None, unknown: str | None = None
) -> str:
    """Return what limits the speed of a training run, and a long phase besides training.

    ``unknown`` is the reason why there is no roofline.
    """
    waiting_s = training.phases.get("data", 0.0)
    if training.work_s and waiting_s > _MAX_DATA_SHARE * training.work_s:
        share = percent(waiting_s / training.work_s, digits=0)
        sentence = f"Reading data: training waits for it {share} of the time"
    else:
        sentence = _roofline_limit(model, unknown)
    return f"{sentence}{_long_phase(training)}."


def _roofline_limit(model: RooflineModel | None, unknown: str | None) -> str:
    if model is None or model.achieved is None:
        return f"Not known: {unknown or 'no ceiling was measured in the precision of the training'}"
    achieved, bound = model.achieved, model.bound
    share = achieved.flops / achieved.most
    digits = 1 if share >= 0.01 else 3
    runs_at = (
        f"it runs at {percent(share, digits=digits)} of the {quantity(achieved.most, 'FLOPS')}"
    )
    if share > 1:
        fused = "so the compiler saves memory traffic that this bound counts"
        return f"{_NAMES[bound.bound_by]}: {runs_at} that unfused operators allow, {fused}"
    if share >= _MIN_ROOFLINE_SHARE:
        bound_share = percent(bound.bound_share, digits=0)
        most = f"{bound.bound_by} bounds {bound_share} of the least possible time"
        return f"{_NAMES[bound.bound_by]}: {runs_at} that the ceilings allow, and {most}"
    return f"Overhead: {runs_at} that arithmetic and memory allow"


def _long_phase(training: TrainingScore) -> str:
    others = [phase for phase in PHASES if phase not in ("training", "data")]
    longest = max(others, key=lambda phase: training.phases.get(phase, 0.0))
    share = training.phases.get(longest, 0.0) / (training.wall_s or 1.0)
    if share <= _MAX_PHASE_SHARE:
        return ""
    return f"; {longest} takes {percent(share, digits=0)} of the {seconds(training.wall_s)} in all"


def search_limit(search: SearchScore) -> str:
    """Return what the workers of a search spent most of their time on."""
    total_s = sum_in_order(search.phases.values())
    if not total_s:
        return "Not known: no time was recorded."
    name, spent_s = max(search.phases.items(), key=lambda item: item[1])
    idle = percent(search.idle_share, digits=0)
    if search.idle_share is not None and search.idle_share > _MAX_IDLE_SHARE:
        return f"Idle workers: {idle} of their time passes between candidates."
    share = percent(spent_s / total_s, digits=0)
    return f"{name.capitalize()}: {share} of the workers' time; {idle} passes between candidates."
