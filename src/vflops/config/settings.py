"""The settings of a run, and how a TOML file and ``--set`` change them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from vflops.config.bagging import BaggingSettings
from vflops.config.flatten import flatten
from vflops.config.launch import LaunchSettings
from vflops.config.names import BENCHMARKS, OPT_IN_BENCHMARKS, PRECISIONS
from vflops.config.parallel import ParallelSettings
from vflops.config.section import Section
from vflops.config.toml import parse_assignment, read_toml
from vflops.config.training import WorkloadSettings
from vflops.errors import UsageError, format_value, unknown_name


def _as_tuple(names: object) -> object:
    return (names,) if isinstance(names, str) else names


def _names_in(what: str, valid: Mapping[str, str]) -> Any:
    """Return a validator that raises ``UsageError`` for a name that is not in ``valid``."""

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in valid:
                raise unknown_name(what, name, valid)
        return names

    return AfterValidator(check)


_Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
_Benchmarks = Annotated[_Names, _names_in("benchmark", BENCHMARKS)]
_Precisions = Annotated[_Names, _names_in("precision", PRECISIONS)]


class MicroSettings(Section):
    """The ceilings (peak speeds of the machine) that are measured, and the time for them."""

    budget_s: float = Field(default=36.0, gt=0, le=86400)
    """Time budget for all benchmarks together."""
    benchmarks: _Benchmarks = tuple(name for name in BENCHMARKS if name not in OPT_IN_BENCHMARKS)
    precisions: _Precisions = tuple(PRECISIONS)
    device: str = "auto"
    """``auto`` is the accelerator if there is one, else the CPU."""
    ranks: int = Field(default=2, ge=2, le=1024)
    """Number of local ranks for the all-reduce on the CPU."""


class CountSettings(Section):
    """The models whose operations are counted and placed on the roofline."""

    models: _Names = ("resnet50", "resnet50-v1")
    batch: int = Field(default=32, ge=1)
    """Samples per step. A larger batch reuses the weights more, so that memory bandwidth limits it
    less."""


class TelemetrySettings(Section):
    """The telemetry that is sampled while a workload runs."""

    interval_s: float = Field(default=1.0, ge=0.05, le=3600)
    kernels: bool = False
    """Whether a few steps are profiled, to find the share of time of each kind of kernel."""


class Settings(Section):
    """All settings of a run, as recorded in ``run.json``."""

    profile: Literal["tiny", "laptop", "gpu", "reference", "aiperf"]
    seed: int = Field(default=1, ge=0, lt=2**63)
    repeat: int = Field(default=1, ge=1, le=1000)
    """How often each workload is trained, each time with the next seed after ``seed``."""
    count: CountSettings = CountSettings()
    micro: MicroSettings = MicroSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    bagging: BaggingSettings = BaggingSettings()
    launch: LaunchSettings = LaunchSettings()
    workloads: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The settings of each workload of the run, by its name."""

    def models_of(self, workload: str) -> int:
        """Return the number of base models of a workload: its ``models``, else
        ``bagging.models``."""
        return self.workloads[workload].get("models") or self.bagging.models


_EXPECTED = {
    "int_parsing": "expected an integer",
    "int_from_float": "expected an integer",
    "float_parsing": "expected a number",
    "bool_parsing": "expected true or false",
}
"""Messages for values of a wrong type, by pydantic's name of the fault."""

Checked = TypeVar("Checked", bound=BaseModel)


SettingsTypes = Mapping[str, type[WorkloadSettings]]
"""The settings type of each workload, by its name."""


def load_settings(
    base: Settings,
    file: Path | None,
    assignments: Sequence[str],
    types: SettingsTypes,
    *,
    keep_batch_per_rank: bool = False,
) -> Settings:
    """Return ``base`` changed by a TOML file and then by ``section.key=value`` assignments.

    A key that is not a section of a run belongs to its workloads: ``train.epochs=3`` applies to
    every workload with that setting, ``image-classification.train.epochs=3`` only to that workload.
    ``parallel.mode`` is short for ``train.parallel.mode``, also after the name of a workload.
    ``train.batch_per_rank`` is replaced by the ``train.batch`` that follows from it; with
    ``keep_batch_per_rank`` it is kept as well, so that the batch follows changed ranks.
    """
    data = base.model_dump()
    for change, where in _changes(file, assignments):
        _apply(data, change, where=where)
    given = given_settings(file, assignments)
    _replace_batches_per_rank(data, given, keep=keep_batch_per_rank)
    _let_presets_decide(data, given)
    settings = _validate(Settings, data, "", base.model_dump())
    try:
        checked = typed_settings(settings, types, base)
    except UsageError as error:
        error.hint = error.hint or _other_workload_hint(
            error.message, assignments, settings.workloads
        )
        raise
    sections = {name: section.model_dump(mode="json") for name, section in checked.items()}
    return settings.model_copy(update={"workloads": sections})


