"""A search as fixed work: the recorded settings and epochs, no search, no early stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from automl_parts import DATA, candidate, settings, trained, turn
from automl_runs import essence, replayed, results, searched

from conftest import Vflops
from vflops.automl.replay import Replayed, SearchLedger, _check_parents
from vflops.config.settings import workload_settings
from vflops.errors import FolderError, UsageError
from vflops.workloads.automl.settings import AutomlSettings


def ledger(**facts: Any) -> SearchLedger:
    """Two candidates, the second a child of the first that stopped early."""
    first, second = turn(0, 0), turn(2, 0)
    rows = (
        Replayed(candidate=candidate(first), trained=trained(first.name, 0.5)),
        Replayed(
            candidate=candidate(second, parent=first.name, epochs=9, patience=2),
            trained=trained(second.name, 0.6, epochs=4, reason="patience", inherited=True),
        ),
    )
    usual: dict[str, Any] = {
        "run": "one",
        "profile": "tiny",
        "seed": 7,
        "workers": 3,
        "settings": settings(workers=3, candidates=5, order="free").model_dump(mode="json"),
        "data_fingerprint": DATA.fingerprint,
        "left_out": 1,
        "candidates": rows,
    }
    return SearchLedger(**(usual | facts))


def test_fixed_work_trains_the_recorded_epochs_under_the_recorded_schedule() -> None:
    one, two = ledger().fixed_work()
    assert (one.epochs, one.end_epoch, one.patience) == (2, 2, None)
    assert (two.epochs, two.end_epoch, two.patience) == (9, 4, None)
    assert two.parent == one.turn.name


def test_a_replay_has_the_settings_of_the_search_but_its_end_and_workers(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    ledger().write(path)
    found = SearchLedger.find(tmp_path)
    flags = {"search.workers": 2, "train.ranks": None}
    chosen = found.replay_settings(tmp_path, flags, ["launch.bind=false"])
    assert chosen.seed == 7 and not chosen.launch.bind
    section = workload_settings(chosen)["automl"]
    assert isinstance(section, AutomlSettings)
    own = settings(workers=3, candidates=5, order="free")
    changed = {"workers": 2, "candidates": None, "duration_s": 30 * 86400.0}
    search = own.search.model_copy(update={**changed, "ledger": str(path.resolve())})
    assert section == own.model_copy(update={"search": search})


def test_a_ledger_that_is_not_there_or_not_one_is_refused(vflops: Vflops, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"holds no ledger\.json"):
        SearchLedger.find(tmp_path)
    with pytest.raises(FolderError, match="does not exist"):
        SearchLedger.find(tmp_path / "gone.json")
    torn = tmp_path / "ledger.json"
    torn.write_text('{"schema": "vflops.ledger/1", "run": ')
    done = vflops("replay", torn)
    assert done.returncode == 2 and "ledger.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_ledger_without_candidates_or_with_other_data_is_refused(
    vflops: Vflops, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.json"
    ledger(candidates=()).write(path)
    done = vflops("replay", path)
    assert done.returncode == 2 and "holds no candidate that was trained" in done.stderr
    ledger().write(path)
    done = vflops("replay", path, "--workers", "1")
    assert done.returncode == 2 and "not the data that one searched with" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_child_whose_parent_is_not_in_the_ledger_is_refused() -> None:
    first, second = ledger().candidates
    _check_parents([first, second])
    with pytest.raises(UsageError, match="r00002-w00000 starts from r00000-w00000"):
        _check_parents([second])
    new = second.trained.model_copy(update={"inherited": False})
    _check_parents([second.model_copy(update={"trained": new})])


def test_a_candidate_that_stopped_early_is_replayed_to_that_epoch_with_the_same_rates(
    tmp_path: Path,
) -> None:
    """Equal weights after steps whose rates fall: the rates were equal too."""
    many = ("train.epochs=40", "search.candidates=1", "train.learning_rate=1e-4")
    folder = searched(tmp_path, *many)
    (before,) = results(folder).values()
    assert before.reason == "patience" and before.epochs < 10
    again = replayed(tmp_path, folder.path)
    (after,) = results(again).values()
    assert (after.epochs, after.accuracy, after.weights_sha256) == (
        before.epochs,
        before.accuracy,
        before.weights_sha256,
    )
    assert after.reason == "epochs"
    assert essence(again) == essence(folder)
    steps = [run.history().events("finished")[-1].data["step"] for run in (folder, again)]
    assert steps[0] == steps[1] == 4 * before.epochs
