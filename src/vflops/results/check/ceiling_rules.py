"""Rules of ceilings: measured as planned, right, steady, and no run above them."""

from __future__ import annotations

from vflops.counting.conventions import convention
from vflops.counting.count import count as counted_by
from vflops.metrics import flops
from vflops.record.formats.measurement import Measurement
from vflops.record.log.events import Planned
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import PROGRESS_EVENTS, TrainedJob
from vflops.results.check.locations import logged, measured_at, noted
from vflops.results.check.published_figures import MOST_ERROR
from vflops.results.check.rule import Outcome
from vflops.results.roofline.analysis import Ceilings, measured_ceilings
from vflops.results.score.figure_text import count
from vflops.units import percent, quantity

LEAST_SAMPLES = 3
LEAST_RATIO = 0.25
"""Of the matrix product to the convolution: both run on the same units."""
NOISE = 0.05
"""A ceiling is a median: this much above it is still it."""

_COMPUTE = ("gemm", "convolution")


def planned(contents: Contents) -> Outcome:
    """All that was planned has a value or a reason."""
    wanted = contents.history.events("plan")
    if not wanted:
        return Outcome("cannot tell", "the log holds no plan", logged(contents, "plan"))
    keys = {key for event in wanted for key in event.payload(Planned).measurements}
    missing = keys - {item.key for item in contents.measurements}
    if missing:
        first = [" ".join(filter(None, key)) for key in sorted(missing, key=str)][:3]
        named = ", ".join(first) + (" …" if len(missing) > len(first) else "")
        words = f"{len(missing)} of {len(keys)} neither measured nor explained: {named}"
        return Outcome("fail", words, wanted[-1].source)
    return Outcome("pass", f"{len(keys)} planned, each measured or explained")


def correct(contents: Contents) -> Outcome:
    """Every ceiling with arithmetic agreed with a more precise reference."""
    checked = [item for item in contents.measurements if item.value and item.unit == "FLOPS"]
    if not checked:
        return Outcome("not applicable", "no ceiling with arithmetic in this run")
    for item in checked:
        name, where = f"{item.benchmark} {item.case} {item.precision}", measured_at(contents, item)
        most = MOST_ERROR.get(item.precision or "")
        if item.error is None or item.tolerance is None:
            return Outcome("fail", f"{name} was not compared with a reference", where)
        if most is None:
            return Outcome("fail", f"{name}: no error is known to be right", where)
        if not item.error <= min(item.tolerance, most):  # also when it is not a number
            least = min(item.tolerance, most)
            return Outcome("fail", f"{name}: error {item.error}, at most {least} is right", where)
    return Outcome(
        "pass", f"{count(len(checked), 'ceiling')}, each as a more precise reference has it"
    )


def sampled(contents: Contents) -> Outcome:
    """No ceiling rests on a sample or two."""
    measured = [item for item in contents.measurements if item.value is not None]
    if not measured:
        return Outcome("not applicable", "no ceiling was measured")
    few = [item for item in measured if len(item.samples) < LEAST_SAMPLES]
    if few:
        named = ", ".join(f"{item.benchmark} {item.case}" for item in few[:3])
        words = f"fewer than {LEAST_SAMPLES} samples: {named}"
        return Outcome("fail", words, measured_at(contents, few[0]))
    ceilings = count(len(measured), "ceiling")
    return Outcome("pass", f"{ceilings}, each the median of {LEAST_SAMPLES} samples or more")


def plausible(contents: Contents) -> Outcome:
    """Matrix product and convolution are of one order in every precision."""
    machine = measured_ceilings(item for item in contents.measurements if item.caveat is None)
    pairs = 0
    for (benchmark, precision), product in machine.compute.items():
        convolution = machine.compute.get(("convolution", precision))
        if benchmark != "gemm" or convolution is None:
            continue
        pairs += 1
        if product < LEAST_RATIO * convolution:
            figures = f"{quantity(product, 'FLOPS')} against {quantity(convolution, 'FLOPS')}"
            words = f"{precision} matrix product far below convolution: {figures}"
            return Outcome("fail", words, logged(contents, "measurement"))
    if not pairs:
        return Outcome("not applicable", _not_compared(contents, machine))
    return Outcome("pass", f"matrix product and convolution agree in {count(pairs, 'precision')}")


