"""What a plan needs: figures that can be worked out on paper."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from tests.support.language_models import GPT2, language_graph
from tests.support.trained_runs import HandmadeRun, two_seeds
from vflops.config.training import TrainSettings
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.launch.placement import Node, plan
from vflops.record.folder import RunFolder
from vflops.record.formats.batch_ops import BatchOps
from vflops.record.readout.contents import Contents
from vflops.results.roofline.analysis import Ceilings, bound, measured_ceilings
from vflops.results.score.training_score import training_scores
from vflops.run.training_cost import (
    Speed,
    Training,
    bounding_speed,
    estimate,
    estimate_rows,
    measured_speed,
    placement_text,
)
from vflops.testing.conventions import sample_graph
from vflops.train.ensemble.predictions import prediction_bytes
from vflops.train.parallel.footprint import Footprint

FOUR = [Node(f"n{number}", 2) for number in range(1, 3)]


def training(out_of_bag: int | None = 10, **changes: Any) -> Training:
    """1,000 samples of 100 bytes, 5 epochs of 10 steps; a sample takes 60 operations."""
    train = {"epochs": 5, "batch": 100, **changes}
    return Training(
        train=TrainSettings.model_validate(train),
        samples=1000,
        validation=200,
        test=50,
        data_bytes=125_000,
        batch_ops=BatchOps(batch=1, forward=20, total=60),
        parameters=7,
        kept_bytes=prediction_bytes((4,), 8),
        out_of_bag=out_of_bag,
    )


def test_operations_and_samples_are_those_of_all_models() -> None:
    needs = estimate(plan(FOUR, 4, 1), training())
    assert (needs.scale, needs.slots, needs.nodes, needs.nodes_known) == (4, 4, 2, 2)
    assert needs.apc == 4 * 100 * 60
    assert needs.samples == 4 * 5 * 1000
    assert needs.ops_training == 4 * 5 * 1000 * 60
    assert needs.ops_evaluation == 4 * 5 * 200 * 20
    twice = estimate(plan(FOUR, 4, 1), training(), repeat=2)
    assert (twice.ops_training, twice.apc) == (2 * needs.ops_training, needs.apc)


def test_models_in_waves_compute_in_parallel_as_far_as_they_run_at_once() -> None:
    needs = estimate(plan(FOUR, 12, 1, waves=True), training())
    assert (needs.scale, needs.apc) == (4, 4 * 100 * 60)


def test_predictions_during_training_are_those_of_the_evaluations_that_are_combined() -> None:
    needs = estimate(plan(FOUR, 4, 1), replace(training(), combine_every=2), repeat=3)
    assert needs.prediction_bytes is not None
    # After epochs 2 and 4 of 5, and deleted before the next ensemble.
    assert needs.interim_bytes == 2 * needs.prediction_bytes // 3
    rows = dict(estimate_rows(needs))
    assert rows["disk"].endswith("more until they are combined")
    assert estimate(plan(FOUR, 4, 1), training()).interim_bytes == 0


def test_the_last_batch_is_whole_and_the_last_epoch_always_evaluated() -> None:
    one = training(batch=300, evaluate_every=2)
    assert one.trained == 17 * 300  # 5,000 samples
    assert one.evaluated == 3 * 200  # after epochs 2, 4 and 5


def test_bytes_read_staged_and_kept() -> None:
    needs = estimate(plan(FOUR, 4, 1), training())
    assert needs.epoch_bytes == 4 * 100_000
    judged = 50 + 10 + 200  # the test set, outside of the bag, predictions
    assert needs.read_bytes == 4 * 100 * (5000 + 1000 + judged)
    assert needs.staged_node_bytes == 125_000  # once a node, two models or not
    staged = dict(estimate_rows(needs))["staged"]
    assert staged == "at most 125 kB on the local storage of a node"  # bags need only a part
    unknown = estimate(plan(FOUR, 4, 1), replace(training(), data_bytes=None))
    assert dict(estimate_rows(unknown))["staged"].startswith("not known")
    assert needs.prediction_bytes == 4 * 200 * (4 * 4 + 8 + 8)
    alone = estimate(plan(FOUR, 1, 1), training(out_of_bag=None))
    assert (alone.prediction_bytes, alone.read_bytes) == (0, 100 * 6050)


def test_of_wide_tables_the_largest_probabilities_are_kept_and_of_boxes_all() -> None:
    assert prediction_bytes((1000,), 8) == 32 * 2 * 4 + 8 + 8
    assert prediction_bytes((32,), 8) == 32 * 4 + 16
    assert prediction_bytes((100, 6), 0) == 2400 + 8


@pytest.mark.parametrize(
    ("settings", "states", "number_bytes"),
    [
        ({"optimizer": "sgd"}, 1, 4),
        ({"optimizer": "sgd", "momentum": 0.0}, 0, 4),
        ({"optimizer": "lars"}, 1, 4),
        ({"optimizer": "adam", "precision": "mixed-bf16"}, 2, 4),
        ({"optimizer": "sgd", "precision": "fp16"}, 1, 2),
    ],
)
def test_memory_and_checkpoints_follow_the_optimizer(
    settings: dict[str, Any], states: int, number_bytes: int
) -> None:
    needs = estimate(plan(FOUR, 2, 2), training(**settings))
    assert needs.memory_rank_bytes == 7 * number_bytes * (2 + states)
    assert needs.checkpoint_bytes == 2 * (10 + 3) * 7 * number_bytes * (1 + states)
    assert needs.audit_bytes == 2 * 10 * 7 * number_bytes * (1 + states)


def test_memory_is_of_what_a_rank_holds_and_checkpoints_are_whole() -> None:
    shared = replace(training(), footprint=Footprint(4, 5, "its stage"))
    needs = estimate(plan(FOUR, 2, 2), shared)
    assert needs.memory_rank_bytes == (4 * 3 + 5) * 4
    assert needs.checkpoint_bytes == 2 * (10 + 3) * 7 * 4 * 2
    assert "stay for audits: train.segments" in dict(estimate_rows(needs))["disk"]
    assert "68.0 B per rank for its stage; activations" in dict(estimate_rows(needs))["memory"]


def test_models_in_waves_take_their_time_one_after_the_other() -> None:
    speed = Speed(50.0, 100.0, 7.0, False, "a run")
    one = 7 + 5000 / 50 + 1000 / 100
    assert estimate(plan(FOUR, 4, 1), training(), speed=speed).time_s == pytest.approx(one)
    waves = estimate(plan(FOUR, 9, 1, waves=True), training(), speed=speed, repeat=2)
    assert waves.time_s == pytest.approx(3 * 2 * one)
    assert (waves.scale, waves.waves, waves.claims_weak_scaling) == (4, 3, False)
    assert any("no claim of weak scaling" in row[1] for row in estimate_rows(waves))


def test_what_is_not_known_is_said() -> None:
    unknown = Training(
        **{**training().__dict__, "data_bytes": None, "parameters": None, "kept_bytes": None}
    )
    needs = estimate(plan(FOUR, 4, 1), unknown, unknown="not known: nobody measured it")
    assert (needs.time_s, needs.read_bytes, needs.memory_rank_bytes) == (None, None, None)
    rows = dict(estimate_rows(needs))
    assert rows["time"] == "not known: nobody measured it"
    assert rows["read"] == "not known per epoch, not known in total"


def test_an_earlier_runs_slowest_model_says_the_speed(handmade_run: HandmadeRun) -> None:
    scores = training_scores(Contents(two_seeds(handmade_run, ())))
    slowest = min(scores, key=lambda item: item.speed.flops if item.speed else 0)
    assert slowest.speed is not None and slowest.work is not None and slowest.ranks == 2
    assert slowest.work.batch_ops is not None
    assert slowest.precision is not None
    one = training(ranks=2, precision=slowest.precision)
    same = replace(one, batch_ops=slowest.work.batch_ops)
    needs = measured_speed(scores, "image-classification", same, "before")
    assert needs is not None
    assert needs.samples_per_s == pytest.approx(slowest.speed.samples_per_s)
    assert needs.start_s == slowest.phases["start-up"] + slowest.phases["compilation"] > 0
    assert "the slowest of 2" in needs.source and "operations" not in needs.source
    other = measured_speed(
        scores, "image-classification", training(ranks=4, precision=slowest.precision), "before"
    )
    assert other is not None
    assert other.samples_per_s == pytest.approx(2 * slowest.speed.flops / 60)
    assert "scaled to 4 ranks" in other.source and "by operations" in other.source
    assert measured_speed(scores, "extreme-weather", same, "before") is None
    unlike = replace(same, train=same.train.model_copy(update={"precision": "mixed-bf16"}))
    assert slowest.precision != "mixed-bf16"
    assert measured_speed(scores, "image-classification", unlike, "before") is None


def test_ceilings_give_a_lower_bound_of_the_time(run_folder: RunFolder) -> None:
    machine = measured_ceilings(Contents(run_folder).measurements)
    counted = count(sample_graph(batch=4), convention("hpcai500"))
    needs = bounding_speed(counted, machine, training(), "before", share=0.5)
    assert needs is not None and needs.is_lower_bound
    assert needs.samples_per_s == pytest.approx(bound(counted, machine, "fp32").samples_per_s / 2)
    shown = dict(estimate_rows(estimate(plan(FOUR, 4, 1), training(), speed=needs)))["time"]
    assert shown.startswith("at best ") and "fp32 ceilings of before" in shown
    half = training(precision="mixed-bf16")
    assert bounding_speed(counted, machine, half, "before", share=1.0) is None


def test_the_matrix_product_alone_bounds_a_model_without_convolutions() -> None:
    machine = Ceilings({("gemm", "fp8"): 4e9}, memory=1e8, network=None, ranks=None)
    counted = count(language_graph(GPT2), convention("executed"))
    eight_bit = training(precision="mixed-fp8")
    speed = bounding_speed(counted, machine, eight_bit, "before", share=1.0)
    assert speed is not None and "fp8 ceilings" in speed.source
    assert speed.samples_per_s == bound(counted, machine, "fp8").samples_per_s


def test_a_model_of_many_nodes_is_named_by_its_first_and_last() -> None:
    nodes = [Node(f"n{number}", 2) for number in range(1, 9)]
    assert placement_text(plan(nodes, 1, 3).placements[0]) == "n1: 0–1; n2: 0"
    assert placement_text(plan(nodes, 1, 16).placements[0]) == "n1: 0–1 … n8: 0–1 (8 nodes)"


def test_4096_jobs_on_512_nodes_are_planned_at_once() -> None:
    nodes = [Node(f"n{number}", 8) for number in range(512)]
    began_s = time.process_time()
    needs = estimate(plan(nodes, 4096, 1), training())
    assert time.process_time() - began_s < 1.0
    assert (needs.scale, needs.nodes) == (4096, 512)
