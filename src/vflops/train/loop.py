"""The training loop: steps, evaluations and checkpoints in their order; nothing else."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vflops.config.training import TrainSettings
from vflops.data.sampler import Sampler, mix, uniforms
from vflops.errors import RunFailed
from vflops.metrics import time_to_quality
from vflops.record.formats.job import Goal
from vflops.record.formats.job_events import Evaluated, Finished, Progressed
from vflops.train.context import JobContext
from vflops.train.ensemble.sample import drawn
from vflops.train.evaluation import Evaluation, Outcome
from vflops.train.loader import Loader, Request, loader
from vflops.train.losses import Losses, first_bad
from vflops.train.parallel.factory import ParallelPlan
from vflops.train.schedules import learning_rate
from vflops.train.state import TrainState
from vflops.workloads.contract.workload import Inputs, Workload

_TELL_S = 1.0
"""Seconds between two notes of where training stands."""
_GO_ON, _CHECKPOINT, _STOP = 0, 1, 2


@dataclass
class Loop:
    """Trains a job's model from where its state is to its end."""

    context: JobContext
    settings: TrainSettings
    goal: Goal
    workload: Workload
    plan: ParallelPlan
    state: TrainState
    evaluation: Evaluation
    device: torch.device
    dtype: torch.dtype
    prepare: Callable[..., Inputs]
    """The workload's ``inputs``, compiled where that pays."""
    compiles: bool
    """Whether the first steps compile."""

    def __post_init__(self) -> None:
        self._clock = self.context.clock
        self._samples = self.workload.samples("train")
        record = self.context.record
        self._bag = drawn(record.bag, len(self._samples))
        learned = len(self._samples) if self._bag is None else len(self._bag)
        self._sampler = Sampler(learned, mix(record.seed))
        self._steps = self._after(self.settings.epochs)
        self._end = min(self._after(self.settings.end_epoch or self.settings.epochs), self._steps)
        self._losses = Losses(self.device)
        self._loss: float | None = None
        self._told_s = self._kept_s = time.monotonic()
        self._kept_step = self.state.step
        self._keeping_s = 0.0
        self._compiling = 0
        self.outcome: Outcome | None = None
        """Of the newest evaluation."""

    def run(self) -> str | None:
        """Train to the end; the signal that stopped it, or None when it came to its end."""
        self._clock.enter("training")
        due = self._evaluations()
        # A checkpoint is older than the evaluation of its step, which a kill may have cut short.
        if self.state.step in due and (reason := self._evaluate_enough()):
            self._finish(reason)
            return None
        batches = loader(
            self._samples, self._requests(self.state.step), self._prepared, self.device
        )
        incoming = iter(batches)
        try:
            while self.state.step < self._end:
                self._step(incoming)
                if self.state.step in due:
                    if self.plan.agree(self._checkpoint_pays()):
                        self._checkpoint()
                    if reason := self._evaluate_enough():
                        self._finish(reason)
                        return None
                if self.state.step % self.plan.agree_every == 0 or self.state.step in due:
                    wish = self._wish()
                    if wish >= _CHECKPOINT:
                        self._checkpoint()
                    if wish == _STOP:
                        self._tell()
                        return self.context.stop.signal or "a signal on another rank"
        finally:
            self._end_loader(batches)
        self._finish("epochs")
        return None

    def one_batch(self) -> list[Inputs]:
        """The first batch of the data, whatever was trained on."""
        requests = itertools.islice(self._requests(0), self.settings.accumulate)
        batches = loader(self._samples, requests, self._prepared, self.device)
        try:
            return list(batches)
        finally:
            batches.close()

    def _evaluate_enough(self) -> str | None:
        """Why the evaluation that is due ends the training; None: it goes on."""
        if self._evaluate() and self.settings.stop_at_target:
            return "target"
        assert self.outcome is not None
        since = self.state.since_best(self.outcome.quality, self.goal.better)
        return "patience" if since == self.settings.patience else None

    def _step(self, incoming: Iterator[Inputs]) -> None:
        state = self.state
        compiling = self.compiles and not state.warm
        with self._clock.phase("compilation" if compiling else "data"):
            wanted = self.settings.accumulate if self.plan.takes_input else 0
            parts = [next(incoming) for _ in range(wanted)]
        with self._clock.phase("compilation" if compiling else "training"):
            torch.manual_seed(mix(self.context.record.seed, state.step, self.plan.share) >> 1)
            loss = state.take_step(parts, self._rate())
            self._compiling += self.settings.batch if compiling else 0
            self._losses.put(state.step, loss)
            self._hear(all=compiling)

    def _hear(self, *, all: bool = False) -> None:
        """Look at the losses that are known by now; one that is not finite ends the job."""
        known = self._losses.ready(all=all)
        bad = first_bad(known)
        if bad is not None:
            raise self._diverged(*bad)
        if known:
            self._loss = known[-1][1]
        if known and time.monotonic() - self._told_s >= _TELL_S:
            self._tell()

    def _tell(self) -> None:
        self._told_s = time.monotonic()
        payload = Progressed(
            step=self.state.step,
            samples=self._trained,
            epoch=self._epoch,
            loss=self._loss,
            learning_rate=self._rate(),
            phases=self._clock.spent_s(),
            samples_compiling=self._compiling,
        )
        self.context.write_event("progress", payload, sync=False)

    def _evaluate(self) -> bool:
        """Whether the target is reached."""
        with self._clock.phase("training"):
            self._hear(all=True)  # the device finishes what is training before evaluation starts
        if self.compiles and self.outcome is None:
            with self._clock.phase("compilation"):
                self.state.evaluate(self.evaluation.first_batch)
        with self._clock.phase("evaluation"):
            self.plan.settle(self.state.model)
            self.outcome = self.state.evaluate(self.evaluation)
        quality = self.outcome.quality
        payload = Evaluated(
            step=self.state.step,
            samples=self._trained,
            epoch=self._epoch,
            quality=quality,
            evaluated=self.outcome.evaluated,
            phases=self._clock.spent_s(),
            samples_compiling=self._compiling,
        )
        self.context.write_event("evaluation", payload)
        reached = time_to_quality(
            [1.0], [quality], target=self.goal.target, better=self.goal.better
        )
        return reached is not None

    def _checkpoint(self) -> None:
        if self.state.step == self._kept_step:
            return
        with self._clock.phase("training"):
            self._hear(all=True)
        started_s = time.monotonic()
        with self._clock.phase("checkpointing"):
            self.plan.settle(self.state.model)
            kept = self.state.save(self.plan)
            if kept is not None:
                self.context.write_event("checkpoint", kept)
            self.plan.barrier()
        self._kept_s, self._kept_step = time.monotonic(), self.state.step
        self._keeping_s = self._kept_s - started_s

    def _checkpoint_pays(self) -> bool:
        """Whether one that takes as long as the last stays within its share of the time."""
        share, since_s = self.settings.checkpoint_share, time.monotonic() - self._kept_s
        if since_s < self.context.keep_after_s:
            return False
        return self._keeping_s * (1 - share) <= share * since_s

    def _finish(self, reason: str) -> None:
        """Write down the end; nothing stopped it."""
        if self.context.keep_last:
            self._checkpoint()
        payload = Finished.model_validate(
            {
                "step": self.state.step,
                "samples": self._trained,
                "epoch": self._epoch,
                "reason": reason,
                "phases": self._clock.spent_s(),
                "samples_compiling": self._compiling,
                "weights_sha256": self.state.weights_hash(self.plan),
                "peak_memory_bytes": self.state.peak_memory_bytes(),
            }
        )
        self.context.write_event("finished", payload)

    def _wish(self) -> int:
        """What the ranks do next: go on, keep a checkpoint, or stop with one."""
        wish = _GO_ON
        if self.context.stop.signal:
            wish = _STOP
        elif time.monotonic() - self._kept_s > self.settings.checkpoint_s:
            wish = _CHECKPOINT
        return self.plan.agree(wish)

    def _end_loader(self, batches: Loader) -> None:
        with self._clock.phase("data"):
            batches.close()

    def _requests(self, first: int) -> Iterator[Request]:
        """This rank's share of every step from ``first``, in the parts it is computed in."""
        train, plan, draws = self.settings, self.plan, self.workload.draws
        seed = mix(self.context.record.seed, 1)
        for step in range(first, self._end):
            start, indices = self._sampler.share(step, train.batch, plan.share, plan.shares)
            if self._bag is not None:
                indices = self._bag[indices]
            for offset in range(0, len(indices), train.rank_batch):
                part = indices[offset : offset + train.rank_batch]
                numbers = uniforms(seed, start + offset, len(part), draws) if draws else None
                yield Request(part, None if numbers is None else torch.from_numpy(numbers))

    def _prepared(self, batch: tuple[Tensor, ...], draws: Tensor | None) -> Inputs:
        return self.prepare(batch, draws, self.dtype)

    def _evaluations(self) -> set[int]:
        """The steps after which the model is evaluated: those that end an epoch that counts."""
        train = self.settings
        every = range(train.evaluate_every, train.epochs + 1, train.evaluate_every)
        return {self._after(epoch) for epoch in every} | {self._end}

    def _after(self, epochs: int) -> int:
        """The steps of so many epochs; one is as many samples as the data has, whatever is drawn of
        it: so all models of an ensemble do the same work."""
        return -(-epochs * len(self._samples) // self.settings.batch)

    def _rate(self) -> float:
        train, per_epoch = self.settings, len(self._samples) / self.settings.batch
        return learning_rate(
            train.schedule,
            step=min(self.state.step, self._steps - 1),
            steps=self._steps,
            warmup_steps=round(train.warmup_epochs * per_epoch),
            peak=train.peak_rate,
            milestones_steps=tuple(
                dict.fromkeys(round(epoch * per_epoch) for epoch in train.milestones)
            ),
        )

    @property
    def _trained(self) -> int:
        return self.state.step * self.settings.batch

    @property
    def _epoch(self) -> float:
        return round(self._trained / len(self._samples), 4)

    def _diverged(self, step: int, loss: float) -> RunFailed:
        kept = self.state.checkpoints.latest()
        rate = self._rate()
        return RunFailed(
            f"the loss is {loss} at step {step}; "
            + (f"the last good checkpoint is {kept}" if kept else "there is no checkpoint yet"),
            hint=f"start again with a smaller --set train.learning_rate (it was {rate:.3g} there)"
            + ("" if self.settings.warmup_epochs else ", a --set train.warmup_epochs")
            + ("" if self.settings.precision == "fp32" else ", or --set train.precision=fp32"),
        )
