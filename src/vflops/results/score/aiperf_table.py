"""AIPerf's configuration: what the paper fixes, its defaults, and how a search differs from them.

Each row is a cell of table IV or a sentence of the paper. The score lists the differences of a
search, the rule ``table-iv`` fails for differences in what is fixed, and ``docs/reference`` shows
the rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vflops.record.formats.job import DataFacts
from vflops.results.score.score_file import Deviation
from vflops.results.task.published_data import IMAGENET, data_fault
from vflops.workloads.automl.architecture.morphs import KERNELS
from vflops.workloads.automl.settings import AutomlSettings

MAX_ERROR, MAX_ERROR_IN_TEXT = 0.3, 0.35
"""The error limits of the paper's table IV and of its text; a setting chooses between them."""
TUNE_FROM = 5
"""The first round, counted from 1, in which hyperparameters are tuned."""
_BATCH, _EPOCHS, _PIXELS = 448, 60, 224
_COUNTING = "aiperf"
_Settings = Mapping[str, Any]


@dataclass(frozen=True)
class SearchSetup:
    """What the rows judge."""

    settings: AutomlSettings
    data: DataFacts
    counting: str
    """The convention by which operations are counted."""


@dataclass(frozen=True)
class Difference:
    """How a search differs from the paper, and the settings that conform, if there are any."""

    what: str
    conforms: str | None


@dataclass(frozen=True)
class TableRow:
    """A requirement or a default of the paper."""

    configuration: str
    source: str
    """The table or section of the paper."""
    paper: str
    fixed: bool
    """Whether results must have it; otherwise a difference is only reported."""
    conforms: str
    """The settings that conform, or what judges it."""
    difference: Callable[[SearchSetup], Difference | None]


def _by_settings(words: str, wanted: _Settings, also: str = "") -> dict[str, Any]:
    """Return the fields of a row that compares settings: ``words`` say what differs."""

    def difference(setup: SearchSetup) -> Difference | None:
        values = setup.settings.model_dump(mode="json")
        other = {name: _value(values, name) for name in wanted}
        other = {name: value for name, value in other.items() if value != wanted[name]}
        if not other:
            return None
        found = ", ".join(f"{name} is {_text(value)}" for name, value in other.items())
        conforms = {name: wanted[name] for name in other}
        return Difference(f"{words}: {found}", _assignments(conforms, also))

    return {"conforms": f"`{_assignments(wanted, also)}`", "difference": difference}


def _value(values: _Settings, name: str) -> Any:
    for part in name.split("."):
        values = values[part]
    return values


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _assignments(wanted: _Settings, also: str) -> str:
    texts = [f"{name}={_text(value)}" for name, value in wanted.items()]
    return " ".join([*texts, also] if also else texts).replace(", ", ",")


def _limits(setup: SearchSetup) -> Difference | None:
    limits = setup.settings.search.limits.model_dump()
    given = ", ".join(f"{name} {value}" for name, value in limits.items() if value is not None)
    if not given:
        return None
    return Difference(f"limits restrict the search space: {given}", "no search.limits")


def _batches(setup: SearchSetup) -> Difference | None:
    batches = setup.settings.batches
    if len(batches) > 1:
        return None
    return Difference(f"the batch is not tuned: {batches[0]} is the only one", "search.batches=[]")


def _kernels(setup: SearchSetup) -> Difference | None:
    kernels = setup.settings.search.kernels
    if sorted(kernels) == sorted(KERNELS):
        return None
    what = f"other kernel sizes: search.kernels is {_text(list(kernels))}"
    return Difference(what, f"search.kernels={_text(list(KERNELS)).replace(', ', ',')}")


def _data(setup: SearchSetup) -> Difference | None:
    conforms = "--data DIR with ImageNet packed in it"
    if setup.data.synthetic:
        return Difference("synthetic data in place of ImageNet", conforms)
    fault = data_fault(setup.data, IMAGENET)
    if fault:
        return Difference(f"other data than ImageNet: {fault}", conforms)
    side = setup.data.facts.get("short side")
    if isinstance(side, int) and side < _PIXELS:
        what = f"images packed with a short side of {side} pixels, and enlarged for training"
        return Difference(what, f"--data DIR with ImageNet packed at {_PIXELS} pixels or more")
    return None


def _batch(setup: SearchSetup) -> Difference | None:
    train = setup.settings.train
    if train.batch == _BATCH * train.ranks:
        return None
    what = f"a batch of {train.batch / train.ranks:g} per accelerator, not {_BATCH}"
    return Difference(what, f"train.batch={_BATCH * train.ranks}")


def _separate(setup: SearchSetup) -> Difference | None:
    search = setup.settings.search
    if search.workers == 1 or search.tuning == "separate":
        return None
    what = "hyper-parameters are tuned from the results of all workers"
    return Difference(what, "search.tuning=separate")


def _order(setup: SearchSetup) -> Difference | None:
    if not setup.settings.ordered:
        return None
    return Difference("proposals wait for results in a fixed order", "search.order=free")


def _error(setup: SearchSetup) -> Difference | None:
    limit = min(setup.settings.search.error, MAX_ERROR_IN_TEXT)
    if limit <= MAX_ERROR:
        return None
    what = f"an error of up to {limit:g} is valid, as in the paper's text; its table has 0.3"
    return Difference(what, f"search.error={MAX_ERROR:g}")


def _counting(setup: SearchSetup) -> Difference | None:
    if setup.counting == _COUNTING:
        return None
    what = f"operations are counted by the rules {setup.counting}, not {_COUNTING}"
    return Difference(what, None)


def _always(what: str) -> Callable[[SearchSetup], Difference | None]:
    return lambda setup: Difference(what, None)


