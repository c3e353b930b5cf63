"""Rules for ceilings: they are measured as planned, correct, repeated and consistent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from vflops.record.files.read_once import is_file
from vflops.record.formats.job_events import JobStarted
from vflops.record.formats.system import Fact, SystemRecord
from vflops.record.log.events import Planned
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import job_ceilings
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.ceiling_limits import Basis, ceiling_limit
from vflops.results.check.locations import measurement_location, run_event_location
from vflops.results.check.published_figures import MAX_ERROR
from vflops.results.check.rule import Outcome
from vflops.results.roofline.analysis import COMPUTE, measured_ceilings
from vflops.units import count, percent, quantity

MIN_SAMPLES = 3
MIN_RATIO = 0.25
"""The minimum ratio of matrix product to convolution, which run on the same units."""


def check_planned_ceilings(contents: Contents) -> Outcome:
    """Fail unless every planned measurement has a value or a reason."""
    plans = contents.history.events("plan")
    if not plans:
        return Outcome("cannot tell", "the log has no plan", run_event_location(contents, "plan"))
    keys = {key for event in plans for key in event.payload(Planned).measurements}
    missing = keys - {item.key for item in contents.measurements}
    measured = {(item.kind, item.key) for item in contents.measurements}
    for node in contents.measured_nodes:  # each kind of node has a plan of its own
        keys.update(node.planned)
        missing |= {key for key in node.planned if (node.kind, key) not in measured}
    if missing:
        first = [" ".join(filter(None, key)) for key in sorted(missing, key=str)][:3]
        named = ", ".join(first) + (" …" if len(missing) > len(first) else "")
        share = f"{len(missing)} of {len(keys)}"
        evidence = f"{share} were neither measured nor skipped with a reason: {named}"
        return Outcome("fail", evidence, plans[-1].source)
    return Outcome("pass", f"{len(keys)} planned, each measured or skipped with a reason")


def check_correctness(contents: Contents) -> Outcome:
    """Fail unless every ceiling's results agree with a reference of higher precision."""
    checked = [item for item in contents.measurements if item.value and item.unit == "FLOPS"]
    if not checked:
        return Outcome("not applicable", "no compute ceiling was measured in this run")
    for item in checked:
        name, where = (
            f"{item.benchmark} {item.case} {item.precision}",
            measurement_location(contents, item),
        )
        limit = MAX_ERROR.get(item.precision or "")
        if item.error is None or item.tolerance is None:
            return Outcome("fail", f"{name} was not compared with a reference", where)
        if limit is None:
            return Outcome("fail", f"{name}: no error limit is known for this precision", where)
        limit = min(item.tolerance, limit)
        if not item.error <= limit:  # also true for NaN
            return Outcome("fail", f"{name}: error {item.error} exceeds the limit {limit}", where)
    return Outcome(
        "pass",
        f"{count(len(checked), 'ceiling')}, each in agreement with a reference of higher precision",
    )


def check_sample_counts(contents: Contents) -> Outcome:
    """Fail if a ceiling has too few samples."""
    measured = [item for item in contents.measurements if item.value is not None]
    if not measured:
        return Outcome("not applicable", "no ceiling was measured")
    few = [item for item in measured if len(item.samples) < MIN_SAMPLES]
    if few:
        named = ", ".join(f"{item.benchmark} {item.case}" for item in few[:3])
        evidence = f"fewer than {MIN_SAMPLES} samples: {named}"
        return Outcome("fail", evidence, measurement_location(contents, few[0]))
    ceilings = count(len(measured), "ceiling")
    return Outcome("pass", f"{ceilings}, each the median of {MIN_SAMPLES} samples or more")


def check_plausibility(contents: Contents) -> Outcome:
    """Fail if the matrix product is far slower than the convolution in any precision."""
    pairs = 0
    for kind in dict.fromkeys(item.kind for item in contents.measurements):
        trusted = measured_ceilings(
            item for item in contents.measurements if item.kind == kind and item.caveat is None
        )
        for (benchmark, precision), product in trusted.compute.items():
            convolution = trusted.compute.get(("convolution", precision))
            if benchmark != "gemm" or convolution is None:
                continue
            pairs += 1
            if product < MIN_RATIO * convolution:
                figures = f"{quantity(product, 'FLOPS')} and {quantity(convolution, 'FLOPS')}"
                evidence = f"{precision} matrix product is far slower than convolution: {figures}"
                return Outcome("fail", evidence, run_event_location(contents, "measurement"))
    if not pairs:
        return Outcome("not applicable", _not_compared(contents))
    return Outcome(
        "pass", f"matrix product is not far slower than convolution in {count(pairs, 'precision')}"
    )


