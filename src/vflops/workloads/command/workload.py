"""Checks a command before it runs, and describes its data and operations."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.config.training import WorkloadSettings
from vflops.counting.conventions import EXECUTED_CONVENTION, convention
from vflops.counting.count import count
from vflops.errors import FolderError, UsageError
from vflops.metrics.quality import default_bounds
from vflops.record.folder import file_hash
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts, DeclaredWork
from vflops.workloads.command.combined_metric import (
    COMBINATIONS,
    check_combination,
    metric_of,
    unit_of,
)
from vflops.workloads.command.data_hash import hash_data
from vflops.workloads.command.settings import CommandSettings
from vflops.workloads.contract.code import Progress, WorkloadCode
from vflops.workloads.contract.spec import Quality

if TYPE_CHECKING:
    from vflops.workloads.command.ensemble_meter import ScriptEnsemble
    from vflops.workloads.contract.spec import WorkloadSpec

DATA_SHA256 = "data sha256"
"""The fact with the hash of the data that the user names."""
_PYTHON = "{python}"
_MAX_SCRIPT_BYTES = 16 << 20
"""Larger files are considered data and are not hashed."""


class Command(WorkloadCode):
    """Any training script; it is run by ``runner`` instead of the training engine."""

    graph_declared = True

    @classmethod
    def check_settings(cls, settings: WorkloadSettings) -> None:
        """Raise unless the settings describe a script that can be run."""
        assert isinstance(settings, CommandSettings)
        _check_complete(settings)
        _check_program(settings)
        _check_scripts(settings)
        _check_bounds(settings)
        _check_graph(settings)

    @classmethod
    def check_ensemble(cls, settings: WorkloadSettings) -> None:
        """Raise unless the predictions of scripts can be combined and judged."""
        assert isinstance(settings, CommandSettings)
        check_combination(settings)

    @classmethod
    def combined_by(cls, settings: WorkloadSettings, spec: WorkloadSpec) -> str:
        """Return the function of the combination that the settings name."""
        assert isinstance(settings, CommandSettings)
        return COMBINATIONS[settings.combine]

    @classmethod
    def create(cls, settings: WorkloadSettings, data: DataFacts) -> ScriptEnsemble:
        """Return what evaluates the combined predictions of several scripts."""
        from vflops.workloads.command.ensemble_meter import ScriptEnsemble  # imports torch

        assert isinstance(settings, CommandSettings)
        return ScriptEnsemble(metric_of(settings), unit_of(settings))

    @classmethod
    def prepare_data(cls, settings: WorkloadSettings, progress: Progress) -> DataFacts:
        """Return what the user says about the script's data; it is hashed if they name it."""
        assert isinstance(settings, CommandSettings)
        cls.check_settings(settings)
        data = None if settings.data is None else Path(settings.data).resolve()
        if data is not None and not data.exists():
            raise UsageError(f"the data {settings.data} does not exist", hint="check --data")
        device, device_name = _device(settings.train.device)
        hashed = None if data is None else hash_data(data, progress)
        return DataFacts(
            path=str(data or ""),
            synthetic=None if data is None else False,  # unknown data is ranked separately
            fingerprint=fingerprint(settings, Path.cwd(), hashed.sha256 if hashed else ""),
            train=settings.samples or 0,  # a missing size is refused above
            validation=settings.validation or 0,
            facts={
                "folder": str(Path.cwd()),
                "device": device,
                "device name": device_name,
                **({DATA_SHA256: hashed.sha256, "data hashed": hashed.covers} if hashed else {}),
            },
        )

    @classmethod
    def work(cls, settings: WorkloadSettings, data: DataFacts, name: str) -> Graph | DeclaredWork:
        """Return the graph that the user supplied, or the operations that they declared."""
        assert isinstance(settings, CommandSettings)
        if settings.graph is not None:
            return _graph(settings.graph).model_copy(update={"model": name})
        assert settings.ops_forward is not None and settings.ops_total is not None
        return DeclaredWork(
            ops_forward=settings.ops_forward,
            ops_total=settings.ops_total,
            source=settings.ops_source,
        )

    @classmethod
    def target(cls, settings: WorkloadSettings) -> float:
        """Return the user's target."""
        assert isinstance(settings, CommandSettings)
        _check_complete(settings)
        return settings.target or 0.0

    @classmethod
    def judged_by(cls, settings: WorkloadSettings, spec: WorkloadSpec) -> Quality:
        """Return the quality that the user has defined."""
        assert isinstance(settings, CommandSettings)
        return Quality(settings.quality, settings.better, settings.exponent, settings.bounds)


