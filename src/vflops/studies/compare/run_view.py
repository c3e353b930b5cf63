"""A view of a run for comparisons and histories: its figures, and what makes runs comparable."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from vflops.config.flatten import flatten
from vflops.machine.system.fact_text import format_fact
from vflops.record.folder import RunFolder, RunRecord
from vflops.record.formats.batch_ops import BatchOps
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.figures import Samples, samples
from vflops.results.score.node_text import nodes_title
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score
from vflops.units import count

SETTINGS_OF_REPEATS = ("seed", "repeat")
"""The settings that may differ between repeats of a measurement."""
TRANSIENT_FACTS = ("* clock now", "*pcie generation now", "* free", "allocation*")
"""Patterns of system facts that change all the time, and are not compared."""

Facts = dict[tuple[str, str], str]
"""Facts of a system, by layer and name."""


@dataclass(frozen=True)
class RunView:
    """A run with its score and its system."""

    contents: Contents
    score: Score
    system: SystemRecord | None

    @classmethod
    def from_folder(cls, folder: RunFolder) -> RunView:
        """Read the run in a folder, and compute its score."""
        contents, file = Contents(folder), folder.system_file
        system = SystemRecord.read(file) if file.is_file() else None
        return cls(contents, score(contents), system)

    @property
    def record(self) -> RunRecord:
        """The contents of ``run.json``."""
        return self.contents.folder.record

    @property
    def id(self) -> str:
        """The run's id."""
        return self.record.id

    @cached_property
    def samples(self) -> Samples:
        """The repeats of each figure."""
        return samples(self.score)

    @cached_property
    def settings(self) -> dict[str, str]:
        """Every setting as JSON, by its full name."""
        settings = flatten(self.record.settings.model_dump(mode="json"), keep_empty=True)
        return {name: json.dumps(value) for name, value in settings.items()}

    @cached_property
    def measurement_settings(self) -> dict[str, str]:
        """The settings that define the measurement.

        The path of the data is left out, because data is compared by its fingerprint.
        """
        paths = {f"workloads.{name}.data" for name in self.record.settings.workloads}
        return {
            key: value
            for key, value in self.settings.items()
            if key not in SETTINGS_OF_REPEATS and key not in paths
        }

    @cached_property
    def facts(self) -> Facts:
        """The facts of the system by layer and name, without those that change all the time."""
        facts = {
            (layer.name, fact.name): format_fact(fact)
            for layer in (self.system.layers if self.system else ())
            for fact in layer.facts
            if not any(fnmatchcase(fact.name, pattern) for pattern in TRANSIENT_FACTS)
        }
        if self.score.node_kinds:
            facts["hardware", "compute nodes"] = nodes_title(self.score.node_kinds)
        return facts

    @property
    def machine(self) -> str:
        """The compute nodes, or the processor, the cores and the accelerators as text."""
        if self.score.node_kinds:
            return nodes_title(self.score.node_kinds)
        return ", ".join(self.system.machine) if self.system else "a system that is not described"

    @property
    def machine_text(self) -> str:
        """``machine``, and the machine that submitted the run, which is not part of the system."""
        submitted_from = self.system.submitted_from if self.system else None
        return self.machine + (f"; submitted from {submitted_from}" if submitted_from else "")

    @cached_property
    def data(self) -> dict[str, str]:
        """The fingerprint of the data by workload."""
        jobs = [*self.contents.training_jobs, *self.contents.workers]
        return {job.record.workload: job.record.data.fingerprint for job in jobs}

    @cached_property
    def validation_text(self) -> dict[str, str]:
        """The content hash of the validation data whose loss is the quality, by workload.

        The fingerprint of all data if its samples were not hashed.
        """
        records = [job.record for job in self.contents.training_jobs]
        data = {record.workload: record.data for record in records if record.goal.of_loss}
        return {
            name: (facts.contents or {}).get("validation", facts.fingerprint)
            for name, facts in data.items()
        }

    @cached_property
    def rules(self) -> dict[str, str]:
        """The rules by which operations are counted, by workload."""
        counted = {
            training.workload: f"{work.rules}/{work.rules_version} ({work.source})"
            for training in self.score.trainings
            if (work := training.work) is not None
        }
        return {**counted, **{search.workload: search.rules for search in self.score.searches}}

    @cached_property
    def work(self) -> dict[str, BatchOps]:
        """The operations of one batch, by workload."""
        return {
            training.workload: training.work.batch_ops
            for training in self.score.trainings
            if training.work is not None and training.work.batch_ops is not None
        }

    @cached_property
    def goals(self) -> dict[str, str]:
        """Target quality and exponent, by workload."""
        return {
            training.workload: f"{training.quality.name} {training.quality.target:g}, "
            f"exponent {training.quality.exponent}"
            for training in self.score.trainings
        }

    @cached_property
    def tasks(self) -> dict[str, str]:
        """The digest of the task, by workload."""
        return {
            task.workload: f"{task.kind} {task.digest or 'unknown'}" for task in self.score.tasks
        }

    @cached_property
    def planned_epochs(self) -> dict[str, str]:
        """The planned number of epochs, by workload."""
        return {
            job.record.workload: count(train.get("end_epoch") or train["epochs"], "epoch")
            for job in self.contents.training_jobs
            if "epochs" in (train := job.record.settings.get("train", {}))
        }

    @cached_property
    def group_key(self) -> str:
        """A hash that is equal for runs of the same measurement on the same kind of machine."""
        settings, machine = self.measurement_settings, self.machine
        parts = (self.record.workload, settings, self.data, self.rules, machine)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def read_run_view(path: Path) -> RunView:
    """Return the run in ``path``; raise VflopsError if it cannot be read."""
    return RunView.from_folder(RunFolder.open(path))
