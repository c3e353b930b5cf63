from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.support.micro_tasks import FakeClock, make_task
from vflops.machine.ceilings.deadline import Deadline
from vflops.machine.ceilings.setting_search import Search
from vflops.machine.ceilings.trial import Candidate, Kernel
from vflops.machine.ceilings.trial_cost import Costs
from vflops.machine.devices import Device
from vflops.record.formats.measurement import Trial


def _candidate(size: int, *, error: float = 0.0, work: int = 1000) -> Candidate:
    numbers = list(range(size))
    return Candidate(
        setting={"size": size},
        work=work,
        build=lambda: Kernel(lambda: sum(numbers), lambda: error),
    )


def test_the_value_is_the_median_at_the_best_setting_and_all_are_listed() -> None:
    trials: list[Trial] = []
    task = make_task("gemm", "peak", "fp32", seconds=5.0, trials=trials)  # a busy machine is slow
    search = Search(task, tolerance=0.1)
    for size in (20_000, 10, 2_000):
        assert search.attempt(_candidate(size)) is not None
    measured = search.finish()
    assert measured.setting["size"] == 10
    assert {trial.setting["size"] for trial in measured.tried} == {20_000, 10, 2_000}
    assert [trial.value for trial in measured.tried if trial.setting == measured.setting] == [
        measured.value
    ]
    assert measured.value == max(trial.value for trial in measured.tried)
    assert len(measured.samples) >= 3
    assert len(trials) == 3


def _steady_search(monkeypatch: pytest.MonkeyPatch) -> Search:
    """Return a search on a machine without noise: a call takes its setting's microseconds."""

    def time_s(self: Device, call: Callable[[], float], calls: int = 1, **options: int) -> float:
        return call()

    monkeypatch.setattr(Device, "time_s", time_s)
    clock = FakeClock(step_s=0.0)
    return Search(make_task("gemm", "peak", "fp32", seconds=10, clock=clock), tolerance=0.1)


def _lasting(call_us: int) -> Candidate:
    kernel = Kernel(lambda: call_us / 1e6, lambda: 0.0)
    return Candidate(setting={"call_us": call_us}, work=1000, build=lambda: kernel)


def test_the_search_ends_when_further_settings_are_no_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = _steady_search(monkeypatch)
    speeds = [search.attempt(_lasting(call_us)) for call_us in [2000, 1000, *[1100] * 30]]
    assert speeds.index(None) == 2 + 12


def test_a_faster_setting_prolongs_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    search = _steady_search(monkeypatch)
    speeds = [search.attempt(_lasting(us)) for us in [*[1000] * 11, 900, *[1000] * 20]]
    assert speeds.index(None) == 12 + 12


def test_settings_of_another_kind_are_tried_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    search = _steady_search(monkeypatch)
    first = [search.attempt(_lasting(1000)) for _ in range(20)]
    search.start_round()
    second = [search.attempt(_lasting(1000)) for _ in range(20)]
    assert (first.index(None), second.index(None)) == (13, 12)


