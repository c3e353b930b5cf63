"""The thread that averages while the backward pass continues."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from vflops.train.communication.background import ThreadExecutor


def test_the_caller_continues_and_the_order_is_kept() -> None:
    go, done = threading.Event(), []

    def first() -> Tensor:
        assert go.wait(10)
        done.append(1)
        return torch.tensor(1)

    def second() -> Tensor:
        done.append(2)
        return torch.tensor(2)

    executor = ThreadExecutor()
    results = [executor.submit(first), executor.submit(second)]
    assert not any(result.done() for result in results)
    go.set()
    assert [int(result.wait()) for result in results] == done == [1, 2]
    executor.close()
    assert "communication" not in [thread.name for thread in threading.enumerate()]


def test_after_an_error_all_later_tasks_fail_with_it() -> None:
    """Otherwise a rank would wait for an exchange that the others have abandoned."""
    done = []

    def fails() -> Tensor:
        raise ConnectionError("the link went down")

    def follows() -> Tensor:
        done.append(1)
        return torch.tensor(1)

    executor = ThreadExecutor()
    for result in (executor.submit(fails), executor.submit(follows)):
        with pytest.raises(RuntimeError, match="the link went down"):
            result.wait()
    assert not done
    executor.close()
