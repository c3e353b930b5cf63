"""Ledgers that no search wrote are refused with what is wrong in them, before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.automl_parts import candidate, settings, trained, turn
from vflops.errors import FolderError
from vflops.workloads.automl.replay import ReplayedCandidate, SearchLedger
from vflops.workloads.automl.search_events import Candidate, CandidateTrained, Hyperparameters

ONE, TWO, THREE = turn(0, 0), turn(2, 0), turn(1, 1)


def rows(
    changed: Callable[[str, Candidate, CandidateTrained], tuple[dict[str, Any], dict[str, Any]]],
) -> tuple[ReplayedCandidate, ...]:
    """A family of three, the last a child of a later turn, as a free search may have it."""
    found = []
    for at, parent in ((ONE, None), (TWO, ONE.name), (THREE, TWO.name)):
        proposed = candidate(at, parent=parent, epochs=9)
        result = trained(at.name, 0.5, epochs=4, inherited=parent is not None)
        one, two = changed(at.name, proposed, result)
        proposed, result = proposed.model_copy(update=one), result.model_copy(update=two)
        found.append(ReplayedCandidate(candidate=proposed, trained=result, samples=2048, ops=1))
    return tuple(found)


def ledger(folder: Path, changes: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> Path:
    """A ledger in which some candidates and results are other than they were."""
    path = folder / "ledger.json"
    SearchLedger(
        run="one",
        profile="tiny",
        seed=7,
        workers=2,
        settings=settings().model_dump(mode="json"),
        data_fingerprint="f" * 64,
        left_out=0,
        reasons={},
        candidates=rows(lambda name, *_: changes.get(name, ({}, {}))),
    ).write(path)
    return path


@pytest.mark.parametrize(
    ("name", "proposed", "result", "said"),
    [
        (ONE.name, {"parent": THREE.name}, {}, f"{ONE.name} is its own ancestor"),
        (TWO.name, {"parent": TWO.name}, {}, f"{TWO.name} is its own ancestor"),
        (TWO.name, {"parent": "r00009-w00000"}, {}, "starts from r00009-w00000, which is missing"),
        (ONE.name, {"turn": TWO}, {}, "contains a candidate twice"),
        (ONE.name, {}, {"candidate": TWO.name}, f"{ONE.name} has the result of {TWO.name}"),
        (ONE.name, {}, {"epochs": -3}, r"trained\.epochs: input should be"),
        (ONE.name, {"epochs": -3}, {}, r"candidate\.epochs: input should be"),
        (ONE.name, {}, {"epochs": 10}, "trained for 10 of 9 epochs"),
        (
            ONE.name,
            {"hyper": Hyperparameters.model_construct(batch=0)},
            {},
            r"hyper\.batch: input should be",
        ),
    ],
)
def test_what_no_search_trained_is_refused(
    tmp_path: Path, name: str, proposed: dict[str, Any], result: dict[str, Any], said: str
) -> None:
    assert len(SearchLedger.find(ledger(tmp_path, {})).candidates) == 3
    with pytest.raises(FolderError, match=said) as caught:
        SearchLedger.find(ledger(tmp_path, {name: (proposed, result)}))
    assert str(tmp_path) in caught.value.message and caught.value.hint


def test_settings_without_a_search_are_refused(tmp_path: Path) -> None:
    path = ledger(tmp_path, {})
    found = SearchLedger.read(path)
    found.model_copy(update={"settings": {"train": {}}}).write(path)
    with pytest.raises(FolderError, match="no search section"):
        SearchLedger.find(path)
