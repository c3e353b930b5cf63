"""States are copied at once and hashed while training continues."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from vflops.errors import RunFailed
from vflops.record.formats.job_events import Checkpointed, Committed
from vflops.train.checkpoint import CheckpointRecord, Checkpoints
from vflops.train.committing import Committer
from vflops.train.state_file import pack

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]


def contents(device: str) -> dict[str, Any]:
    weight = torch.randn(64, 32, 3, 3).to(device, memory_format=torch.channels_last)
    state = {"momentum": torch.randn(1 << 20, device=device), "step": torch.tensor(3.0)}
    return {"model": {"weight": weight}, "optimizer": {"weight": state}, "step": 7}


@pytest.mark.parametrize("device", DEVICES)
def test_what_happens_after_the_copy_does_not_change_the_hash(tmp_path: Path, device: str) -> None:
    committer = Committer(Checkpoints(tmp_path))
    state = contents(device)
    expected = pack(state).sha256()
    for _ in range(3):  # memory is reused
        committer.begin(7, state)
        assert committer.busy
        state["model"]["weight"].add_(1.0)
        state["optimizer"]["weight"]["momentum"].zero_()
        hashed = committer.take(wait=True)
        assert hashed is not None
        assert hashed.sha256 == expected
        assert hashed.event(0.5) == Committed(step=7, sha256=expected, loss=0.5)
        expected = pack(state).sha256()
    assert not committer.busy
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("device", DEVICES)
def test_a_checkpoint_is_valid_once_it_is_completed(tmp_path: Path, device: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / ".step-000000001.state.tmp").touch()
    committer = Committer(checkpoints)
    state = contents(device)
    committer.begin(7, state, checkpoint=True, kept=True)
    hashed = committer.take(wait=True)
    assert hashed is not None
    assert checkpoints.load() is None
    event = hashed.event(None)
    assert isinstance(event, Checkpointed)
    checkpoints.complete(event)
    loaded = checkpoints.load(committed=[(7, pack(state).sha256())])
    assert loaded is not None
    record, found = loaded
    assert (record.step, record.kept, record.sha256) == (7, True, hashed.sha256)
    assert torch.equal(found["model"]["weight"], state["model"]["weight"].cpu())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-000000007.json",
        "step-000000007.state",
    ]
    with pytest.raises(RunFailed, match="does not come from this training"):
        checkpoints.load(committed=[(7, "0" * 64)])
    with pytest.raises(RunFailed, match="the log has its hash after step 9"):
        checkpoints.load(committed=[(9, pack(state).sha256())])


def test_name_marker_and_state_of_a_checkpoint_have_the_same_step(tmp_path: Path) -> None:
    """The hash is right each time: only the step is another one."""
    for step, name, words in ((255, 9, "the one after step 255"), (9, 10, "json says step 9")):
        state = pack({"step": step}).to_bytes()
        path = tmp_path / f"step-{name:09d}.state"
        path.write_bytes(state)
        digest = hashlib.sha256(state).hexdigest()
        CheckpointRecord(step=9, sha256=digest, size_bytes=len(state)).write(
            path.with_suffix(".json")
        )
        with pytest.raises(RunFailed, match=words) as error:
            Checkpoints(tmp_path).load()
        assert "remove this checkpoint" in str(error.value.hint)


def test_kept_checkpoints_stay_and_of_the_others_the_last_two(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    committer = Committer(checkpoints)
    for step in range(1, 7):
        committer.begin(step, {"step": step}, checkpoint=True, kept=step == 2)
        hashed = committer.take(wait=True)
        assert hashed is not None
        event = hashed.event(None)
        assert isinstance(event, Checkpointed)
        checkpoints.complete(event)
    assert sorted(int(path.stem[5:]) for path in tmp_path.glob("*.state")) == [2, 5, 6]


def test_an_error_of_the_other_thread_reaches_the_training(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    committer = Committer(Checkpoints(file / "checkpoint"))
    committer.begin(1, {"step": 1}, checkpoint=True)
    with pytest.raises(Exception, match="cannot write"):
        committer.take(wait=True)
