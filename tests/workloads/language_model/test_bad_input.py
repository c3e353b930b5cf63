"""Wrong settings and damaged text of a language model: one line that names the value and a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.data_text import bin_folder, text_folder
from vflops.data.text.pack_text import TextPacking, pack
from vflops.data.text.packed_text import PackedText
from vflops.data.text.text_folder import TextFolder
from vflops.data.text.tokenizer import TextTokenizer
from vflops.errors import FolderError, UsageError
from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import load, profile
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
            ["network.experts=4", "network.capacity=-1"],
            "network.capacity = -1: input should be greater than 0",
            "leave it out for the profile's 1.25",
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


def test_a_vocabulary_beyond_the_type_of_the_shards_is_refused(tmp_path: Path) -> None:
    from vflops.data.text.bin_shards import BinFolder

    with pytest.raises(UsageError, match="70,000 tokens does not fit the shards") as caught:
        BinFolder.open(bin_folder(tmp_path), vocabulary=70_000)
    assert "2 to 65,536" in str(caught.value.hint)


def test_a_context_longer_than_every_document_spans_documents(tmp_path: Path) -> None:
    text_folder(tmp_path, 60)
    longest = max(path.stat().st_size for path in tmp_path.iterdir())
    facts = prepared(tmp_path, "held_out=0.3", f"context={2 * longest}")
    windows = PackedText.open(Path(facts.path)).split("train").tokens - 1
    assert facts.train == windows // (2 * longest)


def test_a_context_longer_than_the_text_is_refused(tmp_path: Path) -> None:
    text_folder(tmp_path, 60)
    with pytest.raises(UsageError, match=r"too few for one window of 100,000 tokens") as caught:
        prepared(tmp_path, "held_out=0.3", "context=100000")
    assert "use a context of at most" in str(caught.value.hint)


def test_the_reference_without_data_says_where_to_get_it() -> None:
    settings = workload("language-model").profile("reference")
    with pytest.raises(UsageError, match="synthetic tokens would take") as caught:
        LanguageModel.prepare_data(settings, lambda *_: None)
    assert "docs/how-to/data.md" in str(caught.value.hint)
