"""The reference of an acceptance test: a TOML file with the task and the promised figures."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from vflops.config.toml import read_toml
from vflops.errors import UsageError, format_value, unknown_name
from vflops.metrics.quality import Better
from vflops.record.files.document import Data
from vflops.studies.accept.promise_units import base_unit

_HINTS = {
    "at_least": "promise a value above 0, or remove the figure",
    "at_most": "promise a value above 0, or remove the figure",
    "tolerance": "a share of the promised value: 0.05 allows a figure that is 5 % worse",
    "node_spread": "a share: 0.05 allows the best node to be 5 % of the mean above the worst",
    "confidence": "a probability between 0.5 and 1, for example 0.95",
    "repeats": "the number of runs before the first judgement, at least 2",
    "max_repeats": "the largest number of runs, at least `repeats`",
    "nodes": "the number of nodes that must take part, at least 1",
    "figure": "add a table [[figure]] with name, at_least or at_most, and unit",
    "unit": "a unit such as TFLOPS, GB/s, samples/s, W, s, min or %",
    "task": 'what is run; add [task] with workload = "image-classification" and profile = "gpu"',
    "profile": 'the profile that is run, for example profile = "gpu"; vflops list shows all',
    "name": 'for example name = "Cluster X", or name = "image-classification.throughput" of a'
    " figure",
}
_DEFAULT_HINT = "docs/how-to/accept.md describes every key"


def _check_unit(unit: str) -> str:
    base_unit(unit)  # raises UsageError with suggestions
    return unit


class PromisedFigure(Data):
    """One figure that the contract promises; exactly one of ``at_least`` and ``at_most`` is set."""

    name: str = Field(min_length=1)
    """The name as in `vflops accept --write`, for example ``gemm.peak.bf16``."""
    at_least: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    at_most: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    unit: Annotated[str, AfterValidator(_check_unit)] = ""
    tolerance: float = Field(default=0.0, ge=0, lt=1)
    """How much worse than promised the figure may be, as a share of the promised value."""
    confidence: float | None = Field(default=None, gt=0.5, lt=1)
    """The confidence of the decision; by default that of the whole test."""
    node_spread: float | None = Field(default=None, gt=0)
    """The largest allowed (best − worst) / mean between nodes; None if it is not limited."""

    @model_validator(mode="after")
    def _one_direction(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            given = "both {} are" if self.at_least is not None else "neither {} is"
            raise ValueError(
                given.format("of at_least and at_most") + " given: a figure has exactly one of them"
            )
        return self

    @property
    def better(self) -> Better:
        """The direction in which the figure is better than promised."""
        return "higher" if self.at_least is not None else "lower"

    @property
    def base_unit(self) -> str:
        """The unit in which the figure is measured."""
        return base_unit(self.unit)[0]

    @property
    def promised(self) -> float:
        """The promised value in the base unit."""
        value = self.at_least if self.at_least is not None else self.at_most
        return (value or 0.0) * base_unit(self.unit)[1]

    @property
    def threshold(self) -> float:
        """The worst acceptable value in the base unit: the promised value less the tolerance."""
        change = -self.tolerance if self.better == "higher" else self.tolerance
        return self.promised + change * abs(self.promised)


class Task(Data):
    """What is run to measure the figures."""

    workload: str = "suite"
    profile: str
    settings: tuple[str, ...] = ()
    """Changes of the profile, written as for ``--set``."""
    fill_nodes: bool = False
    """Whether one model is trained per accelerator (or group of cores) of every node, whatever
    their number; the workload is then an ensemble."""
    data: dict[str, str] = Field(default_factory=dict)
    """The fingerprint of the data by workload; runs with other data are not accepted."""
    definition: dict[str, str] = Field(default_factory=dict)
    """The hash of the closed task by workload; runs of another task are not accepted."""

    @model_validator(mode="after")
    def _fill_one_workload(self) -> Self:
        if self.fill_nodes and self.workload == "suite":
            raise ValueError("fill_nodes = true needs one workload, and workload is 'suite'")
        return self


class Judgement(Data):
    """How the figures are judged."""

    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    repeats: int = Field(default=3, ge=2, le=1000)
    max_repeats: int = Field(default=10, ge=2, le=1000)
    nodes: int = Field(default=1, ge=1)
    """The number of nodes that must have taken part."""

    @model_validator(mode="after")
    def _cap_is_larger(self) -> Self:
        if self.max_repeats < self.repeats:
            raise ValueError(
                f"max_repeats = {self.max_repeats} is smaller than repeats = {self.repeats}"
            )
        return self


class Reference(Data):
    """The whole file."""

    name: str = Field(min_length=1)
    contract: str = ""
    """The number of the contract, or the text of the promise."""
    date: datetime.date | None = None
    machine: str = ""
    """The machine on which the reference was measured."""
    vflops: str = ""
    """The version of vflops that wrote the file."""
    runs: tuple[str, ...] = ()
    """The runs that it was written from."""
    task: Task
    judgement: Judgement = Judgement()
    figure: tuple[PromisedFigure, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for name, count in Counter(figure.name for figure in self.figure).items():
            if count > 1:
                raise ValueError(f"figure {name!r} is promised {count} times")
        return self

    def confidence_of(self, figure: PromisedFigure) -> float:
        """Return the confidence with which a figure is judged."""
        return figure.confidence or self.judgement.confidence


def with_max_repeats(reference: Reference, limit: int) -> Reference:
    """Return the reference with another largest number of repeats."""
    judgement = reference.judgement
    if limit < judgement.repeats:
        raise UsageError(
            f"--max-repeats {limit}: the reference asks for {judgement.repeats} repeats, and fewer"
            " decide nothing",
            hint=f"use --max-repeats {judgement.repeats} or more",
        )
    return reference.model_copy(
        update={"judgement": judgement.model_copy(update={"max_repeats": limit})}
    )


def read_reference(path: Path) -> Reference:
    """Read a reference, or raise a ``UsageError`` with the file, the value and the remedy."""
    return parse_reference(read_toml(path), path)


def parse_reference(data: dict[str, Any], source: Path) -> Reference:
    """Return ``data``, read from ``source``, as a reference, or raise a ``UsageError``."""
    try:
        return Reference.model_validate(data)
    except UsageError as error:  # an unknown unit
        raise UsageError(f"{source}: {error.message}", hint=error.hint) from error
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        location = _location(fault["loc"], data)
        key = str(fault["loc"][-1]) if fault["loc"] else ""
        if fault["type"] == "extra_forbidden":
            where = f" of {_location(fault['loc'][:-1], data)}" if fault["loc"][:-1] else ""
            raise unknown_name(
                "key", key, _keys(fault["loc"]), where=f"{where} in {source}"
            ) from error
        message = fault["msg"].removeprefix("Value error, ")
        value = fault.get("input")
        shown = "" if isinstance(value, dict) else f" = {format_value(value)}"
        where = f"{location}{shown}: " if location else ""
        raise UsageError(
            f"{source}: {where}{message[0].lower()}{message[1:]}",
            hint=_HINTS.get(key, _DEFAULT_HINT),
        ) from error


def _keys(parts: tuple[int | str, ...]) -> Iterable[str]:
    """Return the keys beside which a wrong one was found."""
    tables: dict[str, type[Data]] = {"task": Task, "judgement": Judgement, "figure": PromisedFigure}
    table = tables.get(str(parts[0]), Reference) if len(parts) > 1 else Reference
    return table.model_fields


def _location(parts: tuple[int | str, ...], data: dict[str, Any]) -> str:
    """Return the place of a fault as text; a figure is named by its name."""
    if len(parts) >= 2 and parts[0] == "figure" and isinstance(parts[1], int):
        figure = data["figure"][parts[1]]
        name = figure.get("name") if isinstance(figure, dict) else None
        shown = name if isinstance(name, str) and name else parts[1] + 1
        return " ".join(map(str, (f"figure {shown}", *parts[2:])))
    return ".".join(map(str, parts))