def given_settings(file: Path | None, assignments: Sequence[str]) -> set[str]:
    """Return the names of the settings in a TOML file and in assignments, as they are written."""
    return {name for change, _ in _changes(file, assignments) for name in flatten(change)}


def launch_settings(file: Path | None, assignments: Sequence[str]) -> LaunchSettings:
    """Return where jobs run by a TOML file and assignments, before the other settings are known.

    Values that are not valid are left to ``load_settings``.
    """
    given: dict[str, Any] = {}
    for change, _ in _changes(file, assignments):
        if isinstance(change.get("launch"), Mapping):
            given |= change["launch"]
    try:
        return LaunchSettings.model_validate(given)
    except ValidationError:
        return LaunchSettings()


def _changes(
    file: Path | None, assignments: Sequence[str]
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the changes, and where each comes from."""
    if file is not None:
        yield read_toml(file), f" in {file}"
    for assignment in assignments:
        change = parse_assignment(assignment, example="micro.budget_s=20")
        yield change, f" in --set {assignment}"


def _replace_batches_per_rank(data: dict[str, Any], given: Set[str], *, keep: bool) -> None:
    """Replace ``train.batch_per_rank`` by ``train.batch``; ``given`` names what the user set.

    Ranks that share one copy of the model count as one. A batch that the user set stays as it is.
    """
    for workload, section in data["workloads"].items():
        train = section.get("train", {})
        per_rank, ranks = train.get("batch_per_rank"), train.get("ranks")
        if not (isinstance(per_rank, int) and isinstance(ranks, int) and per_rank > 0):
            continue  # none, or one that validation rejects
        copies = _copies(train.get("parallel", {}), ranks)
        batch, kept = per_rank * copies, per_rank if keep else None
        prefixes = ("", f"{workload}.", f"workloads.{workload}.")
        if not given.isdisjoint(f"{prefix}train.batch" for prefix in prefixes):
            is_set = not given.isdisjoint(f"{prefix}train.batch_per_rank" for prefix in prefixes)
            if is_set and train["batch"] != batch:
                raise UsageError(
                    f"train.batch is {train['batch']}, but train.batch_per_rank {per_rank} × "
                    f"{copies} {'ranks' if copies == ranks else 'copies of the model'} is {batch}",
                    hint="set only one of them",
                )
            batch, kept = train["batch"], None
        train |= {"batch": batch, "batch_per_rank": kept}


def _copies(parallel: dict[str, Any], ranks: int) -> int:
    """Return the number of copies of a model that are trained on samples of their own."""
    try:
        return ParallelSettings.model_validate(parallel).shares(ranks)
    except ValidationError:  # raised again, with a message, when the settings are validated
        return ranks


def _let_presets_decide(data: dict[str, Any], given: Set[str]) -> None:
    """Forget the profile's values in sections whose ``preset`` the user set; keep the user's own.

    Otherwise they would silently overrule the preset.
    """
    for workload, section in data["workloads"].items():
        prefixes = ("", f"{workload}.", f"workloads.{workload}.")
        for name, part in section.items():
            if not (isinstance(part, dict) and "preset" in part):
                continue
            own = {
                key
                for key in part
                if not given.isdisjoint(f"{prefix}{name}.{key}" for prefix in prefixes)
            }
            if "preset" in own:
                section[name] = {key: part[key] for key in own}


def typed_settings(
    settings: Settings, types: SettingsTypes, base: Settings | None = None
) -> dict[str, WorkloadSettings]:
    """Return the settings of each workload of the run as an instance of its settings type.

    ``base`` is the profile, whose values are named in the hint of an error.
    """
    defaults = {} if base is None else base.workloads
    return {
        name: _validate(types[name], data, f"{name}.", defaults.get(name, {}))
        for name, data in settings.workloads.items()
    }


def _other_workload_hint(
    message: str, assignments: Sequence[str], names: Iterable[str]
) -> str | None:
    """Return a hint: how to set what one workload rejected for another workload only."""
    others = [name for name in names if not message.startswith(f"settings {name}")]
    for assignment in assignments:
        key = assignment.partition("=")[0].strip().removeprefix("train.")
        if "." in key and key in message and others:
            return f"for {others[0]} only: --set {others[0]}.{assignment}"
    return None


def _validate(
    section: type[Checked], data: Mapping[str, Any], prefix: str, defaults: Mapping[str, Any]
) -> Checked:
    try:
        return section.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        if isinstance(fault["input"], Mapping | BaseModel):  # a contradiction inside a section
            message = fault["msg"].removeprefix("Value error, ")
            name = f"{prefix}{where}".rstrip(".")
            raise UsageError(f"settings {name}: {message}") from error
        value = format_value(fault["input"])
        if where == "target" and fault.get("ctx", {}).get("lt") == 1:
            raise UsageError(
                f"setting {prefix}{where} = {value}: the quality lies between 0 and 1",
                hint=_fraction_hint(float(fault["input"])),
            ) from error
        expected = _EXPECTED.get(fault["type"], fault["msg"].lower())
        message = f"setting {prefix}{where} = {value}: {expected}"
        raise UsageError(message, hint=_describe(section, where, defaults)) from error


def _fraction_hint(target: float) -> str:
    """Return how to write a target that was presumably given in percent."""
    given, meant = (target, target / 100) if 1 < target < 100 else (90, 0.9)
    return f"{given:g} % is --set target={meant:g}"


def _apply(data: dict[str, Any], change: Mapping[str, Any], *, where: str) -> None:
    """Merge ``change`` into ``data``; keys of workload settings go into the workloads' sections."""
    sections: dict[str, Any] = data["workloads"]
    for key, value in change.items():
        if key in data or not sections:
            _merge(data, {key: value}, where=where)
        elif key in sections:
            _merge_into(sections, key, value, where=where)
        else:
            owners = [section for section in sections.values() if key in section]
            owners = owners or _sections_inside(key, value, sections)
            if not owners:
                full = _full_names(key, sections)
                if full:
                    raise UsageError(
                        f"unknown setting {key!r}{where}",
                        hint=f"its full name is {full[0]}, for example --set {full[0]}="
                        f"{_current(full[0], sections)}",
                    )
                names = {name for section in sections.values() for name in section}
                raise unknown_name("setting", key, [*data, *names], where=where)
            for section in owners:
                _merge(section, {key: value}, where=where)


def _merge_into(sections: dict[str, Any], name: str, change: object, *, where: str) -> None:
    """Merge ``change`` into the settings of the workload ``name``; short names are allowed."""
    section = sections[name]
    if not isinstance(change, Mapping):
        _merge(sections, {name: change}, where=where)
        return
    for key, value in change.items():
        inside = [] if key in section else _sections_inside(key, value, {name: section})
        for part in inside or [section]:
            _merge(part, {key: value}, where=where, path=f"{name}.")


def _sections_inside(
    key: str, value: object, sections: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the parts of the workloads' settings that have a section called ``key``.

    This makes ``parallel.mode`` short for ``train.parallel.mode``.
    """
    if not isinstance(value, Mapping):
        return []
    return [
        part
        for section in sections.values()
        for part in section.values()
        if isinstance(part, dict) and isinstance(part.get(key), Mapping)
    ]


def _full_names(key: str, sections: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the full names of settings that end in ``key``, which was given without a section."""
    return [
        f"{name}.{key}"
        for section in sections.values()
        for name, value in section.items()
        if isinstance(value, Mapping) and key in value
    ]


def _current(name: str, sections: Mapping[str, Mapping[str, Any]]) -> object:
    """Return the value of a setting in the first workload that has it."""
    section, key = name.split(".")
    return next(s[section][key] for s in sections.values() if key in (s.get(section) or ()))


def _merge(data: dict[str, Any], change: Mapping[str, Any], *, where: str, path: str = "") -> None:
    for key, value in change.items():
        name = f"{path}{key}"
        if key not in data:
            raise unknown_name("setting", name, [f"{path}{valid}" for valid in data], where=where)
        if isinstance(data[key], dict) != isinstance(value, Mapping):
            raise UsageError(
                f"setting {name} = {format_value(value)}{where}: "
                + (
                    "expected a section"
                    if isinstance(data[key], dict)
                    else "expected a single value"
                ),
                hint=f"set {name}.<key>"
                if isinstance(data[key], dict)
                else f"leave it out for {format_value(data[key])}",
            )
        if isinstance(value, Mapping):
            _merge(data[key], value, where=where, path=f"{name}.")
        else:
            data[key] = value


def _describe(section: type[BaseModel], name: str, defaults: Mapping[str, Any]) -> str:
    """Return a hint for the setting ``name``: an example, or its value in the profile."""
    *parents, leaf = [part for part in name.split(".") if not part.isdigit()]
    for parent in parents:
        field = section.model_fields.get(parent)
        annotation = field.annotation if field else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            section = annotation
    setting = section.model_fields.get(leaf)
    if setting is not None and setting.examples:
        return f"e.g. {setting.examples[0]}"
    if setting is not None and setting.default is None:
        return "leave it out for the profile's default"
    of_profile: Any = defaults
    for part in (*parents, leaf):
        of_profile = of_profile.get(part) if isinstance(of_profile, Mapping) else None
    if of_profile is not None:
        return f"leave it out for the profile's {format_value(of_profile)}"
    return f"its default is {setting.default!r}" if setting else "the README lists all settings"
