"""The search for the fastest setting: tries settings, checks results, times the best again.

After the search the best settings are timed again, and the value of a measurement is the median of
the samples of the fastest one. A lucky sample during the search may select a setting, but does not
count. A final sample is a burst of calls after a short warm-up. On an accelerator each final sample
follows a pause, since a ceiling is the highest speed of the device, which it cannot sustain at its
power limit.
"""

from __future__ import annotations

import math
import time

from vflops.machine.ceilings.deadline import Deadline
from vflops.machine.ceilings.sample_statistics import median, spread
from vflops.machine.ceilings.task import Task
from vflops.machine.ceilings.trial import Candidate, Kernel, TimedCandidate
from vflops.machine.ceilings.trial_cost import Costs
from vflops.machine.devices import first_line, is_out_of_memory, threads
from vflops.record.formats.measurement import Measurement

_MIN_SAMPLE_S, _MAX_SAMPLE_S = 1e-3, 5e-3
"""Length of a sample of short calls; long compared with the resolution of the timer."""
_SAMPLE_SHARE = 0.01
"""Length of a sample as a share of the item's time."""
_COARSE_SAMPLES = 3
_LAST_TRIALS = 4
"""If time ended the search and the best setting is among the last ones tried, a faster one may have
been missed."""
_FINAL_SAMPLES = 15
_MIN_FINAL_SAMPLES = 3
_STEADY_FINAL_SAMPLES, _STEADY_SPREAD = 7, 0.002
"""Final samples end early once there are this many and those of the fastest setting spread less
than this."""
_STEADY_TRIALS, _STEADY_GAIN = 12, 0.005
"""A round of the search ends when this many trials in a row have raised the best speed by less than
this share."""
_MAX_FINALISTS = 5
_FINAL_SHARE = 0.35
"""Share of an item's time that is reserved for the final samples, which count."""
_TRIAL_SHARE = 0.5
"""Maximum share of the remaining time for one trial, so that a search tries several settings."""
_MIN_FINALIST_SPEED = 0.85
"""A setting that is slower than this share of the best speed is not timed again."""
_WARM_CALLS = 3
_STEADY_SHARE = 0.1
"""The warm-up ends when two calls differ by less than this share."""
_LONG_CALL_S = 0.03
"""For a longer call, the correctness check is warm-up enough."""
_PAUSE_FACTOR, _MAX_PAUSE_S = 3.0, 0.05
"""Pause of an accelerator before a final sample: multiple of the sample's length, and maximum."""
_NO_MEMORY = "the free memory is too small for even the smallest operands"


