"""The level that a run may claim, from the settings and code that differ from the reference.

At level *hardware*, the reference code runs unchanged on another machine; at *system*, the
framework may differ too; at *free*, everything may differ but the problem domain. The papers do not
define these levels, and of the nine layers HPC AI500 V2.0 says only that there are nine: names,
order and the assignment of settings are this project's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from pydantic import ValidationError

from vflops.config.flatten import differences, flatten
from vflops.errors import UsageError
from vflops.record.files.document import first_fault
from vflops.record.formats.system import LAYERS
from vflops.record.installed_package import origin_fault
from vflops.record.readout.contents import Contents
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.validated_settings import ValidatedSettings, validated_settings

Level = Literal["hardware", "system", "free"]
LEVELS: tuple[Level, ...] = ("hardware", "system", "free")

LEVEL_OF: dict[str, Level | None] = {
    **dict.fromkeys(LAYERS[:4], "hardware"),
    "framework": "system",
    "programming model": "system",
    "workload implementation": "free",
    "hyper-parameters": "free",
    "problem domain": None,
}
"""The level of a run whose highest differing layer is the key; None if it has no level."""

_MACHINE = "hardware"
_LAYER_OF: dict[str, str] = {
    # Settings for how much of a machine is used belong to the hardware. So does the batch size: in
    # the published recipe it grows with the number of accelerators, as does the learning rate.
    "models": _MACHINE,
    "train.ranks": _MACHINE,
    "train.device": _MACHINE,
    "train.batch": _MACHINE,
    "train.accumulate": _MACHINE,
    "train.readers": _MACHINE,
    "train.checkpoint_s": _MACHINE,
    "train.checkpoint_share": _MACHINE,
    "train.commit_every": _MACHINE,
    "train.segments": _MACHINE,
    "train.evaluate_every": _MACHINE,
    "search.workers": _MACHINE,
    "search.ahead": _MACHINE,
    "search.turn_s": _MACHINE,
    "search.batches": _MACHINE,
    # The papers use both full and mixed precision. Another rule sets the lowest precision.
    "train.precision": "accelerator libraries",
    # Libraries also choose the communication pattern, which does not change the mean. The precision
    # does change the gradients, and no rule limits the number of bits.
    "train.communication": "communication libraries",
    "train.communication.precision": "workload implementation",
    # The same losses and weights, computed by other ranks.
    "train.parallel": "programming model",
    "train.compile": "framework",
    "train.deterministic": "framework",
    "train.framework": "framework",
    "train.batch_norm": "workload implementation",
    "train.ghosts": "workload implementation",
    "network": "workload implementation",
    "bagging.bootstrap": "workload implementation",
    "bagging.twins": "workload implementation",
    "data": "problem domain",
    "target": "problem domain",
    "years": "problem domain",
    "synthetic": "problem domain",
    "faulty": "problem domain",
    "unreadable": "problem domain",
    "train.epochs": "problem domain",
    "train.end_epoch": "problem domain",
    "train.stop_at_target": "problem domain",
    "train.patience": "problem domain",
    "search.error": "problem domain",
    "search.duration_s": "problem domain",
    "train": "hyper-parameters",
}
"""The layer by name or prefix of a setting; the longest prefix counts.

