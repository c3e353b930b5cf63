"""The score of trainings, recomputed by hand from events that were written by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.trained_runs import (
    COMPILE_S,
    GPU_POWER_W,
    START_S,
    HandmadeRun,
    course,
    declared,
    job,
    progress,
    started,
    trained_graph,
    write_telemetry,
)
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.record.folder import RunFolder
from vflops.record.formats.job import Goal
from vflops.record.readout.contents import Contents
from vflops.results.score import figure_text, parallelism_text
from vflops.results.score.score_file import Score, TrainingScore
from vflops.results.score.scoring import score

# The graph on a 4×4 image by HPC AI500's rules, two operations a multiplication: a 3×3 convolution
# of 3 to 8 channels, and a product of 128 by 10 of one each; the rest counts 1 an element.
OPS_FORWARD = 8_448
OPS_TOTAL = 3 * OPS_FORWARD
GEMM_FLOPS = 2e11  # the faster ceiling of conftest's MEASUREMENTS


def fresh(folder: RunFolder) -> Score:
    return score(Contents(RunFolder.open(folder.path)))


def one_job(run: HandmadeRun, *attempts: list[tuple[str, dict[str, object]]]) -> TrainingScore:
    """The score of one job with these attempts."""
    run.plan(job())
    for number, notes in enumerate(attempts):
        run.attempt(1, 1000.0 + 500 * number, *notes)
    return fresh(run.folder).trainings[0]


def compiling(
    notes: list[tuple[str, dict[str, object]]], samples: int
) -> list[tuple[str, dict[str, object]]]:
    """The notes of an attempt whose first ``samples`` samples compiled."""
    return [
        (kind, {**data, "samples_compiling": samples} if "phases" in data else data)
        for kind, data in notes
    ]


def test_flops_are_the_operations_of_the_samples_over_the_time_of_work(
    handmade_run: HandmadeRun,
) -> None:
    found = one_job(handmade_run, course(0.4, 0.7, 0.9))
    # 30 steps of 1 s with 0.1 s of data each, and a checkpoint of 0.5 s after each evaluation.
    assert found.work_s == pytest.approx(30 + 3 + 1.5)
    assert found.work is not None
    assert (found.work.ops_forward, found.work.ops_total) == (OPS_FORWARD, OPS_TOTAL)
    assert (found.work.rules, found.work.source) == ("hpcai500", "counted")
    assert found.speed is not None
    assert found.speed.ops_training == 3000 * OPS_TOTAL
    assert found.speed.flops == pytest.approx(3000 * OPS_TOTAL / 34.5)
    assert found.speed.samples_per_s == pytest.approx(3000 / 34.5)


def test_evaluation_is_counted_apart_and_forward_only(handmade_run: HandmadeRun) -> None:
    found = one_job(handmade_run, course(0.4, 0.7, 0.9))
    assert found.samples_evaluated == 3 * 200
    assert found.speed is not None
    assert found.speed.ops_evaluation == 600 * OPS_FORWARD
    assert found.speed.flops_evaluation == pytest.approx(600 * OPS_FORWARD / 6)
    whole = (3000 * OPS_TOTAL + 600 * OPS_FORWARD) / found.wall_s
    assert found.speed.flops_whole == pytest.approx(whole)


def test_the_phases_add_up_to_the_wall_time(trained_folder: RunFolder) -> None:
    for found in fresh(trained_folder).trainings:
        assert sum(found.phases.values()) == pytest.approx(found.wall_s)
    once = fresh(trained_folder).trainings[1]
    assert once.wall_s == pytest.approx(START_S + COMPILE_S + 33 + 6 + 1.5)
    assert once.phases["compilation"] == COMPILE_S


def test_vflops_are_flops_times_the_penalty_of_the_last_evaluation(
    handmade_run: HandmadeRun,
) -> None:
    found = one_job(handmade_run, course(0.4, 0.85, 0.72))
    assert found.quality.achieved == 0.72  # the last, not the best
    assert found.quality.penalty == pytest.approx((0.72 / 0.8) ** 5)
    assert figure_text.factor(found.quality).endswith("^5, a penalty for quality below the target")
    assert found.speed is not None
    assert found.speed.vflops == pytest.approx(found.speed.flops * 0.9**5)
    assert found.quality.epochs_to_quality == 2  # it was reached on the way


def test_time_to_quality_runs_from_the_start_of_the_processes(handmade_run: HandmadeRun) -> None:
    found = one_job(handmade_run, course(0.4, 0.85, 0.9))
    # Start-up, compilation, 20 steps, two evaluations, one checkpoint between them.
    assert found.quality.time_to_quality_s == pytest.approx(START_S + COMPILE_S + 22 + 4 + 0.5)


def test_a_target_that_was_not_reached_is_no_time_at_all(handmade_run: HandmadeRun) -> None:
    found = one_job(handmade_run, course(0.4, 0.7, 0.79))
    assert found.quality.time_to_quality_s is None
    assert found.quality.epochs_to_quality is None
    assert found.speed is not None
    assert found.speed.vflops == pytest.approx(found.speed.flops * (0.79 / 0.8) ** 5)


def test_a_lower_quality_can_be_the_better_one(handmade_run: HandmadeRun) -> None:
    goal = Goal(quality="error", better="lower", target=0.2, exponent=2)
    handmade_run.plan(job().model_copy(update={"goal": goal}))
    handmade_run.attempt(1, 0.0, *course(0.5, 0.1))
    found = fresh(handmade_run.folder).trainings[0].quality
    assert found.penalty == pytest.approx(4.0)
    assert found.epochs_to_quality == 2


class TestTwoAttempts:
    """Killed at step 15 after a checkpoint of step 10, and gone on with."""

    def test_samples_done_again_count_once_and_their_time_twice(
        self, trained_folder: RunFolder
    ) -> None:
        found = fresh(trained_folder).trainings[0]
        assert (found.attempts, found.samples_trained, found.samples_redone) == (2, 3000, 500)
        # 15 steps and 20 steps, the data for both, and checkpoints: none noted before, two after.
        assert found.work_s == pytest.approx(35 + 3.5 + 1.0)
        assert found.speed is not None
        assert found.speed.flops == pytest.approx(3000 * OPS_TOTAL / 39.5)

    def test_time_to_quality_counts_both(self, trained_folder: RunFolder) -> None:
        first_s = START_S + COMPILE_S + 15 * 1.1 + 2
        second_s = START_S + COMPILE_S + 20 * 1.1 + 4 + 0.5
        found = fresh(trained_folder).trainings[0].quality
        assert found.time_to_quality_s == pytest.approx(first_s + second_s)
        assert found.epochs_to_quality == 3

    def test_an_evaluation_that_was_lost_does_not_count(self, handmade_run: HandmadeRun) -> None:
        lost = course(0.3, 0.9)[:-2]  # 0.9 at step 20, but no checkpoint of it
        found = one_job(handmade_run, lost, course(0.7, 0.85, first_step=10))
        assert found.samples_evaluated == 600
        assert found.quality.epochs_to_quality == 3

    def test_an_attempt_from_the_start_can_be_scored_before_it_is_as_far(
        self, handmade_run: HandmadeRun
    ) -> None:
        lost, again = course(0.3, 0.9)[:-2], course(0.4)[:-2]
        found = one_job(handmade_run, lost, again)
        assert not found.complete
        assert (found.samples_trained, found.samples_redone) == (1000, 2000)
        assert found.quality.achieved == 0.4

    def test_a_checkpoint_after_the_last_note_is_no_sample_less_than_none(
        self, handmade_run: HandmadeRun
    ) -> None:
        stopped = [started(), progress(8, 1.0)]  # and a checkpoint of step 10, then the end
        found = one_job(handmade_run, stopped, course(0.9, first_step=10))
        assert (found.samples_trained, found.samples_redone) == (2000, 0)

    @pytest.mark.parametrize(
        ("first_step", "timed"),
        [
            pytest.param(0, 1000 - 300, id="from the start: the first compilation was lost too"),
            pytest.param(2, 1200 - 200 - 300, id="a part of the first compilation was kept"),
            pytest.param(10, 2000 - 300 - 300, id="both compilations are part of the training"),
        ],
    )
    def test_samples_that_compiled_count_like_the_training_that_they_belong_to(
        self, handmade_run: HandmadeRun, first_step: int, timed: int
    ) -> None:
        lost = compiling(course(0.3)[:-2], 300)
        found = one_job(handmade_run, lost, compiling(course(0.9, first_step=first_step), 300))
        assert found.speed is not None
        assert found.speed.samples_timed == timed
        assert found.speed.flops == pytest.approx(timed * OPS_TOTAL / found.work_s)

    def test_more_compilations_than_training_leave_a_score(self, handmade_run: HandmadeRun) -> None:
        lost = compiling([started(), progress(8, 1.0)], 800)
        short = compiling([started(), progress(4, 1.0)], 300)
        found = one_job(handmade_run, lost, lost, short)
        assert found.speed is not None
        assert found.speed.samples_timed == 400 - 300

    def test_an_attempt_killed_while_it_started_changes_nothing(
        self, handmade_run: HandmadeRun
    ) -> None:
        found = one_job(handmade_run, course(0.3, 0.9)[:-2], [started()])
        assert (found.samples_trained, found.samples_redone, found.attempts) == (2000, 0, 2)
        assert found.quality.achieved == 0.9


def test_mfu_is_of_all_accelerators_together(trained_folder: RunFolder) -> None:
    found = fresh(trained_folder).trainings[1]
    assert found.mfu.ceiling == "fp32 gemm × 2"
    assert found.mfu.ceiling_flops == 2 * GEMM_FLOPS
    assert found.speed is not None and found.work is not None
    executed = count(trained_graph(), convention("executed")).total.total // 4
    assert found.work.ops_executed == executed != found.work.ops_total
    flops = executed * found.speed.samples_per_s
    assert found.mfu.value == pytest.approx(flops / (2 * GEMM_FLOPS))


def test_mfu_of_ranks_on_one_processor_is_of_that_processor(
    handmade_run: HandmadeRun, run_folder: RunFolder
) -> None:
    ceilings = Contents(run_folder).measurements
    handmade_run.plan(job(), ceilings=tuple(ceilings))
    notes = course(0.9)
    handmade_run.attempt(1, 0.0, started(device="cpu", compiled=False), *notes[1:])
    found = fresh(handmade_run.folder).trainings[0].mfu
    assert (found.ceiling, found.ceiling_flops) == ("fp32 gemm", GEMM_FLOPS)


def test_without_a_ceiling_there_is_no_mfu_but_a_reason(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job())
    handmade_run.attempt(1, 0.0, *course(0.9))
    found = fresh(handmade_run.folder).trainings[0].mfu
    assert found.value is None
    assert found.reason == "no ceiling was measured in fp32"


def test_a_precision_that_is_not_known_is_not_called_nothing_trained(
    handmade_run: HandmadeRun,
) -> None:
    found = one_job(handmade_run, [started(ceiling_precision=None), *course(0.9)[1:]])
    assert found.mfu.reason == "its precision is not known"
    assert one_job_without_notes(handmade_run).mfu.reason == "nothing was trained"


def one_job_without_notes(run: HandmadeRun) -> TrainingScore:
    """The same job before anything of it was written down."""
    shutil.rmtree(run.folder.attempt_folder(1, 0))
    return fresh(run.folder).trainings[0]


def test_power_is_the_mean_from_the_first_step_to_the_last_note(trained_folder: RunFolder) -> None:
    found = fresh(trained_folder).trainings[1]
    assert found.power.power_w == pytest.approx(sum(GPU_POWER_W))
    # From the ranks' start, after start-up, to the end.
    assert found.power.covered_s == pytest.approx(found.wall_s - START_S)
    assert found.power.energy_j == pytest.approx(500 * (found.wall_s - START_S))
    assert found.power.includes == ("accelerators",)
    assert found.speed is not None and found.speed.vflops is not None
    assert found.vflops_per_watt == pytest.approx(found.speed.vflops / 500)


def test_the_power_of_two_attempts_is_of_both(trained_folder: RunFolder) -> None:
    found = fresh(trained_folder).trainings[0]
    assert found.power.energy_j == pytest.approx(500 * (found.wall_s - 2 * START_S))


def test_power_is_read_beside_its_own_log(handmade_run: HandmadeRun) -> None:
    """An attempt that left no log must not shift the telemetry of the next."""
    handmade_run.plan(job())
    empty = handmade_run.folder.attempt_folder(1, 0)
    empty.mkdir(parents=True)
    write_telemetry(handmade_run.attempt(1, 1000.0, *course(0.9)), 1000.0, 30)
    found = fresh(handmade_run.folder).trainings[0]
    assert found.power.power_w == pytest.approx(500)


def test_without_a_sensor_there_is_a_reason_and_no_vflops_per_watt(
    handmade_run: HandmadeRun,
) -> None:
    handmade_run.plan(job())
    place = handmade_run.attempt(1, 1000.0, *course(0.9))
    write_telemetry(place, 1000.0, 30, power=False)
    found = fresh(handmade_run.folder).trainings[0]
    assert (found.power.power_w, found.vflops_per_watt) == (None, None)
    assert "processors: no powercap <here>" in (found.power.reason or "")


def test_repeats_have_the_coefficient_of_variation_of_three_figures(
    trained_folder: RunFolder,
) -> None:
    (found,) = fresh(trained_folder).repeats
    assert (found.planned, found.complete, found.reached) == (2, 2, 2)
    assert found.quality is not None and found.flops is not None
    assert found.epochs_to_quality is not None
    # Of two values a and b: |a − b| / √2 over their mean.
    assert found.quality.mean == pytest.approx(0.89)
    assert found.quality.variation == pytest.approx(0.02 / 2**0.5 / 0.89)
    assert found.epochs_to_quality.mean == 2.5
    assert found.epochs_to_quality.variation == pytest.approx(1 / 2**0.5 / 2.5)
    speeds = [3000 * OPS_TOTAL / 39.5, 3000 * OPS_TOTAL / 34.5]
    assert found.flops.mean == pytest.approx(sum(speeds) / 2)
    assert found.flops.variation == pytest.approx(
        (speeds[1] - speeds[0]) / 2**0.5 / (sum(speeds) / 2)
    )


def test_one_seed_that_missed_the_target_leaves_no_epochs_to_quality(
    handmade_run: HandmadeRun,
) -> None:
    handmade_run.plan(job(1), job(2))
    handmade_run.attempt(1, 0.0, *course(0.9))
    handmade_run.attempt(2, 100.0, *course(0.7))
    (found,) = fresh(handmade_run.folder).repeats
    assert (found.reached, found.epochs_to_quality) == (1, None)
    assert found.quality is not None


def test_declared_operations_are_marked_as_such(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job(declared=declared(10, 40)))
    handmade_run.attempt(1, 0.0, *course(0.9))
    found = fresh(handmade_run.folder).trainings[0]
    assert found.work is not None
    assert (found.work.source, found.work.rules) == ("declared", None)
    assert found.speed is not None
    assert (found.speed.ops_training, found.speed.ops_evaluation) == (1000 * 40, 200 * 10)


def test_the_same_folder_gives_the_same_bytes(trained_folder: RunFolder, tmp_path: Path) -> None:
    first = fresh(trained_folder).to_json()
    moved = tmp_path / "elsewhere"
    shutil.copytree(trained_folder.path, moved)
    assert fresh(RunFolder.open(moved)).to_json() == first
    fresh(trained_folder).write(trained_folder.score_file)
    assert trained_folder.score_file.read_text() == first
    assert Score.read(trained_folder.score_file) == fresh(trained_folder)


@pytest.mark.parametrize(
    ("number", "text"), [(5.008, "epoch 5"), (0.5, "epoch 0.5"), (12.0, "epoch 12")]
)
def test_the_batch_that_ends_an_epoch_is_not_shown_as_a_part_of_the_next(
    number: float, text: str
) -> None:
    assert figure_text.epoch(number) == text


def test_a_precision_that_a_command_does_not_state_cannot_be_compared(
    handmade_run: HandmadeRun,
) -> None:
    found = one_job(handmade_run, course(0.9))
    stated = found.model_copy(update={"precision": "mixed-bf16"})
    assert "--precisions fp32,mixed-bf16" in parallelism_text.precision(stated)
    unstated = found.model_copy(update={"precision": "unstated precision"})
    assert parallelism_text.precision(unstated) == "unstated precision"
