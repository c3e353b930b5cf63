"""MFU: the share of a peak that training reached, by the measured ceiling and by the vendor's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vflops.counting.conventions import EXECUTED_CONVENTION, convention
from vflops.counting.count import Count, count
from vflops.errors import UsageError
from vflops.metrics import flops, mfu
from vflops.record.formats.batch_ops import BatchOps
from vflops.record.formats.graph import Graph
from vflops.record.readout.job_ceilings import JobCeilings
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.data_sheets import data_sheet
from vflops.results.roofline.analysis import bounding_benchmarks, measured_ceilings
from vflops.results.score.score_file import ConventionScore, MfuScore, VendorScore, WorkScore

COMPARED_CONVENTIONS = ("palm", "megatron", "causal")
"""The conventions by which the speed of a transformer is published."""


def batch_ops(counted: Count) -> BatchOps:
    """Return the exact operations of a counted batch."""
    total = counted.total
    return BatchOps(batch=counted.graph.batch, forward=total.forward, total=total.total)


def mfu_score(
    trained: TrainedJob, work: WorkScore | None, bounding: JobCeilings, graph: Graph | None
) -> MfuScore:
    """Return executed FLOPS ÷ ceiling × devices.

    The ceiling is that of the matrix product or the convolution, whichever of those that the model
    has is faster. Other conventions count operators that these ceilings do not bound, or leave some
    out. For a job on nodes of several kinds, the ceiling is that of the fastest kind.
    """
    started = trained.started
    precision = started.ceiling_precision if started else None
    ops = _executed_ops(trained, work)
    if ops is None or precision is None:
        reason = "nothing was trained"
        if trained.samples_trained:
            known = ops is not None
            reason = "its precision is not known" if known else "its operations are not known"
        return MfuScore(value=None, ceiling_flops=None, ceiling=None, reason=reason)
    speed = flops(ops=ops, time_s=trained.work_s)
    vendor, vendor_reason = _vendor(trained, precision, speed)
    compute = measured_ceilings(bounding.measurements).compute
    benchmarks = bounding_benchmarks(graph)
    peaks = {
        benchmark: peak
        for (benchmark, name), peak in compute.items()
        if name == precision and benchmark in benchmarks
    }
    if not peaks or bounding.reason:
        return MfuScore(
            value=None,
            ceiling_flops=None,
            ceiling=None,
            reason=bounding.reason or _no_ceiling(benchmarks, precision),
            vendor=vendor,
            vendor_reason=vendor_reason,
        )
    benchmark = max(peaks, key=lambda name: peaks[name])
    devices = trained.devices
    ceiling = peaks[benchmark] * devices
    return MfuScore(
        value=mfu(flops=speed, ceiling_flops=ceiling),
        flops=speed,
        ops_timed=ops,
        ceiling_flops=ceiling,
        ceiling=f"{precision} {benchmark}" + _times(devices),
        reason=None,
        vendor=vendor,
        vendor_reason=vendor_reason,
    )


def _no_ceiling(benchmarks: Sequence[str], precision: str) -> str:
    of = f" of {benchmarks[0]}" if len(benchmarks) == 1 else ""
    return f"no ceiling{of} was measured in {precision}"


def _vendor(
    trained: TrainedJob, precision: str, speed: float
) -> tuple[VendorScore | None, str | None]:
    """Return the share of the peak of the data sheet, or the reason why there is none."""
    assert trained.started is not None
    name = trained.started.device_name
    if trained.started.device == "cpu":
        return None, "data sheets of processors are not used"
    sheet = data_sheet(name)
    if sheet is None:
        return None, f"no data sheet of {name} is known"
    if precision not in sheet.flops:
        return None, f"{sheet.source} states no peak in {precision}"
    peak = sheet.flops[precision] * trained.devices
    share = mfu(flops=speed, ceiling_flops=peak)
    source = f"{precision} peak, {sheet.source}" + _times(trained.devices)
    return VendorScore(value=share, flops=peak, source=source), None


def _times(devices: int) -> str:
    return f" × {devices}" if devices > 1 else ""


def convention_scores(
    trained: TrainedJob, graph: Graph | None, utilisation: MfuScore
) -> tuple[ConventionScore, ...]:
    """Return the speed by conventions that published figures use; empty unless a transformer.

    The first is that of MFU.
    """
    if graph is None or trained.work_s <= 0 or not trained.samples_trained:
        return ()
    scores = tuple(_convention_scores(trained, graph, utilisation))
    return scores if len(scores) > 1 else ()


def _convention_scores(
    trained: TrainedJob, graph: Graph, utilisation: MfuScore
) -> Iterator[ConventionScore]:
    vendor = utilisation.vendor
    for name in (EXECUTED_CONVENTION, *COMPARED_CONVENTIONS):
        try:
            counted = count(graph, convention(name))
        except UsageError:  # it applies to transformers on tokens only
            continue
        ops = batch_ops(counted)
        speed = flops(ops=ops.of_training(trained.samples_timed), time_s=trained.work_s)
        ceiling = utilisation.ceiling_flops
        yield ConventionScore(
            rules=counted.convention.id,
            rules_version=counted.convention.version,
            batch_ops=ops,
            flops=speed,
            mfu=mfu(flops=speed, ceiling_flops=ceiling) if ceiling else None,
            mfu_vendor=mfu(flops=speed, ceiling_flops=vendor.flops) if vendor else None,
        )


def _executed_ops(trained: TrainedJob, work: WorkScore | None) -> int | None:
    """Return executed, or else declared, operations of training; None if neither is known."""
    ops = (work.batch_ops_executed or work.batch_ops) if work else None
    if ops is None or trained.work_s <= 0 or trained.wall_s <= 0:
        return None
    return ops.of_training(trained.samples_timed)
