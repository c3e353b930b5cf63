"""A search as fixed work: the recorded settings and epochs, no search, no early stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.automl_parts import DATA, candidate, settings, trained, turn
from tests.support.automl_runs import essence, replayed, results, searched
from tests.support.sample_parts import Vflops
from vflops.errors import FolderError, UsageError
from vflops.workloads.automl.replay import ReplayedCandidate, SearchLedger
from vflops.workloads.automl.search_events import Hyperparameters
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.workload import Automl
from vflops.workloads.contract.run_settings import workload_settings


def ledger(**facts: Any) -> SearchLedger:
    """Two candidates, the second a child of the first that stopped early."""
    first, second = turn(0, 0), turn(2, 0)
    rows = (
        ReplayedCandidate(
            candidate=candidate(first), trained=trained(first.name, 0.5), samples=1024, ops=1
        ),
        ReplayedCandidate(
            candidate=candidate(second, parent=first.name, epochs=9, patience=2),
            trained=trained(second.name, 0.6, epochs=4, reason="patience", inherited=True),
            samples=2048,
            ops=2,
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
        "reasons": {"r00003-w00000": "the time was up"},
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
    with pytest.raises(FolderError, match=r"contains no ledger\.json"):
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
    assert done.returncode == 2 and "contains no trained candidate" in done.stderr
    assert "a longer --for" in done.stderr
    ledger().write(path)
    done = vflops("replay", path, "--workers", "1")
    assert done.returncode == 2 and "not the data that one searched with" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "change",
    [
        "train.learning_rate=0.5",
        "train.epochs=9",
        "train.ghosts=2",
        "search.candidates=1",
        "search.duration_s=5",
        "seed=8",
    ],
)
def test_a_replay_refuses_what_would_be_other_work(tmp_path: Path, change: str) -> None:
    ledger().write(tmp_path / "ledger.json")
    with pytest.raises(UsageError, match="and a replay must do the same work") as caught:
        ledger().replay_settings(tmp_path, {}, [change])
    assert caught.value.message.startswith(change.partition("=")[0])


def test_a_replay_takes_another_machine_and_precision(tmp_path: Path) -> None:
    ledger().write(tmp_path / "ledger.json")
    given = ["train.precision=mixed-bf16", "telemetry.interval_s=2", "train.device=cpu"]
    chosen = ledger().replay_settings(tmp_path, {"train.ranks": 2}, given)
    train = chosen.workloads["automl"]["train"]
    assert (train["precision"], train["ranks"]) == ("mixed-bf16", 2)


@pytest.mark.parametrize(
    ("ranks", "accumulate", "hint"),
    [(4, 1, "--ranks 2"), (2, 2, "--ranks 1"), (1, 4, "train.accumulate=1")],
)
def test_ranks_that_cannot_share_a_recorded_batch_are_refused_before_the_start(
    tmp_path: Path, ranks: int, accumulate: int, hint: str
) -> None:
    """The batch of the settings can be shared, that of a candidate cannot: no rank may find out."""
    one, two = ledger().candidates
    odd = two.candidate.model_copy(update={"hyper": Hyperparameters(batch=18)})
    found = ledger(candidates=(one, two.model_copy(update={"candidate": odd})))
    shared = settings().train.model_copy(update={"ranks": ranks, "accumulate": accumulate})
    asked = settings().model_copy(update={"train": shared})
    with pytest.raises(UsageError, match="r00002-w00000 has a batch of 18") as caught:
        found.check_batches(asked)
    assert hint in (caught.value.hint or "")
    found.check_batches(settings())
    found.write(tmp_path / "ledger.json")
    search = asked.search.model_copy(update={"ledger": str(tmp_path)})
    with pytest.raises(UsageError, match="batch of 18"):  # before any data is made
        Automl.prepare_data(asked.model_copy(update={"search": search}), lambda *_: None)


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
