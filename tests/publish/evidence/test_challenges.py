"""Challenges of the keeper of a list: issued, signed, and recognised by whoever knows the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.publish.evidence.test_ssh_signature import make_key
from tests.support.ssh_keygen import needs_ssh_keygen
from vflops.cli import application
from vflops.errors import CheckFailed, UsageError
from vflops.publish.evidence.challenges import (
    NAMESPACE,
    challenge_signature,
    demand,
    issue,
    read_challenge,
)
from vflops.publish.evidence.sign_run import allowed_line
from vflops.record.folder import RunFolder
from vflops.record.formats.challenge import Challenge, ChallengedRun

pytestmark = needs_ssh_keygen


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("keys") / "keeper")


@pytest.fixture(scope="module")
def issued(keeper: Path) -> Challenge:
    return issue("alice@example.org", valid_s=3600, key=keeper)[0]


@pytest.fixture
def signers(tmp_path: Path, keeper: Path) -> Path:
    path = tmp_path / "keepers"
    path.write_text(f"{allowed_line(keeper, NAMESPACE)}\n")
    return path


def test_a_challenge_is_known_by_its_keeper(
    tmp_path: Path, issued: Challenge, signers: Path, keeper: Path
) -> None:
    assert issued.expires_s - issued.issued_s == 3600
    assert challenge_signature(issued, signers).signer == "keeper@example.org"
    other, _ = issue("alice@example.org", key=keeper)
    assert other.expires_utc is None
    assert other.nonce != issued.nonce
    issued.write(tmp_path / "challenge.json")
    read, signature = read_challenge(tmp_path / "challenge.json")
    assert read == issued
    assert signature.startswith("signed by ED25519 key SHA256:")


@pytest.mark.parametrize(
    "change", [{"submitter": "bob@example.org"}, {"expires_utc": None}, {"nonce": "0" * 64}]
)
def test_a_changed_challenge_is_refused(
    tmp_path: Path, issued: Challenge, signers: Path, change: dict[str, str | None]
) -> None:
    changed = issued.model_copy(update=change)
    assert not challenge_signature(changed, signers).good
    changed.write(tmp_path / "challenge.json")
    with pytest.raises(UsageError, match="was changed since it was signed"):
        read_challenge(tmp_path / "challenge.json")


def test_a_key_that_may_sign_runs_may_not_issue_challenges(
    tmp_path: Path, issued: Challenge, keeper: Path, run_folder: RunFolder
) -> None:
    path = tmp_path / "signers"
    path.write_text(f"{allowed_line(keeper)}\n")
    assert challenge_signature(issued, path).signer is None
    challenge = ChallengedRun(issued=issued, number=1)
    record = run_folder.record.model_copy(update={"challenge": challenge})
    wanted = demand(record, path, 5.0)
    assert (wanted.keeper, wanted.received_s) == (None, 5.0)
    assert "signers:1 does not allow" in wanted.signature
    with pytest.raises(UsageError, match="nowhere does not exist"):
        demand(run_folder.record, tmp_path / "nowhere")


def test_without_ssh_keygen_a_run_can_answer_and_nobody_can_issue(
    tmp_path: Path, issued: Challenge, keeper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    issued.write(tmp_path / "challenge.json")
    assert "cannot be checked here" in read_challenge(tmp_path / "challenge.json")[1]
    with pytest.raises(UsageError, match="ssh-keygen, which signs"):
        issue("alice@example.org", key=keeper)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "vflops.run/3"}', "\0"])
def test_a_file_that_is_not_a_challenge_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(UsageError) as refused:
        read_challenge(tmp_path / "file")
    assert refused.value.hint == "ask the keeper of the list for the file again"


def test_the_commands_issue_and_require_a_challenge(
    tmp_path: Path, keeper: Path, run_folder: RunFolder
) -> None:
    def vflops(*words: str) -> Any:
        return CliRunner().invoke(application(words), words)

    file = tmp_path / "alice.json"
    options = ("--for", "alice@example.org", "--key", str(keeper), "--out", str(file))
    line = f"{allowed_line(keeper, NAMESPACE)}\n"
    assert line in vflops("challenge", *options).stdout
    assert json.loads(file.read_text())["submitter"] == "alice@example.org"
    assert "already exists" in str(vflops("challenge", *options).exception)
    (tmp_path / "keepers").write_text(line)
    check, required = (
        ("check", str(run_folder.path)),
        ("--challenge-signers", f"{tmp_path}/keepers"),
    )
    checked = vflops(*check, *required)
    assert isinstance(checked.exception, CheckFailed)
    assert "answers no challenge, but one is required" in " ".join(checked.stdout.split())
    stored = json.loads(run_folder.findings_file.read_text())["findings"]
    assert {f["verdict"] for f in stored if f["rule"] == "challenge"} == {"not applicable"}
    assert isinstance(vflops(*check, "--received", "2026-01-01").exception, UsageError)
    assert "not a time" in str(vflops(*check, *required, "--received", "soon").exception)
