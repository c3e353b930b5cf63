"""The options that ``vflops run`` and ``vflops plan`` share, and the command that they make."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.cli import options
from vflops.errors import UsageError

if TYPE_CHECKING:
    from vflops.config.settings import Settings
    from vflops.record.formats.challenge import ChallengedRun
    from vflops.run.run_size import RunSize

_DEFAULT_OUT = Path("runs")


@dataclass(frozen=True)
class RunOptions:
    """What decides a run on the command line; None for an option that was not given."""

    workload: str | None = None
    profile: str | None = None
    data: Path | None = None
    framework: str | None = None
    models: int | None = None
    workers: int | None = None
    for_: str | None = None
    ranks: int | None = None
    scale: int | None = None
    on: str | None = None
    nodes: int | None = None
    rehearse: bool = False
    container: str | None = None
    waves: bool = False
    twins: bool = False
    repeat: int | None = None
    kernels: bool = False
    seed: int | None = None
    challenge: Path | None = None
    out: Path = _DEFAULT_OUT
    config: Path | None = None
    set_: tuple[str, ...] = ()

    @property
    def workloads(self) -> str:
        """The workload, or ``suite`` for all of them."""
        return self.workload or "suite"

    def assignments(self) -> list[str]:
        """Return the settings of the options, apart from profile, seed and file."""
        flags: dict[str, object] = {
            "data": self.data,
            "repeat": self.repeat,
            "launch.on": self.on,
            "launch.nodes": self.nodes,
            "launch.container": self.container,
        }
        if self.scale is None:  # otherwise they must first make this scale on the nodes
            flags |= {"train.ranks": self.ranks}
            flags |= {"bagging.models": self.models, "models": self.models}
        flags |= options.framework_flags(self.workload, self.framework)
        flags |= options.search_flags(self.workload, self.workers, self.for_)
        flags |= {
            "bagging.waves": self.waves or None,
            "bagging.twins": self.twins or None,
            "telemetry.kernels": self.kernels or None,
        }
        return [
            *options.rehearsal_settings(rehearse=self.rehearse),
            *self.set_,
            *(f"{key}={_toml(value)}" for key, value in flags.items() if value is not None),
        ]

    def sized_settings(self, slots: int | None = None) -> tuple[Settings, RunSize]:
        """Return the settings of the run, with M and P as they fit the nodes, and these sizes.

        ``slots`` are those of ``launch.nodes`` nodes that are not known here. Raise if an option
        does not apply.
        """
        settings, size = options.sized_settings(
            self.profile,
            self.seed,
            self.config,
            self.assignments(),
            workloads=self.workloads,
            scale=self.scale,
            models=self.models,
            ranks=self.ranks,
            slots=slots,
        )
        self._check_ensemble_options(settings)
        return settings, size

    def _check_ensemble_options(self, settings: Settings) -> None:
        """Raise if options for ensembles are given, but there is no ensemble."""
        from vflops.workloads.contract.registry import workload

        given = {f"--models {self.models}": self.models is not None, "--waves": self.waves}
        used = [option for option, is_given in given.items() if is_given]
        if used and len(settings.workloads) == 1:
            (name,) = settings.workloads
            if workload(name).is_search:
                workers = "W" if self.models is None else self.models
                raise UsageError(
                    f"{name} is a search: {used[0]} does not apply",
                    hint=f"use --workers {workers}",
                )
        if self.waves and all(settings.models_of(name) == 1 for name in settings.workloads):
            raise UsageError(
                "--waves needs an ensemble, but no workload has several models",
                hint="add --models M",
            )

    def challenged(
        self, settings: Settings, *, quiet: bool = False
    ) -> tuple[Settings, ChallengedRun | None]:
        """Return the settings with the seeds of the challenge, if any, and what is recorded of it.

        Unless ``quiet``, print who issued the challenge.
        """
        if self.challenge is None:
            return settings, None
        import time

        from vflops.cli.terminal.console import say
        from vflops.publish.evidence.challenges import read_challenge
        from vflops.run.challenged import challenged

        document, signature = read_challenge(self.challenge)
        seeded, answered = challenged(settings, document, time.time())
        if not quiet:
            expiry = document.expires_utc
            until = f", to be handed in by {expiry}" if expiry else ""
            issued = f"challenge issued to {document.submitter} at {document.issued_utc}{until}"
            say(f"{issued}; {signature}")
            say(f"run {answered.number} of it: seed {answered.seed}")
        return seeded, answered

    def words(self) -> list[str]:
        """Return the words of the ``vflops run`` with these options."""
        return ["vflops", "run", *([self.workload] if self.workload else []), *self._flags()]

    def _flags(self) -> Iterator[str]:
        values: dict[str, object] = {
            "--profile": self.profile,
            "--data": self.data,
            "--framework": self.framework,
            "--models": self.models,
            "--workers": self.workers,
            "--for": self.for_,
            "--ranks": self.ranks,
            "--scale": self.scale,
            "--on": self.on,
            "--nodes": self.nodes,
            "--container": self.container,
            "--repeat": self.repeat,
            "--seed": self.seed,
            "--challenge": self.challenge,
            "--out": None if self.out == _DEFAULT_OUT else self.out,
            "--config": self.config,
        }
        for name, value in values.items():
            if value is not None:
                yield from (name, str(value))
        switches = {
            "--rehearse": self.rehearse,
            "--waves": self.waves,
            "--twins": self.twins,
            "--kernels": self.kernels,
        }
        yield from (name for name, is_on in switches.items() if is_on)
        for assignment in self.set_:
            yield from ("--set", assignment)

    def with_settings(self, *assignments: str) -> RunOptions:
        """Return the options with further settings, which take precedence."""
        return replace(self, set_=(*self.set_, *assignments))


def _toml(value: object) -> str:
    """Return a value for ``--set``: quoted if it is a text, so that it stays one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False)
    return str(value)
