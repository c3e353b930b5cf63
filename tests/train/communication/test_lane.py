"""The thread that averages beside the backward pass."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from vflops.train.communication.lane import ThreadLane


def test_the_caller_continues_and_the_order_is_kept() -> None:
    go, done = threading.Event(), []

    def first() -> Tensor:
        assert go.wait(10)
        done.append(1)
        return torch.tensor(1)

    def second() -> Tensor:
        done.append(2)
        return torch.tensor(2)

    lane = ThreadLane()
    answers = [lane.put(first), lane.put(second)]
    assert not any(answer.done() for answer in answers)
    go.set()
    assert [int(answer.wait()) for answer in answers] == done == [1, 2]
    lane.close()
    assert "communication" not in [thread.name for thread in threading.enumerate()]


def test_an_error_is_that_of_all_that_follows() -> None:
    """Otherwise a rank would wait for an exchange that the others have abandoned."""
    done = []

    def fails() -> Tensor:
        raise ConnectionError("the link went down")

    def follows() -> Tensor:
        done.append(1)
        return torch.tensor(1)

    lane = ThreadLane()
    for answer in (lane.put(fails), lane.put(follows)):
        with pytest.raises(RuntimeError, match="the link went down"):
            answer.wait()
    assert not done
    lane.close()
