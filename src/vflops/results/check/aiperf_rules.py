"""AIPerf's rules for a valid search, one function per rule; the score holds the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.locations import candidate_event_location, event_location, job_file
from vflops.results.check.rule import Outcome
from vflops.results.check.search_rules import (
    RESULT,
    Fault,
    Searched,
    all_searches,
    derivation_fault,
    first_fault,
)
from vflops.results.score.aiperf_conformance import (
    AT_LEAST_16_BITS,
    MIN_DURATION_S,
    is_violation,
)
from vflops.results.score.aiperf_table import TUNE_FROM
from vflops.results.score.score_file import SearchScore
from vflops.results.score.search_score import search_scores
from vflops.results.score.search_text import early_end, max_error
from vflops.results.score.search_workers import search_history, searches
from vflops.units import count, seconds
from vflops.workloads.automl.candidate_history import CandidateHistory
from vflops.workloads.automl.proposer import smallest_kernel
from vflops.workloads.automl.search import rounds
from vflops.workloads.automl.search_events import Turn

_NONE = Outcome("not applicable", "nothing was searched in this run")
_FindFault = Callable[[SearchScore], str | None]
_Locate = Callable[[Sequence[TrainedJob], SearchScore], str]
"""A function that returns the file and line of the evidence in the logs of the workers."""


def _all_searches(
    contents: Contents, find_fault: _FindFault, locate: _Locate, passed: str
) -> Outcome:
    """Return a failure for the first search with a fault, or else a pass with ``passed``."""
    scores = contents.once(search_scores)
    if not scores:
        return _NONE
    for members, score in zip(searches(contents), scores, strict=True):
        reason = find_fault(score)
        if reason:
            return Outcome("fail", reason, locate(members, score))
    return Outcome("pass", passed)


def _broken(rule: str) -> _FindFault:
    """Return a function that returns the reason why a search breaks ``rule``, or None."""
    return lambda score: score.aiperf.broken.get(rule)


def check_duration(contents: Contents) -> Outcome:
    """Fail unless the search took at least an hour."""
    return _all_searches(
        contents, _broken("hour"), _locate_shortest_search, f"{seconds(MIN_DURATION_S)} or more"
    )


def _locate_shortest_search(members: Sequence[TrainedJob], score: SearchScore) -> str:
    """Return the location of the last event of the worker with the shortest search time."""
    lost = {worker.job for worker in score.lost_workers}
    spans = zip(members, search_history(members).spans_s, strict=True)
    times = [(s[1] - s[0] if s else 0.0, job) for job, s in spans if job.record.job not in lost]
    _, worker = min(times or [(0.0, members[0])], key=lambda time: time[0])
    events = [event for log in worker.logs for event in log.events]
    return events[-1].source if events else job_file(worker.record)


def check_precision(contents: Contents) -> Outcome:
    """Fail if anything was computed in less than 16 bits."""
    return _all_searches(contents, _broken("precision"), _locate_low_precision, "16 bits or more")


def _locate_low_precision(members: Sequence[TrainedJob], score: SearchScore) -> str:
    """Return the location where a worker recorded a lower precision or none."""
    used = ((job.started.ceiling_precision if job.started else None, job) for job in members)
    return event_location(
        next((job for name, job in used if name not in AT_LEAST_16_BITS), members[0]), "job"
    )


def check_error(contents: Contents) -> Outcome:
    """Fail unless the best model is within the error limit, even if the settings allow more."""
    limits = ", ".join(f"{max_error(score):g}" for score in contents.once(search_scores))
    return _all_searches(
        contents, _broken("error"), _locate_best_candidate, f"the best error is at most {limits}"
    )


def _locate_best_candidate(members: Sequence[TrainedJob], score: SearchScore) -> str:
    """Return the location of the best candidate's result, or the job file of the first worker."""
    winners = (c for c in search_history(members).candidates if c.begun.candidate == score.winner)
    best = next(winners, None)
    if best is None:
        return job_file(members[0].record)
    return candidate_event_location(members, best, ("candidate-trained",), {})


def check_new_weights(contents: Contents) -> Outcome:
    """Fail for a replay, and for weights that were trained outside the search."""
    evidence = "every weight was trained in this search"
    searched = _all_searches(contents, _broken("search"), _locate_job_file, evidence)
    if searched.verdict != "pass":
        return searched
    return _all_searches(contents, _broken("pretrained"), _locate_pretrained, evidence)


def _locate_job_file(members: Sequence[TrainedJob], score: SearchScore) -> str:
    return job_file(members[0].record)


def _locate_pretrained(members: Sequence[TrainedJob], score: SearchScore) -> str:
    """Return the location where the candidate with foreign weights starts.

    The reason in the score begins with the name of that candidate.
    """
    reason = score.aiperf.broken["pretrained"]
    matches = (
        e for e in search_history(members).candidates if reason.startswith(e.begun.candidate)
    )
    return candidate_event_location(members, next(matches), ("candidate",), {})


def check_ended(contents: Contents) -> Outcome:
    """Fail unless the search ended as planned, or early with an hour and a converged score."""
    endings = [early_end(score) or "as planned" for score in contents.once(search_scores)]
    return _all_searches(
        contents, _broken("ended"), _locate_shortest_search, "; ".join(dict.fromkeys(endings))
    )


