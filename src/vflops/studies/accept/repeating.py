"""Runs the task of a reference until every figure is decided, or the largest number is reached.

DIR/<n>/<run>/        the run folder of repeat n
DIR/acceptance.json   the verdict; .html, .xml and .pdf hold the same
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from vflops.config.settings import Settings
from vflops.errors import UsageError, unknown_name
from vflops.record.files import atomic
from vflops.record.files.lock import locked
from vflops.record.folder import RunFolder
from vflops.run.continued import existing_run, run_to_end
from vflops.run.observer import RunObserver
from vflops.studies.accept.accept_text import next_repeats
from vflops.studies.accept.acceptance import Acceptance
from vflops.studies.accept.judging import judge
from vflops.studies.accept.measured_figures import is_measured, known_names
from vflops.studies.accept.reference import Reference
from vflops.studies.accept.runs_under_test import RunUnderTest
from vflops.studies.accept.task_settings import task_settings
from vflops.studies.compare.run_view import RunView
from vflops.workloads.contract.run_settings import load


@dataclass(frozen=True)
class RepeatedTask:
    """The task of a reference, which is run several times with different seeds."""

    folder: Path
    reference: Reference
    settings: Settings
    """The settings of the first repeat; the next ones have the next seeds."""

    @classmethod
    def create(
        cls,
        folder: Path,
        reference: Reference,
        *,
        on: str | None = None,
        container: str | None = None,
        data: Path | None = None,
    ) -> RepeatedTask:
        """Return the task as it is run here; raise ``UsageError`` if it cannot be run."""
        assignments = [f"launch.on={on}"] if on else []
        if container is not None:
            assignments.append(f"launch.container={json.dumps(container)}")
        if data is not None:
            assignments.append(f"data={json.dumps(str(data.resolve()))}")
        settings = load(task_settings(reference.task), None, assignments)
        if reference.task.fill_nodes:
            settings = _filled(settings, reference.task.workload)
        _require_known_figures(reference, settings)
        return cls(folder, reference, settings)

    def run(self, watch: RunObserver) -> Acceptance:
        """Run the missing repeats and return the verdict.

        The number of repeats is computed only after the first ones, and after each number of
        further ones that was computed.
        """
        judgement = self.reference.judgement
        atomic.make_folder(self.folder)
        with locked(self.folder / ".lock", self.folder):
            planned = judgement.repeats
            while True:
                for number in range(1, planned + 1):
                    if self._repeat(number, planned, watch).lacks_evidence:
                        return self.result()
                acceptance = self.result()
                wanted = wanted_repeats(acceptance)
                if wanted <= planned:
                    return acceptance
                watch.step(next_repeats(acceptance))
                planned = wanted

    def result(self) -> Acceptance:
        """Return the verdict on the repeats so far."""
        views = [RunView.from_folder(folder) for folder in self._folders()]
        return judge(self.reference, [RunUnderTest(view) for view in views])

    def _repeat(self, number: int, planned: int, watch: RunObserver) -> Acceptance:
        """Run one repeat unless it is complete, and return the verdict on it alone."""
        parent = self.folder / str(number)
        earlier = existing_run(parent)
        if earlier is None or not all(path.is_file() for path in earlier.result_files):
            watch.step(f"repeat {number} of {planned}")
            seed = self.settings.seed + (number - 1) * self._seeds_per_run
            settings = self.settings.model_copy(update={"seed": seed})
            earlier = run_to_end(parent, self.reference.task.workload, settings, watch)
        return judge(self.reference, [RunUnderTest(RunView.from_folder(earlier))])

    @property
    def _seeds_per_run(self) -> int:
        """How many seeds a run uses, so that those of the next one are others."""
        models = max(map(self.settings.models_of, self.settings.workloads), default=1)
        return self.settings.repeat * models

    def _folders(self) -> list[RunFolder]:
        numbers = sorted(int(path.name) for path in self.folder.glob("[0-9]*") if path.is_dir())
        found = [existing_run(self.folder / str(number)) for number in numbers]
        return [folder for folder in found if folder is not None]


def wanted_repeats(acceptance: Acceptance) -> int:
    """Return the total number of repeats to run: those so far, or more if they would decide."""
    done, more = len(acceptance.runs), acceptance.more_repeats
    limit = acceptance.reference.judgement.max_repeats
    if acceptance.verdict != "undecided" or more is None or done + more > limit:
        return done
    return done + more


def _require_known_figures(reference: Reference, settings: Settings) -> None:
    """Raise ``UsageError`` if a promised figure is none of those that the task measures."""
    for figure in reference.figure:
        if not is_measured(figure.name, settings):
            where = f" in the reference {reference.name!r}"
            raise unknown_name("figure", figure.name, known_names(settings), where=where)


def _filled(settings: Settings, workload: str) -> Settings:
    """Return the settings for as many models as the nodes of the back end take at once."""
    from vflops.launch.factory import launcher_class
    from vflops.launch.nodes import usable_nodes
    from vflops.launch.placement import capacity

    if not launcher_class(settings.launch.on).nodes_reserved():
        raise UsageError(
            f"fill_nodes = true needs known nodes, and launch.on = {settings.launch.on} has no"
            " allocation",
            hint="start the command inside an allocation, for example with salloc -N 4",
        )
    train = settings.workloads[workload]["train"]
    nodes = usable_nodes(settings.launch, train["device"], train["ranks"])
    models = capacity(nodes, train["ranks"])
    return load(settings, None, [f"{workload}.models={models}"])
