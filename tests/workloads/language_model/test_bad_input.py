"""Wrong settings and damaged text of a language model: one line that names the value and a hint."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.data_text import bin_folder, text_folder, write_bin
from vflops.cli import main
from vflops.data.text.floor import floor_of_recipe
from vflops.data.text.pack_text import TextPacking, pack
from vflops.data.text.packed_text import PackedText
from vflops.data.text.synthetic_text import write_folder
from vflops.data.text.text_folder import TextFolder
from vflops.data.text.text_recipe import BLOCK_TOKENS, TextRecipe
from vflops.data.text.tokenizer import TextTokenizer
from vflops.errors import FolderError, UsageError
from vflops.record.formats.job import DataFacts
from vflops.run import jobs
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import load, profile
from vflops.workloads.language_model.expected import expected
from vflops.workloads.language_model.settings import LanguageSettings
from vflops.workloads.language_model.workload import LanguageModel


def tiny(*changes: str) -> LanguageSettings:
    settings = load(profile("tiny", ["language-model"]), None, list(changes))
    return LanguageSettings.model_validate(settings.workloads["language-model"])


def prepared(data: Path, *changes: str) -> DataFacts:
    own = [f"data={data}", "target=0.1", "train.batch=4", *changes]
    return LanguageModel.prepare_data(tiny(*own), lambda *_: None)


@pytest.mark.parametrize(
    ("changes", "says", "hint"),
    [
        (["network.heads=5"], "width 64 cannot be divided into 5 heads: the nearest width", None),
        (
            ["network.experts=4", "network.capacity=0"],
            "network.capacity = 0: input should be greater than 0",
            "leave it out for the profile's 1.25",
        ),
        (
            ["network.experts=4", "network.capacity=1e-5"],
            "capacity 1e-05 gives each expert less than 0.01 of its share of an even distribution, "
            "so nearly all tokens would skip their experts: use 0.01 or more",
            None,
        ),
        (
            ["network.heads=8", "network.kv_heads=3"],
            "8 heads cannot share 3 heads of keys and values evenly: use a divisor of heads",
            None,
        ),
        (
            ["synthetic.vocabulary=2000000"],
            "synthetic.vocabulary = 2000000: input should be less than or equal to 1048576",
            "leave it out",
        ),
        (["context=0"], "context = 0: input should be greater than or equal to 1", "leave it out"),
    ],
)
def test_impossible_settings_are_named(changes: list[str], says: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        tiny(*changes)
    assert says in caught.value.message
    if hint is not None:
        assert hint in str(caught.value.hint)


def test_text_that_is_not_utf8_is_named_with_the_setting_that_skips_it(tmp_path: Path) -> None:
    text_folder(tmp_path, 60)
    (tmp_path / "z.txt").write_bytes(b"ab\xfe")
    with pytest.raises(UsageError, match=r"z\.txt: byte 2 \(0xfe\) is not UTF-8") as caught:
        prepared(tmp_path, "held_out=0.2")
    assert "--set unreadable=skip" in str(caught.value.hint)
    assert prepared(tmp_path, "held_out=0.2", "unreadable=skip").skipped == 1


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    shard = bin_folder(tmp_path) / "fw_train_000002.bin"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(UsageError, match=r"fw_train_000002\.bin.* is truncated or damaged"):
        prepared(tmp_path)


def test_changed_bytes_of_packed_text_are_found_before_training(tmp_path: Path) -> None:
    packing = TextPacking(TextTokenizer.open("bytes"), 0.2)
    pack(TextFolder.open(text_folder(tmp_path / "text", 60)), tmp_path / "packed", packing)
    shard = tmp_path / "packed" / "train-00000.bin"
    data = bytearray(shard.read_bytes())
    data[1000] ^= 1
    shard.write_bytes(data)
    with pytest.raises((UsageError, FolderError), match=r"train-00000\.bin"):
        prepared(tmp_path / "packed")


def test_raw_shards_have_the_vocabulary_of_their_header_or_of_the_settings(tmp_path: Path) -> None:
    for name, tokens in (("a_train.bin", 5000), ("a_val.bin", 1000)):
        write_bin(tmp_path / name, np.arange(tokens) % 300)
    assert prepared(tmp_path).facts["vocabulary"] == 50_257
    assert prepared(tmp_path, "vocabulary=300").facts["vocabulary"] == 300
    with pytest.raises(UsageError, match=r"token 299 is 299, but the vocabulary has 299") as caught:
        prepared(tmp_path, "vocabulary=299")
    assert "--set vocabulary=N" in str(caught.value.hint)


def test_a_plan_reads_the_headers_of_raw_shards(tmp_path: Path) -> None:
    own = [f"data={bin_folder(tmp_path)}", "target=0.1", "vocabulary=50300"]
    data = expected(tiny(*own))
    assert data is not None
    found = data.facts
    assert (found.train, found.validation) == (60_000 // 64, 16_999 // 64)
    assert found.facts["vocabulary"] == 50_300


def test_a_plan_of_raw_shards_says_that_their_tokens_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = bin_folder(tmp_path / "data")
    words = ["vflops", "plan", "language-model", "--profile", "tiny", "--data", str(shards)]
    words += ["--set", "target=0.1", "--set", "vocabulary=100"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "note only the headers of the shards were read, not their tokens" in said
    assert "refuses tokens of 100 or more" in said and "--vocabulary 100" in said


def test_exported_synthetic_text_records_its_recipe(tmp_path: Path) -> None:
    recipe = TextRecipe(vocabulary=80, seed=3)
    write_folder(recipe, tmp_path / "out", BLOCK_TOKENS, BLOCK_TOKENS)
    facts = prepared(tmp_path / "out").facts
    assert TextRecipe.from_facts(facts) == recipe
    predicted = (BLOCK_TOKENS - 1) // 64 * 64
    assert facts["floor"] == floor_of_recipe(recipe, "val", predicted).loss
    drawn = LanguageModel.prepare_data(tiny(), lambda *_: None).facts  # the settings have it
    assert "floor" in drawn and TextRecipe.from_facts(drawn) is None


SHARDS, TEXT = "shards", "text"


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    ("data", "settings", "message", "hint"),
    [
        (
            SHARDS,
            ["vocabulary=70000"],
            "a vocabulary of 70,000 tokens does not fit the shards of",
            "2 to 65,536: --set vocabulary=N",
        ),
        (None, ["vocabulary=70"], "vocabulary = 70 is for .bin shards", "synthetic.vocabulary=70"),
        (TEXT, ["vocabulary=70"], "vocabulary = 70 is for .bin shards", "leave it out"),
        (None, ["context=300000"], "too few for one window of 300,000", "context of at most"),
        (None, ["target=0.5"], "target 0.5 is a loss of 0.6931, below the floor", "target=0.21"),
        (None, ["network.heads=5"], "width 64 cannot be divided into 5 heads", "width that can"),
        (None, ["network.capacity=0"], "network.capacity = 0: input should be greater", "leave it"),
    ],
)
def test_the_command_line_says_what_is_wrong_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    data: str | None,
    settings: list[str],
    message: str,
    hint: str,
) -> None:
    words = ["vflops", command, "language-model", "--profile", "tiny"]
    if data is not None:
        folder = tmp_path / "data"
        own = bin_folder(folder) if data == SHARDS else text_folder(folder)
        words += ["--data", str(own), "--set", "target=0.1"]
    monkeypatch.setattr(sys, "argv", [*words, *(w for s in settings for w in ("--set", s))])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == UsageError.exit_code == 2
    said = capsys.readouterr().err
    assert message in said and hint in said and "Traceback" not in said
    lines = [line for line in said.splitlines() if not line.startswith(("run  ", "time "))]
    assert len(lines) <= 3  # what is being done, the error, the hint
    assert not (tmp_path / "runs").exists()


def test_only_reading_text_that_is_not_tokenized_tells_its_tokens(tmp_path: Path) -> None:
    assert expected(tiny(f"data={text_folder(tmp_path)}", "target=0.1")) is None


def test_a_context_longer_than_every_document_spans_documents(tmp_path: Path) -> None:
    text_folder(tmp_path, 60)
    longest = max(path.stat().st_size for path in tmp_path.iterdir())
    facts = prepared(tmp_path, "held_out=0.3", f"context={2 * longest}")
    windows = PackedText.open(Path(facts.path)).split("train").tokens - 1
    assert facts.train == windows // (2 * longest)


def test_a_plan_and_a_run_say_that_no_document_fills_the_context(tmp_path: Path) -> None:
    text = text_folder(tmp_path / "text", 60)
    longest = max(path.stat().st_size for path in text.iterdir()) + 1  # with its separator
    packing = TextPacking(TextTokenizer.open("bytes"), 0.3)
    pack(TextFolder.open(text), tmp_path / "packed", packing)
    spec = workload("language-model")
    for context, count in ((longest, 0), (longest + 1, 1)):
        own = [f"data={tmp_path / 'packed'}", "target=0.1", "train.batch=4", f"context={context}"]
        data = expected(tiny(*own))
        assert data is not None
        planned = data.remarks
        facts = LanguageModel.prepare_data(tiny(*own), lambda *_: None)
        warnings = jobs.data_warnings([jobs.PreparedWorkload(spec, tiny(*own), facts)])
        assert len(planned) == len(warnings) == count
    assert planned[0].startswith(
        f"the context of {longest + 1:,} tokens is longer than every document; the longest has "
        f"{longest:,} tokens"
    )
    assert warnings == [f"language-model: {planned[0]}"]


def test_a_context_longer_than_the_text_is_refused(tmp_path: Path) -> None:
    text_folder(tmp_path, 60)
    with pytest.raises(UsageError, match=r"too few for one window of 100,000 tokens") as caught:
        prepared(tmp_path, "held_out=0.3", "context=100000")
    assert "use a context of at most" in str(caught.value.hint)
    assert f"train in {tmp_path.resolve()} has" in caught.value.message  # not the cache


def test_the_reference_without_data_says_where_to_get_it() -> None:
    settings = workload("language-model").profile("reference")
    with pytest.raises(UsageError, match="synthetic tokens would take") as caught:
        LanguageModel.prepare_data(settings, lambda *_: None)
    assert "docs/how-to/data.md" in str(caught.value.hint)
