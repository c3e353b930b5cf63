"""Facts of a site that every run there needs, from its ``site.toml``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from vflops.config.section import Section
from vflops.config.toml import read_toml
from vflops.errors import UsageError, shown, unknown_name
from vflops.record.files import atomic

FILE = "site.toml"


def _one_line(text: str) -> str:
    if not text.strip() or "\n" in text or "\r" in text:
        raise ValueError("expected one line of text")
    return text


def _option(text: str) -> str:
    if not text.startswith("-"):
        raise ValueError("expected an option of the scheduler like '--qos=benchmark'")
    return text


def _variables(environment: dict[str, str]) -> dict[str, str]:
    for name in environment:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} cannot name a variable")
    return environment


_TIME = re.compile(r"(?:(?P<d>\d{1,5})-)?(?P<h>\d{1,5}):(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d))?")


def _time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError("expected hours and minutes like '12:00', or '2-00:00' with days")
    return text


_Line = Annotated[str, AfterValidator(_one_line)]


class ContainerSettings(Section):
    """An image that the jobs run in."""

    image: _Line
    runtime: Literal["apptainer", "docker", "podman", "pyxis"] = "apptainer"
    mounts: tuple[_Line, ...] = ()
    """Folders of the node that the image shall see besides the run folder: data, local storage."""


class SiteSettings(Section):
    """What a job must say and do on this site; ``$NAME`` in paths and values is the node's."""

    account: _Line | None = None
    partition: _Line | None = None
    """The queue, where the scheduler calls it so."""
    time_limit: Annotated[str, AfterValidator(_time)] | None = None
    """``hours:minutes[:seconds]``, with ``days-`` before it; the partition's own if left out."""
    directives: tuple[Annotated[_Line, AfterValidator(_option)], ...] = ()
    """More options of the scheduler, as on its command line: ``--qos=benchmark``."""
    modules: tuple[_Line, ...] = ()
    environment: Annotated[dict[str, str], AfterValidator(_variables)] = Field(default_factory=dict)
    local_path: _Line | None = None
    """Storage of the node's own, for staged data."""
    python: _Line | None = None
    """The interpreter on the nodes; this one if left out, a container's own in a container."""
    container: ContainerSettings | None = None

    @property
    def interpreter(self) -> str:
        """The Python that starts on a node."""
        return self.python or (sys.executable if self.container is None else "python3")

    @property
    def time_limit_s(self) -> int | None:
        """The time limit in seconds."""
        found = _TIME.fullmatch(self.time_limit or "")
        if found is None:
            return None
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def find(folder: Path | None = None) -> SiteSettings:
    """The site of ``folder`` (the current one), else the user's, else one that says nothing."""
    found = _file(folder or Path.cwd())
    return load(found) if found is not None else SiteSettings()


def keep(run: Path) -> None:
    """Have a run keep the site that is found now, unless it has one from an earlier launch."""
    if not (run / FILE).is_file():
        find()  # one with a fault is refused under its own name
        found = _file(Path.cwd())
        text = "# there was none\n" if found is None else found.read_text(encoding="utf-8")
        atomic.write_text(run / FILE, text)


def of_run(run: Path) -> SiteSettings:
    """The site that a run keeps; before its first launch the one that is found."""
    return load(run / FILE) if (run / FILE).is_file() else find()


def _file(folder: Path) -> Path | None:
    places = (folder, Path.home() / ".config" / "vflops")
    return next((place / FILE for place in places if (place / FILE).is_file()), None)


def load(path: Path) -> SiteSettings:
    """The settings of a ``site.toml``, or an error that says what is wrong in it."""
    data = read_toml(path)
    _refuse_unknown(SiteSettings, data, path)
    if isinstance(data.get("container"), Mapping):
        _refuse_unknown(ContainerSettings, data["container"], path)
    try:
        return SiteSettings.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        raise UsageError(
            f"{path}: {name} = {shown(fault['input'])}: {message[:1].lower()}{message[1:]}",
            hint=f"see 'site.toml' in docs/how-to/cluster.md for what {fault['loc'][0]} may be",
        ) from error


def _refuse_unknown(section: type[BaseModel], data: Mapping[str, Any], path: Path) -> None:
    for key in data:
        if key not in section.model_fields:
            raise unknown_name("key", key, section.model_fields, where=f" in {path}")
