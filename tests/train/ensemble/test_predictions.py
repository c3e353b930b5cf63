"""What base models predict, kept and read again; what they are worth together."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from vflops.errors import FolderError
from vflops.train.ensemble.predictions import (
    KEPT_COLUMNS,
    KeptPredictions,
    prediction_files,
    write_predictions,
)
from vflops.train.evaluation import CollectedPredictions


def probabilities(samples: int, classes: int, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    scores = np.exp(random.normal(0, 3, (samples, classes)))
    result: np.ndarray = (scores / scores.sum(1, keepdims=True)).astype(np.float32)
    return result


def written(directory: Path, predictions: np.ndarray, ranks: int = 1) -> KeptPredictions:
    """Return samples shared by ranks in turns of three, as evaluation shares them."""
    places = np.arange(len(predictions))
    for rank in range(ranks):
        own = places[(places // 3) % ranks == rank]
        write_predictions(
            directory, rank, own, predictions[own], [own * 10, np.stack([own, own], 1)]
        )
    return KeptPredictions.open(directory, prediction_files(directory))


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("shape", [(20, 10), (20, 7, 6)])
def test_predictions_come_back_in_the_order_of_the_samples(
    tmp_path: Path, ranks: int, shape: tuple[int, ...]
) -> None:
    predictions = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    kept = written(tmp_path, predictions, ranks)
    assert len(kept) == 20
    assert np.array_equal(kept.rows(0, 20), predictions)
    assert np.array_equal(kept.rows(4, 11), predictions[4:11])
    assert np.array_equal(kept.truth[0], np.arange(20) * 10)
    assert kept.truth[1].shape == (20, 2)


def test_of_a_wide_table_the_largest_are_kept(tmp_path: Path) -> None:
    predictions = probabilities(12, 1000)
    predictions[3] = 0.001  # of equal ones, the first are kept
    collected, valid = CollectedPredictions(), torch.arange(8) < 7
    for start in (0, 7):  # the last samples of a batch are padding
        places = torch.arange(start, start + 8) % 12
        labels = (torch.empty(8, 0), places)
        collected.add(
            torch.arange(start, start + 8), torch.from_numpy(predictions)[places], labels, valid
        )
    positions, kept_columns, *truth = (array[:12] for array in collected.arrays())
    assert collected.columns == 1000
    write_predictions(tmp_path, 0, positions, kept_columns, truth, columns=1000)
    kept = KeptPredictions.open(tmp_path, prediction_files(tmp_path))
    rows = kept.rows(0, 12)
    assert rows[3].nonzero()[0].tolist() == list(range(KEPT_COLUMNS))
    assert rows.shape == (12, 1000)
    assert ((rows > 0).sum(1) == KEPT_COLUMNS).all()
    assert np.array_equal(rows.argmax(1), predictions.argmax(1))
    assert np.array_equal(rows[rows > 0], predictions[rows > 0])
    smallest = np.where(rows > 0, rows, 1).min(1)
    assert (np.where(rows == 0, predictions, 0).max(1) <= smallest).all()
    size = sum(file.size_bytes for file in prediction_files(tmp_path))
    assert size < predictions.nbytes / 5


def test_a_rank_without_samples_leaves_nothing(tmp_path: Path) -> None:
    kept = written(tmp_path, probabilities(2, 4), ranks=3)
    assert len(prediction_files(tmp_path)) == 6  # two of them empty arrays
    assert len(kept) == 2


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    written(tmp_path, probabilities(9, 4))
    files = prediction_files(tmp_path)
    path = tmp_path / files[0].file
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FolderError, match="its hash differs"):
        KeptPredictions.open(tmp_path, files)


def test_samples_that_are_missing_are_refused(tmp_path: Path) -> None:
    predictions = probabilities(4, 3)
    write_predictions(tmp_path, 0, np.array([0, 1, 3, 3]), predictions, [])
    with pytest.raises(FolderError, match="one prediction per sample"):
        KeptPredictions.open(tmp_path, prediction_files(tmp_path))


def test_a_second_model_shares_all_but_its_predictions(tmp_path: Path) -> None:
    tables = []
    for number in range(2):
        directory = tmp_path / str(number)
        directory.mkdir()
        tables.append(written(directory, probabilities(20, 10, seed=number), ranks=2))
    second = tables[1].sharing_arrays(tables[0])
    assert np.array_equal(second.rows(0, 20), tables[1].rows(0, 20))
    for name in ("_part", "_row"):
        assert getattr(second, name) is getattr(tables[0], name)
    assert second.truth is tables[0].truth


def test_models_that_were_judged_by_other_samples_are_not_put_together(tmp_path: Path) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    first.mkdir()
    other.mkdir()
    write_predictions(other, 0, np.arange(9), probabilities(9, 4), [np.zeros(9), np.zeros((9, 2))])
    with pytest.raises(FolderError, match="evaluated on different samples"):
        KeptPredictions.open(other, prediction_files(other)).sharing_arrays(
            written(first, probabilities(9, 4))
        )


def test_more_models_than_a_process_may_have_files_open(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    table = np.eye(4, dtype=np.float32)
    write_predictions(tmp_path, 0, np.arange(4), table, [np.arange(4)])
    files = prediction_files(tmp_path)
    now_open = sum(1 for _ in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (now_open + 20, hard))
    try:
        models = [KeptPredictions.open(tmp_path, files) for _ in range(60)]
        assert all(np.array_equal(model.rows(1, 3), table[1:3]) for model in models)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