def resolved_command(settings: CommandSettings) -> list[str]:
    """Return the words of the command, with ``{python}`` replaced."""
    return [sys.executable if word == _PYTHON else word for word in settings.command]


def fingerprint(settings: CommandSettings, folder: Path, data_sha256: str) -> str:
    """Return a hash of the command, of the script files that it names, and of its data if any."""
    files = {word: folder / word for word in settings.command}
    hashes = {word: file_hash(path) for word, path in files.items() if _is_script(path)}
    content = [settings.command, settings.samples, settings.validation, settings.data, hashes]
    content += [data_sha256] if data_sha256 else []
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _is_script(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= _MAX_SCRIPT_BYTES
    except (OSError, ValueError):  # too long for a file name
        return False


def _check_program(settings: CommandSettings) -> None:
    program = resolved_command(settings)[0]
    if shutil.which(program) is None:
        not_executable = Path(program).is_file() and not os.access(program, os.X_OK)
        raise UsageError(
            f"the command {program!r} "
            + (
                "is a file without permission to execute it"
                if not_executable
                else "was not found on the PATH"
            ),
            hint=f"start it with its interpreter, for example '{{python}} {program}'"
            if not_executable
            else "check its name; '{python}' is the Python that runs vflops",
        )


_SCRIPTS = {".py", ".sh", ".pl", ".rb", ".jl", ".lua", ".R"}


def _check_scripts(settings: CommandSettings) -> None:
    """Raise ``UsageError`` if a script does not exist, before ceilings are measured."""
    for word in resolved_command(settings)[1:]:
        if Path(word).suffix in _SCRIPTS and not word.startswith("-") and not Path(word).exists():
            raise UsageError(
                f"the command names {word}, which does not exist",
                hint="check its path; it is relative to the current folder",
            )


def _check_bounds(settings: CommandSettings) -> None:
    """Raise ``UsageError`` if no bounds are known, so that any value would be accepted."""
    if settings.bounds is None and default_bounds(settings.quality) is None:
        raise UsageError(
            f"the bounds of the quality {settings.quality!r} are not known, so a wrong value would "
            "not be noticed",
            hint="state the lowest and the highest possible value: --set 'command.bounds=[0, 1]', "
            "with inf for an open end ([0, inf]); or use a name such as accuracy, F1 or error",
        )


def _check_graph(settings: CommandSettings) -> None:
    if settings.graph is None:
        return
    if count(_graph(settings.graph), convention(EXECUTED_CONVENTION)).total.total <= 0:
        raise UsageError(
            f"{settings.graph} contains neither a convolution nor a matrix product",
            hint="declare the operations instead: ops_forward and ops_total",
        )


def _graph(file: str) -> Graph:
    try:
        return Graph.read(Path(file))
    except FolderError as error:
        record = "record one: vflops count MODEL --export graph --out FILE"
        raise UsageError(f"setting graph: {error.message}", hint=error.hint or record) from error


def _device(name: str) -> tuple[str, str]:
    """Return type and name of the device that the script presumably uses.

    Its actual device cannot be observed from outside.
    """
    from vflops.machine.devices import (
        pick,  # imports torch, which the ranks of a command never need
    )
    from vflops.train.out_of_memory import device_name

    device = pick(name).torch_device
    return device.type, device_name(device)


def _check_complete(settings: CommandSettings) -> None:
    """Raise ``UsageError`` with all settings that are missing."""
    missing = []
    if not settings.command:
        missing.append(("command (what to run)", "command='{python} train.py'"))
    if settings.samples is None:
        missing.append(("samples (the size of the training set)", "samples=10000"))
    if settings.target is None:
        missing.append(("target (the quality to reach)", "target=0.9"))
    if settings.graph is None and settings.ops_total is None:
        missing.append(
            (
                "the operations per sample (ops_forward and ops_total, or graph=FILE as written by "
                "vflops count MODEL --export graph)",
                "ops_forward=N --set command.ops_total=N",
            )
        )
    if missing:
        options = " ".join(f"--set command.{example}" for _, example in missing)
        raise UsageError(
            f"the workload command needs {', '.join(what for what, _ in missing)}",
            hint=f"{options}, or these keys under [command] in a --config FILE.toml "
            "(docs/how-to/workloads.md)",
        )
