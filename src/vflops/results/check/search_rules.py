"""Rules for searches: candidates are trained once, as proposed, and operations are correct.

``results.score.aiperf_conformance`` decides whether a search conforms to AIPerf. A search that does
not conform is still scored, and its record is still valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial

from vflops.errors import FolderError, UsageError
from vflops.record.formats.batch_ops import BatchOps
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import PROGRESS_EVENTS, TrainedJob
from vflops.results.check.locations import candidate_event_location
from vflops.results.check.rule import Outcome
from vflops.results.score.search_workers import search_history, searches
from vflops.units import count, integer, shape
from vflops.workloads.automl.architecture import architecture_cost, morphs
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.candidate_history import END_EVENTS, CandidateHistory
from vflops.workloads.automl.proposer import first_network
from vflops.workloads.automl.search import learning_curve
from vflops.workloads.automl.search_events import RULES, Candidate, Claim
from vflops.workloads.automl.search_history import SearchHistory
from vflops.workloads.automl.settings import AutomlSettings

NONE = Outcome("not applicable", "nothing was searched in this run")
_ROUNDING = 1e-9
RESULT = ("candidate-trained",)


@dataclass(frozen=True)
class Searched:
    """A search with the contents of its run folder."""

    contents: Contents
    members: Sequence[TrainedJob]

    @cached_property
    def history(self) -> SearchHistory:
        """The combined history from the logs of its workers."""
        return search_history(self.members)

    @cached_property
    def settings(self) -> AutomlSettings:
        """The settings of the search."""
        return AutomlSettings.model_validate(self.record.settings)

    @cached_property
    def first_network(self) -> Architecture:
        """The network that the search starts from, by its settings and the classes of the data."""
        return first_network(self.settings, self.record.data)

    def rank_batch(self, history: CandidateHistory) -> int:
        """Return the number of samples of a candidate that one rank computes at once."""
        parts = self.record.ranks * self.settings.train.accumulate
        return max(history.begun.batch // parts, 1)

    @property
    def record(self) -> JobRecord:
        """The record of the first worker."""
        return self.members[0].record

    @cached_property
    def proposal(self) -> Callable[[CandidateHistory], Candidate]:
        """A function that returns the proposal of a candidate."""
        proposals = {
            path.name.removesuffix(".json"): path
            for path in (self.contents.folder.path / "buffer").glob("r*-w*.json")
        }

        @cache
        def read(name: str) -> Candidate:
            if name not in proposals:
                path = self.contents.folder.path / "buffer" / f"{name}.json"
                raise FolderError(f"{path}: missing, but its candidate was trained")
            return self.contents.read(Candidate, proposals[name])

        return lambda history: read(history.begun.candidate)


@dataclass(frozen=True)
class Fault:
    """A fault of a candidate, and where it is recorded."""

    evidence: str
    kinds: tuple[str, ...] = ("candidate",)
    """The kinds of events with the fault; the newest about the candidate is named."""
    facts: dict[str, object] = field(default_factory=dict)
    """Values in the event, to choose between several of these kinds."""
    file: str | None = None
    """The file with the fault, if it is not an event."""

    def outcome(self, members: Sequence[TrainedJob], history: CandidateHistory) -> Outcome:
        """Return the fault of a candidate as a failure, with its file and line."""
        where = self.file or candidate_event_location(members, history, self.kinds, self.facts)
        return Outcome("fail", f"{history.begun.candidate}: {self.evidence}", where)


def all_searches(contents: Contents) -> list[Searched]:
    """Return all searches; call through ``Contents.once`` to read their histories once."""
    return [Searched(contents, members) for members in searches(contents)]


def first_fault(
    searches: Sequence[Searched], find_fault: Callable[[Searched, CandidateHistory], Fault | None]
) -> Outcome | None:
    """Return the failure for the first faulty candidate."""
    for searched in searches:
        for history in searched.history.candidates:
            fault = find_fault(searched, history)
            if fault:
                return fault.outcome(searched.members, history)
    return None


def check_proposals(contents: Contents) -> Outcome:
    """Fail unless every candidate was trained once, as proposed, by the worker that claimed it."""
    if not contents.workers:
        return NONE
    seen: dict[tuple[int, str], int] = {}
    known = contents.once(all_searches)
    fault = first_fault(known, partial(_proposal_fault, seen=seen, weights={}))
    if fault:
        return fault
    claims = len(list((contents.folder.path / "claims").glob("r*-w*.json")))
    never = claims - len(seen) - sum(len(search.history.unbuilt) for search in known)
    lost = f"; {count(never, 'was', 'were')} claimed but never started" if never > 0 else ""
    return Outcome("pass", f"{count(len(seen), 'candidate')}, each trained once, as proposed{lost}")


def _proposal_fault(
    searched: Searched,
    history: CandidateHistory,
    seen: dict[tuple[int, str], int],
    weights: dict[str, str],
) -> Fault | None:
    name, begun = history.begun.candidate, history.begun
    first = seen.setdefault((searched.record.repeat, name), history.worker)
    if first != history.worker:
        return Fault(f"trained by workers {first} and {history.worker}")
    candidate = searched.proposal(history)
    proposal, claim = f"buffer/{name}.json", f"claims/{name}.json"
    if candidate.turn != history.turn:
        return Fault(f"its proposal is for {candidate.turn.name}", file=proposal)
    run = searched.contents.folder.path
    if searched.contents.hash(run / proposal) != begun.proposal_sha256:
        return Fault("its proposal was changed after training", file=proposal)
    if not (run / claim).is_file():
        return Fault("it was never claimed")
    claimer = searched.contents.read(Claim, run / claim).worker
    if claimer != history.worker:
        return Fault(f"claimed by worker {claimer}, trained by {history.worker}", file=claim)
    trained = (begun.digest, begun.parent, begun.epochs, begun.batch)
    proposed = (candidate.architecture.digest, candidate.parent, candidate.epochs)
    if trained != (*proposed, candidate.hyper.batch):
        return Fault("the trained candidate is not the one that was proposed")
    if history.trained is not None and history.trained.hyper != candidate.hyper:
        return Fault("its hyper-parameters are not those of its proposal", RESULT)
    digest = history.trained.weights_sha256 if history.trained else None
    other = weights.setdefault(digest, name) if digest else name
    if other != name:
        return Fault(f"{other} has the same weights: it is the same training twice", RESULT)
    return None


def check_first_network(contents: Contents) -> Outcome:
    """Fail unless the networks without a parent follow from the first one of the settings.

    All candidates take images of the size, and have the classes, of the first one.
    """
    if not contents.workers:
        return NONE
    known = contents.once(all_searches)
    fault = first_fault(known, _first_network_fault)
    if fault:
        return fault
    return Outcome("pass", "; ".join(dict.fromkeys(_first_network(search) for search in known)))


def _first_network(searched: Searched) -> str:
    first = searched.first_network
    return (
        f"images of {shape(first.input_shape)}, {integer(first.classes)} classes, and a first "
        f"network with {integer(first.parameters)} parameters, as the settings have it"
    )


def _first_network_fault(searched: Searched, history: CandidateHistory) -> Fault | None:
    candidate, first = searched.proposal(history), searched.first_network
    network, proposal = candidate.architecture, f"buffer/{history.begun.candidate}.json"
    if network.input_shape != first.input_shape:
        recorded, expected = shape(network.input_shape), shape(first.input_shape)
        evidence = f"its network takes images of {recorded}, but the settings give {expected}"
        return Fault(evidence, file=proposal)
    if network.classes != first.classes:
        classes = f"{integer(network.classes)} classes"
        evidence = f"its network has {classes}, but the data has {integer(first.classes)}"
        return Fault(evidence, file=proposal)
    if candidate.parent is None:
        return derivation_fault(candidate, first, "the first network", proposal)
    return None


def derivation_fault(
    candidate: Candidate, base: Architecture, origin: str, proposal: str
) -> Fault | None:
    """Return the fault of a candidate whose network does not follow by its morphs from ``base``."""
    try:
        for morph in candidate.morphs:
            base = morphs.apply(base, morph)
    except UsageError as error:
        return Fault(error.message, file=proposal)
    if base.digest != candidate.architecture.digest:
        return Fault(f"its network does not follow by its morphs from {origin}", file=proposal)
    return None


def check_operation_counts(contents: Contents) -> Outcome:
    """Fail unless the recorded operations equal those of the architectures, counted again."""
    if not contents.workers:
        return NONE
    counted: dict[tuple[str, int], BatchOps] = {}
    fault = first_fault(contents.once(all_searches), partial(_operations_fault, counted=counted))
    if fault:
        return fault
    known = count(len(counted), "architecture and batch", "architectures and batches")
    return Outcome("pass", f"{known}, counted again by the rules {RULES}")


def _operations_fault(
    searched: Searched, history: CandidateHistory, counted: dict[tuple[str, int], BatchOps]
) -> Fault | None:
    network, begun = searched.proposal(history).architecture, history.begun
    batch = searched.rank_batch(history)
    key = (network.digest, batch)
    if key not in counted:
        ops = architecture_cost.ops(network, RULES, batch)
        counted[key] = BatchOps(batch=batch, forward=ops.forward, total=ops.total)
    actual = counted[key]
    per_sample = actual.forward // batch, actual.total // batch
    if (begun.ops_forward, begun.ops_total) != per_sample:
        recorded = f"{integer(begun.ops_total)} operations per sample recorded"
        return Fault(f"{recorded}, but its architecture has {integer(per_sample[1])}")
    exact = begun.batch_ops
    if exact is not None and exact != actual:
        recorded = f"{integer(exact.total)} operations per {integer(exact.batch)} samples recorded"
        return Fault(f"{recorded}, but its architecture has {integer(actual.total)} per {batch}")
    if begun.parameters != network.parameters:
        parameters = integer(network.parameters)
        return Fault(f"{integer(begun.parameters)} parameters recorded, but {parameters} counted")
    return None


def check_candidate_results(contents: Contents) -> Outcome:
    """Fail unless samples are whole epochs of the data set and results follow from the logs."""
    if not contents.workers:
        return NONE
    known = contents.once(all_searches)
    fault = first_fault(known, _results_fault)
    if fault:
        return fault
    total = sum(history.samples for search in known for history in search.history.candidates)
    return Outcome(
        "pass", f"{count(total, 'sample')} trained on, every evaluation on the whole validation set"
    )


def _results_fault(searched: Searched, history: CandidateHistory) -> Fault | None:
    data, trained = searched.record.data, history.trained
    for epoch, seen in history.evaluations.items():
        if seen != data.validation:
            evidence = f"an evaluation used {integer(seen)} of {integer(data.validation)} samples"
            return Fault(evidence, ("evaluation",), {"epoch": epoch})
    event_kinds = (*PROGRESS_EVENTS, *END_EVENTS)
    if history.samples > history.begun.epochs * data.train + history.begun.batch:
        limit = f"{count(history.begun.epochs, 'epoch')} of {integer(data.train)}"
        return Fault(f"{count(history.samples, 'sample')} are more than {limit}", event_kinds)
    if trained is None:
        return None
    expected = trained.epochs * data.train
    if not expected <= history.samples < expected + history.begun.batch:
        epochs = f"{count(trained.epochs, 'epoch')} of {integer(data.train)}"
        return Fault(f"{count(history.samples, 'sample')} are not {epochs}", event_kinds)
    best = max((quality for _, quality in history.curve), default=None)
    fault = None
    if best is None or abs(best - trained.accuracy) > _ROUNDING:
        fault = f"accuracy {trained.accuracy:g} recorded, but its best evaluation has {best}"
    fault = fault or _prediction_fault(searched, history)
    return Fault(fault, RESULT) if fault else None


def _prediction_fault(searched: Searched, history: CandidateHistory) -> str | None:
    """Return the fault of a predicted accuracy, which must follow from the learning curve.

    Accuracies are predicted only in the warm-up rounds.
    """
    assert history.trained is not None
    recorded = history.trained.predicted
    if history.turn.round + 1 >= searched.settings.search.tune_from:
        return None if recorded is None else "an accuracy was predicted after the warm-up"
    points = {max(round(epoch), 1): quality for epoch, quality in history.curve}
    expected = learning_curve.predict(sorted(points.items()), searched.settings.train.epochs).value
    if recorded is None or abs(recorded - expected) > _ROUNDING:
        return f"predicted accuracy {recorded} recorded, but its curve gives {expected:g}"
    return None
