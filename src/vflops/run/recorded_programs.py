"""The programs that a run folder can make vflops start, and the user's consent to them.

Whoever wrote a run folder chose its command, its container image, the modules that it imports, and
the interpreter and environment of its jobs. Those of the user's own runs start without a question;
those of any other run only if the user allows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vflops.config.named_programs import command_line, named_programs
from vflops.errors import UsageError
from vflops.launch import site
from vflops.launch.factory import runs_here
from vflops.record.files.digest import file_digest
from vflops.record.files.document import read_json
from vflops.record.files.folder_listing import matching_files, subfolders
from vflops.record.folder import RunFolder
from vflops.record.own_runs import is_own, is_remembered, unrecorded_reason
from vflops.text import printable

HARMLESS = frozenset({"account", "partition", "time_limit"})
"""Settings of a site that start nothing and change no program."""


def require_consent(
    folder: RunFolder, *, allow_command: bool, tell: Callable[[str], None] = lambda text: None
) -> None:
    """Raise ``UsageError`` if the run would start programs that are not the user's own.

    With ``allow_command``, say which ones they are instead.
    """
    programs = foreign_programs(folder)
    if not programs:
        return
    if allow_command:
        for program in programs:
            tell(f"allowed, although it was not started here: {program}")
        return
    reason = unrecorded_reason()
    more = f" (and {len(programs) - 1} more)" if len(programs) > 1 else ""
    raise UsageError(
        f"{folder.path} was not started here, and would run what its author chose: {programs[0]}"
        f"{more}",
        hint="read it first; if you trust it, add --allow-command"
        + (f" ({reason})" if reason else ""),
    )


def foreign_programs(folder: RunFolder) -> list[str]:
    """Return what the run would start and the user did not choose, each as one line of text."""
    own, settings = is_own(folder.path), folder.record.settings
    named = [] if own else list(named_programs(settings))
    commands = list(map(command_line, settings.workloads.values()))
    # The hash of run.json says nothing about the files of jobs.
    for job_settings in _job_settings(folder):
        command = command_line(job_settings)
        if command is not None and command not in commands:
            commands.append(command)
            named.append(f"the command {command}")
    if not runs_here(settings.launch.on):
        named += _site_programs(folder.path)
    return [printable(text) for text in named]


def _job_settings(folder: RunFolder) -> Iterator[Mapping[str, Any]]:
    for job in subfolders(folder.path / "jobs"):
        for path in (*matching_files(job, "job.json"), *matching_files(job, ".rearranged.json")):
            settings = read_json(path).get("settings")
            if isinstance(settings, Mapping):
                yield settings


def _site_programs(run: Path) -> Iterator[str]:
    """Yield the settings in the run's copy of ``site.toml`` that are not those of the user."""
    copy = run / site.FILE
    if not copy.is_file() or is_remembered(file_digest(copy).sha256):
        return
    copied = site.load(copy)
    if copied == site.find_site():
        return
    default = site.SiteSettings()
    for name in site.SiteSettings.model_fields:
        value = getattr(copied, name)
        if name not in HARMLESS and value != getattr(default, name):
            text = value.image if isinstance(value, site.ContainerSettings) else value
            yield f"{name} = {text!r} of its site.toml"
