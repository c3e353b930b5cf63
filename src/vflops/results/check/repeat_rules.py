"""The rule on repeats: trainings that differ only in their seeds have nearly the same FLOPS."""

from __future__ import annotations

from vflops.record.readout.contents import Contents
from vflops.results.check.background_load import busiest_training
from vflops.results.check.locations import event_location
from vflops.results.check.rule import Outcome
from vflops.results.score import figure_text
from vflops.results.score.score_file import RepeatScore, Spread
from vflops.results.score.scoring import score
from vflops.units import percent

MAX_VARIATION = 0.1
"""The largest coefficient of variation of FLOPS over the repeats of a workload."""


def check_steady_repeats(contents: Contents) -> Outcome:
    """Fail if the FLOPS of the repeats of a workload vary too much; name what else ran.

    A seed changes what is learned, not how much is computed: the repeats compute the same number of
    operations, so that only the machine can make their FLOPS differ.
    """
    repeated = [(repeat, repeat.flops) for repeat in contents.once(score).repeats if repeat.flops]
    if not repeated:
        return Outcome("not applicable", "no workload has the FLOPS of two complete repeats")
    texts = [_variation_text(repeat, flops) for repeat, flops in repeated]
    limit = f"at most {percent(MAX_VARIATION, digits=0)} is allowed"
    repeat, flops = max(repeated, key=lambda item: item[1].variation)
    if flops.variation <= MAX_VARIATION:
        return Outcome("pass", f"{'; '.join(texts)}; {limit}")
    jobs = [job for job in contents.training_jobs if job.record.workload == repeat.workload]
    load = busiest_training(contents, {job.record.job for job in jobs})
    others = load or "the load by other programs was not recorded"
    where = event_location(jobs[-1], "finished")
    return Outcome("fail", f"{_variation_text(repeat, flops)}; {limit}; {others}", where)


def _variation_text(repeat: RepeatScore, flops: Spread) -> str:
    return (
        f"{repeat.workload}: the FLOPS of {figure_text.seeds(repeat)} have a coefficient of"
        f" variation of {percent(flops.variation)}"
    )
