"""A run as comparisons and histories need it: its figures, and what makes it another's equal."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from vflops.config.flatten import flatten
from vflops.machine.system.fact_text import shown
from vflops.record.folder import RunFolder, RunRecord
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.figures import Samples, samples
from vflops.results.score.figure_text import count
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score

REPEATED = ("seed", "repeat")
"""Settings in which repeats of one thing differ."""
MOMENTARY = ("* clock now", "*pcie generation now", "* free", "allocation*")
"""Facts of a system that are others at every look."""

Facts = dict[tuple[str, str], str]
"""Of a system, by layer and name."""


@dataclass(frozen=True)
class ReadRun:
    """A run that was read."""

    contents: Contents
    score: Score
    system: SystemRecord | None

    @property
    def record(self) -> RunRecord:
        """Its ``run.json``."""
        return self.contents.folder.record

    @property
    def id(self) -> str:
        """Its name."""
        return self.record.id

    @cached_property
    def samples(self) -> Samples:
        """Its figures with their repeats."""
        return samples(self.score)

    @cached_property
    def settings(self) -> dict[str, str]:
        """Every setting by its whole name, as JSON writes it."""
        settings = flatten(self.record.settings.model_dump(mode="json"), keep_empty=True)
        return {name: json.dumps(value) for name, value in settings.items()}

    @cached_property
    def own_settings(self) -> dict[str, str]:
        """The settings that make it another measurement; the data has its fingerprint for that."""
        apart = {f"workloads.{name}.data" for name in self.record.settings.workloads}
        return {
            key: value
            for key, value in self.settings.items()
            if key not in REPEATED and key not in apart
        }

    @cached_property
    def facts(self) -> Facts:
        """The lasting facts of its system, by layer and name."""
        return {
            (layer.name, fact.name): shown(fact)
            for layer in (self.system.layers if self.system else ())
            for fact in layer.facts
            if not any(fnmatchcase(fact.name, pattern) for pattern in MOMENTARY)
        }

    @property
    def machine(self) -> str:
        """Processor, cores and accelerators, in words."""
        return ", ".join(self.system.machine) if self.system else "a system that is not described"

    @cached_property
    def data(self) -> dict[str, str]:
        """The fingerprints of the data of each workload."""
        jobs = [*self.contents.trained, *self.contents.workers]
        return {each.record.workload: each.record.data.fingerprint for each in jobs}

    @cached_property
    def rules(self) -> dict[str, str]:
        """By which rules the operations of each workload are counted, and how."""
        found = {
            each.workload: f"{each.work.rules}/{each.work.rules_version} ({each.work.source})"
            for each in self.score.trainings
            if each.work is not None
        }
        return {**found, **{each.workload: each.rules for each in self.score.searches}}

    @cached_property
    def work(self) -> dict[str, str]:
        """Operations that one sample of each workload takes."""
        return {
            each.workload: f"{each.work.ops_total:,}"
            for each in self.score.trainings
            if each.work is not None
        }

    @cached_property
    def goals(self) -> dict[str, str]:
        """What each workload should reach, and what a miss costs."""
        return {
            each.workload: f"{each.quality.name} {each.quality.target:g}, "
            f"exponent {each.quality.exponent}"
            for each in self.score.trainings
        }

    @cached_property
    def lengths(self) -> dict[str, str]:
        """How long each workload was told to train."""
        return {
            each.record.workload: count(train.get("end_epoch") or train["epochs"], "epoch")
            for each in self.contents.trained
            if "epochs" in (train := each.record.settings.get("train", {}))
        }

    @cached_property
    def kind(self) -> str:
        """The same for runs that measure the same thing on the same kind of machine."""
        parts = (self.record.workload, self.own_settings, self.data, self.rules, self.machine)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def read_run(path: Path) -> ReadRun:
    """The run in ``path``, or an error that says why it cannot be read."""
    contents = Contents(RunFolder.open(path))
    file = contents.folder.system_file
    system = SystemRecord.read(file) if file.is_file() else None
    return ReadRun(contents, score(contents), system)
