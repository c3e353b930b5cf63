"""Small folders of text and of token shards."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WORDS = "the of and a to in is was he for it with as his on be at by I this had not are but".split()


def documents(count: int, seed: int = 0, words: int = 40) -> list[str]:
    """Return different documents of random words."""
    rng = np.random.default_rng(seed)
    return [f"{seed} {n} " + " ".join(rng.choice(WORDS, words)) for n in range(count)]


def text_folder(root: Path, count: int = 30, seed: int = 0) -> Path:
    """Write one document per file."""
    root.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(documents(count, seed)):
        (root / f"{number:04d}.txt").write_text(text)
    return root


def jsonl_file(path: Path, texts: list[str]) -> Path:
    """Write one document per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"id": 1, "text": text}) + "\n" for text in texts))
    return path


def write_bin(path: Path, tokens: NDArray[np.integer], *, llama: bool = False) -> Path:
    """Write a shard as ``dev/data/data_common.py`` of llm.c does."""
    header = np.zeros(256, dtype=np.int32)
    header[0] = 20240801 if llama else 20240520
    header[1] = 7 if llama else 1
    header[2] = len(tokens)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(header.tobytes())
        file.write(np.asarray(tokens, dtype=np.uint32 if llama else np.uint16).tobytes())
    return path


def bin_folder(root: Path, seed: int = 0) -> Path:
    """Write two shards for training and one for validation, of documents that begin with 50256."""
    rng = np.random.default_rng(seed)
    sizes = {"fw_train_000001": 40_000, "fw_train_000002": 20_001, "fw_val_000000": 17_000}
    for name, size in sizes.items():
        tokens = rng.integers(0, 50_256, size)
        tokens[::500] = 50_256
        write_bin(root / f"{name}.bin", tokens)
    return root


def docstrings(root: Path, modules: tuple[str, ...]) -> Path:
    """Write the documentation of modules of Python's standard library, which needs no download."""
    import pydoc

    root.mkdir(parents=True, exist_ok=True)
    for name in modules:
        assert name in sys.stdlib_module_names
        text = pydoc.plain(pydoc.render_doc(name))
        (root / f"{name}.txt").write_text(text, encoding="utf-8")
    return root
