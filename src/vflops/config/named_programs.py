"""The programs that the settings of a run name: whoever wrote them chose what starts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from vflops.config.settings import Settings


def named_programs(settings: Settings) -> Iterator[str]:
    """Yield the programs that the settings of a run name, each in words."""
    for section in settings.workloads.values():
        command = command_line(section)
        if command is not None:
            yield f"the command {command}"
    for model in settings.count.models:
        if ":" in model:
            yield f"the Python code {model}"
    if settings.launch.container is not None:
        yield f"the container image {settings.launch.container}"


def command_line(section: Mapping[str, Any]) -> str | None:
    """Return the command in the settings of a workload; None if there is none."""
    command = section.get("command")
    if not command:
        return None
    return shlex.join(map(str, command)) if isinstance(command, list | tuple) else str(command)
