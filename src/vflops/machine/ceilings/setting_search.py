"""The search for the fastest setting: try, check the result, time the best ones again.

The value of a measurement is the median of samples that are taken after the search, at the
setting that is fastest then: a lucky sample of the search selects, but does not count. A
sample is a burst of calls after a short warm-up. On an accelerator each sample follows a pause:
a ceiling is what the device can reach, and at its power limit it is slower.
"""

from __future__ import annotations

import math
import time

from vflops.machine.ceilings.deadline import Deadline
from vflops.machine.ceilings.task import Task
from vflops.machine.ceilings.trial import Candidate, Kernel, TimedCandidate
from vflops.machine.ceilings.trial_cost import Costs
from vflops.machine.devices import first_line, is_out_of_memory, threads
from vflops.record.formats.measurement import Measurement

_SHORTEST_SAMPLE_S, _LONGEST_SAMPLE_S = 1e-3, 5e-3
"""Length of a sample of short calls: long compared with the timer's resolution and gaps."""
_SAMPLE_SHARE = 0.01
"""Share of an item's time for one sample."""
_COARSE_SAMPLES = 3
_FINAL_SAMPLES = 15
_LEAST_FINAL_SAMPLES = 3
_FINALISTS = 5
_FINAL_SHARE = 0.35
"""Share of an item's time that is reserved for the samples that count."""
_TRIAL_SHARE = 0.5
"""Share of the remaining time for one trial, so that a search tries several settings."""
_CONTENDER = 0.85
"""A setting slower than this share of the best is not timed again."""
_WARM_CALLS = 3
_STEADY = 0.1
"""The warm-up is over when two calls differ by less than this."""
_LONG_S = 0.03
"""A call this long needs no warm-up besides its check."""
_PAUSE, _LONGEST_PAUSE_S = 3.0, 0.05
"""Pauses of an accelerator, in lengths of a sample."""


class Search:
    """All trials of one item."""

    def __init__(self, task: Task, tolerance: float) -> None:
        self._task = task
        self._device = task.device
        self._tolerance = tolerance
        self._deadline = task.deadline.limited_to((1 - _FINAL_SHARE) * task.deadline.left_s())
        self._tried: list[TimedCandidate] = []
        self._wrong: list[str] = []
        self._refused: list[str] = []
        self._threads = task.device.thread_counts()
        wanted_s = _SAMPLE_SHARE * task.deadline.left_s()
        self._sample_s = min(max(wanted_s, _SHORTEST_SAMPLE_S), _LONGEST_SAMPLE_S)
        self.costs = Costs()

    def attempt(self, candidate: Candidate) -> float | None:
        """Return the best speed of ``candidate``; None if it is wrong, refused or too slow."""
        first = not (self._tried or self._wrong or self._refused)
        deadline = self._task.overall_deadline if first else self._deadline
        if _TRIAL_SHARE * deadline.left_s() < self._expected_s(candidate):
            return None
        try:
            if first:
                candidate.build().check()  # loading and compiling at the first call is not counted
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
            self._refused.append(f"{first_line(failure)} at {_words(candidate.setting)}")
            if is_out_of_memory(failure):
                self._device.release()
            return None
        self._tried.append(tried)
        self.costs.add(candidate.family, candidate.work, min(tried.times_s), setup_s)
        self._task.on_trial(tried.trial)
        return candidate.work / min(tried.times_s)

    def best(self) -> Candidate | None:
        """Return the fastest setting so far."""
        return max(self._tried, key=lambda tried: tried.speed).candidate if self._tried else None

    def finish(self, caveat: str | None = None) -> Measurement:
        """Time the fastest settings again, check the winner, and return the measurement."""
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
        return self._task.absent_measurement(
            self._refused[0] if self._refused else self._task.out_of_time_reason
        )

    def _time(
        self, candidate: Candidate, kernel: Kernel, error: float, deadline: Deadline
    ) -> TimedCandidate:
        """Take a few samples with the best thread count so far, or another if it is faster."""
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
        """Return the seconds of a call once two in a row agree; a long call needs only one."""
        call_s = self._device.time_s(kernel.call)
        for _ in range(_WARM_CALLS):
            if call_s > _LONG_S or deadline.left_s() < (_COARSE_SAMPLES + 1) * call_s:
                break
            before_s, call_s = call_s, self._device.time_s(kernel.call)
            if abs(call_s - before_s) <= _STEADY * call_s:
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
        enough = _CONTENDER * ranked[0].speed
        contenders = [tried for tried in ranked[:_FINALISTS] if tried.speed >= enough]
        deadline = self._task.deadline
        left_s = deadline.left_s()
        while contenders and left_s < _LEAST_FINAL_SAMPLES * sum(map(self._burst_s, contenders)):
            contenders.pop()
        contenders = contenders or ranked[:1]  # a few samples are taken even after the deadline
        kernels = [tried.candidate.build() for tried in contenders]
        samples: list[list[float]] = [[] for _ in contenders]
        round_s = sum(map(self._burst_s, contenders))
        while len(samples[0]) < _FINAL_SAMPLES and (
            len(samples[0]) < _LEAST_FINAL_SAMPLES or deadline.left_s() > round_s
        ):
            for tried, kernel, times_s in zip(contenders, kernels, samples, strict=True):
                times_s.append(self._burst(tried, kernel))
        for tried, times_s in zip(contenders, samples, strict=True):
            tried.times_s = times_s
        return max(contenders, key=lambda tried: tried.speed)

    def _burst(self, tried: TimedCandidate, kernel: Kernel) -> float:
        """Take one sample that counts and return the seconds of a call."""
        pause_s, warm_calls, calls = self._pace(tried)
        time.sleep(pause_s)
        with threads(tried.threads):
            return self._device.time_s(kernel.call, calls, warm_calls=warm_calls)

    def _burst_s(self, tried: TimedCandidate) -> float:
        pause_s, warm_calls, calls = self._pace(tried)
        return pause_s + (warm_calls + calls) * tried.call_s

    def _pace(self, tried: TimedCandidate) -> tuple[float, int, int]:
        """Return the pause, warm-up calls and timed calls of a burst."""
        calls = self._calls(tried.call_s)
        pause_s = min(_PAUSE * calls * tried.call_s, _LONGEST_PAUSE_S)
        return 0.0 if self._device.is_cpu else pause_s, min(calls, _WARM_CALLS), calls

    def _calls(self, call_s: float) -> int:
        return max(math.ceil(self._sample_s / max(call_s, 1e-7)), 1)

    def _expected_s(self, candidate: Candidate) -> float:
        family, work = candidate.family, candidate.work
        sample_s = max(self.costs.call_s(family, work), self._sample_s)
        probes = len(self._threads) - 1
        return (_COARSE_SAMPLES + probes) * sample_s + self.costs.setup_s(family, work)

    def _reject(self, candidate: Candidate, error: float) -> None:
        self._wrong.append(f"relative error {error:.2g} at {_words(candidate.setting)}")

    def _measurement(self, winner: TimedCandidate, error: float, caveat: str | None) -> Measurement:
        caveats = [caveat] if caveat else []
        if self._wrong:
            caveats.append(f"{len(self._wrong)} settings gave a wrong result: {self._wrong[0]}")
        return self._task.measurement(
            winner.speeds,
            setting=winner.setting,
            tried=tuple(tried.trial for tried in self._tried),
            error=error,
            tolerance=self._tolerance,
            caveat="; ".join(caveats) or None,
        )


def _words(setting: dict[str, int | str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())
