"""Formulas for operators of other packages, as registered with torch's ``register_flop_formula``.

This is the registry of torch's FlopCounterMode, so a package needs one formula for both. Operators
of torch itself do not use it: ``aten`` and ``products`` know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from vflops.errors import UsageError, format_value
from vflops.record.formats.graph import FORMULA, OPERATIONS, Attribute

Formula = Callable[..., Any]

_OWN_NAMESPACES = ("aten", "prims", "prim")


def registered_formula(func: Any) -> Formula | None:
    """Return the formula that another package registered for its operator ``func``, if any."""
    namespace = str(getattr(func, "namespace", "aten"))
    if namespace in _OWN_NAMESPACES:
        return None
    from torch.utils.flop_counter import flop_registry  # it imports slowly

    formula: Formula | None = flop_registry.get(getattr(func, "_overloadpacket", None))
    return formula


def operations_by(
    formula: Formula,
    op: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    results: Sequence[Tensor],
) -> dict[str, Attribute]:
    """Return the attributes of a call whose operations ``formula`` gives."""
    result = results[0] if len(results) == 1 else tuple(results)
    try:
        operations = formula(*args, **kwargs, out_val=result)
    except Exception as error:
        raise UsageError(
            f"the registered formula of {op} fails: {type(error).__name__}: {error}",
            hint="correct the function that register_flop_formula decorates",
        ) from error
    if not isinstance(operations, int) or isinstance(operations, bool) or operations < 0:
        raise UsageError(
            f"the registered formula of {op} returned {format_value(operations)}, "
            "expected a number of operations",
            hint="return an integer that is not negative",
        )
    origin = str(getattr(formula, "__module__", "another package"))
    return {OPERATIONS: operations, FORMULA: origin}
