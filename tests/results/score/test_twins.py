"""Twins and nodes that stand out: verdicts on runs written by hand, and on a real one."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.support.ensemble_runs import ended, started
from tests.support.trained_runs import HandmadeRun, Note, course
from tests.support.trained_runs import job as a_job
from vflops.data.bag import bag_indices
from vflops.errors import UsageError
from vflops.launch.node_layout import NodeLayout
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import PHASES, Ensembled, EnsembleSize, Finished
from vflops.record.formats.node import Clock, NodeRecord, node_file
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.score_file import EnsembleScore
from vflops.results.score.score_tables import ensemble_line, ensemble_rows
from vflops.results.score.scoring import score
from vflops.results.score.twins import TwinsScore
from vflops.run.jobs import placement_order, prepare
from vflops.workloads.contract.run_settings import load, profile

WORK = ("data", "training")
QUALITIES = (0.3, 0.6, 0.9)
CPU: dict[str, Any] = {
    "device": "cpu",
    "device_name": "Test CPU",
    "compiled": False,
    "deterministic": True,
}


def twin_notes(
    weights: str | None,
    *qualities: float,
    slow: float = 1.0,
    other: Mapping[str, float] = MappingProxyType({}),
    **facts: Any,
) -> list[Note]:
    """An attempt from its start to its end, with the hash of its weights, some phases longer."""
    notes = []
    factors = {**dict.fromkeys(WORK, slow), **other}
    for kind, data in course(*(qualities or QUALITIES)):
        if "phases" in data:
            phases = {name: factors.get(name, 1) * each for name, each in data["phases"].items()}
            data = {**data, "phases": phases}
        if kind == "job":
            data = {**data, **facts}
        if kind == "finished":
            data = {**data, "weights_sha256": weights}
        notes.append((kind, data))
    return notes


class HandmadeEnsemble:
    """Jobs of one ensemble, each on a node of its own, written by hand."""

    def __init__(self, run: HandmadeRun, models: int, *, twins: bool) -> None:
        self.run, self.models = run, models
        bag = {"models": models, "bootstrap": "poisson", "seed": 1, "twins": twins}
        records = [a_job(k + 1, repeat=0, ranks=1, bag={**bag, "model": k}) for k in range(models)]
        run.plan(*records)

    def trained(self, model: int, notes: list[Note], *nodes: str) -> None:
        place = self.run.attempt(model + 1, 1000.0, *notes)
        for number, name in enumerate(nodes):
            NodeRecord(
                node=number,
                nodes=len(nodes),
                host=name,
                name=name,
                reference=name,
                clock=Clock(offset_s=0.0, uncertainty_s=0.0),
                facts=(),
            ).write(node_file(place, number))

    def scored(self) -> EnsembleScore:
        folder = self.run.folder
        with folder.start_attempt(job=0) as log:
            found = Ensembled(
                workload="image-classification",
                repeat=0,
                planned=self.models,
                jobs=tuple(job for job in range(1, self.models + 1) if folder.history().ended(job)),
                evaluated=200,
                sizes=(EnsembleSize(models=1, quality=0.9),),
                took_s=0.1,
            )
            log.write("ensemble", **found.model_dump(mode="json"))
            log.write("end")
        return score(Contents(RunFolder.open(folder.path))).ensembles[0]

    def twins(self) -> TwinsScore:
        found = self.scored().twins
        assert found is not None
        return found


@pytest.fixture
def four(handmade_run: HandmadeRun) -> HandmadeEnsemble:
    return HandmadeEnsemble(handmade_run, 4, twins=True)


def verdict(ensemble: HandmadeEnsemble) -> tuple[str, str]:
    findings = check(Contents(RunFolder.open(ensemble.run.folder.path))).findings
    return next(
        (finding.verdict, finding.evidence) for finding in findings if finding.rule == "twins"
    )


class TestPairs:
    def test_a_node_in_no_agreeing_pair_is_suspect(self, four: HandmadeEnsemble) -> None:
        for model, (weights, node) in enumerate(zip("aabc", "1213", strict=True)):
            last = 0.875 if weights == "c" else 0.9
            four.trained(model, twin_notes(weights, 0.3, 0.6, last, **CPU), f"n{node}")
        found = four.twins()
        assert [pair.verdict for pair in found.pairs] == ["agree", "differ"]
        assert found.pairs[1].models == (2, 3)
        assert found.pairs[1].nodes == (("n1",), ("n3",))
        assert found.pairs[1].epoch == 3
        assert found.pairs[1].difference == pytest.approx(-0.025)
        assert found.suspects == ("n3",)
        kind, evidence = verdict(four)
        assert kind == "fail"
        assert evidence == (
            "models 3 and 4 (n1 and n3) differ from epoch 3 on, by 0.025 top-1 accuracy"
        )

    def test_of_a_pair_by_itself_both_nodes_are_suspect(self, handmade_run: HandmadeRun) -> None:
        two = HandmadeEnsemble(handmade_run, 2, twins=True)
        for model in (0, 1):
            weights = "ab"[model]
            two.trained(model, twin_notes(weights, **CPU), f"n{model}")
        (pair,) = two.twins().pairs
        assert (pair.verdict, pair.epoch, pair.difference) == ("differ", None, None)
        assert two.twins().suspects == ("n0", "n1")
        assert "differ in their trained weights, but in no evaluation" in verdict(two)[1]

    def test_the_same_qualities_on_the_way_are_asked_for_too(
        self, handmade_run: HandmadeRun
    ) -> None:
        two = HandmadeEnsemble(handmade_run, 2, twins=True)
        two.trained(0, twin_notes("a", 0.3, 0.6, 0.9, **CPU), "n0")
        two.trained(1, twin_notes("a", 0.4, 0.6, 0.9, **CPU), "n1")
        (pair,) = two.twins().pairs
        assert (pair.verdict, pair.epoch) == ("differ", 1)

    def test_an_agreement_on_one_node_clears_nobody(self, four: HandmadeEnsemble) -> None:
        for model, (weights, node) in enumerate(zip("aabc", "1112", strict=True)):
            four.trained(model, twin_notes(weights, **CPU), f"n{node}")
        found = four.scored()
        assert found.twins is not None
        assert [pair.one_node for pair in found.twins.pairs] == [True, False]
        assert found.twins.suspects == ("n1", "n2")
        told = dict(ensemble_rows(found))["twins"]
        assert told.startswith("a diagnostic of the nodes, not a result; 1 of 2 pairs agree")
        assert "1 of them on one node" in told
        assert told.endswith("suspect: n1, n2")

    @pytest.mark.parametrize(
        ("facts", "reason"),
        [
            ({}, "kernels of Test GPU need not give the same bits again: --set train.determin"),
            ({"torch": "2.1"}, "they did not run alike: torch 2.13.0 and 2.1"),
            ({"device_name": "Other"}, "they did not run alike: device name Test GPU and Other"),
        ],
    )
    def test_a_difference_that_may_be_nobodys_fault_is_no_verdict(
        self, handmade_run: HandmadeRun, facts: dict[str, Any], reason: str
    ) -> None:
        two = HandmadeEnsemble(handmade_run, 2, twins=True)
        two.trained(0, twin_notes("a"), "n0")
        two.trained(1, twin_notes("b", **facts), "n1")
        (pair,) = two.twins().pairs
        assert pair.verdict == "cannot tell"
        assert pair.reason is not None
        assert pair.reason.startswith(reason)
        assert two.twins().suspects == ()
        assert verdict(two)[0] == "cannot tell"

    def test_kernels_that_gave_one_pair_the_same_bits_can_do_so_for_another(
        self, four: HandmadeEnsemble
    ) -> None:
        for model, weights in enumerate("aabc"):
            four.trained(model, twin_notes(weights), f"n{model}")
        assert [pair.verdict for pair in four.twins().pairs] == ["agree", "differ"]
        assert four.twins().suspects == ("n2", "n3")

    def test_a_twin_that_was_lost_or_has_no_weights_is_not_compared(
        self, four: HandmadeEnsemble
    ) -> None:
        for model, weights in enumerate(["a", None, "b"]):
            four.trained(model, twin_notes(weights, **CPU), f"n{model}")
        found = four.twins()
        assert [pair.verdict for pair in found.pairs] == ["cannot tell"] * 2
        assert found.pairs[0].reason == "job 2 does not say what its weights are"
        assert found.pairs[1].reason == "job 4 did not come to its end"

    def test_an_ensemble_of_others_has_none(self, handmade_run: HandmadeRun) -> None:
        two = HandmadeEnsemble(handmade_run, 2, twins=False)
        for model, weights in enumerate("ab"):
            two.trained(model, twin_notes(weights), f"n{model}")
        assert two.scored().twins is None
        assert verdict(two) == ("not applicable", "no twins in this run")


class TestNodes:
    """Jobs of 4 epochs, noted five times an epoch: 19 pieces of work each."""

    @staticmethod
    def _trained(run: HandmadeRun, jobs: Sequence[tuple[float, tuple[str, ...]]]) -> EnsembleScore:
        ensemble = HandmadeEnsemble(run, len(jobs), twins=False)
        for model, (slow, nodes) in enumerate(jobs):
            # A little apart, as nodes are: 0.3 %.
            factor = slow * (1 + 0.003 * math.sin(7.0 * model))
            ensemble.trained(model, twin_notes("a", *[0.9] * 4, slow=factor), *nodes)
        return ensemble.scored()

    def test_a_slow_node_is_named_with_its_jobs(self, handmade_run: HandmadeRun) -> None:
        jobs = [(1.1 if k == 5 else 1.0, (f"n{k}",)) for k in range(8)]
        found = self._trained(handmade_run, jobs)
        assert found.nodes_named is not None
        assert found.nodes_named.reason is None
        (named,) = found.nodes_named.named
        assert (named.nodes, named.jobs, named.trait) == (("n5",), (6,), "slow")
        assert named.excess == pytest.approx(0.1, abs=0.01)
        told = dict(ensemble_rows(found))["nodes"]
        assert told.startswith("n5 slow, by ")
        assert told.endswith("(jobs 6)")

    def test_healthy_nodes_are_not(self, handmade_run: HandmadeRun) -> None:
        found = self._trained(handmade_run, [(1.0, (f"n{k}",)) for k in range(8)])
        assert dict(ensemble_rows(found))["nodes"] == "none of 8 slow or noisy beyond chance"

    def test_what_is_no_training_makes_no_node_slow(self, handmade_run: HandmadeRun) -> None:
        ensemble = HandmadeEnsemble(handmade_run, 4, twins=False)
        for model in range(4):
            other = {phase: 3.0 if model == 2 else 1.0 for phase in PHASES if phase not in WORK}
            notes = twin_notes("a", *[0.9] * 4, slow=1 + 0.001 * model, other=other)
            ensemble.trained(model, notes, f"n{model}")
        found = ensemble.scored().nodes_named
        assert found is not None
        assert (found.reason, found.named, found.pieces) == (None, (), 19)

    def test_the_verdict_is_about_a_node_or_all_nodes_of_a_job(
        self, handmade_run: HandmadeRun
    ) -> None:
        jobs = [(1.2 if k == 3 else 1.0, (f"a{k}", f"b{k}")) for k in range(4)]
        shared = [(1.0, (f"c{k // 2}",)) for k in range(4)]
        found = self._trained(handmade_run, [*jobs, *shared]).nodes_named
        assert found is not None
        assert found.places == 6
        assert [outlier.nodes for outlier in found.named] == [("a3", "b3")]

    def test_of_few_nodes_nothing_is_told(self, handmade_run: HandmadeRun) -> None:
        found = self._trained(handmade_run, [(1.0, (f"n{k}",)) for k in (0, 1, 2)])
        told = dict(ensemble_rows(found))["nodes"]
        assert told == (
            "cannot tell which are slow or noisy: at least 4 places are needed, and there are 3"
        )

    def test_of_short_trainings_nothing_is_told(self, handmade_run: HandmadeRun) -> None:
        ensemble = HandmadeEnsemble(handmade_run, 4, twins=False)
        for model in range(4):
            ensemble.trained(model, twin_notes("a"), f"n{model}")
        found = ensemble.scored().nodes_named
        assert found is not None
        assert found.reason is not None
        assert found.reason.endswith("train for longer")


class TestPlan:
    @pytest.mark.parametrize("given", [(), ("bagging.models=3",)])
    def test_an_odd_number_of_models_is_refused(self, given: tuple[str, ...]) -> None:
        tiny = profile("tiny", ["image-classification"])
        settings = load(tiny, None, ["bagging.twins=true", *given])
        more = "4 or 2" if given else "2"
        with pytest.raises(UsageError, match="twins come in pairs") as refused:
            prepare(settings, lambda text, done, whole: None)
        assert refused.value.hint == f"use --models {more}"

    @pytest.mark.parametrize("models", [4, 6, 16])
    def test_twins_share_no_node_that_holds_half_of_the_models_or_fewer(self, models: int) -> None:
        settings = load(profile("tiny"), None, ["bagging.twins=true"])
        order = placement_order(models, settings)
        assert sorted(order) == list(range(models))
        tries = dict.fromkeys(order, 1)
        for slots in range(1, models // 2 + 1):
            nodes = {step.job: step.first_node for step in NodeLayout(1, slots).steps(tries)}
            assert all(nodes[2 * k] != nodes[2 * k + 1] for k in range(models // 2))


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    place = tmp_path_factory.mktemp("twins")
    yield ended(started(place, "--models", "2", "--twins"), place)


class TestRealRun:
    def test_twins_have_one_seed_and_one_sample(self, twins: RunFolder) -> None:
        first, second = (JobRecord.read(twins.job_file(job)) for job in (1, 2))
        assert first.seed == second.seed == 1
        assert first.bag is not None
        assert second.bag is not None
        assert (first.bag.model, second.bag.model) == (0, 1)
        bags = bag_indices(first.bag, 256), bag_indices(second.bag, 256)
        assert bags[0] is not None
        assert bags[1] is not None
        assert bags[0].tolist() == bags[1].tolist()

    def test_they_agree_and_count_as_one_model_of_two_models_work(self, twins: RunFolder) -> None:
        contents = Contents(twins)
        found = score(contents)
        (ensemble,) = found.ensembles
        assert ensemble.twins is not None
        (pair,) = ensemble.twins.pairs
        assert (pair.verdict, pair.one_node) == ("agree", True)
        assert pair.nodes[0] != pair.nodes[1]
        assert [size.models for size in ensemble.sizes] == [1]
        assert ensemble.jobs == (1, 2)
        assert ensemble.ops_training == 2 * (found.trainings[0].speed or pytest.fail()).ops_training
        assert "not a result" in ensemble_line(found, ensemble)
        verdicts = {finding.rule: finding.verdict for finding in check(contents).findings}
        assert verdicts["twins"] == "pass"
        assert "twins: a diagnostic of the nodes, not a result" in twins.report_file.read_text()

    def test_other_weights_in_the_log_of_one_are_a_difference(
        self, twins: RunFolder, tmp_path: Path
    ) -> None:
        shutil.copytree(twins.path, tmp_path / "copy")
        folder = RunFolder.open(tmp_path / "copy")
        log = folder.logged_attempts(2)[-1] / "events.jsonl"
        own = folder.history().events("finished", 2)[-1].payload(Finished).weights_sha256
        assert own is not None
        log.write_text(log.read_text().replace(own, "0" * 64))
        contents = Contents(RunFolder.open(folder.path))
        (ensemble,) = score(contents).ensembles
        assert ensemble.twins is not None
        assert [pair.verdict for pair in ensemble.twins.pairs] == ["differ"]
        assert len(ensemble.twins.suspects) == 2
        failed = {finding.rule for finding in check(contents).failures}
        assert {"twins", "chain", "trained"} <= failed
