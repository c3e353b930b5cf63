"""AIPerf's rules: a search that conforms, and searches that differ from it in one thing each."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.sample_parts import write_system
from tests.support.search_runs import ZERO_S, HandmadeSearch, Note, evaluated, progress, started
from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score import search_text
from vflops.results.score.aiperf_conformance import is_violation
from vflops.results.score.aiperf_table import ROWS, SearchSetup, deviations
from vflops.results.score.score_file import SearchScore
from vflops.results.score.scoring import score
from vflops.results.task.closed_tasks import job_task
from vflops.workloads.automl.architecture import morphs
from vflops.workloads.automl.architecture.morphs import Limits
from vflops.workloads.automl.proposer import smallest_kernel
from vflops.workloads.automl.search import rounds
from vflops.workloads.automl.search_events import RULES, Candidate, Hyperparameters, Turn
from vflops.workloads.automl.settings import AutomlSettings, aiperf

AIPERF = (
    "duration",
    "precision",
    "error",
    "new-weights",
    "ended",
    "table-iv",
    "search-space",
    "rounds",
    "tuned",
)
ENDED = ("complete", "trained", "ledger")
ROUNDS = 6


def conforming(**changes: Any) -> AutomlSettings:
    """The profile ``aiperf`` with changed settings, by sections."""
    base = aiperf().model_dump()
    for name, value in changes.items():
        base[name] = {**base[name], **value} if isinstance(value, dict) else value
    return AutomlSettings.model_validate(base)


class Conforming(HandmadeSearch):
    """A search of one worker with six rounds, of which the last two are tuned."""

    def __init__(
        self, parent: Path, patch: pytest.MonkeyPatch, settings: AutomlSettings | None = None
    ) -> None:
        self.settings = settings or conforming()
        super().__init__(parent, patch, base=self.settings, imagenet=True)
        write_system(self.folder)

    def candidates(self, **facts: dict[str, Any]) -> list[Candidate]:
        """Propose a candidate per round; ``facts`` change the one of a round, ``r0`` to ``r5``."""
        found: list[Candidate] = []
        for number in range(ROUNDS):
            drawn = morphs.sample(self.first, random.Random(number), Limits(batch=448))
            assert drawn is not None
            morph, network = drawn
            train = self.settings.train
            given: dict[str, Any] = {"hyper": Hyperparameters(batch=train.batch)}
            if number >= 4:
                hyper = Hyperparameters(batch=train.batch, kernel=smallest_kernel(network))
                given = {"hyper": hyper, "tuned": True}
            given |= {
                "epochs": rounds.epochs(number, train.epochs),
                "patience": rounds.patience_evaluations(number, train.epochs, train.evaluate_every),
            }
            changes = {**given, **facts.get(f"r{number}", {})}
            steps = () if changes.pop("unchanged", number == 0) else (morph,)
            found.append(self.propose(Turn(round=number, worker=0), None, steps, **changes))
        return found

    def notes(self, candidates: list[Candidate], last_s: float = 3600.0) -> list[Note]:
        """The events of these candidates, each as long as the others, at a constant speed."""
        notes: list[Note] = [(1.0, "job", started("fp16"))]
        share_s = last_s / len(candidates)
        for number, candidate in enumerate(candidates):
            began_s = number * share_s + 1.0
            (begun, *_, finished, result) = self.trained(candidate, began_s, 0.75)
            notes.append((began_s, "candidate", begun[2]))
            for step in range(1, 50):
                notes.append((began_s + step * share_s / 50, "progress", progress(step / 50)))
            ends_s = (number + 1) * share_s
            notes += [
                (ends_s - 0.2, "evaluation", evaluated(1, 0.75)),
                (ends_s - 0.1, "finished", finished[2]),
                (ends_s, "candidate-trained", {**result[2], "reason": "patience"}),
            ]
        return notes


def failures(folder: RunFolder, *rules: str) -> dict[str, str]:
    """The failed rules of AIPerf, or of ``rules``, with their evidence."""
    score(Contents(folder)).write(folder.score_file)
    findings = check(Contents(folder), "aiperf").findings
    wanted = rules or AIPERF
    return {f.rule: f.evidence for f in findings if f.failed and f.rule in wanted}


def only_search(folder: RunFolder) -> SearchScore:
    (found,) = score(Contents(folder)).searches
    return found


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Conforming]:
    return lambda settings=None: Conforming(tmp_path / "runs", monkeypatch, settings)


def ended(run: Conforming, candidates: list[Candidate], last_s: float = 3600.0) -> RunFolder:
    run.worker(0, [*run.notes(candidates, last_s), (last_s, "end", {})])
    return run.end()


def test_a_search_as_published_is_valid(make: Callable[..., Conforming]) -> None:
    run = make()
    folder = ended(run, run.candidates())
    assert failures(folder) == {}
    found = only_search(folder)
    assert found.aiperf.valid, found.aiperf
    assert (found.ending, found.converged) == ("planned", True)
    fixed = [item.what for item in found.aiperf.deviations if item.fixed]
    assert fixed == ["no master: workers meet in files that all of them see"]
    assert [item.what for item in found.aiperf.deviations if not item.fixed] == [
        "trained with PyTorch, not TensorFlow"
    ]
    evidence = {f.rule: f.evidence for f in check(Contents(folder), "aiperf").findings}
    assert evidence["tuned"] == "2 candidates of 1 worker tuned, from round 5 on"
    assert evidence["ended"] == "as planned"


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        ({"size": 64}, "images of another size: size is 64 (set size=224 resize=256 to conform)"),
        ({"search": {"searcher": "random"}}, "search.searcher is random (set search.searcher=bay"),
        ({"search": {"tune_from": 100}}, "search.tune_from is 100 (set search.tune_from=5 to conf"),
        ({"search": {"kernels": (3,)}}, "search.kernels is [3] (set search.kernels=[3,5,7] to"),
        ({"search": {"batches": (448,)}}, "the batch is not tuned: 448 is the only one (set"),
        ({"search": {"limits": {"depth": 9}}}, "limits restrict the search space: depth 9 (set no"),
        ({"label_smoothing": 0.1}, "label_smoothing is 0.1 (set label_smoothing=0.0 to conform)"),
        ({"train": {"stop_by": "quality"}}, "train.stop_by is quality (set train.stop_by=loss to"),
        ({"train": {"evaluate_every": 60}}, "train.evaluate_every is 60 (set train.evaluate_every"),
        ({"network": {"width": 32}}, "network.width is 32 (set network.width=64 to conform)"),
    ],
)
def test_what_the_paper_fixes_is_required(
    make: Callable[..., Conforming], changes: dict[str, Any], evidence: str
) -> None:
    run = make(conforming(**changes))
    folder = ended(run, run.candidates())
    found = failures(folder, "table-iv")
    assert evidence in found["table-iv"]
    assert found["table-iv"].count("to conform") == 1  # nothing else is broken
    assert not only_search(folder).aiperf.valid


def test_every_violation_is_named_and_defaults_are_not_failures(
    make: Callable[..., Conforming],
) -> None:
    search = {"searcher": "random", "tune_from": 100}
    run = make(conforming(size=64, search=search, train={"epochs": 1, "batch": 32}))
    plain = {"hyper": Hyperparameters(batch=32), "tuned": False}
    folder = ended(run, run.candidates(r4=plain, r5=plain))
    found = failures(folder)
    assert set(found) == {"table-iv", "tuned"}
    for setting in ("size=224 resize=256", "search.searcher=bayesian", "search.tune_from=5"):
        assert f"(set {setting} to conform)" in found["table-iv"]
    assert "batch" not in found["table-iv"] and "epochs" not in found["table-iv"]
    told = {item.conforms for item in only_search(folder).aiperf.deviations if not item.fixed}
    assert {"train.batch=448", "train.epochs=60"} <= told


@pytest.mark.parametrize(
    ("train", "conforms"),
    [
        ({"power": 2.0}, "train.power=1.0"),
        ({"end_rate": 0.01}, "train.end_rate=0.0"),
        ({"schedule_epochs": None}, "train.schedule_epochs=60"),
        ({"learning_rate": 0.2}, "train.learning_rate=0.1"),
        ({"linear_scaling": True}, "train.linear_scaling=false"),
        ({"warmup_epochs": 5.0}, "train.warmup_epochs=0.0"),
        ({"momentum": 0.8}, "train.momentum=0.9"),
    ],
)
def test_another_recipe_is_told_and_valid(
    make: Callable[..., Conforming], train: dict[str, Any], conforms: str
) -> None:
    run = make(conforming(train=train))
    folder = ended(run, run.candidates())
    assert failures(folder) == {}
    found = only_search(folder).aiperf
    assert found.valid and conforms in {item.conforms for item in found.deviations}


@pytest.mark.parametrize(
    ("facts", "rule", "evidence"),
    [
        (
            {"r4": {"hyper": Hyperparameters(batch=448), "tuned": False}},
            "tuned",
            "r00004-w00000: not tuned in round 5: search with search.tune_from=5",
        ),
        (
            {"r3": {"hyper": Hyperparameters(batch=448, kernel=3), "tuned": True}},
            "tuned",
            "r00003-w00000: tuned in round 4, before round 5",
        ),
        (
            {"r5": {"hyper": Hyperparameters(batch=100, kernel=3), "tuned": True}},
            "tuned",
            "r00005-w00000: batch 100 is not one of 224, 448, 896",
        ),
        (
            {"r5": {"hyper": Hyperparameters(batch=448, kernel=7), "tuned": True}},
            "tuned",
            "r00005-w00000: tuned to kernels of 7, but its network has 3",
        ),
        (
            {"r2": {"recorded": {"morphs": ()}}},
            "search-space",
            "r00002-w00000: its network does not follow by its morphs from the first network",
        ),
        (
            {"r2": {"recorded": {"parent": "r00009-w00000"}}},
            "search-space",
            "r00002-w00000: its parent r00009-w00000 was not trained",
        ),
        (
            {"r1": {"unchanged": True}},
            "search-space",
            "r00001-w00000: nothing was searched: its network is that of the first network",
        ),
        (
            {"r1": {"epochs": 1}},
            "rounds",
            "r00001-w00000: epochs 1 in round 2, but the settings give 30",
        ),
        (
            {"r0": {"patience": None}},
            "rounds",
            "r00000-w00000: patience None in round 1, but the settings give 6",
        ),
        (
            {"r3": {"hyper": Hyperparameters(batch=5000)}},
            "rounds",
            "r00003-w00000: batch 5000 in round 4, but the settings give 448",
        ),
    ],
)
def test_a_record_that_was_not_searched_as_published_is_found(
    make: Callable[..., Conforming], facts: dict[str, Any], rule: str, evidence: str
) -> None:
    run = make()
    judging = ("rounds", "tuned", "search-space", "table-iv")
    assert failures(ended(run, run.candidates(**facts)), *judging) == {rule: evidence}


def test_a_candidate_that_ended_without_early_stop_has_all_its_epochs(
    make: Callable[..., Conforming],
) -> None:
    run = make()
    *notes, (at_s, kind, result) = run.notes(run.candidates())
    run.worker(0, [*notes, (at_s, kind, {**result, "reason": "epochs"}), (at_s, "end", {})])
    evidence = "r00005-w00000: trained for 1 of 60 epochs without early stop"
    assert failures(run.end()) == {"rounds": evidence}


def test_a_long_pause_is_no_search(make: Callable[..., Conforming]) -> None:
    """Ctrl-C after five minutes, and vflops resume after the hour."""
    run = make()
    run.worker(0, [*run.notes(run.candidates(), 300.0), (301.0, "stopped", {"message": "SIGINT"})])
    run.worker(0, [(3600.5, "end", {})], began_s=3599.5)
    folder = run.end()
    assert failures(folder) == {
        "duration": "it took 8 min 02 s, of its interruptions only 3 min 00 s included, and a "
        "result takes 1 hour at least"
    }
    assert not only_search(folder).aiperf.valid


def test_a_short_interruption_counts(make: Callable[..., Conforming]) -> None:
    run = make()
    notes = run.notes(run.candidates())
    early = [note for note in notes if note[0] < 3000.0]
    run.worker(0, early)
    run.worker(0, [*notes[len(early) :], (3600.0, "end", {})], began_s=notes[len(early)][0])
    assert failures(run.end()) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"search": {"kernels": (7, 5, 3)}},
        {"augment": "none"},
        {"resize": 232},
        {"train": {"weight_decay": 1e-4}},
        {"train": {"batch_norm": "synchronised"}},
    ],
)
def test_what_the_paper_leaves_open_may_differ_in_a_closed_task(
    make: Callable[..., Conforming], changes: dict[str, Any]
) -> None:
    setup = make(conforming(**changes))
    (record,) = setup.records
    goal = record.goal.model_copy(update={"target": setup.settings.target})
    task = job_task(record.model_copy(update={"goal": goal}), "aiperf")
    assert task.kind == "closed", task.differences
    found = deviations(SearchSetup(setup.settings, setup.records[0].data, RULES))
    assert not any(map(is_violation, found))


def test_rows_that_depend_on_more_than_a_setting(make: Callable[..., Conforming]) -> None:
    run = make(conforming(search={"workers": 2, "tuning": "pooled"}))
    data = run.records[0].data
    small = data.model_copy(update={"facts": {**data.facts, "short side": 64}})
    fewer = data.model_copy(update={"train": 1000})

    def differences(settings: AutomlSettings, of_data: DataFacts) -> list[str]:
        return [item.what for item in deviations(SearchSetup(settings, of_data, RULES))]

    assert "hyper-parameters are tuned from the results of all workers" in differences(
        run.settings, data
    )
    assert not any("tuned" in what for what in differences(conforming(), data))
    (what,) = (what for what in differences(conforming(), small) if "pixels" in what)
    assert what == "images packed with a short side of 64 pixels, and enlarged for training"
    assert any("other data than ImageNet" in what for what in differences(conforming(), fewer))


def test_a_search_without_a_fifth_round_has_nothing_to_tune(
    make: Callable[..., Conforming],
) -> None:
    run = make()
    folder = ended(run, run.candidates()[:3])
    evidence = {f.rule: f.evidence for f in check(Contents(folder), "aiperf").findings}
    assert evidence["tuned"] == "no worker reached round 5, from which on it is tuned"


def stopped(run: Conforming, notes: list[Note], at_s: float) -> RunFolder:
    run.worker(0, [*notes, (at_s, "stopped", {"message": "SIGTERM"})])
    return run.stop()


def test_the_user_may_stop_a_search_that_has_converged(make: Callable[..., Conforming]) -> None:
    run = make(conforming(search={"duration_s": 43200.0}))
    folder = stopped(run, run.notes(run.candidates(), 4320.0), 4321.0)
    assert set(failures(folder, *AIPERF, *ENDED)) == set(ENDED)  # until it is ended, too
    run.end()
    assert failures(folder, *AIPERF, *ENDED) == {}
    found = only_search(folder)
    assert found.aiperf.valid and found.ending == "stopped"
    said = "stopped by the user after 1 h 12 min and had converged"
    assert said in search_text.search_line(found)
    evidence = {f.rule: f.evidence for f in check(Contents(folder), "aiperf").findings}
    assert evidence["ended"] == said
    assert evidence["trained"] == "1 planned, stopped once the search had converged"


def test_a_search_that_was_stopped_too_early_says_what_is_missing(
    make: Callable[..., Conforming],
) -> None:
    run = make(conforming(search={"duration_s": 43200.0}))
    folder = stopped(run, run.notes(run.candidates(), 1800.0), 1801.0)
    found = failures(folder, *AIPERF, *ENDED)
    assert set(found) == {"duration", "ended", *ENDED}
    assert found["ended"] == (
        "it was stopped before its time: it took 30 min 00 s, and a result takes 1 hour at least"
    )
    run.end()
    ended_early = failures(folder, *AIPERF, *ENDED)
    assert set(ended_early) == {"duration", "ended", "trained"}
    assert ended_early["trained"] == found["ended"]


def test_a_search_whose_score_still_changes_may_not_be_stopped(
    make: Callable[..., Conforming],
) -> None:
    run = make(conforming(search={"duration_s": 43200.0}))
    notes = run.notes(run.candidates(), 3000.0)
    last: Note = (4200.0, "waiting", {"worker": 0})
    first, *_ = run.trained(run.propose(Turn(round=6, worker=0)), 3001.0, 0.5)
    folder = stopped(run, [*notes, first, last, (4201.0, "progress", progress(0.01))], 4202.0)
    found = failures(folder, *AIPERF, *ENDED)
    assert set(found) == {"ended", "rounds", "search-space", "tuned", *ENDED}
    assert "its score has not converged: it varies by" in found["ended"]
    assert found["ended"].endswith("of the time, and less than 2.0 % is converged")


def converged(run: Conforming, at_s: float) -> dict[str, Any]:
    figures = {"worker": 0, "utc_s": ZERO_S + at_s, "duration_s": at_s, "ops_per_s": 1.0}
    message = "the search has converged after 72 min 00 s"
    return {"worker": 0, "message": message, "converged": {**figures, "variation": 0.001}}


def test_a_search_that_ended_when_converged_is_valid_and_lasts_until_then(
    make: Callable[..., Conforming],
) -> None:
    """A worker that resumes a day later adds no time to the search."""
    run = make(conforming(search={"duration_s": 200_000.0, "end": "converged"}))
    run.worker(0, run.notes(run.candidates(), 4320.0))
    late_s = 4320.0 + 86400.0
    again = [(late_s, "search-ended", converged(run, 4320.0)), (late_s, "end", {})]
    run.worker(0, again, began_s=late_s)
    folder = run.end()
    assert failures(folder) == {}
    found = only_search(folder)
    assert (found.ending, found.aiperf.valid) == ("converged", True)
    assert found.duration_s == pytest.approx(4320.0, abs=1.0)
    assert "ended when converged after 1 h 12 min" in search_text.search_line(found)
    assert ("end", "ended when converged after 1 h 12 min") in search_text.search_rows(found)


def test_a_search_that_ended_as_converged_and_had_not_is_not_valid(
    make: Callable[..., Conforming],
) -> None:
    run = make(conforming(search={"duration_s": 43200.0, "end": "converged"}))
    notes = run.notes(run.candidates(), 3000.0)
    end = [(4200.0, "search-ended", converged(run, 4200.0)), (4200.0, "end", {})]
    run.worker(0, [*notes, *end])
    folder = run.end()
    found = failures(folder)
    assert set(found) == {"ended"}
    assert found["ended"].startswith("it ended as converged before its time: its score has not")
    assert search_text.early_end(only_search(folder)).endswith("it still varied")


def test_the_documentation_has_the_rows_that_judge() -> None:
    text = (ROOT / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    for row in ROWS:
        status = "fixed" if row.fixed else "default"
        line = f"| {row.configuration} | {row.source} | {row.paper} | {status} | {row.conforms} |"
        assert line in text, line