@pytest.mark.parametrize(("calls_us", "rising"), [([30, 20, 10], True), ([10] + [20] * 5, False)])
def test_a_search_that_time_ends_while_the_speed_rises_has_a_caveat(
    calls_us: list[int], rising: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = _steady_search(monkeypatch)
    for call_us in calls_us:
        assert search.attempt(_lasting(call_us)) is not None
    assert search.finish().caveat is None
    search.costs.add("", work=10**9, call_s=100.0, setup_s=100.0)
    large = Candidate(setting={"size": 1}, work=10**9, build=_lasting(1).build)
    assert search.attempt(large) is None
    caveat = search.finish().caveat or ""
    tried = f"only {len(calls_us)} of {len(calls_us) + 1} settings tried in the time"
    assert caveat.startswith(tried) if rising else not caveat


def test_steady_final_samples_end_early(monkeypatch: pytest.MonkeyPatch) -> None:
    search = _steady_search(monkeypatch)
    search.attempt(_lasting(1000))
    assert len(search.finish().samples) == 7


@pytest.mark.parametrize("error", [0.2, math.nan, math.inf])
def test_a_wrong_result_has_no_speed(error: float) -> None:
    search = Search(make_task("gemm", "peak", "fp32"), tolerance=0.1)
    assert search.attempt(_candidate(10, error=error)) is None
    measured = search.finish()
    assert measured.value is None
    assert (measured.reason or "").startswith(
        f"wrong result: relative error {error:.2g} at size 10"
    )


def test_a_wrong_setting_beside_right_ones_is_a_caveat() -> None:
    search = Search(make_task("gemm", "peak", "fp32"), tolerance=0.1)
    search.attempt(_candidate(10, error=0.5))
    search.attempt(_candidate(20))
    measured = search.finish("emulated")
    assert measured.setting["size"] == 20
    assert (measured.caveat or "").startswith(
        "emulated; 1 settings gave a wrong result: relative error 0.5 at size 10"
    )


def test_a_result_that_turns_wrong_after_the_search_is_rejected() -> None:
    error = [0.0]
    slow = list(range(50_000))
    turning = Candidate({"size": 1}, 1000, lambda: Kernel(lambda: None, lambda: error[0]))
    steady = Candidate({"size": 2}, 1000, lambda: Kernel(lambda: sum(slow), lambda: 0.0))
    search = Search(make_task("gemm", "peak", "fp32"), tolerance=0.1)
    search.attempt(turning)
    search.attempt(steady)
    error[0] = 0.9
    measured = search.finish()
    assert measured.setting["size"] == 2
    assert (measured.caveat or "").startswith(
        "1 settings gave a wrong result: relative error 0.9 at size 1"
    )


def test_memory_that_runs_out_skips_the_setting() -> None:
    def build() -> Kernel:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 B")

    search = Search(make_task("gemm", "peak", "fp32"), tolerance=0.1)
    assert search.attempt(Candidate({"size": 1}, 1, build)) is None
    assert search.attempt(_candidate(5)) is not None
    assert search.finish().setting["size"] == 5


def test_a_refusal_of_every_setting_is_the_reason() -> None:
    def build() -> Kernel:
        raise RuntimeError("not implemented for 'Half'")

    search = Search(make_task("gemm", "peak", "fp16"), tolerance=0.1)
    search.attempt(Candidate({"size": 1}, 1, build))
    assert search.finish().reason == "not implemented for 'Half' at size 1"


def test_no_trial_is_begun_that_does_not_fit() -> None:
    clock = FakeClock(step_s=0.0)
    search = Search(make_task("gemm", "peak", "fp32", seconds=1.0, clock=clock), tolerance=0.1)
    search.costs.add("", work=1000, call_s=0.01, setup_s=0.0)
    assert search.attempt(_candidate(5, work=1000)) is not None
    assert search.attempt(_candidate(6, work=1_000_000)) is None
    assert [trial.setting["size"] for trial in search.finish().tried] == [5]


@pytest.mark.parametrize("speed", [1e3, 1e5, 1e7, 1e9])
def test_the_deadline_is_kept_on_machines_of_any_speed(
    speed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulated machine: a call takes work / speed seconds of the task's clock."""
    clock = FakeClock(step_s=0.0)
    now: dict[str, float] = {}

    def time_s(
        self: Device, call: Callable[[], object], calls: int = 1, *, warm_calls: int = 0
    ) -> float:
        call()
        clock.now_s += (calls + warm_calls) * now["work"] / speed
        return now["work"] / speed

    def simulated(work: int) -> Candidate:
        kernel = Kernel(lambda: now.update(work=work), lambda: 0.0)
        return Candidate({"work": work}, work, lambda: kernel)

    monkeypatch.setattr(Device, "time_s", time_s)
    search = Search(make_task("gemm", "peak", "fp32", seconds=2.0, clock=clock), tolerance=0.1)
    for power in range(2, 12):
        search.attempt(simulated(10**power))
    measured = search.finish()
    assert measured.value == pytest.approx(speed)
    assert clock.now_s <= 2.0
    assert len(measured.samples) >= 3


def test_without_time_the_reason_says_how_to_get_more() -> None:
    clock = FakeClock(step_s=1.0)
    search = Search(make_task("gemm", "peak", "fp32", seconds=3.0, clock=clock), tolerance=0.1)
    clock.now_s = 100.0
    assert search.attempt(_candidate(5)) is None
    assert search.finish().reason == "time budget of 3 s used up; raise micro.budget_s"


def test_the_first_trial_counts_when_there_is_no_time_for_more() -> None:
    clock = FakeClock(step_s=0.0)
    search = Search(make_task("gemm", "peak", "fp32", seconds=1.0, clock=clock), tolerance=0.1)
    search.attempt(_candidate(5))
    clock.now_s = 2.0
    measured = search.finish()
    assert measured.value is not None
    assert len(measured.samples) >= 1


def test_costs_grow_with_work_and_are_those_seen_where_known() -> None:
    costs = Costs()
    assert costs.call_s("a", 10) == costs.setup_s("a", 10) == costs.growth_s("a") == 0.0
    costs.add("a", work=100, call_s=2.0, setup_s=9.0)
    costs.add("a", work=300, call_s=4.0, setup_s=3.0)
    assert costs.growth_s("a") == pytest.approx(0.01)
    assert costs.call_s("a", 100) == 2.0
    assert costs.call_s("a", 500) == pytest.approx(6.0)
    assert costs.call_s("other", 500) == pytest.approx(6.0)
    assert costs.setup_s("a", 8 * 300) == pytest.approx(4 * 3.0)


def test_a_deadline_within_another_never_ends_later() -> None:
    clock = FakeClock(step_s=0.0, now_s=10.0)
    outer = Deadline(15.0, clock)
    assert outer.left_s() == 5.0
    assert outer.limited_to(2.0).left_s() == 2.0
    assert outer.limited_to(9.0).left_s() == 5.0
