"""Every setting of a run, and how a file and ``--set`` change it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vflops.config.names import BENCHMARKS, PRECISIONS
from vflops.errors import UsageError, unknown_name


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def _one_or_many(names: object) -> object:
    return (names,) if isinstance(names, str) else names


def _known(what: str, valid: Mapping[str, str]) -> Any:
    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in valid:
                raise unknown_name(what, name, valid)
        return names

    return AfterValidator(check)


_Names = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]
_Benchmarks = Annotated[_Names, _known("benchmark", BENCHMARKS)]
_Precisions = Annotated[_Names, _known("precision", PRECISIONS)]


class MicroSettings(_Section):
    """The ceilings: what is measured, and how long that may take."""

    budget_s: float = Field(default=36.0, gt=0, le=86400)
    """Seconds for all benchmarks together."""
    benchmarks: _Benchmarks = tuple(BENCHMARKS)
    precisions: _Precisions = tuple(PRECISIONS)
    device: str = "auto"
    """``auto`` is the accelerator where there is one, else the CPU."""
    ranks: int = Field(default=2, ge=2, le=1024)
    """Local ranks of the all-reduce when there are not several accelerators."""


class CountSettings(_Section):
    """The models whose work is counted and placed on the roofline."""

    models: _Names = ("resnet50", "resnet50-v1")
    batch: int = Field(default=32, ge=1)
    """Samples a step; a larger batch uses the weights more often, so it is bound less by memory."""


class Settings(_Section):
    """A whole run, as it is kept in ``run.json``."""

    profile: Literal["tiny", "laptop", "gpu", "reference"]
    seed: int = Field(default=1, ge=0, lt=2**63)
    count: CountSettings = CountSettings()
    micro: MicroSettings = MicroSettings()


def load(base: Settings, file: Path | None, assignments: Sequence[str]) -> Settings:
    """``base`` changed by a TOML file and then by ``section.key=value`` assignments."""
    data = base.model_dump()
    if file is not None:
        _merge(data, _read_toml(file), where=f" in {file}")
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise UsageError(
                f"--set {assignment!r} has no '='", cure="write it as --set micro.budget_s=20"
            )
        change: Any = _value(text)
        for part in reversed(key.strip().split(".")):
            change = {part: change}
        _merge(data, change, where=f" in --set {assignment}")
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        message = f"setting {where} = {fault['input']!r}: {fault['msg'].lower()}"
        raise UsageError(message, cure=_describe(where)) from error


def _merge(data: dict[str, Any], change: Mapping[str, Any], *, where: str, path: str = "") -> None:
    for key, value in change.items():
        name = f"{path}{key}"
        if key not in data:
            raise unknown_name("setting", name, [f"{path}{valid}" for valid in data], where=where)
        if isinstance(data[key], dict) != isinstance(value, Mapping):
            raise UsageError(
                f"setting {name} = {value!r}{where}: "
                + ("it is a section" if isinstance(data[key], dict) else "it is a single value"),
                cure=f"set {name}.<key>" if isinstance(data[key], dict) else _describe(name),
            )
        if isinstance(value, Mapping):
            _merge(data[key], value, where=where, path=f"{name}.")
        else:
            data[key] = value


def _value(text: str) -> Any:
    """``text`` as TOML writes values; a bare word is a string, a comma makes a list."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return [part.strip() for part in text.split(",")] if "," in text else text.strip()


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML: {error}") from error


def _describe(name: str) -> str:
    section: type[BaseModel] = Settings
    *parents, leaf = [part for part in name.split(".") if not part.isdigit()]
    for parent in parents:
        annotation = section.model_fields[parent].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            section = annotation
    field = section.model_fields.get(leaf)
    return f"its default is {field.default!r}" if field else "the README lists all settings"
