"""Captures the graph of a model: runs it on the meta device and records every operator call.

No arithmetic is done and no memory is allocated for tensors, so the cost does not depend on the
batch size. The forward pass shows which gradients it needs. On request, the backward pass runs too,
because custom autograd functions and activation checkpointing are seen only there.
"""

from __future__ import annotations

import gc
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vflops.counting import aten
from vflops.counting.backward_pass import with_backward_pass
from vflops.counting.input_specs import Input, InputSpec, arguments
from vflops.counting.meta_device import (
    first_line,
    on_meta,
    reads_values,
    user_line,
    with_autocast_on_meta,
    without_compiler,
    without_value_checks,
)
from vflops.counting.output_tensors import tensors_in
from vflops.counting.recorder import NeedsDataError, NestedTensorError, OperatorMode, Recorder
from vflops.errors import UsageError
from vflops.record.formats.graph import Graph
from vflops.units import shape

__all__ = ["InputSpec", "Loss", "capture", "capture_call", "cross_entropy"]

Loss = Callable[[Any], Tensor]


def capture(
    build: Callable[[], nn.Module],
    inputs: Sequence[Input],
    *,
    name: str,
    batch: int = 1,
    loss: Loss | None = None,
    run_backward: bool = False,
) -> Graph:
    """Return the operation graph of one training step over ``batch`` samples.

    :param run_backward: run the backward pass too. Without it, operators that run only there are
        missing: those of custom ``torch.autograd.Function`` classes, and recomputation.
    """
    values = [
        _empty((batch, *spec.shape), spec.dtype) if isinstance(spec, InputSpec) else spec.value
        for spec in inputs
    ]
    args, keywords = arguments(inputs, values)
    return capture_call(
        build, args, keywords, name=name, batch=batch, loss=loss, run_backward=run_backward
    )


def capture_call(
    build: Callable[[], nn.Module],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    name: str,
    batch: int,
    loss: Loss | None = None,
    run_backward: bool = False,
) -> Graph:
    """Return the graph of a call of the model with arguments whose tensors are on the meta device.

    The first dimension of the tensors is the batch.
    """
    model = on_meta(build, name)
    inputs = tensors_in([*args, keywords])
    try:
        # All but the graph is freed before garbage is searched for again.
        with (
            _without_garbage_collection(),
            without_compiler(),
            without_value_checks(),
            with_autocast_on_meta(),
        ):
            _initialise_lazy_modules(model, args, keywords)
            return _recorded(
                model, args, keywords, inputs, name, batch, loss=loss, run_backward=run_backward
            )
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise _capture_error(name, inputs, error) from error


def _recorded(
    model: nn.Module,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    inputs: Sequence[Tensor],
    name: str,
    batch: int,
    *,
    loss: Loss | None,
    run_backward: bool,
) -> Graph:
    with Recorder(model, inputs) as recorder, torch.device("meta"):
        result = model(*args, **keywords)
        if loss is not None:
            result = loss(result)
        results = tensors_in(result)  # a generator runs now
    recorded = recorder.graph(name, batch, results)
    if recorder.unseen is not None:
        raise _runs_in_threads(name, recorder.unseen)
    if run_backward:
        return with_backward_pass(recorded, recorder, model, results)
    return recorded.graph


def _runs_in_threads(name: str, part: str) -> UsageError:
    return UsageError(
        f"model {name} runs {part} where capture does not see it, such as in another thread",
        hint="for counting, call all layers in the thread that calls forward",
    )


def _initialise_lazy_modules(
    model: nn.Module, args: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    """Give lazy modules their parameters, which depend on the inputs, by a first run."""
    if any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        with OperatorMode(model), torch.device("meta"):
            model(*args, **keywords)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep Python from searching the growing list of recorded operators for garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def cross_entropy(logits: Tensor) -> Tensor:
    """Return the classification loss with one label per sample."""
    labels = torch.empty(logits.shape[0], dtype=torch.long, device=logits.device)
    return nn.functional.cross_entropy(logits, labels)


def _empty(sizes: Sequence[int], dtype_name: str) -> Tensor:
    dtype = getattr(torch, dtype_name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"unknown input type {dtype_name!r}",
            hint="use a torch type, for example 128:int64 for tokens",
        )
    try:
        return torch.empty(tuple(sizes), dtype=dtype, device="meta")
    except RuntimeError as error:
        raise UsageError(
            f"there is no tensor of the shape {shape(sizes)}: {first_line(error)}",
            hint="give a smaller shape or batch",
        ) from error


def _capture_error(name: str, inputs: Sequence[Tensor], error: BaseException) -> UsageError:
    unavailable = re.match(r"([\w:.]+): .* no fake impl or Meta kernel", str(error))
    if unavailable and unavailable[1].removeprefix("aten::") not in aten.NEEDS_DATA:
        return UsageError(
            f"model {name} calls {unavailable[1]}, which torch cannot run without values"
            f"{user_line(error)}",
            hint="for an operator of your own, register its shapes with torch.library.register_fake"
            "; otherwise count the model without it",
        )
    if (control_flow := re.search(r"HigherOrderOperator (\w+)", str(error))) is not None:
        operator = control_flow[1].removesuffix("_impl")
        return UsageError(
            f"model {name} calls the operator {operator} of torch, whose functions capture does "
            f"not see{user_line(error)}",
            hint="for counting, call the function of one branch, or call it in a loop of Python",
        )
    if any(frame.name == "pack_to_cpu" for frame in traceback.extract_tb(error.__traceback__)):
        return UsageError(
            f"model {name} saves activations on the CPU (save_on_cpu), which needs their values"
            f"{user_line(error)}",
            hint="count it without torch.autograd.graph.save_on_cpu: the operations are the same",
        )
    if isinstance(error, NestedTensorError):
        return UsageError(
            f"model {name} uses nested tensors, whose work depends on lengths{user_line(error)}",
            hint="count it with padded tensors, all of the same length",
        )
    if isinstance(error, NeedsDataError) or reads_values(error):
        return UsageError(
            f"model {name} depends on the values of its data{user_line(error)}",
            hint="capture sees shapes, not values: replace the branch, .item() or mask "
            "by torch.where or a fixed choice",
        )
    if "'lengths' argument" in str(error):
        return UsageError(
            f"model {name} packs sequences, whose work depends on their lengths{user_line(error)}",
            hint="count it with padded sequences, all of the same length",
        )
    if "Sparse" in str(error):
        return UsageError(
            f"model {name} uses sparse tensors, whose work depends on values{user_line(error)}",
            hint="count it with dense tensors, or gather rows and add them with index_add",
        )
    if "FlexAttention" in str(error):
        return UsageError(
            f"model {name} calls flex_attention, which needs a real device{user_line(error)}",
            hint="for counting, call torch.nn.functional.scaled_dot_product_attention instead: it "
            "has the same two products, over all blocks, masked or not",
        )
    shapes = ", ".join(shape(tensor.shape[1:]) or "scalar" for tensor in inputs)
    wants_integers = "indices" in str(error)
    example = "128:int64" if wants_integers else "3x224x224"
    return UsageError(
        f"model {name} does not run on an input of {shapes}: {first_line(error)}{user_line(error)}",
        hint=f"give the shape (and type) of one sample, for example --input {example}",
    )
