"""Text becomes tokens of the same documents; what is not text is named; splits follow content."""

from __future__ import annotations

import builtins
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.data_text import docstrings, documents, jsonl_file, text_folder
from vflops.data.data_kind import DataKind, kind_of
from vflops.data.text import text_folder as text_folder_module
from vflops.data.text.check_text import check_text
from vflops.data.text.document_split import is_held_out
from vflops.data.text.pack_text import TextPacking, pack
from vflops.data.text.packed_text import PackedText
from vflops.data.text.text_folder import Document, TextFolder, TextFormat, TextPart, read_documents
from vflops.data.text.tokenizer import TextTokenizer
from vflops.errors import FolderError, UsageError

BYTES = TextTokenizer.open("bytes")
TENTH = TextPacking(BYTES, validation=0.1)


def texts(packed: PackedText, name: str) -> list[bytes]:
    """Return the documents of a split that was packed as bytes."""
    split = packed.split(name).compare_contents()
    tokens = np.empty(split.tokens, np.int64)
    split.read(0, tokens)
    stored = np.split(tokens.astype(np.uint8), split.starts[1:])
    assert all(document[0] == 0xFF for document in stored)
    return [document[1:].tobytes() for document in stored]


def test_every_document_is_packed_once_in_the_split_of_its_hash(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "text", 60)
    packed = pack(TextFolder.open(folder), tmp_path / "packed", TENTH, workers=1)
    expected = [text.encode() for text in documents(60)]
    train, val = texts(packed, "train"), texts(packed, "val")
    assert train == [text for text in expected if not is_held_out(text, 0.1)]
    assert val == [text for text in expected if is_held_out(text, 0.1)]
    assert val
    entry = packed.index.splits["val"]
    assert entry.text_bytes == sum(map(len, val)) and entry.documents == len(val)
    assert entry.tokens == entry.text_bytes + len(val)  # one separator each
    assert packed.index.vocabulary == 256 and packed.index.separator == 255
    packed.verify()
    packed.verify_contents()


def test_adding_and_renaming_files_moves_no_document(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "text", 40)
    before = pack(TextFolder.open(folder), tmp_path / "before", TENTH, workers=1)
    held_out = set(texts(before, "val"))
    for number, text in enumerate(documents(40, seed=1)):
        (folder / f"a{number}.md").write_text(text)
    (folder / "below").mkdir()
    (folder / "0000.txt").rename(folder / "below" / "zz.TXT")
    shutil.copy(folder / "0001.txt", folder / "copy.txt")
    after = pack(TextFolder.open(folder), tmp_path / "after", TENTH, workers=1)
    assert held_out <= set(texts(after, "val"))
    assert not set(texts(after, "val")) & set(texts(after, "train"))
    assert len(texts(after, "val")) + len(texts(after, "train")) == 81


@given(st.binary(max_size=50), st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_a_larger_share_holds_out_more(document: bytes, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert is_held_out(document, high) or not is_held_out(document, low)


def test_the_share_is_the_share_of_documents() -> None:
    held_out = sum(is_held_out(f"document {number}".encode(), 0.1) for number in range(20_000))
    assert abs(held_out - 2000) < 5 * (20_000 * 0.1 * 0.9) ** 0.5


@settings(max_examples=50, deadline=None)
@given(
    lines=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=20),
    step=st.integers(1, 200),
)
def test_parts_of_a_file_have_all_lines_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], step: int
) -> None:
    root = tmp_path_factory.mktemp("lines")
    path = root / "a.jsonl"
    path.write_bytes(b"".join(json.dumps({"text": line}).encode() + b"\n" for line in lines))
    size = path.stat().st_size
    found = [
        document
        for start in range(0, size, step)
        for document in read_documents(
            root, TextPart("a.jsonl", start, min(start + step, size)), TextFormat()
        )
    ]
    expected = [line.encode() for line in lines if line.encode().strip()]
    assert [one.data for one in found if isinstance(one, Document)] == expected


