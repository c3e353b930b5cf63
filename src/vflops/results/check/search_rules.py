"""Rules for searches: candidates are trained once, as proposed, and charged correctly.

Whether a search conforms to AIPerf is decided in ``results.score.aiperf_conformance``. A search
that does not conform is scored with the reason; its record is still valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial

from vflops.errors import FolderError
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import PROGRESS_EVENTS, TrainedJob
from vflops.results.check.locations import candidate_event_location
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count
from vflops.results.score.search_workers import search_history, searches
from vflops.units import integer
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.candidate_history import END_EVENTS, CandidateHistory
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
    def story(self) -> SearchHistory:
        """The combined history from the logs of its workers."""
        return search_history(self.members)

    @cached_property
    def settings(self) -> AutomlSettings:
        """The settings of the search."""
        return AutomlSettings.model_validate(self.record.settings)

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

        return lambda story: read(story.begun.candidate)


@dataclass(frozen=True)
class Fault:
    """A fault of a candidate, and where it is recorded."""

    words: str
    kinds: tuple[str, ...] = ("candidate",)
    """The kinds of the event with the fault: the newest about the candidate."""
    facts: dict[str, object] = field(default_factory=dict)
    """Data of the event, where several may match."""
    file: str | None = None
    """A file instead of an event."""

    def outcome(self, members: Sequence[TrainedJob], story: CandidateHistory) -> Outcome:
        """Return the failure, with its file and line."""
        where = self.file or candidate_event_location(members, story, self.kinds, self.facts)
        return Outcome("fail", f"{story.begun.candidate}: {self.words}", where)


def all_searches(contents: Contents) -> list[Searched]:
    """Return all searches; call through ``Contents.once`` to read their histories once."""
    return [Searched(contents, members) for members in searches(contents)]


def _fault(
    all_of: Sequence[Searched], judge: Callable[[Searched, CandidateHistory], Fault | None]
) -> Outcome | None:
    """Return the failure for the first faulty candidate."""
    for searched in all_of:
        for story in searched.story.candidates:
            fault = judge(searched, story)
            if fault:
                return fault.outcome(searched.members, story)
    return None


def check_proposals(contents: Contents) -> Outcome:
    """Fail unless every candidate was trained once, as proposed, by the worker that claimed it."""
    if not contents.workers:
        return NONE
    seen: dict[tuple[int, str], int] = {}
    known = contents.once(all_searches)
    fault = _fault(known, partial(_proposed, seen=seen, weights={}))
    if fault:
        return fault
    claims = len(list((contents.folder.path / "claims").glob("r*-w*.json")))
    never = claims - len(seen) - sum(len(search.story.unbuilt) for search in known)
    lost = f"; {count(never, 'was', 'were')} claimed but never started" if never > 0 else ""
    return Outcome("pass", f"{count(len(seen), 'candidate')}, each trained once, as proposed{lost}")


def _proposed(
    searched: Searched,
    story: CandidateHistory,
    seen: dict[tuple[int, str], int],
    weights: dict[str, str],
) -> Fault | None:
    name, begun = story.begun.candidate, story.begun
    first = seen.setdefault((searched.record.repeat, name), story.worker)
    if first != story.worker:
        return Fault(f"trained by workers {first} and {story.worker}")
    candidate = searched.proposal(story)
    proposal, claim = f"buffer/{name}.json", f"claims/{name}.json"
    if candidate.turn != story.turn:
        return Fault(f"its proposal is for {candidate.turn.name}", file=proposal)
    run = searched.contents.folder.path
    if searched.contents.hash(run / proposal) != begun.proposal_sha256:
        return Fault("its proposal was changed after training", file=proposal)
    if not (run / claim).is_file():
        return Fault("it was never claimed")
    claimer = searched.contents.read(Claim, run / claim).worker
    if claimer != story.worker:
        return Fault(f"claimed by worker {claimer}, trained by {story.worker}", file=claim)
    trained = (begun.digest, begun.parent, begun.epochs, begun.batch)
    proposed = (candidate.architecture.digest, candidate.parent, candidate.epochs)
    if trained != (*proposed, candidate.hyper.batch):
        return Fault("what was trained is not what was proposed")
    if story.trained is not None and story.trained.hyper != candidate.hyper:
        return Fault("its hyper-parameters are not those of its proposal", RESULT)
    digest = story.trained.weights_sha256 if story.trained else None
    other = weights.setdefault(digest, name) if digest else name
    if other != name:
        return Fault(f"its weights are those of {other}: the same training twice", RESULT)
    return None


def check_operation_counts(contents: Contents) -> Outcome:
    """Fail unless the charged operations are those of the architectures, counted again."""
    if not contents.workers:
        return NONE
    counted: dict[tuple[str, int], tuple[int, int]] = {}
    fault = _fault(contents.once(all_searches), partial(_operations, counted=counted))
    if fault:
        return fault
    known = count(len(counted), "architecture and batch", "architectures and batches")
    return Outcome("pass", f"{known}, counted again by the rules {RULES}")


def _operations(
    searched: Searched, story: CandidateHistory, counted: dict[tuple[str, int], tuple[int, int]]
) -> Fault | None:
    network, begun = searched.proposal(story).architecture, story.begun
    parts = searched.record.ranks * searched.settings.train.accumulate
    batch = max(begun.batch // parts, 1)
    key = (network.digest, batch)
    if key not in counted:
        counted[key] = _per_sample(network, batch)
    if (begun.ops_forward, begun.ops_total) != counted[key]:
        recorded, true = integer(begun.ops_total), integer(counted[key][1])
        return Fault(f"charged {recorded} operations per sample, its architecture has {true}")
    if begun.parameters != network.parameters:
        true = integer(network.parameters)
        return Fault(f"{integer(begun.parameters)} parameters recorded, {true} counted")
    return None


def _per_sample(network: Architecture, batch: int) -> tuple[int, int]:
    ops = architecture_cost.ops(network, RULES, batch)
    return ops.forward // batch, ops.total // batch


def check_candidate_results(contents: Contents) -> Outcome:
    """Fail unless samples are epochs of the data set, and results follow from the logs."""
    if not contents.workers:
        return NONE
    known = contents.once(all_searches)
    fault = _fault(known, _samples)
    if fault:
        return fault
    total = sum(story.samples for search in known for story in search.story.candidates)
    return Outcome(
        "pass", f"{count(total, 'sample')} trained on, every evaluation on the whole set"
    )


def _samples(searched: Searched, story: CandidateHistory) -> Fault | None:
    data, trained = searched.record.data, story.trained
    for epoch, seen in story.evaluations.items():
        if seen != data.validation:
            words = f"an evaluation used {integer(seen)} of {integer(data.validation)} samples"
            return Fault(words, ("evaluation",), {"epoch": epoch})
    noted = (*PROGRESS_EVENTS, *END_EVENTS)
    if story.samples > story.begun.epochs * data.train + story.begun.batch:
        most = f"{count(story.begun.epochs, 'epoch')} of {integer(data.train)}"
        return Fault(f"{count(story.samples, 'sample')} are more than {most}", noted)
    if trained is None:
        return None
    wanted = trained.epochs * data.train
    if not wanted <= story.samples < wanted + story.begun.batch:
        epochs = f"{count(trained.epochs, 'epoch')} of {integer(data.train)}"
        return Fault(f"{count(story.samples, 'sample')} are not {epochs}", noted)
    best = max((quality for _, quality in story.curve), default=None)
    fault = None
    if best is None or abs(best - trained.accuracy) > _ROUNDING:
        fault = f"accuracy {trained.accuracy:g} recorded, its best evaluation has {best}"
    fault = fault or _prediction(searched, story)
    return Fault(fault, RESULT) if fault else None


def _prediction(searched: Searched, story: CandidateHistory) -> str | None:
    """Return the fault of a warm-up round's predicted accuracy; None if its curve gives it."""
    assert story.trained is not None
    recorded = story.trained.predicted
    if story.turn.round + 1 >= searched.settings.search.tune_from:
        return None if recorded is None else "an accuracy is predicted after the warm-up"
    points = {max(round(epoch), 1): quality for epoch, quality in story.curve}
    true = learning_curve.predict(sorted(points.items()), searched.settings.train.epochs).value
    if recorded is None or abs(recorded - true) > _ROUNDING:
        return f"predicted accuracy {recorded} recorded, its curve gives {true:g}"
    return None
