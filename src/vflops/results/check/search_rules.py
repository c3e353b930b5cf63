"""Rules of searches: every candidate as it was proposed, trained once, and charged for what it is.

Whether a search conforms to AIPerf is decided in ``results.score.aiperf_conformance``. A search
that does not conform is scored with the reason; its record is not at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial

from vflops.errors import FolderError
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import PROGRESS_EVENTS, TrainedJob
from vflops.results.check.locations import of_candidate
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count
from vflops.results.score.search_workers import searches, story_of
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
    """A search beside what its folder holds."""

    contents: Contents
    members: Sequence[TrainedJob]

    @cached_property
    def story(self) -> SearchHistory:
        """What its workers' logs say together."""
        return story_of(self.members)

    @cached_property
    def settings(self) -> AutomlSettings:
        """Of the search."""
        return AutomlSettings.model_validate(self.record.settings)

    @property
    def record(self) -> JobRecord:
        """What the first worker was told."""
        return self.members[0].record

    @cached_property
    def proposal(self) -> Callable[[CandidateHistory], Candidate]:
        """The candidate of a story, as it was proposed."""
        found = {
            path.name.removesuffix(".json"): path
            for path in (self.contents.folder.path / "buffer").glob("r*-w*.json")
        }

        @cache
        def read(name: str) -> Candidate:
            if name not in found:
                path = self.contents.folder.path / "buffer" / f"{name}.json"
                raise FolderError(f"{path}: it is missing, and a candidate was trained from it")
            return self.contents.read(Candidate, found[name])

        return lambda story: read(story.begun.candidate)


@dataclass(frozen=True)
class Fault:
    """What is wrong with a candidate, and where that stands."""

    words: str
    kinds: tuple[str, ...] = ("candidate",)
    """Of the event that says it: the newest of these about the candidate."""
    facts: dict[str, object] = field(default_factory=dict)
    """That the event holds too, where there may be several."""
    file: str | None = None
    """In place of an event."""

    def outcome(self, members: Sequence[TrainedJob], story: CandidateHistory) -> Outcome:
        """The failure, with its file and line."""
        place = self.file or of_candidate(members, story, self.kinds, self.facts)
        return Outcome("fail", f"{story.begun.candidate}: {self.words}", place)


def all_searches(contents: Contents) -> list[Searched]:
    """All searches; asked for through ``once``, so that their stories are told once."""
    return [Searched(contents, members) for members in searches(contents)]


def _fault(
    found: Sequence[Searched], judge: Callable[[Searched, CandidateHistory], Fault | None]
) -> Outcome | None:
    """The first fault of a candidate, with its name."""
    for searched in found:
        for story in searched.story.candidates:
            fault = judge(searched, story)
            if fault:
                return fault.outcome(searched.members, story)
    return None


def searched(contents: Contents) -> Outcome:
    """Every candidate was trained once, by who claimed it, as it was proposed."""
    if not contents.workers:
        return NONE
    seen: dict[tuple[int, str], int] = {}
    found = contents.once(all_searches)
    fault = _fault(found, partial(_proposed, seen=seen, weights={}))
    if fault:
        return fault
    claims = len(list((contents.folder.path / "claims").glob("r*-w*.json")))
    never = claims - len(seen) - sum(len(each.story.unbuilt) for each in found)
    lost = f"; {count(never, 'was', 'were')} claimed and never begun" if never > 0 else ""
    return Outcome(
        "pass", f"{count(len(seen), 'candidate')}, each trained once, as it was proposed{lost}"
    )


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
        return Fault(f"its proposal is that of {candidate.turn.name}", file=proposal)
    run = searched.contents.folder.path
    if searched.contents.hash(run / proposal) != begun.proposal_sha256:
        return Fault("its proposal was changed since it was trained", file=proposal)
    if not (run / claim).is_file():
        return Fault("nobody claimed it")
    claimer = searched.contents.read(Claim, run / claim).worker
    if claimer != story.worker:
        return Fault(f"claimed by worker {claimer}, trained by {story.worker}", file=claim)
    told = (begun.digest, begun.parent, begun.epochs, begun.batch)
    meant = (candidate.architecture.digest, candidate.parent, candidate.epochs)
    if told != (*meant, candidate.hyper.batch):
        return Fault("what was trained is not what was proposed")
    if story.trained is not None and story.trained.hyper != candidate.hyper:
        return Fault("its hyper-parameters are not those of its proposal", RESULT)
    found = story.trained.weights_sha256 if story.trained else None
    other = weights.setdefault(found, name) if found else name
    if other != name:
        return Fault(f"its weights are those of {other}: one training twice", RESULT)
    return None


def charged(contents: Contents) -> Outcome:
    """The operations charged are those of the recorded architectures, counted again."""
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
        told, true = integer(begun.ops_total), integer(counted[key][1])
        return Fault(f"charged with {told} operations a sample, its architecture has {true}")
    if begun.parameters != network.parameters:
        own = integer(network.parameters)
        return Fault(f"{integer(begun.parameters)} parameters told, {own} counted")
    return None


def _per_sample(network: Architecture, batch: int) -> tuple[int, int]:
    found = architecture_cost.ops(network, RULES, batch)
    return found.forward // batch, found.total // batch


def sampled(contents: Contents) -> Outcome:
    """Samples of every candidate are epochs of the data set; its results follow from its log."""
    if not contents.workers:
        return NONE
    found = contents.once(all_searches)
    fault = _fault(found, _samples)
    if fault:
        return fault
    total = sum(story.samples for each in found for story in each.story.candidates)
    return Outcome(
        "pass", f"{count(total, 'sample')} trained on, every evaluation on the whole set"
    )


def _samples(searched: Searched, story: CandidateHistory) -> Fault | None:
    data, trained = searched.record.data, story.trained
    for epoch, seen in story.evaluations.items():
        if seen != data.validation:
            words = f"an evaluation saw {integer(seen)} of {integer(data.validation)} samples"
            return Fault(words, ("evaluation",), {"epoch": epoch})
    noted = (*PROGRESS_EVENTS, *END_EVENTS)
    if story.samples > story.begun.epochs * data.train + story.begun.batch:
        most = f"{count(story.begun.epochs, 'epoch')} of {integer(data.train)}"
        return Fault(f"{count(story.samples, 'sample')} are more than {most}", noted)
    if trained is None:
        return None
    wanted = trained.epochs * data.train
    if not wanted <= story.samples < wanted + story.begun.batch:
        told = f"{count(trained.epochs, 'epoch')} of {integer(data.train)}"
        return Fault(f"{count(story.samples, 'sample')} are not {told}", noted)
    best = max((quality for _, quality in story.curve), default=None)
    fault = None
    if best is None or abs(best - trained.accuracy) > _ROUNDING:
        fault = f"accuracy {trained.accuracy:g} told, the best of its evaluations is {best}"
    fault = fault or _prediction(searched, story)
    return Fault(fault, RESULT) if fault else None


def _prediction(searched: Searched, story: CandidateHistory) -> str | None:
    """What a warm-up counts for follows from its curve."""
    assert story.trained is not None
    told = story.trained.predicted
    if story.turn.round + 1 >= searched.settings.search.tune_from:
        return None if told is None else "an accuracy is predicted after the warm-up"
    points = {max(round(epoch), 1): quality for epoch, quality in story.curve}
    found = learning_curve.predict(sorted(points.items()), searched.settings.train.epochs).value
    if told is None or abs(told - found) > _ROUNDING:
        return f"predicted accuracy {told} told, its curve gives {found:g}"
    return None