def test_lines_and_files_with_the_same_documents_give_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_folder_module, "_PART_BYTES", 1000)
    folder = text_folder(tmp_path / "text", 30)
    jsonl_file(tmp_path / "lines" / "all.jsonl", documents(30))
    separated = tmp_path / "separated"
    separated.mkdir()
    (separated / "one.txt").write_text("<|endoftext|>".join(documents(30)))
    split_format = TextPacking(BYTES, 0.1, TextFormat(separator="<|endoftext|>"))
    packed = [
        pack(TextFolder.open(folder), tmp_path / "p1", TENTH, workers=1),
        pack(TextFolder.open(tmp_path / "lines"), tmp_path / "p2", TENTH, workers=1),
        pack(TextFolder.open(separated), tmp_path / "p3", split_format, workers=1),
    ]
    assert packed[0].contents == packed[1].contents == packed[2].contents
    assert packed[0].fingerprint == packed[1].fingerprint  # names of folders do not matter


BAD = [
    ("bad.txt", b"caf\xe9 au lait", "cannot use .*bad.txt: byte 3 \\(0xe9\\) is not UTF-8"),
    (
        "bad.jsonl",
        b'{"text": "a"}\n{"text": "caf\xe9"}\n',
        "bad.jsonl, line at byte 14: byte 27 \\(0xe9\\) is not UTF-8",
    ),
    ("bad.jsonl", b'{"text": "a"}\n{"text": \n', "line at byte 14: the line is not JSON"),
    ("bad.jsonl", b'{"txt": "a"}\n', "line at byte 0: the line has no text in the field 'text'"),
    ("bad.jsonl", b"[1]\n", "line at byte 0: the line has no text in the field 'text'"),
    ("bad.jsonl", b'{"text": "\\ud800"}\n', "line at byte 0: .*(surrogate|not JSON)"),
]