_LIMITED_BY: dict[Basis, str] = {
    "data sheet": "{} with a data sheet",
    "processor": "{} with the cores, clock and memory of a processor, which has no data sheet here",
    "any device": "{} with what no device exceeds",
}


def check_data_sheets(contents: Contents) -> Outcome:
    """Fail if a ceiling is above what is known about the device, or what any device has."""
    measured = [item for item in contents.measurements if item.value is not None]
    if not measured:
        return Outcome("not applicable", "no ceiling was measured")
    facts = _described_hardware(contents)
    compared, nearest = Counter[Basis](), 0.0
    for item in measured:
        described = {fact.name: fact.value for fact in facts.get(item.node, facts[None])}
        limit = ceiling_limit(item, described)
        assert item.value is not None
        if item.value > limit.value:
            name = " ".join(filter(None, (item.benchmark, item.case, item.precision)))
            value, most = (quantity(number, item.unit) for number in (item.value, limit.value))
            evidence = f"{name} is {value} on {item.device}, but at most {most} can be believed"
            where = measurement_location(contents, item)
            return Outcome("fail", f"{evidence}: {limit.source}", where)
        compared[limit.basis] += 1
        if limit.basis != "any device":
            nearest = max(nearest, item.value / limit.value)
    bases = ", ".join(_LIMITED_BY[basis].format(number) for basis, number in compared.items())
    reached = f"; at most {percent(nearest)} of a limit by device was reached" if nearest else ""
    return Outcome("pass", f"ceilings compared: {bases}{reached}")


def _described_hardware(contents: Contents) -> dict[str | None, Sequence[Fact]]:
    """Return the facts of each measured node by name, and of the starting machine by None."""
    described: dict[str | None, Sequence[Fact]] = {None: ()}
    if is_file(contents.folder.system_file):
        system = contents.read(SystemRecord, contents.folder.system_file)
        described[None] = system.layer("hardware").facts
    for node in contents.measured_nodes:
        described[node.node] = node.system.layer("hardware").facts
    return described


def _not_compared(contents: Contents) -> str:
    """Return why no matrix product was compared with a convolution."""
    trusted = measured_ceilings(item for item in contents.measurements if item.caveat is None)
    comparable = measured_ceilings(contents.measurements).precisions()
    for item in contents.measurements:
        is_left_out = (item.benchmark, item.precision) not in trusted.compute
        if item.caveat and is_left_out and item.precision in comparable:
            return f"{item.benchmark} {item.case} {item.precision} is in doubt: {item.caveat}"
    return "no precision has both a matrix product and a convolution"


def check_device_kinds(contents: Contents) -> Outcome:
    """Fail if a job is compared with a ceiling of another kind of device, or of fewer threads."""
    compared = 0
    for job in contents.training_jobs:
        started = job.started
        if started is None or started.ceiling_precision is None:
            continue
        for item in job_ceilings(contents, job).measurements:
            if item.benchmark not in COMPUTE or item.precision != started.ceiling_precision:
                continue
            kind = item.device.partition(":")[0]
            if item.value is not None and kind != started.device:
                measured = f"its {item.precision} {item.benchmark} was measured on {kind}"
                trained = f"job {job.record.job} trained on {started.device_name}"
                where = measurement_location(contents, item)
                return Outcome("fail", f"{trained} ({started.device}), but {measured}", where)
            threads = _threads_per_node(job, started)
            if item.value is not None and item.threads is not None and threads > item.threads:
                trained = f"job {job.record.job} trained with {count(threads, 'CPU thread')}"
                measured = f"its {item.precision} {item.benchmark} was measured with {item.threads}"
                where = measurement_location(contents, item)
                return Outcome("fail", f"{trained}, but {measured}", where)
            compared += item.value is not None
    if not compared:
        return Outcome("not applicable", "no job is compared with a ceiling")
    return Outcome("pass", "every job is compared with ceilings of its own kind of device")


def _threads_per_node(job: TrainedJob, started: JobStarted) -> int:
    """Return the CPU threads of all ranks on one node; 0 if the job trained on accelerators."""
    nodes = max(len(job.nodes), 1)
    return started.threads * math.ceil(started.ranks / nodes)
