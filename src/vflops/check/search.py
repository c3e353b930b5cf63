"""Rules of searches: every candidate as it was proposed, trained once, and charged for what it is.

Whether a search is a result by AIPerf's rules is another matter: `vflops.score.aiperf`. One that is
not is scored and says why; it is no fault of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

from vflops.automl.architecture import work
from vflops.automl.architecture.graph import Architecture
from vflops.automl.record import RULES, Candidate, Claim
from vflops.automl.replay import REPLAYED, LedgerWritten, Replayed, SearchLedger, ledger_of
from vflops.automl.search import curve
from vflops.automl.story import Search, Story
from vflops.check.record import Verdict
from vflops.errors import FolderError
from vflops.record.training import JobRecord
from vflops.score.contents import Contents
from vflops.score.trained import Trained
from vflops.score.words import count
from vflops.score.workers import searches, story_of
from vflops.units import integer, quantity
from vflops.workloads.automl.settings import AutomlSettings

Outcome = tuple[Verdict, str]

_NONE: Outcome = ("not applicable", "nothing was searched in this run")
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Searched:
    """A search beside what its folder holds."""

    contents: Contents
    members: Sequence[Trained]

    @cached_property
    def story(self) -> Search:
        return story_of(self.members)

    @cached_property
    def settings(self) -> AutomlSettings:
        return AutomlSettings.model_validate(self.record.settings)

    @property
    def record(self) -> JobRecord:
        return self.members[0].record

    @cached_property
    def proposal(self) -> Callable[[Story], Candidate]:
        """The candidate of a story, as it was proposed."""
        found = {
            path.name.removesuffix(".json"): path
            for path in (self.contents.folder.path / "buffer").glob("r*-w*.json")
        }

        @cache
        def read(name: str) -> Candidate:
            if name not in found:
                raise FolderError(f"buffer/{name}.json is missing: it was trained from it")
            return self.contents.read(Candidate, found[name])

        return lambda story: read(story.begun.candidate)


def _searches(contents: Contents) -> list[_Searched]:
    """All searches; asked for through ``once``, so that their stories are told once."""
    return [_Searched(contents, members) for members in searches(contents)]


def _fault(
    found: Sequence[_Searched], judge: Callable[[_Searched, Story], str | None]
) -> str | None:
    """The first fault of a candidate, with its name."""
    for searched in found:
        for story in searched.story.candidates:
            fault = judge(searched, story)
            if fault:
                return f"{story.begun.candidate}: {fault}"
    return None


def searched(contents: Contents) -> Outcome:
    """Every candidate was trained once, by who claimed it, as it was proposed."""
    if not contents.workers:
        return _NONE
    seen: dict[tuple[int, str], int] = {}
    found = contents.once(_searches)
    fault = _fault(found, partial(_proposed, seen=seen))
    if fault:
        return "fail", fault
    claims = len(list((contents.folder.path / "claims").glob("r*-w*.json")))
    never = claims - len(seen) - sum(len(each.story.unbuilt) for each in found)
    lost = f"; {count(never, 'was', 'were')} claimed and never begun" if never > 0 else ""
    return "pass", f"{count(len(seen), 'candidate')}, each trained once, as it was proposed{lost}"


def _proposed(searched: _Searched, story: Story, seen: dict[tuple[int, str], int]) -> str | None:
    name, begun = story.begun.candidate, story.begun
    first = seen.setdefault((searched.record.repeat, name), story.worker)
    if first != story.worker:
        return f"trained by workers {first} and {story.worker}"
    run = searched.contents.folder.path
    candidate = searched.proposal(story)
    if candidate.turn != story.turn:
        return f"its proposal is that of {candidate.turn.name}"
    if searched.contents.hash(run / "buffer" / f"{name}.json") != begun.proposal_sha256:
        return "its proposal was changed since it was trained"
    claim = run / "claims" / f"{name}.json"
    if not claim.is_file():
        return "nobody claimed it"
    claimer = searched.contents.read(Claim, claim).worker
    if claimer != story.worker:
        return f"claimed by worker {claimer}, trained by {story.worker}"
    told = (begun.digest, begun.parent, begun.epochs, begun.batch)
    meant = (candidate.architecture.digest, candidate.parent, candidate.epochs)
    if told != (*meant, candidate.hyper.batch):
        return "what was trained is not what was proposed"
    if story.trained is not None and story.trained.hyper != candidate.hyper:
        return "its hyper-parameters are not those of its proposal"
    return None


def charged(contents: Contents) -> Outcome:
    """The operations charged are those of the recorded architectures, counted again."""
    if not contents.workers:
        return _NONE
    counted: dict[tuple[str, int], tuple[int, int]] = {}
    fault = _fault(contents.once(_searches), partial(_operations, counted=counted))
    if fault:
        return "fail", fault
    known = count(len(counted), "architecture and batch", "architectures and batches")
    return "pass", f"{known}, counted again by the rules {RULES}"


def _operations(
    searched: _Searched, story: Story, counted: dict[tuple[str, int], tuple[int, int]]
) -> str | None:
    network, begun = searched.proposal(story).architecture, story.begun
    parts = searched.record.ranks * searched.settings.train.accumulate
    batch = max(begun.batch // parts, 1)
    key = (network.digest, batch)
    if key not in counted:
        counted[key] = _per_sample(network, batch)
    if (begun.ops_forward, begun.ops_total) != counted[key]:
        told, true = integer(begun.ops_total), integer(counted[key][1])
        return f"charged with {told} operations a sample, its architecture has {true}"
    if begun.parameters != network.parameters:
        return f"{integer(begun.parameters)} parameters told, {integer(network.parameters)} counted"
    return None


def _per_sample(network: Architecture, batch: int) -> tuple[int, int]:
    found = work.ops(network, RULES, batch)
    return found.forward // batch, found.total // batch


def sampled(contents: Contents) -> Outcome:
    """Samples of every candidate are epochs of the data set; its results follow from its log."""
    if not contents.workers:
        return _NONE
    found = contents.once(_searches)
    fault = _fault(found, _samples)
    if fault:
        return "fail", fault
    total = sum(story.samples for each in found for story in each.story.candidates)
    return "pass", f"{count(total, 'sample')} trained on, every evaluation on the whole set"


def _samples(searched: _Searched, story: Story) -> str | None:
    data, trained = searched.record.data, story.trained
    for seen in story.evaluations.values():
        if seen != data.validation:
            return f"an evaluation saw {integer(seen)} of {integer(data.validation)} samples"
    if story.samples > story.begun.epochs * data.train + story.begun.batch:
        most = count(story.begun.epochs, "epoch")
        return f"{count(story.samples, 'sample')} are more than {most} of {integer(data.train)}"
    if trained is None:
        return None
    wanted = trained.epochs * data.train
    if not wanted <= story.samples < wanted + story.begun.batch:
        told = f"{count(trained.epochs, 'epoch')} of {integer(data.train)}"
        return f"{count(story.samples, 'sample')} are not {told}"
    best = max((quality for _, quality in story.curve), default=None)
    if best is None or abs(best - trained.accuracy) > _ROUNDING:
        return f"accuracy {trained.accuracy:g} told, the best of its evaluations is {best}"
    return _prediction(searched, story)


def _prediction(searched: _Searched, story: Story) -> str | None:
    """What a warm-up counts for follows from its curve."""
    assert story.trained is not None
    told = story.trained.predicted
    if story.turn.round + 1 >= searched.settings.search.tune_from:
        return None if told is None else "an accuracy is predicted after the warm-up"
    points = {max(round(epoch), 1): quality for epoch, quality in story.curve}
    found = curve.predict(sorted(points.items()), searched.settings.train.epochs).value
    if told is None or abs(told - found) > _ROUNDING:
        return f"predicted accuracy {told} told, its curve gives {found:g}"
    return None


def ledgered(contents: Contents) -> Outcome:
    """The ledger that replays read is what the logs say was trained."""
    if not contents.workers:
        return _NONE
    events = contents.history.events("ledger")
    written = {each.file: each for each in (e.payload(LedgerWritten) for e in events)}
    if not written:
        return "fail", "no ledger was written: the search did not come to its end"
    for each in written.values():
        path = contents.folder.path / each.file
        if not path.is_file() or contents.hash(path) != each.sha256:
            return "fail", f"{path}: not the ledger that was written"
    for members in searches(contents):
        ledger = ledger_of(contents.folder, [each.record for each in members])
        if ledger.digest() not in {each.sha256 for each in written.values()}:
            return "fail", "a ledger is not what the logs say was trained"
    trained = sum(each.candidates for each in written.values())
    return "pass", f"{count(trained, 'candidate')} to replay, as the logs have them"


def replayed(contents: Contents) -> Outcome:
    """A replay did all the work of its ledger, and no other."""
    found = [
        each
        for each in (contents.once(_searches) if contents.workers else ())
        if each.settings.search.ledger is not None
    ]
    if not found:
        return "not applicable", "nothing was replayed in this run"
    path = contents.folder.path / REPLAYED
    if not path.is_file():
        return "fail", f"{path} is missing: the ledger that was replayed"
    written = [event.payload(LedgerWritten) for event in contents.history.events("ledger")]
    if {each.replayed_sha256 for each in written} - {contents.hash(path)}:
        return "fail", f"{path}: not the ledger that was replayed"
    ledger = contents.read(SearchLedger, path)
    for each in found:
        fault = _replayed(ledger, each)
        if fault:
            return "fail", fault
    ops = quantity(sum(row.ops for row in ledger.candidates), "OP")
    then, now = (each["train"]["precision"] for each in (ledger.settings, found[0].record.settings))
    other = f"; in {now}, and the search in {then}" if then != now else ""
    rows = count(len(ledger.candidates), "candidate")
    return "pass", f"{rows} of {ledger.run}, {ops}, all of them again{other}"


def _replayed(ledger: SearchLedger, searched: _Searched) -> str | None:
    """What a replay did not do as its ledger has it."""
    stories = {story.begun.candidate: story for story in searched.story.candidates}
    for row in ledger.candidates:
        name = row.candidate.turn.name
        story = stories.pop(name, None)
        if story is None:
            return f"{name} of the ledger was not trained"
        if story.trained is None:
            return f"{name} of the ledger has no result ({story.message or story.state})"
        for what, own, wanted in _compared(story, row):
            if own != wanted:
                return f"{name}: {own} {what}, the ledger has {wanted}"
    return f"{next(iter(stories))} is not in the ledger" if stories else None


def _compared(story: Story, row: Replayed) -> Iterator[tuple[str, object, object]]:
    assert story.trained is not None
    yield "as network", story.begun.digest[:16], row.candidate.architecture.digest[:16]
    yield "as batch", story.begun.batch, row.candidate.hyper.batch
    yield "epochs", story.trained.epochs, row.trained.epochs
    yield "samples", story.samples, row.samples
    yield "operations", story.ops, row.ops