def check_table_iv(contents: Contents) -> Outcome:
    """Fail for every difference from what the paper fixes; list those from its defaults."""

    def fault(score: SearchScore) -> str | None:
        violations = [item for item in score.aiperf.deviations if is_violation(item)]
        return "; ".join(f"{v.what} (set {v.conforms} to conform)" for v in violations) or None

    scores = contents.once(search_scores)
    others = [deviation.what for score in scores[:1] for deviation in score.aiperf.deviations]
    passed = "what the paper fixes is met; differences from its defaults: " + "; ".join(others)
    return _all_searches(contents, fault, _locate_job_file, passed)


def check_tuning(contents: Contents) -> Outcome:
    """Fail unless each worker tuned its candidates from the fifth round on, and none before."""

    def passed(known: Sequence[Searched]) -> str:
        tuned = [
            (number, candidate.worker)
            for number, search in enumerate(known)
            for candidate in search.history.candidates
            if _is_to_be_tuned(candidate)
        ]
        if not tuned:
            return f"no worker reached round {TUNE_FROM}, from which on it is tuned"
        candidates, workers = count(len(tuned), "candidate"), count(len(set(tuned)), "worker")
        return f"{candidates} of {workers} tuned, from round {TUNE_FROM} on"

    return _all_candidates(contents, _tuning_fault, passed)


def _all_candidates(
    contents: Contents,
    find_fault: Callable[[Searched, CandidateHistory], Fault | None],
    passed: Callable[[Sequence[Searched]], str],
) -> Outcome:
    """Return a failure for the first candidate with a fault, or else a pass with ``passed``."""
    known = contents.once(all_searches) if contents.workers else []
    if not known:
        return _NONE
    return first_fault(known, find_fault) or Outcome("pass", passed(known))


def _candidates(known: Sequence[Searched], noun: str) -> str:
    """Return how many candidates the searches have, in words."""
    return count(sum(len(search.history.candidates) for search in known), noun)


def _is_to_be_tuned(history: CandidateHistory) -> bool:
    return history.turn.round + 1 >= TUNE_FROM


def _tuning_fault(searched: Searched, history: CandidateHistory) -> Fault | None:
    candidate, expected = searched.proposal(history), _is_to_be_tuned(history)
    proposal = f"buffer/{history.begun.candidate}.json"
    number = history.turn.round + 1
    if not expected:
        if candidate.tuned or candidate.hyper.kernel is not None:
            return Fault(f"tuned in round {number}, before round {TUNE_FROM}", file=proposal)
        return None
    if not candidate.tuned or candidate.hyper.kernel is None:
        return Fault(
            f"not tuned in round {number}: search with search.tune_from={TUNE_FROM}", file=proposal
        )
    if candidate.hyper.batch not in searched.settings.batches:
        batches = ", ".join(map(str, searched.settings.batches))
        return Fault(f"batch {candidate.hyper.batch} is not one of {batches}", file=proposal)
    kernel = smallest_kernel(candidate.architecture)
    if candidate.hyper.kernel != kernel:
        evidence = f"tuned to kernels of {candidate.hyper.kernel}, but its network has {kernel}"
        return Fault(evidence, file=proposal)
    return None


def check_rounds(contents: Contents) -> Outcome:
    """Fail unless each candidate was to train as its round and the settings require."""
    return _all_candidates(
        contents,
        _round_fault,
        lambda known: (
            f"{_candidates(known, 'candidate')} with the epochs, patience and batch of the settings"
        ),
    )


def _round_fault(searched: Searched, history: CandidateHistory) -> Fault | None:
    settings, candidate = searched.settings, searched.proposal(history)
    train, number = settings.train, history.turn.round
    if settings.search.ledger is not None:
        return None  # fixed work, which the rule replayed compares with its ledger
    wanted: dict[str, int] = {
        "epochs": rounds.epochs(number, train.epochs),
        "patience": rounds.patience_evaluations(number, train.epochs, train.evaluate_every),
    }
    found: dict[str, int | None] = {"epochs": candidate.epochs, "patience": candidate.patience}
    smaller = {batch for batch in settings.batches if batch < train.batch}
    if not candidate.tuned and candidate.hyper.batch not in smaller:  # that fits the memory
        wanted["batch"], found["batch"] = train.batch, candidate.hyper.batch
    proposal = f"buffer/{history.begun.candidate}.json"
    for name, value in wanted.items():
        if found[name] != value:
            evidence = f"{name} {found[name]} in round {number + 1}, but the settings give {value}"
            return Fault(evidence, file=proposal)
    trained = history.trained
    if trained is not None and trained.reason == "epochs" and trained.epochs != candidate.epochs:
        evidence = f"trained for {trained.epochs} of {candidate.epochs} epochs without early stop"
        return Fault(evidence, RESULT)
    return None


def check_search_space(contents: Contents) -> Outcome:
    """Fail unless every network follows by morphs from its parent, and the first is ResNet-50."""
    return _all_candidates(
        contents,
        _morph_fault,
        lambda known: f"{_candidates(known, 'network')}, derived by morphs from the first one",
    )


def _morph_fault(searched: Searched, history: CandidateHistory) -> Fault | None:
    candidate = searched.proposal(history)
    proposal = f"buffer/{history.begun.candidate}.json"
    base, origin = searched.first_network, candidate.parent or "the first network"
    if candidate.parent is not None:
        parents = (c for c in searched.history.candidates if c.begun.candidate == candidate.parent)
        parent = next(parents, None)
        if parent is None:
            return Fault(f"its parent {candidate.parent} was not trained", file=proposal)
        base = searched.proposal(parent).architecture
    fault = derivation_fault(candidate, base, origin, proposal)
    if fault:
        return fault
    if not candidate.morphs and candidate.turn != Turn(round=0, worker=0):
        return Fault(f"nothing was searched: its network is that of {origin}", file=proposal)
    return None
