"""Tokens as text for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.data_text import bin_folder
from vflops.data.text import synthetic_text
from vflops.data.text.bin_shards import BinFolder
from vflops.data.text.index_shards import linked_shards
from vflops.data.text.pack_text import TextPacking, pack
from vflops.data.text.packed_text import PackedText
from vflops.data.text.readable_text import readable, token_name
from vflops.data.text.text_folder import TextFolder
from vflops.data.text.text_recipe import COMMA, COPY, DOCUMENT, EQUALS, PLUS, TextRecipe
from vflops.data.text.tokenizer import TextTokenizer


@pytest.mark.parametrize("vocabulary", [48, 64, 256, 4096])
def test_every_token_of_synthetic_text_has_a_name_of_its_own(vocabulary: int) -> None:
    words = TextRecipe(vocabulary=vocabulary).words
    names = [token_name(words, token) for token in range(vocabulary)]
    assert len(set(names)) == vocabulary
    fixed = [names[token] for token in (DOCUMENT, COPY, COMMA, PLUS, EQUALS)]
    assert fixed == ["¶", "copy", ",", "+", "="]
    assert names[words.first_number : words.first_verb] == [str(n) for n in range(10)]
    # The forms of a verb are next to each other, and so are the two halves of a bracket's names.
    assert names[words.first_verb : words.first_verb + 3] == ["verb0a", "verb0b", "verb0c"]
    assert names[words.first_open] + names[words.first_close] == "()"
    assert names[-1] == f"noun{words.nouns - 1}"


def test_synthetic_text_is_words(tmp_path: Path) -> None:
    recipe = TextRecipe(vocabulary=64)
    text = PackedText.open(synthetic_text.pack(recipe, tmp_path / "text", 1, 1).path)
    shown = readable(text.index, "bytes")([DOCUMENT, recipe.words.first_topic + 1, COPY])
    assert shown == "¶ topic1 copy"


def packed(root: Path, tokenizer: str) -> PackedText:
    for number in range(20):
        root.mkdir(exist_ok=True)
        (root / f"{number}.txt").write_text(f"naïve words {number} " * 20)
    packing = TextPacking(TextTokenizer.open(tokenizer), 0.3)
    return pack(TextFolder.open(root), root.with_suffix(".packed"), packing)


def test_bytes_are_decoded_and_torn_characters_replaced(tmp_path: Path) -> None:
    show = readable(packed(tmp_path / "text", "bytes").index, "bytes")
    assert show([*"naïve".encode(), 0xFF, *b"new"]) == "naïve¶new"
    assert show(["é".encode()[0]]) == "\N{REPLACEMENT CHARACTER}"


def test_a_tokenizer_decodes_if_it_is_the_one_of_the_text(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    model = library.models.WordLevel({"naïve": 0, "words": 1, "?": 2}, unk_token="?")
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.Whitespace()
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    index = packed(tmp_path / "text", str(file)).index
    assert readable(index, str(file))([0, 1]) == "naïve words"
    assert readable(index, str(tmp_path / "missing.json"))([0, 1]) == "0 1"
    changed = json.loads(file.read_text())
    changed["model"]["vocab"] = {"words": 0, "naïve": 1, "?": 2}
    file.write_text(json.dumps(changed))
    assert readable(index, str(file))([0, 1]) == "0 1"


def test_tokens_of_foreign_shards_are_numbers(tmp_path: Path) -> None:
    index = linked_shards(BinFolder.open(bin_folder(tmp_path))).index
    assert readable(index, "bytes")([50256, 7]) == "50256 7"
