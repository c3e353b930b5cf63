"""A ranking whose publisher requires challenges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.publish.evidence.test_ssh_signature import make_key
from tests.support.challenged_runs import CHALLENGE, answer
from tests.support.forged_runs import Forger
from tests.support.ranking_runs import Submitted, submit
from tests.support.ssh_keygen import needs_ssh_keygen
from vflops.publish.evidence.challenges import NAMESPACE, sign_challenge
from vflops.publish.evidence.sign_run import allowed_line, sign_run
from vflops.publish.ranking.judge import TrustedKeys, verdict_context
from vflops.publish.ranking.ranking_document import ranking_document
from vflops.publish.ranking.static_site import build
from vflops.record.folder import RunFolder
from vflops.record.formats.challenge import Challenge, ChallengedRun
from vflops.results.evidence.manifest import write_manifest

pytestmark = needs_ssh_keygen


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of a keeper and two submitters, and the lists of a publisher who knows all three."""
    folder = tmp_path_factory.mktemp("keys")
    alice, bob, keeper = (make_key(folder / name) for name in ("alice", "bob", "keeper"))
    (folder / "signers").write_text(f"{allowed_line(alice)}\n{allowed_line(bob)}\n")
    (folder / "keepers").write_text(f"{allowed_line(keeper, NAMESPACE)}\n")
    return folder


@pytest.fixture(scope="module")
def issued(keys: Path) -> Challenge:
    """A challenge for Alice."""
    return sign_challenge(CHALLENGE, keys / "keeper")[0]


def answering(
    parent: Path, issued: Challenge, key: Path, digit: int, *, number: int = 1, quality: float = 0.9
) -> RunFolder:
    """A signed submission that answers the challenge."""
    id = f"20260101T000000Z-image-classification-00000{digit}"
    folder = submit(parent, replace(Submitted(), id=id, quality=quality))
    forger = Forger(folder.path)
    answer(forger, ChallengedRun(issued=issued, number=number))
    folder.manifest_file.unlink()
    folder = forger.sealed()
    write_manifest(folder)
    sign_run(folder, key)
    return folder


def test_only_answers_to_a_challenge_of_the_keeper_rank(
    tmp_path: Path, keys: Path, issued: Challenge
) -> None:
    runs, alice, bob = tmp_path / "runs", keys / "alice", keys / "bob"
    answering(runs / "a", issued, alice, 1)
    answering(runs / "b", issued, alice, 2)
    answering(runs / "c", issued, alice, 3, number=2, quality=0.76)
    answering(runs / "d", issued, bob, 4, number=3)
    forged = issued.model_copy(update={"submitter": "bob@example.org"})
    answering(runs / "e", forged, bob, 5)
    other = Submitted(id="20260101T000000Z-image-classification-000006")
    sign_run(submit(runs / "f", other), alice)
    trusted = TrustedKeys(keys / "signers", keys / "keepers")
    built = build([runs], tmp_path / "site", trusted=trusted)
    assert [(row.entry.place[0], row.rank) for row in built.ranking.ranked] == [("a", 1), ("c", 2)]
    text = "challenged by keeper@example.org on 2025-12-31"
    assert [row.entry.challenge and row.entry.challenge.text for row in built.ranking.ranked] == [
        text,
        text,
    ]
    reasons = {row.entry.place[0]: "; ".join(row.reasons) for row in built.ranking.unranked}
    assert reasons["b"].startswith("run 1 of its challenge is that of a/")
    assert reasons["d"] == (
        "its challenge was issued to alice@example.org, but bob@example.org signed it"
    )
    assert "rule challenge: run.json: the challenge is not accepted" in reasons["e"]
    assert "rule challenge: run.json: the run answers no challenge" in reasons["f"]
    page = built.index.read_text()
    assert text in page
    systems = [path.read_text() for path in (tmp_path / "site" / "systems").iterdir()]
    assert sum(text in system for system in systems) == 1
    (performance,) = ranking_document(built.ranking, built.energy).performance.lists
    assert [result.challenge for result in performance.results] == [text, text]


def test_without_keepers_answers_and_other_runs_are_in_one_list(
    tmp_path: Path, keys: Path, issued: Challenge
) -> None:
    runs = tmp_path / "runs"
    answering(runs / "a", issued, keys / "alice", 1)
    submit(runs / "b", Submitted(id="20260101T000000Z-image-classification-000002", quality=0.76))
    built = build([runs], tmp_path / "site")
    assert [(row.rank, row.entry.challenge) for row in built.ranking.ranked] == [
        (1, None),
        (2, None),
    ]


def test_other_keepers_judge_anew(keys: Path) -> None:
    lists = [None, keys / "signers", keys / "keepers"]
    contexts = {
        verdict_context(TrustedKeys(signers, keepers)) for signers in lists for keepers in lists
    }
    assert len(contexts) == 9