def _elsewhere(setup: SearchSetup) -> Difference | None:
    """Return None: a rule of its own judges the record."""
    return None


_IV, _TEXT = "table IV", "IV.E"
ROWS: tuple[TableRow, ...] = (
    TableRow(
        "Server arrangement",
        _IV,
        "master-slave",
        True,
        "not possible, and not a failure: the work is the same",
        _always("no master: workers meet in files that all of them see"),
    ),
    TableRow(
        "NAS method",
        f"{_IV}, IV.A",
        "network morphism guided by Bayesian optimisation",
        True,
        **_by_settings("another search method", {"search.searcher": "bayesian"}),
    ),
    TableRow(
        "search space: networks",
        _TEXT,
        "all morphs, without limits",
        True,
        "no `search.limits`; rule `search-space`",
        _limits,
    ),
    TableRow(
        "search space: kernel sizes",
        f"{_TEXT}, IV.B",
        "tuned; 3, 5 and 7 are ours, the paper has no list",
        True,
        "`search.kernels=[3,5,7]`",
        _kernels,
    ),
    TableRow(
        "search space: batch sizes",
        f"{_TEXT}, IV.B",
        "tuned",
        True,
        "two or more `search.batches`",
        _batches,
    ),
    TableRow(
        "HPO method",
        f"{_IV}, IV.B",
        "Bayesian optimisation (TPE)",
        True,
        "rule `tuned`",
        _elsewhere,
    ),
    TableRow(
        "start of the HPO",
        _TEXT,
        "the fifth round of each worker",
        True,
        **_by_settings("tuning starts in another round", {"search.tune_from": TUNE_FROM}),
    ),
    TableRow(
        "HPO on each worker",
        "IV.B",
        "separately",
        False,
        "`search.tuning=separate`",
        _separate,
    ),
    TableRow("Dataset", _IV, "ImageNet", True, "`--data DIR` with ImageNet packed in it", _data),
    TableRow(
        "image size",
        _TEXT,
        "224 × 224",
        True,
        **_by_settings("images of another size", {"size": _PIXELS}, "resize=256"),
    ),
    TableRow(
        "DL Framework",
        _IV,
        "TensorFlow",
        False,
        "not possible",
        _always("trained with PyTorch, not TensorFlow"),
    ),
    TableRow(
        "Initial architecture",
        _IV,
        "ResNet-50",
        True,
        **_by_settings(
            "it starts from another network than ResNet-50",
            {"network.blocks": [3, 4, 6, 3], "network.width": 64, "network.stem": "imagenet"},
        ),
    ),
    TableRow(
        "version of ResNet-50",
        "table III",
        "v1, 23.3 GOP per sample; v1.5 has 24.7",
        False,
        **_by_settings("it starts from v1.5 of ResNet-50, not from v1", {"search.v1": True}),
    ),
    TableRow(
        "Initial weight",
        _IV,
        "new weights (He)",
        False,
        **_by_settings("candidates start from their parents' weights", {"search.inherit": False}),
    ),
    TableRow(
        "Batch size",
        _IV,
        "448 per accelerator",
        False,
        "`train.batch` of 448 × ranks",
        _batch,
    ),
    TableRow(
        "Optimizer",
        _IV,
        "gradient descent with momentum; 0.9 is that of the published program",
        False,
        **_by_settings(
            "another optimizer",
            {"train.optimizer": "sgd", "train.momentum": 0.9, "train.nesterov": False},
        ),
    ),
    TableRow(
        "Learning rate",
        _IV,
        "0.1 with a decay of 0.1/60; that of the published program is linear",
        False,
        **_by_settings(
            "another learning rate",
            {
                "train.learning_rate": 0.1,
                "train.linear_scaling": False,
                "train.warmup_epochs": 0.0,
                "train.schedule": "polynomial",
                "train.power": 1.0,
                "train.end_rate": 0.0,
                "train.schedule_epochs": _EPOCHS,
            },
        ),
    ),
    TableRow(
        "Loss function",
        _IV,
        "categorical cross entropy; a default in table IV, required here",
        True,
        **_by_settings("another loss than cross entropy", {"label_smoothing": 0.0}),
    ),
    TableRow(
        "early stop",
        "III.A",
        "when the validation loss no longer falls",
        True,
        **_by_settings(
            "training stops early by another measure",
            {"train.stop_by": "loss", "train.evaluate_every": 1},
        ),
    ),
    TableRow(
        "Maximum epoch",
        _IV,
        "60",
        False,
        **_by_settings("another maximum of epochs", {"train.epochs": _EPOCHS}),
    ),
    TableRow(
        "Parallelism",
        _IV,
        "synchronous all-reduce",
        False,
        **_by_settings(
            "gradients are averaged in another way",
            {"train.communication.mode": "all-reduce", "train.communication.precision": "fp32"},
        ),
    ),
    TableRow("order", "IV.C", "asynchronous", False, "`search.order=free`", _order),
    TableRow("Minimum precision", _IV, "FP-16", True, "rule `precision`", _elsewhere),
    TableRow("Maximum error", _IV, "30 %", True, "rule `error`", _elsewhere),
    TableRow("error limit", _TEXT, "35 % in the text", False, "`search.error=0.3`", _error),
    TableRow("Minimum running time", _IV, "1 hour", True, "rule `duration`", _elsewhere),
    TableRow(
        "operations",
        "tables I and II",
        "counted analytically",
        False,
        "the convention `aiperf`",
        _counting,
    ),
)


def deviations(setup: SearchSetup) -> tuple[Deviation, ...]:
    """Return the differences of a search from the paper."""
    found = ((row, row.difference(setup)) for row in ROWS)
    return tuple(
        Deviation(what=difference.what, conforms=difference.conforms, fixed=row.fixed)
        for row, difference in found
        if difference is not None
    )
