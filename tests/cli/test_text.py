"""The data commands draw, check, pack and verify text, and say what is wrong with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command

from tests.support.data_text import bin_folder, text_folder
from vflops.cli import application
from vflops.data.text.check_text import TextReport
from vflops.data.text.packed_text import PackedText
from vflops.errors import CheckFailed, UsageError

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


def data(command: str) -> None:
    """Run a data command in this process."""
    get_command(application(["data"]))(["data", *command.split()], standalone_mode=False)


def test_text_from_drawing_to_verifying(tmp_path: Path, vflops: Vflops) -> None:
    sizes = ("--vocabulary", 64, "--train", 20_000, "--val", 100)
    made = vflops("data", "synth", "language-model", "drawn", *sizes)
    assert made.returncode == 0, made.stderr
    assert "drawn: 32,768 tokens for training, 16,384 for validation" in made.stdout
    assert "best possible loss  1.5297 nats per token" in made.stdout
    assert "next: vflops data check drawn" in made.stderr
    checked = vflops("data", "check", "drawn")
    assert checked.returncode == 0, checked.stderr
    assert "largest token  63; vocabulary  64" in checked.stdout
    assert "next: vflops data pack drawn" in checked.stderr
    packed = vflops("data", "pack", "drawn")
    assert packed.returncode == 0, packed.stderr
    assert "vocabulary  64 tokens of synthetic" in packed.stdout
    text = PackedText.open(tmp_path / "drawn-packed-tokens")
    assert text.index.synthetic
    verified = vflops("data", "verify", "drawn-packed-tokens")
    assert verified.returncode == 0, verified.stderr
    assert text.fingerprint in verified.stdout and text.contents["val"] in verified.stdout
    assert "vflops run language-model --data drawn-packed-tokens" in verified.stderr


def test_a_report_is_printed_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text_folder(tmp_path / "text", 25)
    data("check text --json --workers 1")
    report = TextReport.parse(json.loads(capsys.readouterr().out), tmp_path)
    assert report.ok and report.unit == "bytes" and report.files == 25
    assert sum(split.documents for split in report.splits.values()) == 25


def test_faults_have_the_exit_code_of_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text_folder(tmp_path / "text")
    (tmp_path / "text" / "z.txt").write_bytes(b"ab\xfe")
    with pytest.raises(CheckFailed, match=r"z\.txt: byte 2 \(0xfe\) is not UTF-8") as caught:
        data("check text --workers 1")
    assert "--policy skip" in str(caught.value.hint)
    shard = bin_folder(tmp_path / "bin") / "fw_val_000000.bin"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(CheckFailed, match="is truncated or damaged"):
        data("check bin --workers 1")
    with pytest.raises(UsageError, match="is truncated or damaged"):
        data("pack bin --workers 1")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("pack text --short-side 4", "--short-side only applies to images, but text holds text"),
        ("pack text --layout raw", "--layout only applies to years of climate fields"),
        ("pack text --vocabulary 300", "--vocabulary only applies to tokens"),
        ("pack bin --tokenizer bytes", "--tokenizer only applies to text, but bin holds tokens"),
        ("check bin --separator x", "--separator only applies to text"),
        ("pack text --tokenizer gpt2.json", "cannot read the tokenizer gpt2.json"),
        ("pack text --validation 2", "the share for validation is 2"),
        ("pack bin --vocabulary 70000", "a vocabulary of 70,000 tokens does not fit the shards"),
        ("check none", "none does not exist"),
        ("synth language-model new --vocabulary 10", "vocabulary is 10"),
        ("synth language-model text", "text exists and is not empty"),
    ],
)
def test_wrong_use_is_one_line_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text_folder(tmp_path / "text")
    bin_folder(tmp_path / "bin")
    with pytest.raises(UsageError) as caught:
        data(command)
    assert says in caught.value.message and caught.value.hint


def test_a_separator_may_be_written_with_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "one.txt").write_text("\n\n".join(f"part {n}" for n in range(200)))
    data(r"pack text packed --separator \n\n --validation 0.2 --workers 1")
    longest = len("part 199") + 1  # with its separator
    assert f"documents, the longest of {longest} tokens, in 1 shard" in capsys.readouterr().out
    splits = PackedText.open(tmp_path / "packed").index.splits
    assert splits["train"].documents + splits["val"].documents == 200
