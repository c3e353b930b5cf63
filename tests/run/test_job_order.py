"""The numbers of jobs in the order in which they run."""

from __future__ import annotations

from tests.support.trained_runs import job
from vflops.run.jobs import JobOrder


def test_jobs_are_numbered_in_the_order_in_which_they_run() -> None:
    first, search, last = job(1), job(2), job(3)
    order = JobOrder([search, first, last])
    assert [order.place([record]) for record in (search, first, last)] == [
        " (1 of 3)",
        " (2 of 3)",
        " (3 of 3)",
    ]
    assert order.place([first, last]) == " (2 to 3 of 3)"
    assert JobOrder([first]).place([first]) == ""
