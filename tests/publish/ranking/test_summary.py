"""One result a workload: of repeats the mean, of an ensemble the whole, of a search its OPS."""

from __future__ import annotations

from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

from tests.support.dated_runs import system_of
from tests.support.ranking_runs import Submitted, submit
from tests.support.sample_parts import MEASUREMENTS, write_system
from tests.support.search_runs import HandmadeSearch, one_worker, stands
from tests.support.trained_runs import HandmadeRun, course, declared
from tests.support.trained_runs import job as a_job
from vflops.errors import FolderError
from vflops.publish.ranking.entry import Result
from vflops.publish.ranking.run_nodes import ranks_at_once, run_nodes
from vflops.publish.ranking.submission_contents import SubmissionContents
from vflops.publish.ranking.summary import results
from vflops.publish.ranking.system_summary import system_facts, system_name
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Ensembled, EnsembleSize
from vflops.record.formats.node import Clock, NodeRecord
from vflops.record.formats.system import Fact
from vflops.record.log import events
from vflops.record.readout.contents import Contents
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score
from vflops.workloads.automl.search_events import Turn


def summed(folder: RunFolder) -> tuple[Score, Result]:
    contents = Contents(RunFolder.open(folder.path))
    figures = score(contents)
    (found,) = results(contents, figures)
    return figures, found


def test_of_repeats_it_is_the_mean(trained_folder: RunFolder) -> None:
    figures, found = summed(trained_folder)
    first, second = figures.trainings
    assert first.speed is not None
    assert second.speed is not None
    assert first.speed.vflops is not None
    assert second.speed.vflops is not None
    assert first.speed.vflops != second.speed.vflops
    assert found.published == pytest.approx((first.speed.vflops + second.speed.vflops) / 2)
    assert found.score == pytest.approx((first.speed.flops + second.speed.flops) / 2)
    assert found.time_s == pytest.approx((first.wall_s + second.wall_s) / 2)
    assert found.quality == pytest.approx((0.9 + 0.88) / 2)
    assert (found.repeats, found.reason) == (2, None)


def test_an_error_of_zero_ranks_with_its_flops(handmade_run: HandmadeRun) -> None:
    """It reached its target; only its figure as published is infinite."""
    goal = {"quality": "error", "better": "lower", "target": 0.8, "exponent": 5}
    handmade_run.plan(a_job(1, goal=goal), ceilings=MEASUREMENTS)
    handmade_run.attempt(1, 1000.0, *course(0.9, 0.4, 0.0))
    figures, found = summed(handmade_run.folder)
    speed = figures.trainings[0].speed
    assert speed is not None
    assert (found.score, found.published, found.reason) == (speed.flops, None, None)


