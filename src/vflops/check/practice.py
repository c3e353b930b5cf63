"""The rule set ``practice``: what any honest run must meet, at any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vflops.check.record import Finding, Findings, Verdict
from vflops.check.search import charged, ledgered, sampled, searched
from vflops.check.training import powered, processed, timed, trained
from vflops.check.twins import twins
from vflops.errors import FolderError
from vflops.record.events import Described, Loaded, Planned
from vflops.record.folder import file_hash
from vflops.roofline.analysis import Roofs, roofs
from vflops.score.contents import Contents
from vflops.score.score import score
from vflops.score.words import count
from vflops.system.record import SystemRecord
from vflops.units import percent, quantity

VERSION = 4
LEAST_SAMPLES = 3
MOST_LOAD = 0.1
"""Of the CPUs, by others, while ceilings are measured."""
LEAST_RATIO = 0.25
"""Of the matrix product to the convolution: both run on the same units."""

Outcome = tuple[Verdict, str]


@dataclass(frozen=True)
class Rule:
    """A rule with its name; ``judge`` reads the run and gives a verdict with evidence."""

    id: str
    title: str
    judge: Callable[[Contents], Outcome]


def _complete(contents: Contents) -> Outcome:
    state = contents.state
    return ("pass", "the log ends with its end") if state.complete else ("fail", str(state.reason))


def _chain(contents: Contents) -> Outcome:
    logs = contents.history.logs
    faults = [fault for log in logs for fault in log.faults]
    if faults:
        return "fail", "; ".join(faults[:3])
    for of_job in contents.history.jobs.values():
        if of_job and of_job[-1].torn:  # one of an attempt that another followed was made good
            return "fail", f"{of_job[-1].torn}: cut off while it was written"
    lines = sum(len(log.events) for log in logs)
    return "pass", f"{count(lines, 'line')}, each chained to the one before"


def _system(contents: Contents) -> Outcome:
    record = SystemRecord.read(contents.folder.system_file)
    described = contents.history.events("described")
    if not described:
        return "cannot tell", "the log does not say when the system was described"
    if described[-1].payload(Described).sha256 != file_hash(contents.folder.system_file):
        return "fail", "system.json is not the one that was written in this run"
    facts = [fact for layer in record.layers for fact in layer.facts]
    known = sum(fact.value is not None for fact in facts)
    return "pass", f"{len(record.layers)} layers, {known} of {len(facts)} facts read"


def _planned(contents: Contents) -> Outcome:
    wanted = contents.history.events("plan")
    if not wanted:
        return "cannot tell", "the log holds no plan"
    planned = {key for event in wanted for key in event.payload(Planned).measurements}
    missing = planned - {item.key for item in contents.measurements}
    if missing:
        first = [" ".join(filter(None, key)) for key in sorted(missing, key=str)][:3]
        named = ", ".join(first) + (" …" if len(missing) > len(first) else "")
        return "fail", f"{len(missing)} of {len(planned)} neither measured nor explained: {named}"
    return "pass", f"{len(planned)} planned, each measured or explained"


def _correct(contents: Contents) -> Outcome:
    checked = [item for item in contents.measurements if item.value and item.unit == "FLOPS"]
    if not checked:
        return "not applicable", "no ceiling with arithmetic in this run"
    for item in checked:
        name = f"{item.benchmark} {item.case} {item.precision}"
        if item.error is None or item.tolerance is None:
            return "fail", f"{name} was not compared with a reference"
        if not item.error <= item.tolerance:  # also when it is not a number
            return "fail", f"{name}: error {item.error}, at most {item.tolerance} is right"
    return "pass", f"{count(len(checked), 'ceiling')}, each as a more precise reference has it"


def _sampled(contents: Contents) -> Outcome:
    measured = [item for item in contents.measurements if item.value is not None]
    if not measured:
        return "not applicable", "no ceiling was measured"
    few = [item for item in measured if len(item.samples) < LEAST_SAMPLES]
    if few:
        named = ", ".join(f"{item.benchmark} {item.case}" for item in few[:3])
        return "fail", f"fewer than {LEAST_SAMPLES} samples: {named}"
    ceilings = count(len(measured), "ceiling")
    return "pass", f"{ceilings}, each the median of {LEAST_SAMPLES} samples or more"


def _quiet(contents: Contents) -> Outcome:
    if not contents.measurements:
        return "not applicable", "no ceiling in this run"
    attempts = [[e for e in log.events if e.kind == "load"] for log in contents.history.logs]
    last = [loads[-1].payload(Loaded).others_share for loads in attempts if loads]
    if not last:
        return "cannot tell", "the log does not say what else ran"
    share = max(last)
    verdict: Verdict = "pass" if share <= MOST_LOAD else "fail"
    return (
        verdict,
        f"others used {percent(share)} of the CPUs, at most {percent(MOST_LOAD)} is quiet",
    )


def _plausible(contents: Contents) -> Outcome:
    machine = roofs(item for item in contents.measurements if item.caveat is None)
    pairs = 0
    for (benchmark, precision), product in machine.compute.items():
        convolution = machine.compute.get(("convolution", precision))
        if benchmark != "gemm" or convolution is None:
            continue
        pairs += 1
        if product < LEAST_RATIO * convolution:
            figures = f"{quantity(product, 'FLOPS')} against {quantity(convolution, 'FLOPS')}"
            return "fail", f"{precision} matrix product far below convolution: {figures}"
    if not pairs:
        return "not applicable", _not_compared(contents, machine)
    return "pass", f"matrix product and convolution agree in {count(pairs, 'precision')}"


def _not_compared(contents: Contents, trusted: Roofs) -> str:
    """Why no product was set beside a convolution: they are doubtful, or not both there."""
    both = roofs(contents.measurements).precisions()
    for item in contents.measurements:
        left_out = (item.benchmark, item.precision) not in trusted.compute
        if item.caveat and left_out and item.precision in both:
            return f"{item.benchmark} {item.case} {item.precision} is in doubt: {item.caveat}"
    return "no precision has both a product and a convolution"


def _recounted(contents: Contents) -> Outcome:
    if not contents.counted:
        return "not applicable", "no model was counted in this run"
    own = {contents.folder.graph_file(counted.model) for counted in contents.counted}
    strays = sorted(set(contents.folder.graph_files) - own)
    if strays:
        return "fail", f"{strays[0]}: no model of this run"
    for counted in contents.counted:
        path = contents.folder.graph_file(counted.model)
        if not path.is_file():
            return "fail", f"the graph of {counted.model} is missing"
        if counted.sha256 != file_hash(path):
            return "fail", f"{path}: not the graph that was counted"
    return "pass", f"{count(len(contents.graphs), 'graph')}, unchanged since the count"


def _score(contents: Contents) -> Outcome:
    path = contents.folder.score_file
    if not path.is_file():
        return "fail", "score.json is missing: vflops score writes it"
    if path.read_bytes() != score(contents).to_json().encode():
        return "fail", "score.json is not what the record gives: vflops score recomputes it"
    return "pass", "score.json is what the record gives, byte for byte"


PRACTICE: tuple[Rule, ...] = (
    Rule("complete", "the run came to its end", _complete),
    Rule("chain", "no line of the log was changed, dropped or cut off", _chain),
    Rule("system", "the system is described", _system),
    Rule("planned", "all that was planned was measured or explained", _planned),
    Rule("correct", "results are right before they are fast", _correct),
    Rule("sampled", "no ceiling rests on a single sample", _sampled),
    Rule("quiet", "the machine did little else", _quiet),
    Rule("plausible", "the ceilings fit each other", _plausible),
    Rule("recounted", "operations come from the recorded graphs", _recounted),
    Rule("trained", "every training came to its end, as it was planned", trained),
    Rule("powered", "power logs of the node are those that were imported", powered),
    Rule("processed", "samples are epochs of the data set, evaluated on all of it", processed),
    Rule("timed", "the time of every training adds up", timed),
    Rule("twins", "twins compute the same", twins),
    Rule("searched", "every candidate was trained once, as it was proposed", searched),
    Rule("charged", "operations are those of the recorded architectures", charged),
    Rule("results", "a candidate's samples and results follow from its log", sampled),
    Rule("ledger", "the ledger for replays is what was trained", ledgered),
    Rule("score", "the score follows from the record", _score),
)


def check(contents: Contents) -> Findings:
    """Every rule's verdict on the run; a file that cannot be read is a failure, not an error."""
    return Findings(
        run=contents.folder.record.id,
        rule_set="practice",
        rule_set_version=VERSION,
        findings=tuple(_judge(rule, contents) for rule in PRACTICE),
    )


def _judge(rule: Rule, contents: Contents) -> Finding:
    try:
        verdict, evidence = rule.judge(contents)
    except FolderError as error:
        verdict, evidence = "fail", error.message
    except Exception as error:  # whatever a damaged file leads to, the verdict is that it fails
        verdict, evidence = "fail", f"cannot be judged: {type(error).__name__}: {error}"
    return Finding(rule=rule.id, title=rule.title, verdict=verdict, evidence=evidence)
