"""Scripts as models of an ensemble: their samples, predictions and combination."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from tests.support.command_runs import script, settings
from tests.support.cores import needs_two_cores
from vflops.config.bagging import BaggingSettings
from vflops.data.bag import bag_indices
from vflops.errors import FolderError, RunFailed, UsageError
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.job_events import Ensembled, Evaluated, JobStarted
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.run import pipeline, validate
from vflops.run.observer import RunObserver
from vflops.train.ensemble.predictions import KeptPredictions
from vflops.workloads.command.combined_metric import metric_of
from vflops.workloads.command.combined_quality import QualityMeter
from vflops.workloads.command.script_predictions import FILE, read_predictions, store_predictions
from vflops.workloads.command.settings import CommandSettings
from vflops.workloads.contract.combine import mean, vote
from vflops.workloads.contract.registry import workload

MEMBER = """
import numpy as np
indices = np.load(os.environ["VFLOPS_INDICES"])
labels = np.arange(20) % 3
rng = np.random.default_rng(int(os.environ["VFLOPS_SEED"]))
chosen = np.where(rng.random(20) < 0.3, 0, labels)
say(samples=0)
say(samples=len(indices), loss=0.5)
say(samples=len(indices), quality=float((chosen == labels).mean()), evaluated=20)
np.savez(os.environ["VFLOPS_PREDICTIONS"], predictions=np.eye(3)[chosen], labels=labels)
"""
ACCURATE = CommandSettings(quality="accuracy", validation=4)
LABELS = np.array([0, 1, 2, 1])
TABLE = np.array([[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])
"""Probabilities of four samples, three of which are right."""


def run_ensemble(folder: Path, text: str, models: int = 2, **changes: Any) -> RunFolder:
    changes = {"quality": "accuracy", "validation": 20, "train": {"device": "cpu"}, **changes}
    chosen = settings(script(folder, text), **changes)
    bagging = BaggingSettings(models=models, attempts=1)
    chosen = chosen.model_copy(update={"bagging": bagging})
    return pipeline.start(folder / "runs", "command", chosen, RunObserver())


@needs_two_cores
def test_scripts_get_their_samples_and_are_combined(tmp_path: Path) -> None:
    folder = run_ensemble(tmp_path, MEMBER, combine="vote")
    history = folder.history()
    for job in (1, 2):
        record = folder.effective_job(job)
        file = folder.path / "jobs" / str(job) / "indices.npy"
        drawn = bag_indices(record.bag, 50)
        assert drawn is not None and np.array_equal(np.load(file), drawn)
        started = history.events("job", job=job)[-1].payload(JobStarted)
        assert started.indices_sha256 == file_hash(file)
        assert not list((folder.path / "jobs" / str(job)).rglob(FILE))
        assert record.bag is not None and record.bag.out_of_bag == record.bag.combine_every == 0
    ensembled = history.events("ensemble")[-1].payload(Ensembled)
    labels = np.arange(20) % 3
    votes = [np.where(np.random.default_rng(seed).random(20) < 0.3, 0, labels) for seed in (1, 2)]
    expected = (scipy.stats.mode(votes).mode == labels).mean()
    assert [size.models for size in ensembled.sizes] == [1, 2]
    assert ensembled.sizes[0].quality == pytest.approx((votes[0] == labels).mean())
    assert ensembled.sizes[1].quality == pytest.approx(expected)
    pipeline.conclude(folder, RunObserver())
    assert not check(Contents(folder)).failures


DETECTOR = """
import numpy as np
rng = np.random.default_rng(int(os.environ["VFLOPS_SEED"]))
corners = np.arange(20)[:, None, None] + np.array([[0, 0, 100, 100]])
found = np.zeros((20, 2, 6))
found[..., 5] = -1
found[:, 0, :4] = corners[:, 0] + rng.normal(0, 5, (20, 4))
found[:, 0, 4:] = 0.9, 0
np.savez(os.environ["VFLOPS_PREDICTIONS"], predictions=found, labels=np.zeros((20, 1), int),
         boxes=corners)