All other settings are hyper-parameters."""
_IGNORED = frozenset({"data", "box_order", "train.batch_per_rank"})
"""Settings that do not change the problem: the path of the data and the column order of boxes; and
the batch per rank of a profile, of which a run records the batch that follows."""


@dataclass(frozen=True)
class Difference:
    """A setting, or the package itself, that differs from the reference."""

    layer: str
    setting: str
    reference: object
    value: object

    def __str__(self) -> str:
        return f"{self.setting} = {self.value} (reference {self.reference})"


@dataclass(frozen=True)
class LayerLevel:
    """One layer with its differences, and the level that they allow, if any."""

    layer: str
    level: Level | None
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Levels:
    """The level that a run may claim, and what decides it."""

    claim: Level | None
    """None if the problem differs, or if the level is unknown for ``reason``."""
    layers: tuple[LayerLevel, ...]
    reason: str | None = None

    @property
    def code(self) -> Level:
        """The level without regard to the problem domain."""
        known = [layer.level for layer in self.layers if layer.level is not None]
        return max(known, key=LEVELS.index, default="hardware")

    @property
    def deciding(self) -> tuple[Difference, ...]:
        """The differences that make the level ``system`` or ``free``."""
        layers = [layer for layer in self.layers if layer.level == self.code != "hardware"]
        return tuple(difference for layer in layers for difference in layer.differences)

    def above(self, level: Level) -> list[LayerLevel]:
        """Return the layers whose differences the level does not allow."""
        return [
            layer
            for layer in self.layers
            if layer.level is None or LEVELS.index(layer.level) > LEVELS.index(level)
        ]

    @property
    def other_problem(self) -> tuple[Difference, ...]:
        """The differences in the problem itself, because of which there is no level."""
        layers = [layer for layer in self.layers if layer.level is None]
        return tuple(difference for layer in layers for difference in layer.differences)


def levels(contents: Contents) -> Levels:
    """Return the level of a run, from the settings of its jobs and its ensemble, and its code."""
    records = [job.record for job in (*contents.training_jobs, *contents.workers)]
    if not records:
        return Levels(None, (), "nothing was trained")
    by_setting: dict[str, Difference] = {}
    # The models of an ensemble have the same settings.
    distinct = {(record.workload, repr(record.settings)): record.settings for record in records}
    for (name, _), settings in distinct.items():
        try:
            used = validated_settings(workload(name).settings, settings)
            found = _workload_differences(name, used)
        except ValidationError as error:
            return Levels(None, (), f"the settings of {name}: {first_fault(error)}")
        except UsageError as error:
            return Levels(None, (), error.message)
        by_setting |= {diff.setting: diff for diff in found if _is_used(diff.setting, settings)}
    if any(record.bag for record in records):
        from vflops.config.profiles import reference as reference_settings

        bagging = contents.folder.record.settings.bagging.model_dump()
        reference = {"bagging": reference_settings().bagging.model_dump()}
        bagging_differences = _differences(reference, {"bagging": bagging})
        by_setting |= {d.setting: d for d in bagging_differences if d.setting in _LAYER_OF}
    return _group_by_layer((*by_setting.values(), *_package_difference(contents)))


def _is_used(setting: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting has an effect: generated data has none beside the user's."""
    return not setting.startswith("synthetic.") or settings.get("data") is None


def _package_difference(contents: Contents) -> Iterator[Difference]:
    """Yield a difference if the code is not known to be unchanged: it may compute anything."""
    record = contents.folder.record
    fault = origin_fault(record.package)
    if fault:
        release = f"vflops {record.versions.get('vflops')} as released"
        yield Difference("workload implementation", "package", release, fault)


@lru_cache(maxsize=64)
def _workload_differences(name: str, used: ValidatedSettings) -> tuple[Difference, ...]:
    return tuple(_differences(_reference(name), used.flat))


@cache
def _reference(name: str) -> Mapping[str, Any]:
    """Return the reference settings of a workload, the same for all runs."""
    return flatten(workload(name).profile("reference").model_dump(mode="json"))


def _group_by_layer(differences: tuple[Difference, ...]) -> Levels:
    layers = []
    for layer in LAYERS:
        in_layer = tuple(diff for diff in differences if diff.layer == layer)
        layers.append(LayerLevel(layer, LEVEL_OF[layer] if in_layer else "hardware", in_layer))
    levels = Levels(None, tuple(layers))
    same_problem = layers[-1].level is not None
    return Levels(levels.code if same_problem else None, levels.layers)


def _differences(reference: Mapping[str, Any], used: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the settings that differ, sorted by their dotted names."""
    for name, values in sorted(differences(reference, used).items()):
        if name not in _IGNORED:
            yield Difference(layer_of(name), name, *values)


def layer_of(setting: str) -> str:
    """Return the layer of a workload's setting."""
    parts = setting.split(".")
    names = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
    return next((_LAYER_OF[name] for name in names if name in _LAYER_OF), "hyper-parameters")
