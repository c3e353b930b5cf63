"""States as plain bytes."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.torch_memory import peak_bytes
from vflops.errors import FolderError, RunFailed
from vflops.train.checkpoint import CheckpointRecord, Checkpoints
from vflops.train.state_file import StoredState, pack, unpack


def state() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(8, 4, 3, 3, generator=generator).to(memory_format=torch.channels_last)
    return {
        "model": {
            "weight": weight,
            "half": torch.randn(5, generator=generator).bfloat16(),
            "number": torch.tensor(3),
            "none": torch.empty(0, 3),
            "view": torch.randn(3, 1, generator=generator).expand(3, 4),
            "flags": torch.tensor([True, False]),
        },
        "scaler": {},
        "best": float("inf"),
        "rate": 0.1,
        "worse": 0,
        "judged": None,
        "list": [1, "two", torch.tensor([2.5])],
    }


def test_a_state_comes_back_with_its_bits_types_and_strides() -> None:
    before = state()
    data = pack(before).to_bytes()
    after = unpack(data, "a file")
    for name, tensor in before["model"].items():
        found: Tensor = after["model"][name]
        assert found.dtype == tensor.dtype
        assert torch.equal(found, tensor)
    assert after["model"]["weight"].stride() == before["model"]["weight"].stride()
    assert (after["best"], after["rate"], after["judged"]) == (float("inf"), 0.1, None)
    assert torch.equal(after["list"][2], before["list"][2])
    assert pack(after).to_bytes() == data


def test_a_file_is_read_tensor_by_tensor(tmp_path: Path) -> None:
    path = tmp_path / "step.state"
    path.write_bytes(pack(state()).to_bytes())
    stored, whole = StoredState.open(path), unpack(path.read_bytes(), path.name)
    assert list(stored) == list(whole) and stored["rate"] == 0.1
    for name, tensor in whole["model"].items():
        found: Tensor = stored["model"][name]
        assert torch.equal(found, tensor) and found.stride() == tensor.stride()
        if len(tensor.shape) and len(tensor):
            rows = stored["model"].rows(name, [(0, 1), (len(tensor) - 1, 1)], len(tensor))
            assert torch.equal(rows, torch.cat([tensor[:1], tensor[-1:]])), name
    assert stored["model"].rows("number", [(0, 1)], 1) == 3
    with pytest.raises(FolderError, match=r"flags in step\.state has 2 rows, not 3"):
        stored["model"].rows("flags", [(0, 1)], 3)
    assert torch.equal(stored["list"][2], whole["list"][2])
    path.write_bytes(path.read_bytes()[:-128])
    with pytest.raises(FolderError, match="became shorter"):
        dict(stored["model"])
    with pytest.raises(FolderError, match="it ends within a tensor"):
        StoredState.open(path)


def test_a_part_of_a_file_needs_memory_for_one_whole_tensor(tmp_path: Path) -> None:
    size, path = 4 << 18, tmp_path / "step.state"
    weights = {str(number): torch.rand(512, 512) for number in range(24)}
    path.write_bytes(pack({"model": weights}).to_bytes())

    def read_part() -> list[Tensor]:
        stored = StoredState.open(path)["model"]
        return [stored[name][:128].clone() for name in stored]

    assert peak_bytes(lambda: unpack(path.read_bytes(), path.name)) >= 24 * size

    def read_rows() -> list[Tensor]:
        stored = StoredState.open(path)["model"]
        return [stored.rows(name, [(128, 128)], 512) for name in stored]

    assert peak_bytes(read_part) <= (6 + 1.1) * size
    assert peak_bytes(read_rows) <= (6 + 0.1) * size


def test_the_hash_is_that_of_the_file_and_tells_states_apart() -> None:
    packed = pack(state())
    data = packed.to_bytes()
    assert len(data) == packed.size_bytes
    assert packed.sha256() == hashlib.sha256(data).hexdigest()
    other = state()
    other["model"]["weight"][0, 0, 0, 0] += 1e-6
    assert pack(other).sha256() != packed.sha256()
    reordered = dict(reversed(state().items()))
    assert pack(reordered).sha256() == packed.sha256()


def header(**changes: Any) -> bytes:
    fields = {"state": {"w": {"tensor": 0}}, "tensors": [], **changes}
    return b"vflops.state/1\n" + json.dumps(fields).encode() + b"\n"


ROW = {"dtype": "float32", "shape": [2], "stride": None}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is not a state file"),
        (b"\x80\x04pickle", "is not a state file"),
        (b"vflops.state/1\nnot json\n", "is damaged"),
        (header(), "it has no tensor 0"),
        (header(tensors=[ROW]), "it ends within a tensor"),
        (header(tensors=[ROW]) + b"\0" * 65, "it has"),
        (header(tensors=[{**ROW, "dtype": "object"}]), "is damaged: 'object'"),
        (header(tensors=[{**ROW, "shape": [-1]}]), "are not sizes"),
        (header(tensors=[{**ROW, "shape": [1 << 62, 4]}]), "it ends within a tensor"),
        (header(tensors=[{**ROW, "stride": [0]}]) + b"\0" * 64, "cannot have the strides"),
        (header(state=json.loads("[" * 30 + "]" * 30)), "nested too deeply"),
        (header(state=1), "it holds a int"),
        (header(tensors=[{**ROW, "shape": [1] * 200_000}]) + b"\0" * 64, "200,000 dimensions"),
        (header(tensors=[{**ROW, "stride": [1] * 65}]) + b"\0" * 64, "65 dimensions"),
        (header(tensors=[{**ROW, "shape": [0]}] * 131_073), "it has 131,073 tensors"),
        (header(state={"w" * 1001: 0}), "a name of 1,001 characters"),
        (header(state={"w": " " * (1 << 24)}), "no header of at most 16 MiB"),
    ],
)
def test_a_damaged_file_is_refused(data: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=why):
        unpack(data, "a file")
    path = tmp_path / "a file"
    path.write_bytes(data)
    with pytest.raises(FolderError, match=why):
        StoredState.open(path)


@pytest.mark.parametrize("kind", ["pipe", "sparse"])
def test_a_checkpoint_that_is_no_stored_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "step-000000007.state"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    size = path.stat().st_size
    record = CheckpointRecord(step=7, sha256="0" * 64, size_bytes=size)
    record.write(path.with_suffix(".json"))
    bad: list[str] = []
    assert Checkpoints(tmp_path).load(lambda file, reason: bad.append(reason)) is None
    assert len(bad) == 1 and ("sparse" in bad[0] or "not a regular file" in bad[0])


def test_the_message_about_a_damaged_file_is_short() -> None:
    with pytest.raises(FolderError) as caught:
        unpack(header(state={"tensor": [1] * 100_000}), "a file")
    assert len(caught.value.message) < 2000


def test_a_state_that_could_not_be_read_is_not_written() -> None:
    with pytest.raises(RunFailed, match="131,073 tensors"):
        pack({"many": [torch.empty(0)] * 131_073})


def test_objects_that_are_not_plain_data_cannot_be_saved() -> None:
    with pytest.raises(TypeError, match="cannot hold a Generator"):
        pack({"a": torch.Generator()})
    with pytest.raises(TypeError, match="keys"):
        pack({"tensor": 1})