def _not_compared(contents: Contents, trusted: Ceilings) -> str:
    """Why no product was set beside a convolution: they are doubtful, or not both there."""
    both = measured_ceilings(contents.measurements).precisions()
    for item in contents.measurements:
        left_out = (item.benchmark, item.precision) not in trusted.compute
        if item.caveat and left_out and item.precision in both:
            return f"{item.benchmark} {item.case} {item.precision} is in doubt: {item.caveat}"
    return "no precision has both a product and a convolution"


def peaks(contents: Contents) -> Outcome:
    """No training is compared with the ceiling of another kind of device than its own."""
    compared = 0
    for job in contents.trained:
        started = job.started
        if started is None or started.ceiling_precision is None:
            continue
        for item in contents.measurements:
            if item.benchmark not in _COMPUTE or item.precision != started.ceiling_precision:
                continue
            kind = item.device.partition(":")[0]
            if item.value is not None and kind != started.device:
                words = f"its {item.precision} {item.benchmark} is one of a {kind}"
                trained = f"job {job.record.job} trained on {started.device_name}"
                where = measured_at(contents, item)
                return Outcome("fail", f"{trained} ({started.device}), and {words}", where)
            compared += item.value is not None
    if not compared:
        return Outcome("not applicable", "no training is compared with a ceiling")
    return Outcome("pass", "every training is compared with ceilings of its own kind of device")


def bounded(contents: Contents) -> Outcome:
    """No training executed more operations a second than the ceiling of its devices."""
    if not contents.trained:
        return Outcome("not applicable", "nothing was trained in this run")
    nearest, doubts = 0.0, set[str]()
    for job in contents.trained:
        executed = _executed_flops(contents, job)
        bound = _bound(contents, job, executed) if executed is not None else None
        if bound is None or executed is None:
            continue
        item, ceiling = bound
        if executed > ceiling * (1 + NOISE):
            figures = f"{quantity(executed, 'FLOPS')} executed, {quantity(ceiling, 'FLOPS')} is"
            words = f"job {job.record.job}: {figures} the measured ceiling"
            if item.caveat:
                doubt = f"{words}, which is in doubt: {item.caveat}"
                return Outcome("cannot tell", doubt, measured_at(contents, item))
            return Outcome("fail", words, noted(job, *PROGRESS_EVENTS))
        nearest = max(nearest, executed / ceiling)
        if item.caveat:
            doubts.add(f"; its {item.benchmark} {item.precision} is in doubt: {item.caveat}")
    if not nearest:
        return Outcome("not applicable", "no training has both counted operations and a ceiling")
    words = f"at most {percent(nearest)} of the measured ceiling was executed"
    return Outcome("pass", words + "".join(sorted(doubts)))


def _bound(
    contents: Contents, job: TrainedJob, executed: float
) -> tuple[Measurement, float] | None:
    """The ceiling that a job is held against, and its value for all devices of the job.

    One without a caveat where that suffices. A ceiling in doubt errs to the low side, as on a busy
    machine: who is below it is below the true one, and of who is above it nothing can be told.
    """
    precision = job.started.ceiling_precision if job.started else None
    known = [
        (item, item.value * job.devices)
        for item in contents.measurements
        if item.value is not None and item.benchmark in _COMPUTE and item.precision == precision
    ]
    sure = [each for each in known if each[0].caveat is None]
    enough = [each for each in sure if executed <= each[1] * (1 + NOISE)]
    return max(enough or known, key=lambda each: (each[1], not each[0].caveat), default=None)


def _executed_flops(contents: Contents, job: TrainedJob) -> float | None:
    """What ran on the matrix units a second; analytic operations may exceed any ceiling."""
    declared = job.record.declared is not None or job.record.graph_declared
    graph = next((each for each in contents.graphs if each.model == job.record.workload), None)
    if declared or graph is None or job.work_s <= 0:
        return None
    ops = counted_by(graph, convention("executed")).total.total // graph.batch
    return flops(ops=ops * (job.samples_trained - job.samples_compiling), time_s=job.work_s)