class Search:
    """All trials of one item."""

    def __init__(self, task: Task, tolerance: float) -> None:
        self._task = task
        self._device = task.device
        self._tolerance = tolerance
        self._deadline = task.deadline.limited_to((1 - _FINAL_SHARE) * task.deadline.left_s())
        self._tried: list[TimedCandidate] = []
        self._round_start = 0
        self._offered = self._late = 0
        self._wrong: list[str] = []
        self._refused: list[str] = []
        self._threads = task.device.thread_counts()
        self._max_threads = self._threads[0]
        wanted_s = _SAMPLE_SHARE * task.deadline.left_s()
        self._sample_s = min(max(wanted_s, _MIN_SAMPLE_S), _MAX_SAMPLE_S)
        self.costs = Costs()

    def attempt(self, candidate: Candidate) -> float | None:
        """Return the best speed of ``candidate``; None if its result is wrong, it fails or takes
        too long."""
        self._offered += 1
        is_first = not (self._tried or self._wrong or self._refused)
        deadline = self._task.overall_deadline if is_first else self._deadline
        if self._is_steady():
            return None
        if _TRIAL_SHARE * deadline.left_s() < self._expected_s(candidate):
            self._late += 1
            return None
        try:
            if is_first:
                candidate.build().check()  # the first call loads and compiles: not timed
            start_s = time.perf_counter()
            kernel = candidate.build()
            error = kernel.check()
            self._device.synchronize()
            setup_s = time.perf_counter() - start_s
            if not error <= self._tolerance:  # also false for NaN
                self._reject(candidate, error)
                self.costs.add(candidate.family, candidate.work, call_s=setup_s, setup_s=setup_s)
                return None
            tried = self._time(candidate, kernel, error, deadline)
        except RuntimeError as failure:
            self._refused.append(f"{first_line(failure)} at {_format_setting(candidate.setting)}")
            if is_out_of_memory(failure):
                self._device.release()
            return None
        self._tried.append(tried)
        self.costs.add(candidate.family, candidate.work, min(tried.times_s), setup_s)
        self._task.on_trial(tried.trial)
        return candidate.work / min(tried.times_s)

    def start_round(self) -> None:
        """Start to try settings of another kind, whatever the last trials have found."""
        self._round_start = len(self._tried)

    def _is_steady(self) -> bool:
        """Whether the last trials of this round have not found a faster setting."""
        earlier, latest = self._tried[:-_STEADY_TRIALS], self._tried[-_STEADY_TRIALS:]
        if not earlier or len(self._tried) - self._round_start < _STEADY_TRIALS:
            return False
        best = max(tried.speed for tried in earlier)
        return max(tried.speed for tried in latest) <= (1 + _STEADY_GAIN) * best

    def best(self) -> Candidate | None:
        """Return the fastest candidate so far; None if there is none."""
        return max(self._tried, key=lambda tried: tried.speed).candidate if self._tried else None

    def finish(self, caveat: str | None = None) -> Measurement:
        """Time the fastest candidates again, check the winner, and return the measurement."""
        while self._tried:
            winner = self._final()
            error = winner.candidate.build().check()
            if error <= self._tolerance:
                return self._measurement(winner, max(error, winner.error), caveat)
            self._reject(winner.candidate, error)
            self._tried.remove(winner)
        if self._wrong:
            reason = f"wrong result: {self._wrong[0]}, tolerance {self._tolerance:g}"
            return self._task.absent_measurement(reason)
        if self._offered and not self._refused:
            return self._task.out_of_time()
        return self._task.absent_measurement(self._refused[0] if self._refused else _NO_MEMORY)

    def _time(
        self, candidate: Candidate, kernel: Kernel, error: float, deadline: Deadline
    ) -> TimedCandidate:
        """Take a few samples with the best thread count so far, or with another that is faster."""
        best, *others = self._threads
        with threads(best):
            times_s = self._samples(kernel, self._warm_up(kernel, deadline), deadline)
        tried = TimedCandidate(candidate, error, times_s, best)
        calls = self._calls(min(times_s))
        for count in others:
            if deadline.left_s() < _COARSE_SAMPLES * calls * min(times_s):
                break
            with threads(count):
                probe_s = self._device.time_s(kernel.call, calls)
                if probe_s < min(times_s):
                    tried.threads = count
                    tried.times_s = self._samples(kernel, probe_s, deadline)
        self._threads.sort(key=lambda count: count != tried.threads)
        return tried

    def _warm_up(self, kernel: Kernel, deadline: Deadline) -> float:
        """Call until two consecutive times agree, and return the seconds of a call."""
        call_s = self._device.time_s(kernel.call)
        for _ in range(_WARM_CALLS):
            if call_s > _LONG_CALL_S or deadline.left_s() < (_COARSE_SAMPLES + 1) * call_s:
                break
            before_s, call_s = call_s, self._device.time_s(kernel.call)
            if abs(call_s - before_s) <= _STEADY_SHARE * call_s:
                break
        return call_s

    def _samples(self, kernel: Kernel, call_s: float, deadline: Deadline) -> list[float]:
        calls = self._calls(call_s)
        times_s = [call_s] if calls == 1 else [self._device.time_s(kernel.call, calls)]
        while len(times_s) < _COARSE_SAMPLES and deadline.left_s() > calls * times_s[-1]:
            times_s.append(self._device.time_s(kernel.call, calls))
        return times_s

    def _final(self) -> TimedCandidate:
        ranked = sorted(self._tried, key=lambda tried: tried.speed, reverse=True)
        min_speed = _MIN_FINALIST_SPEED * ranked[0].speed
        finalists = [tried for tried in ranked[:_MAX_FINALISTS] if tried.speed >= min_speed]
        deadline = self._task.deadline
        left_s = deadline.left_s()
        while finalists and left_s < _MIN_FINAL_SAMPLES * sum(map(self._burst_s, finalists)):
            finalists.pop()
        finalists = finalists or ranked[:1]  # a few samples are taken even after the deadline
        kernels = [tried.candidate.build() for tried in finalists]
        samples: list[list[float]] = [[] for _ in finalists]
        round_s = sum(map(self._burst_s, finalists))
        while len(samples[0]) < _FINAL_SAMPLES and (
            len(samples[0]) < _MIN_FINAL_SAMPLES or deadline.left_s() > round_s
        ):
            for tried, kernel, times_s in zip(finalists, kernels, samples, strict=True):
                times_s.append(self._burst(tried, kernel))
            if len(samples[0]) >= _STEADY_FINAL_SAMPLES and _are_steady(samples):
                break
        for tried, times_s in zip(finalists, samples, strict=True):
            tried.times_s = times_s
        return max(finalists, key=lambda tried: tried.speed)

    def _burst(self, tried: TimedCandidate, kernel: Kernel) -> float:
        """Take one final sample and return the seconds of a call."""
        pause_s, warm_calls, calls = self._burst_plan(tried)
        time.sleep(pause_s)
        with threads(tried.threads):
            return self._device.time_s(kernel.call, calls, warm_calls=warm_calls)

    def _burst_s(self, tried: TimedCandidate) -> float:
        pause_s, warm_calls, calls = self._burst_plan(tried)
        return pause_s + (warm_calls + calls) * tried.call_s

    def _burst_plan(self, tried: TimedCandidate) -> tuple[float, int, int]:
        """Return the pause, warm-up calls and timed calls of a burst."""
        calls = self._calls(tried.call_s)
        pause_s = min(_PAUSE_FACTOR * calls * tried.call_s, _MAX_PAUSE_S)
        return 0.0 if self._device.is_cpu else pause_s, min(calls, _WARM_CALLS), calls

    def _calls(self, call_s: float) -> int:
        return max(math.ceil(self._sample_s / max(call_s, 1e-7)), 1)

    def _expected_s(self, candidate: Candidate) -> float:
        family, work = candidate.family, candidate.work
        sample_s = max(self.costs.call_s(family, work), self._sample_s)
        probes = len(self._threads) - 1
        return (_COARSE_SAMPLES + probes) * sample_s + self.costs.setup_s(family, work)

    def _reject(self, candidate: Candidate, error: float) -> None:
        self._wrong.append(f"relative error {error:.2g} at {_format_setting(candidate.setting)}")

    def _measurement(self, winner: TimedCandidate, error: float, caveat: str | None) -> Measurement:
        caveats = [caveat] if caveat else []
        if self._wrong:
            caveats.append(f"{len(self._wrong)} settings gave a wrong result: {self._wrong[0]}")
        if self._late and winner in self._tried[-_LAST_TRIALS:]:
            caveats.append(
                f"only {len(self._tried)} of {self._offered} settings tried in the time: the "
                "ceiling may be higher; raise micro.budget_s"
            )
        return self._task.measurement(
            winner.speeds,
            setting=winner.setting,
            threads=self._max_threads,
            tried=tuple(tried.trial for tried in self._tried),
            error=error,
            tolerance=self._tolerance,
            caveat="; ".join(caveats) or None,
        )


def _are_steady(samples: list[list[float]]) -> bool:
    """Whether the samples of the fastest setting hardly differ."""
    width = spread(min(samples, key=median))
    return width is not None and width <= _STEADY_SPREAD


def _format_setting(setting: dict[str, int | str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())