@pytest.mark.parametrize(("name", "data", "message"), BAD)
def test_what_is_not_text_is_named_or_left_out(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    folder = text_folder(tmp_path / "text")
    (folder / name).write_bytes(data)
    listed = TextFolder.open(folder)
    with pytest.raises(UsageError, match=message) as error:
        pack(listed, tmp_path / "packed", TENTH, workers=1)
    assert "--policy skip" in str(error.value.hint)
    report = check_text(listed, workers=1)
    assert not report.ok and len(report.unusable) == 1
    packed = pack(listed, tmp_path / "packed", TENTH, policy="skip", workers=1)
    skipped = packed.index.splits["train"].skipped
    assert [one.file for one in skipped] == [report.unusable[0].file]
    with pytest.raises(UsageError, match="packed without 1 of its documents"):
        pack(listed, tmp_path / "packed", TENTH, workers=1)


def test_a_stopped_packing_is_resumed_and_a_finished_one_is_kept(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "text")
    bad = folder / "zzz.txt"
    bad.write_bytes(b"\xff")
    with pytest.raises(UsageError):
        pack(TextFolder.open(folder), tmp_path / "packed", TENTH, workers=1)
    bad.unlink()
    packed = pack(TextFolder.open(folder), tmp_path / "packed", TENTH, workers=1)
    again = pack(TextFolder.open(folder), tmp_path / "packed", TENTH, workers=1)
    assert again.fingerprint == packed.fingerprint
    with pytest.raises(UsageError, match="was packed with other settings"):
        pack(TextFolder.open(folder), tmp_path / "packed", TextPacking(BYTES, 0.2), workers=1)


def test_processes_pack_the_same(tmp_path: Path) -> None:
    folder = TextFolder.open(text_folder(tmp_path / "text"))
    one = pack(folder, tmp_path / "one", TENTH, workers=1)
    two = pack(folder, tmp_path / "two", TENTH, workers=2)
    assert one.fingerprint == two.fingerprint


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_impossible_shares_are_refused(tmp_path: Path, share: float) -> None:
    folder = TextFolder.open(text_folder(tmp_path / "text"))
    with pytest.raises(UsageError, match="the share for validation is"):
        pack(folder, tmp_path / "packed", TextPacking(BYTES, share))


def test_a_split_without_documents_is_refused(tmp_path: Path) -> None:
    folder = TextFolder.open(text_folder(tmp_path / "text", 1))
    with pytest.raises(UsageError, match="has 1 documents, none of which is for val") as error:
        pack(folder, tmp_path / "packed", TextPacking(BYTES, 1e-9), workers=1)
    assert "--separator" in str(error.value.hint)
    blank = tmp_path / "blank"
    blank.mkdir()
    (blank / "a.txt").write_text("  \n")
    with pytest.raises(UsageError, match=r"no text of .* can be used"):
        pack(TextFolder.open(blank), tmp_path / "p2", TENTH, workers=1)


def test_folders_without_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is empty"):
        TextFolder.open(tmp_path)
    (tmp_path / "a.pdf").write_bytes(b"x")
    with pytest.raises(UsageError, match="holds 1 files, but no text"):
        TextFolder.open(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        TextFolder.open(tmp_path / "none")


def test_the_kind_of_a_folder_is_recognised(tmp_path: Path) -> None:
    assert kind_of(text_folder(tmp_path / "a")) == DataKind("text", packed=False)
    assert kind_of(text_folder(tmp_path / "b" / "deep" / "er").parents[1]).content == "text"
    jsonl_file(tmp_path / "c" / "train" / "x.jsonl", ["a"])
    assert kind_of(tmp_path / "c").content == "text"
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x_train_0.bin").write_bytes(b"")
    assert kind_of(tmp_path / "d") == DataKind("tokens", packed=False)
    (tmp_path / "e" / "train" / "cat").mkdir(parents=True)
    (tmp_path / "e" / "README.md").write_text("about these images")
    assert kind_of(tmp_path / "e").content == "images"
    packed = pack(TextFolder.open(tmp_path / "a"), tmp_path / "p", TENTH, workers=1)
    assert kind_of(packed.path) == DataKind("tokens", packed=True)


def test_real_text_needs_no_download(tmp_path: Path) -> None:
    folder = docstrings(tmp_path / "docs", ("ast", "csv", "json", "random", "string", "textwrap"))
    packing = TextPacking(BYTES, 0.1, TextFormat(separator="\n\n"))
    packed = pack(TextFolder.open(folder), tmp_path / "packed", packing, workers=1)
    assert packed.index.splits["train"].tokens > 20_000
    assert b"".join(texts(packed, "train")).decode().isprintable() is False


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    model.train_from_iterator(documents(30), trainer)
    path = tmp_path / "tokenizer.json"
    model.save(str(path))
    return path


def test_a_tokenizer_of_the_library_is_used_as_the_library_does(
    tmp_path: Path, tokenizer_file: Path
) -> None:
    import tokenizers

    tokenizer = TextTokenizer.open(str(tokenizer_file))
    folder = TextFolder.open(text_folder(tmp_path / "text"))
    packed = pack(folder, tmp_path / "packed", TextPacking(tokenizer, 0.2), workers=1)
    index = packed.index
    assert index.vocabulary == 300 and index.token_type == "uint16" and index.separator == 0
    assert index.tokenizer.name == "tokenizers" and index.tokenizer.sha256
    split = packed.split("val").compare_contents()
    tokens = np.empty(split.tokens, np.int64)
    split.read(0, tokens)
    library = tokenizers.Tokenizer.from_file(str(tokenizer_file))
    expected = [text for text in documents(30) if is_held_out(text.encode(), 0.2)]
    stored = np.split(tokens, split.starts[1:])
    assert [library.decode(document[1:].tolist()) for document in stored] == expected


def test_errors_of_tokenizers_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"cannot read the tokenizer .*none\.json"):
        TextTokenizer.open(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(UsageError, match=r"bad\.json is not a tokenizer"):
        TextTokenizer.open(str(tmp_path / "bad.json"))
    original = builtins.__import__

    def without_tokenizers(name: str, *args: Any, **named: Any) -> Any:
        if name == "tokenizers":
            raise ImportError(name)
        return original(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", without_tokenizers)
    with pytest.raises(UsageError, match="needs the package tokenizers") as error:
        TextTokenizer.open(str(tmp_path / "other.json"))
    assert "pip install 'vflops[text]'" in str(error.value.hint)


def test_a_table_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = TextFolder.open(text_folder(tmp_path / "text"))
    packed = pack(folder, tmp_path / "packed", TENTH, workers=1)
    index = json.loads((packed.path / "index.json").read_text())
    index["splits"]["train"]["documents"] += 1
    (packed.path / "index.json").write_text(json.dumps(index))
    with pytest.raises(FolderError, match="starts is int64"):
        PackedText.open(packed.path).split("train")