say(samples=50, quality=1.0, evaluated=20)
"""


@needs_two_cores
def test_boxes_are_fused(tmp_path: Path) -> None:
    folder = run_ensemble(tmp_path, DETECTOR, quality="mAP@0.5", combine="fusion")
    ensembled = folder.history().events("ensemble")[-1].payload(Ensembled)
    assert [size.quality for size in ensembled.sizes] == [pytest.approx(1.0)] * 2


@needs_two_cores
def test_a_script_without_predictions_fails_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="the command wrote no predictions to") as caught:
        run_ensemble(tmp_path, MEMBER.rsplit("np.savez", 1)[0])
    assert FILE in caught.value.message


@needs_two_cores
def test_models_with_different_labels_are_not_combined(tmp_path: Path) -> None:
    shifted = MEMBER.replace("np.arange(20)", '(np.arange(20) + int(os.environ["VFLOPS_SEED"]))')
    with pytest.raises(FolderError, match="label 1 and 2 of sample 0") as caught:
        run_ensemble(tmp_path, shifted)
    assert "must not depend on the seed" in str(caught.value.hint)


def test_a_single_script_is_given_all_samples_and_no_place_for_predictions(tmp_path: Path) -> None:
    text = """
import numpy as np
assert np.array_equal(np.load(os.environ["VFLOPS_INDICES"]), np.arange(50))
assert "VFLOPS_PREDICTIONS" not in os.environ
say(samples=50, quality=1.0, evaluated=20)
"""
    chosen = settings(script(tmp_path, text))
    folder = pipeline.start(tmp_path / "runs", "command", chosen, RunObserver())
    assert folder.history().state.complete


def test_votes_agree_with_scipy() -> None:
    rng = np.random.default_rng(3)
    for models in (1, 2, 3, 8):
        votes = [rng.integers(0, 4, 200).astype(np.float32) for _ in range(models)]
        assert np.array_equal(vote(votes), scipy.stats.mode(votes).mode)
        assert np.array_equal(vote(votes[::-1]), vote(votes))


def stored(folder: Path, section: CommandSettings = ACCURATE, **arrays: Any) -> Path:
    folder.mkdir(exist_ok=True)
    np.savez(folder / FILE, **arrays)
    return folder / FILE


def refused(folder: Path, section: CommandSettings, **arrays: Any) -> RunFailed:
    path = stored(folder / "attempt", **arrays)
    with pytest.raises(RunFailed) as caught:
        read_predictions(path, section)
    assert str(path) in caught.value.message and caught.value.hint
    return caught.value


def changed(table: np.ndarray[Any, Any], value: float) -> np.ndarray[Any, Any]:
    copy = table.astype(np.float64)
    copy[1, 2] = value
    return copy


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({"predictions": TABLE}, "it has no array 'labels'"),
        ({"predictions": TABLE[:3], "labels": LABELS}, "predictions has 3, labels has 4"),
        ({"predictions": TABLE[:3], "labels": LABELS[:3]}, "3 samples, but the setting validation"),
        ({"predictions": TABLE[:0], "labels": LABELS[:0]}, "predictions has no samples"),
        ({"predictions": np.float64(1), "labels": LABELS}, "predictions has no samples"),
        ({"predictions": TABLE[:, 0], "labels": LABELS}, r"shape \(4,\): expected \(samples, cl"),
        (
            {"predictions": changed(TABLE, math.nan), "labels": LABELS},
            r"\[1, 2\] is nan",
        ),
        (
            {"predictions": changed(TABLE, -0.1), "labels": LABELS},
            "-0.1, which is not a probability",
        ),
        ({"predictions": changed(TABLE, 4), "labels": LABELS}, "of sample 1 have the sum 4.7"),
        ({"predictions": TABLE, "labels": LABELS + 1}, "the class 3, but classes are 0 to 2"),
        ({"predictions": TABLE, "labels": LABELS - 1}, "the class -1"),
        ({"predictions": TABLE, "labels": LABELS / 2}, "labels is float64"),
        ({"predictions": TABLE.astype(str), "labels": LABELS}, "the type <U"),
        ({"predictions": TABLE * 1j, "labels": LABELS}, "the type complex128"),
    ],
)
def test_wrong_classes_are_refused(tmp_path: Path, arrays: dict[str, Any], fault: str) -> None:
    assert_fault(refused(tmp_path, ACCURATE, **arrays), fault)


def assert_fault(error: RunFailed, fault: str) -> None:
    with pytest.raises(RunFailed, match=fault):
        raise error


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(b"0.1 0.9")
    with pytest.raises(RunFailed, match="cannot be used: BadZipFile"):
        read_predictions(path, ACCURATE)
    np.savez(path, predictions=np.array([{}], dtype=object), labels=LABELS)
    with pytest.raises(RunFailed, match="cannot be used: it has an array object"):
        read_predictions(path, ACCURATE)


def test_numbers_need_labels_of_their_shape(tmp_path: Path) -> None:
    section = CommandSettings(quality="mse", better="lower")
    error = refused(tmp_path, section, predictions=np.ones((4, 1)), labels=np.ones(4))
    assert_fault(error, r"\(4, 1\), and labels \(4,\): expected the same shape")


BOXES: dict[str, Any] = {
    "predictions": np.array([[[0, 0, 4, 4, 0.9, 0], [0, 0, 0, 0, 0, -1]]] * 2),
    "labels": np.array([[0], [-1]]),
    "boxes": np.array([[[0, 0, 4, 4]], [[0, 0, 0, 0]]]),
}
FUSED = CommandSettings(quality="mAP@0.5", combine="fusion")


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("predictions", np.zeros((2, 6)), r"shape \(2, 6\): expected \(frames, detections, 6\)"),
        ("predictions", np.array([[[4, 0, 0, 4, 0.9, 0]]] * 2), "x1 ≤ x2"),
        ("predictions", np.array([[[0, 0, 4, 4, -0.5, 0]]] * 2), "the score -0.5"),
        ("boxes", np.zeros((2, 1, 3)), "boxes has shape"),
        ("labels", np.full((2, 1), -1), "no true box"),
    ],
)
def test_wrong_boxes_are_refused(tmp_path: Path, name: str, value: Any, fault: str) -> None:
    assert_fault(refused(tmp_path, FUSED, **{**BOXES, name: value}), fault)


def test_boxes_are_judged_by_their_average_precision(tmp_path: Path) -> None:
    found = read_predictions(stored(tmp_path / "attempt", **BOXES), FUSED)
    meter = QualityMeter("mAP@0.5")
    meter.update(found.predictions[:1], [part[:1] for part in found.truth])
    meter.update(found.predictions[1:], [part[1:] for part in found.truth])
    assert meter.result() == pytest.approx(1.0)  # the false box comes after the true one


def evaluated(quality: float, samples: int = 4) -> Evaluated:
    progress: dict[str, Any] = {"step": 9, "samples": 9, "epoch": 1.0, "phases": {}}
    return Evaluated(**progress, quality=quality, evaluated=samples)


def test_predictions_must_be_those_of_the_last_evaluation(tmp_path: Path) -> None:
    path = stored(tmp_path / "attempt", predictions=TABLE, labels=LABELS)
    with pytest.raises(RunFailed, match=r"accuracy is 0.75, but the last evaluation .* 0.9\n"):
        store_predictions(path.parent, ACCURATE, evaluated(0.9))
    with pytest.raises(RunFailed, match="4 samples, but the last evaluation had 5"):
        store_predictions(path.parent, ACCURATE, evaluated(0.75, samples=5))
    percent = CommandSettings(quality="accuracy", bounds=(0, 100))
    predicted = store_predictions(path.parent, percent, evaluated(75.2))
    assert predicted.samples == 4 and not path.exists()
    kept = KeptPredictions.open(path.parent, predicted.files)
    assert np.array_equal(kept.rows(0, 4), TABLE.astype(np.float32))
    assert np.array_equal(kept.truth[0], LABELS)


def test_of_many_classes_the_largest_are_stored_unless_all_matter(tmp_path: Path) -> None:
    table = np.random.default_rng(0).dirichlet(np.ones(100), 6).astype(np.float32)
    labels = table.argmax(1)
    for name, better, nonzero in (("accuracy", "higher", 32), ("log-loss", "lower", 100)):
        section = CommandSettings.model_validate({"quality": name, "better": better})
        path = stored(tmp_path / name, predictions=table, labels=labels)
        predicted = store_predictions(path.parent, section, None)
        rows = KeptPredictions.open(path.parent, predicted.files).rows(0, 6)
        assert rows.shape == (6, 100) and ((rows > 0).sum(1) == nonzero).all()
        assert np.array_equal(rows[rows > 0], table[rows > 0])


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("accuracy", 0.75),
        ("error", 0.25),
        ("log-loss", -np.log(TABLE[np.arange(4), LABELS]).mean()),
    ],
)
def test_qualities_of_classes(metric: Any, expected: float) -> None:
    assert quality(metric, TABLE, LABELS) == pytest.approx(expected)


def test_qualities_of_numbers_agree_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    truth = rng.standard_normal((50, 2))
    found = mean([truth + rng.standard_normal((50, 2)) for _ in range(3)])  # type: ignore[misc]
    for name, oracle in (
        ("mse", metrics.mean_squared_error),
        ("rmse", lambda a, b: metrics.mean_squared_error(a, b) ** 0.5),
        ("mae", metrics.mean_absolute_error),
    ):
        assert quality(name, found, truth) == pytest.approx(oracle(truth, found), rel=1e-6)


def quality(metric: Any, predictions: Any, labels: Any, pieces: Sequence[int] = (1,)) -> float:
    meter = QualityMeter(metric)
    for part, truth in zip(
        np.split(predictions, pieces), np.split(np.asarray(labels), pieces), strict=True
    ):
        meter.update(part, [truth])
    return meter.result()


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("accuracy", "accuracy"),
        ("val_acc", "accuracy"),
        ("Top-1 accuracy", "accuracy"),
        ("test error rate", "error"),
        ("cross-entropy", "log-loss"),
        ("RMSE", "rmse"),
        ("mAP@0.5", "mAP@0.5"),
        ("mAP@0.5:0.95", "mAP@0.5:0.95"),
    ],
)
def test_names_that_say_how_a_quality_is_computed(name: str, metric: str) -> None:
    assert metric_of(CommandSettings(quality=name)) == metric


@pytest.mark.parametrize(
    ("section", "fault", "hint"),
    [
        ({"quality": "F1"}, "the quality 'F1' of an ensemble cannot be computed", "log-loss, mse"),
        ({"quality": "top-5"}, "cannot be computed", "combine_quality=accuracy"),
        (
            {"quality": "error"},
            "better is 'higher', but .* a lower",
            "better=lower",
        ),
        ({"quality": "mAP@0.5"}, "mAP@0.5 .* from a mean", "command.combine=fusion"),
        ({"quality": "mse", "better": "lower", "combine": "vote"}, "from a vote", "combine=mean"),
        ({"quality": "accuracy", "combine": "fusion"}, "from a fusion", "=mean or .*=vote"),
    ],
)
def test_what_cannot_be_combined_is_refused_before_the_run(
    tmp_path: Path, section: dict[str, Any], fault: str, hint: str
) -> None:
    chosen = settings(script(tmp_path, ""), **section)
    spec, typed = workload("command"), CommandSettings.model_validate(chosen.workloads["command"])
    validate.check_ensemble(chosen, spec, typed)  # a single model needs no combination
    several = chosen.model_copy(update={"bagging": BaggingSettings(models=2)})
    with pytest.raises(UsageError, match=fault) as caught:
        validate.check_ensemble(several, spec, typed)
    with pytest.raises(UsageError, match=hint):
        raise UsageError(str(caught.value.hint))


def test_models_that_do_not_fit_are_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no room for 4,?096 models"):
        run_ensemble(tmp_path, MEMBER, models=4096)
    assert not (tmp_path / "runs").exists()
