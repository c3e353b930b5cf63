"""Models by name: built-in, from installed packages, or as ``package.module:name``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from vflops.counting.conventions import EXECUTED_CONVENTION, PUBLISHED_CONVENTION
from vflops.counting.input_specs import Input, InputSpec
from vflops.errors import Hint, UsageError, unknown_name
from vflops.extensions import load_extensions
from vflops.models.language.transformer_design import PUBLISHED


@dataclass(frozen=True)
class ModelSpec:
    """A model whose operations can be counted: where its code is, and its input."""

    name: str
    title: str
    target: str
    """``package.module:callable``, imported only when the model is built."""
    input_shape: tuple[int, ...] | None
    """The shape of one sample; None if the user has to give it."""
    loss: str | None
    """``package.module:callable`` from the model's output to the loss; None to count outputs."""
    origin: str = "vflops"
    arguments: tuple[str, ...] = ()
    """What ``target`` is called with."""
    input_dtype: str = "float32"
    input_count: int = 1
    """How many inputs of this shape it takes; a language model takes tokens and the next tokens."""
    rules: str = EXECUTED_CONVENTION
    """The counting convention, unless the user chooses one."""

    def load(self) -> Callable[[], Any]:
        """Return the callable that builds the model, or a model that is there already."""
        target = load(self.target)
        return partial(target, *self.arguments) if self.arguments else target

    def inputs(self, given: Sequence[Input] = ()) -> list[Input]:
        """Return the inputs to count with: the default ones, or those that the user gives.

        A single one stands for all inputs of a model whose inputs have the same shape.
        """
        if given:
            return list(given) * self.input_count if len(given) == 1 else list(given)
        if self.input_shape is None:
            return []
        return [InputSpec(self.input_shape, self.input_dtype)] * self.input_count

    def load_loss(self) -> Callable[[Any], Any] | None:
        """Return the callable that computes the loss, if there is one."""
        return load(self.loss) if self.loss else None


_CROSS_ENTROPY = "vflops.counting.capture:cross_entropy"
_TRANSFORMERS = {
    "gpt2-124m": "GPT-2, 12 layers of 768, without biases",
    "gpt2-355m": "GPT-2, 24 layers of 1,024, without biases",
    "gpt2-774m": "GPT-2, 36 layers of 1,280, without biases",
    "gpt2-1558m": "GPT-2, 48 layers of 1,600, without biases",
    "llama-1b": "Llama 3.2 1B",
    "llama-8b": "Llama 3.1 8B",
    "mixtral-8x7b": "Mixtral 8x7B: 8 experts in each layer, two of them for each token",
    "moe-8x124m": "GPT-2 124M with 8 experts in each layer, two of them for each token",
}


def _transformer(name: str, title: str) -> ModelSpec:
    return ModelSpec(
        name=name,
        title=title,
        target="vflops.models.language.published:published_transformer",
        arguments=(name,),
        input_shape=(PUBLISHED[name].context,),
        input_dtype="int64",
        input_count=2,
        loss="vflops.models.language.published:mean_loss",
    )


BUILT_IN: tuple[ModelSpec, ...] = (
    ModelSpec(
        name="resnet50",
        title="ResNet-50 v1.5, HPC AI500's image classification",
        target="vflops.models.resnet:resnet50",
        input_shape=(3, 224, 224),
        loss=_CROSS_ENTROPY,
        rules=PUBLISHED_CONVENTION,
    ),
    ModelSpec(
        name="resnet50-v1",
        title="ResNet-50 as first published, AIPerf's starting point",
        target="vflops.models.resnet:resnet50_v1",
        input_shape=(3, 224, 224),
        loss=_CROSS_ENTROPY,
        rules=PUBLISHED_CONVENTION,
    ),
    *(_transformer(name, title) for name, title in _TRANSFORMERS.items()),
)

ENTRY_POINTS = "vflops.models"
"""The group of entry points with which other packages provide a ``ModelSpec``."""


@cache
def models() -> Mapping[str, ModelSpec]:
    """Return all named models: built-in ones and those of installed packages."""
    built_in = {spec.name: spec for spec in BUILT_IN}
    return {
        **built_in,
        **load_extensions(ENTRY_POINTS),
        **built_in,
    }  # built-in models come first and are never replaced


def model(name: str) -> ModelSpec:
    """Return the model called ``name``, or one given as ``package.module:callable``."""
    if ":" in name:
        return ModelSpec(name, "your own", name, None, None, origin="you")
    if name not in models():
        from vflops.workloads.contract.registry import workloads

        if name in workloads():
            raise UsageError(
                f"{name} is a workload, expected a model: {', '.join(models())}",
                hint=Hint("a run counts the operations that it trains", f"vflops run {name}"),
            )
        error = unknown_name("model", name, models())
        hint = f"{error.hint}; or name your own model as package.module:callable"
        raise UsageError(error.message, hint=hint)
    return models()[name]


def default_convention(name: str) -> str:
    """Return the id of the counting convention for a model, unless the user chooses one.

    The networks of HPC AI500 and AIPerf are counted as published, all others as executed.
    """
    known = (spec.rules for spec in BUILT_IN if spec.name == name)
    return next(known, EXECUTED_CONVENTION)


def load(target: str) -> Callable[..., Any]:
    """Import the object ``package.module:name``; raise ``UsageError`` if that fails."""
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise UsageError(
            f"{target!r} is not the name of a model", hint="write it as package.module:callable"
        )
    if module_name.endswith(".py"):
        raise UsageError(
            f"{module_name} is a file, expected a module",
            hint=f"write it as {module_name.removesuffix('.py').replace('/', '.')}:{attribute}",
        )
    current_folder = str(Path.cwd())
    if current_folder not in sys.path:  # Python adds the folder of a script, but not for a command
        sys.path.insert(0, current_folder)
    try:
        imported: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"cannot import {module_name}: no module named {error.name!r}",
            hint="install it, or start in the folder that contains it",
        ) from error
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"cannot import {module_name}: {type(error).__name__}: {error}",
            hint="the module must import without error: python -c 'import " + module_name + "'",
        ) from error
    for part in attribute.split("."):
        if not hasattr(imported, part):
            names = [name for name in dir(imported) if callable(getattr(imported, name, None))]
            raise unknown_name("name", part, names, where=f" in {module_name}")
        imported = getattr(imported, part)
    if not callable(imported):
        raise UsageError(
            f"{target} is a {type(imported).__name__}, expected a class or a function",
            hint="name a callable that takes no arguments and returns a torch.nn.Module",
        )
    target_callable: Callable[..., Any] = imported
    return target_callable
