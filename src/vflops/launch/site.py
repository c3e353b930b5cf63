"""The settings of a site for all runs there, from ``site.toml``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from vflops.config.launch import LaunchSettings
from vflops.config.section import Section
from vflops.config.toml import read_toml
from vflops.errors import UsageError, format_value, unknown_name
from vflops.record.files import atomic
from vflops.record.files.digest import file_digest
from vflops.record.own_runs import remember

FILE = "site.toml"


def _one_line(text: str) -> str:
    if not text.strip() or any(character in text for character in "\n\r\0"):
        raise ValueError("expected one line of text")
    return text


def _option(text: str) -> str:
    if not text.startswith("-"):
        raise ValueError("expected an option of the scheduler like '--qos=benchmark'")
    return text


def _variables(environment: dict[str, str]) -> dict[str, str]:
    for name in environment:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is not a valid variable name")
        if "\0" in environment[name]:
            raise ValueError(f"the value of {name} has a null character")
    return environment


def _gpu_type(text: str) -> str:
    if not re.fullmatch(r"[\w.-]+", text):
        raise ValueError("expected the name of a type like 'h100', see sinfo -o %G")
    return text


_TIME = re.compile(r"(?:(?P<d>\d{1,5})-)?(?P<h>\d{1,5}):(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d))?")


def _time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError("expected hours and minutes like '12:00', or '2-00:00' with days")
    return text


_Line = Annotated[str, AfterValidator(_one_line)]


class ContainerSettings(Section):
    """The container image that jobs run in."""

    image: _Line
    runtime: Literal["apptainer", "charliecloud", "docker", "podman", "pyxis"] = "apptainer"
    mounts: tuple[_Line, ...] = ()
    """Folders of the node to mount besides the run folder, such as data and local storage."""


class SiteSettings(Section):
    """What every job on this site needs; ``$NAME`` in paths and values is expanded on the node."""

    account: _Line | None = None
    partition: _Line | None = None
    """The partition, which some schedulers call queue."""
    gpu_type: Annotated[str, AfterValidator(_gpu_type)] | None = None
    """The type of GPU in SLURM's generic resources, such as ``h100``; needed where a site requires
    typed requests, or has several types."""
    time_limit: Annotated[str, AfterValidator(_time)] | None = None
    """``[days-]hours:minutes[:seconds]``; by default that of the partition."""
    directives: tuple[Annotated[_Line, AfterValidator(_option)], ...] = ()
    """Further options of the scheduler, as on its command line: ``--qos=benchmark``."""
    modules: tuple[_Line, ...] = ()
    environment: Annotated[dict[str, str], AfterValidator(_variables)] = Field(default_factory=dict)
    local_path: _Line | None = None
    """The node's local storage, for staged data."""
    python: _Line | None = None
    """The interpreter on the nodes; by default this one, or ``python3`` in a container."""
    container: ContainerSettings | None = None

    @property
    def exclusive(self) -> bool:
        """Whether jobs have their nodes for themselves."""
        return any(option.split("=")[0] == "--exclusive" for option in self.directives)

    @property
    def used_partition(self) -> str | None:
        """The partition of jobs; a directive takes precedence."""
        return self.directive("partition", "p") or self.partition

    @property
    def used_account(self) -> str | None:
        """The account of jobs; a directive takes precedence."""
        return self.directive("account", "A") or self.account

    def directive(self, name: str, letter: str) -> str | None:
        """Return the value of an option in the directives, the last of which counts."""
        pattern = rf"(?m)^(?:--{name}[= ]|-{letter} ?)(\S+)"
        values = re.findall(pattern, "\n".join(self.directives))
        return values[-1].strip("\"'") if values else None

    @property
    def interpreter(self) -> str:
        """The Python interpreter to start on a node."""
        return self.python or (sys.executable if self.container is None else "python3")

    @property
    def time_limit_s(self) -> int | None:
        """The time limit in seconds."""
        match = _TIME.fullmatch(self.time_limit or "")
        if match is None:
            return None
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def find_site(folder: Path | None = None) -> SiteSettings:
    """Return the site of ``folder`` (default: the current one), else the user's, else defaults."""
    path = _file(folder or Path.cwd())
    return load(path) if path is not None else SiteSettings()


def copy_to_run(run: Path) -> None:
    """Copy the current ``site.toml`` to a run folder, unless it has one from an earlier launch."""
    if not (run / FILE).is_file():
        find_site()  # so that the error for an invalid file names its original path
        path = _file(Path.cwd())
        text = "# there was none\n" if path is None else path.read_text(encoding="utf-8")
        atomic.write_text(run / FILE, text)
        remember(file_digest(run / FILE).sha256, f"{FILE} of {run.name}")


def site_of_run(run: Path) -> SiteSettings:
    """Return the site from a run's copy or, before the run's first launch, the current one."""
    return load(run / FILE) if (run / FILE).is_file() else find_site()


def site_for(settings: LaunchSettings, run: Path | None = None) -> SiteSettings:
    """Return the site, with the container image of the settings if they name one.

    ``run`` is a run folder, which may have a copy of the site from its first launch.
    """
    site = find_site() if run is None else site_of_run(run)
    if settings.container is None:
        return site
    container = site.container.model_dump() if site.container else {}
    changed = ContainerSettings.model_validate({**container, "image": settings.container})
    return site.model_copy(update={"container": changed})


def _file(folder: Path) -> Path | None:
    folders = (folder, Path.home() / ".config" / "vflops")
    return next((path / FILE for path in folders if (path / FILE).is_file()), None)


def load(path: Path) -> SiteSettings:
    """Return the settings in a ``site.toml``; raise UsageError if one of them is wrong."""
    data = read_toml(path)
    _check_keys(SiteSettings, data, path)
    if isinstance(data.get("container"), Mapping):
        _check_keys(ContainerSettings, data["container"], path)
    try:
        return SiteSettings.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        raise UsageError(
            f"{path}: {name} = {format_value(fault['input'])}: {message[:1].lower()}{message[1:]}",
            hint=f"see 'site.toml' in docs/how-to/cluster.md for what {fault['loc'][0]} may be",
        ) from error


def _check_keys(section: type[BaseModel], data: Mapping[str, Any], path: Path) -> None:
    for key in data:
        if key not in section.model_fields:
            raise unknown_name("key", key, section.model_fields, where=f" in {path}")