def test_a_training_that_did_not_end_does_not_rank(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(a_job(1))
    handmade_run.attempt(1, 1000.0, *course(0.3, 0.6, 0.9)[:-1])
    assert summed(handmade_run.folder)[1].reason == "1 of 1 training runs did not finish"


def test_declared_operations_do_not_rank(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(a_job(1, declared=declared(10, 30)))
    handmade_run.attempt(1, 1000.0, *course(0.3, 0.6, 0.9))
    reason = summed(handmade_run.folder)[1].reason
    assert reason == "its operations are declared, not counted from what ran"


OTHER_DATA = {
    "path": "/data",
    "synthetic": True,
    "fingerprint": "e" * 64,
    "train": 1000,
    "validation": 200,
}
GOAL = {"quality": "top-1 accuracy", "better": "higher", "target": 0.8, "exponent": 5}


@pytest.mark.parametrize(
    ("other", "began", "words"),
    [
        ({}, {}, None),
        ({"goal": {**GOAL, "exponent": 60}}, {}, "goals"),
        ({"goal": {**GOAL, "quality": "Quality"}}, {}, "goals"),
        ({"ranks": 64}, {"ranks": 64}, "numbers of ranks"),
        ({}, {"device_name": "another"}, "devices"),
        ({}, {"device": "cpu"}, "devices"),
        ({"data": OTHER_DATA}, {}, "problems"),
        ({"settings": {"target": 0.8, "train": {"epochs": 40}}}, {}, "lengths"),
    ],
    ids=str,
)
def test_repeats_of_different_things_do_not_rank(
    handmade_run: HandmadeRun, other: dict[str, Any], began: dict[str, Any], words: str | None
) -> None:
    second = a_job(2, **{"repeat": 1, "seed": 2, **other})
    handmade_run.plan(a_job(1), second, ceilings=MEASUREMENTS)
    for number in (1, 2):
        notes = course(0.5, 0.8, 0.88)
        notes[0][1].update(began if number == 2 else {})
        handmade_run.attempt(number, 1000.0 * number, *notes)
    reason = summed(handmade_run.folder)[1].reason
    assert reason == (words and f"its repeats have different {words}")


@pytest.mark.parametrize(
    ("began", "ceilings", "reason"),
    [
        ({}, MEASUREMENTS, None),
        ({}, (), "no ceilings were measured, so its FLOPS cannot be checked"),
        (
            {"precision": "bf16", "ceiling_precision": "bf16"},
            MEASUREMENTS,
            "no ceilings were measured in bf16, so its FLOPS cannot be checked",
        ),
    ],
    ids=["measured", "switched off", "of another precision"],
)
def test_without_a_ceiling_of_its_precision_nothing_bounds_a_result(
    handmade_run: HandmadeRun, began: dict[str, Any], ceilings: Any, reason: str | None
) -> None:
    handmade_run.plan(a_job(1), ceilings=ceilings)
    notes = course(0.5, 0.8, 0.88)
    notes[0][1].update(began)
    handmade_run.attempt(1, 1000.0, *notes)
    assert summed(handmade_run.folder)[1].reason == reason


@pytest.mark.parametrize(
    ("train", "length"),
    [
        ({}, "3 epochs"),
        ({"epochs": 40}, "40 epochs"),
        ({"epochs": 40, "end_epoch": 1}, "1 epoch"),
        ({"stop_at_target": True}, "3 epochs, or until the target is reached"),
        ({"epochs": None}, "not stated"),
    ],
    ids=str,
)
def test_the_length_is_what_was_planned(
    handmade_run: HandmadeRun, train: dict[str, Any], length: str
) -> None:
    handmade_run.plan(a_job(1, settings={"target": 0.8, "train": train}))
    handmade_run.attempt(1, 1000.0, *course(0.5, 0.8, 0.88))
    assert summed(handmade_run.folder)[1].length == length


def test_a_share_above_one_does_not_rank(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(a_job(1))
    handmade_run.attempt(1, 1000.0, *course(0.5, 0.8, 50.0))
    reason = summed(handmade_run.folder)[1].reason
    assert reason == "its quality is 50, but a fraction is at most 1"


@pytest.mark.parametrize(("planned", "apart_s"), [(2, 0.0), (3, 0.0), (2, 48.0)])
def test_an_ensemble_is_one_result_on_all_its_accelerators(
    handmade_run: HandmadeRun, monkeypatch: pytest.MonkeyPatch, planned: int, apart_s: float
) -> None:
    class Wall(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Wall:
            return cls.fromtimestamp(handmade_run.clock.now_s, tz)

    monkeypatch.setattr(events, "datetime", Wall)
    bag = {"models": planned, "bootstrap": "poisson", "seed": 1}
    jobs = (a_job(1 + k, repeat=0, bag={**bag, "model": k}) for k in range(2))
    handmade_run.plan(*jobs, ceilings=MEASUREMENTS)
    for job in (1, 2):
        handmade_run.attempt(job, 1000.0 + apart_s * job, *course(0.3, 0.6, 0.8))
    together = Ensembled(
        workload="image-classification",
        repeat=0,
        planned=planned,
        jobs=(1, 2),
        evaluated=200,
        sizes=(EnsembleSize(models=2, quality=0.9),),
        took_s=0.1,
    )
    with handmade_run.folder.start_attempt(job=0) as log:
        log.write("ensemble", **together.model_dump(mode="json"))
        log.write("end")
    figures, found = summed(handmade_run.folder)
    (ensemble,) = figures.ensembles
    assert (found.score, found.quality) == (ensemble.flops, 0.9)
    assert found.published == ensemble.vflops
    assert found.time_s == ensemble.window_s
    waits = bool(apart_s)  # for a place: more is done with the same
    assert (found.accelerators, found.repeats) == (2 if waits else 4, 1)
    assert found.nodes == 1
    assert found.length == ("3 epochs, 2 models in waves" if waits else "3 epochs")
    assert found.reason == (
        None if planned == 2 else "only 2 of the 3 planned models are in the ensemble"
    )


def test_a_search_ranks_by_its_operations_per_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = HandmadeSearch(tmp_path, monkeypatch)
    write_system(run.folder)
    run.worker(0, one_worker(run))
    figures, found = summed(run.end())
    (search,) = figures.searches
    assert (found.unit, found.score) == ("OPS", search.ops_per_s)
    assert found.regulated == search.regulated != found.score
    assert found.quality == pytest.approx(0.8)
    assert (found.accelerators, found.ranks, found.device) == (0, 1, "Test CPU")
    assert found.data == "synthetic"
    assert found.length == "1 min 40 s"
    assert found.reason == "no ceilings were measured, so its FLOPS cannot be checked"


def test_a_search_without_an_error_has_a_score_but_no_regulated_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = HandmadeSearch(tmp_path, monkeypatch)
    write_system(run.folder)
    run.worker(0, run.trained(run.propose(Turn(round=0, worker=0)), 10.0, 0.6, 1.0))
    figures, found = summed(run.end())
    assert found.score == figures.searches[0].ops_per_s
    assert (found.quality, found.regulated) == (1.0, None)
    assert found.reason == "no ceilings were measured, so its FLOPS cannot be checked"


def test_a_search_that_evaluated_nothing_does_not_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = HandmadeSearch(tmp_path, monkeypatch)
    write_system(run.folder)
    first = run.propose(Turn(round=0, worker=0))
    cut = (40.0, "candidate-cut", {"candidate": first.turn.name, "samples": 1000})
    steps = (30.0, "progress", {**stands(1), "loss": 1.0})
    run.worker(0, [(10.0, "candidate", run.begun(first)), steps, cut])
    reason = summed(run.end())[1].reason
    assert reason == "no candidate was evaluated, so its error is not known"


def node(number: int, model: str = "Accelerator A") -> NodeRecord:
    """A node of a cluster whose four nodes are on one machine."""
    values = {"cpu model": "Node CPU", "accelerator 0 model": model, "accelerator 1 model": model}
    return NodeRecord(
        node=0,
        nodes=1,
        host="machine",
        name=f"node{number}",
        reference="machine",
        clock=Clock(offset_s=0.0, uncertainty_s=0.0),
        facts=tuple(Fact(name=name, value=value, source="test") for name, value in values.items()),
    )


def test_nodes_are_those_that_recorded_themselves(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(*(a_job(1 + k) for k in range(3)), ceilings=MEASUREMENTS)
    for job, number in ((1, 2), (2, 1), (3, 2)):
        attempt = handmade_run.attempt(job, 1000.0 * job, *course(0.5, 0.8, 0.88))
        node(number).write(attempt / "node-0.json")
    contents = Contents(RunFolder.open(handmade_run.folder.path))
    assert [record.name for record in run_nodes(contents)] == ["node1", "node2"]
    assert [record.name for record in run_nodes(contents, [1, 3])] == ["node2"]
    assert ranks_at_once(contents.training_jobs) == contents.training_jobs[0].record.ranks


def test_a_cluster_is_named_by_its_nodes_and_not_by_the_machine_that_submitted() -> None:
    submitting = system_of({"cpu model": "Login CPU", "usable cpus": 2})
    nodes = [node(1), node(2)]
    assert system_name(submitting, []) == "Login CPU"
    assert system_name(submitting, [], nodes) == "2 nodes × (2 × Accelerator A, Node CPU)"
    mixed = system_name(submitting, [], [*nodes, node(3, "Accelerator B")])
    assert mixed.endswith(" + 2 × Accelerator B, Node CPU")
    facts = {fact["name"]: fact["value"] for fact in system_facts(submitting, nodes)}
    assert (facts["nodes"], facts["cpu model"]) == ("2", "Node CPU")
    assert "usable cpus" not in facts


def test_runs_share_a_graph_of_the_same_bytes_and_no_other(tmp_path: Path) -> None:
    folders = [submit(tmp_path, Submitted(id=f"20260101T000000Z-x-00000{n}")) for n in range(3)]
    other = folders[2].graph_files[0]
    other.write_text(other.read_text().replace('"batch": ', '"batch": 7'))
    (a,), (b,), (c,) = (SubmissionContents(folder).graphs for folder in folders)
    assert a is b
    assert c.batch != a.batch
    other.write_text("{}")
    with pytest.raises(FolderError, match=str(other)):
        SubmissionContents(folders[2]).graphs  # noqa: B018
