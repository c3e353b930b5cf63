"""Every Triton kernel of vflops has a kind: a new one without a kind fails here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vflops.machine.telemetry.kernel_names import OWN_KERNELS, kind_of

SOURCES = ROOT / "src" / "vflops"
KINDS_OF_KERNELS = {
    "convolution": "conv1x1_forward conv1x1_backward stem_forward stem_backward",
    "normalisation": "channel_sums forward_coefficients backward_coefficients normalise"
    " gradient_sums normalise_backward",
    "pooling": "pool_forward forward_kernel backward_kernel",
    "selection": "suppress_kernel",
    "copy": "space_to_depth fp8_transpose_kernel",
    "element-wise": "sample_kernel single_pass_loss_kernel token_loss_kernel fp8_rows_kernel",
    "optimizer": "rounded_adam_kernel",
}
"""What each Triton kernel computes, by what its code does."""
EXPECTED = {name: kind for kind, names in KINDS_OF_KERNELS.items() for name in names.split()}


def triton_functions(tree: ast.AST) -> dict[str, ast.FunctionDef]:
    """Return the functions that Triton compiles, by name."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {
        function.name: function
        for function in found
        if any("triton.jit" in ast.unparse(decorator) for decorator in function.decorator_list)
    }


def called(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def kernels(path: Path) -> set[str]:
    """Return the Triton functions of a file that are launched, not inlined into others."""
    functions = triton_functions(ast.parse(path.read_text(encoding="utf-8")))
    inlined = {name for function in functions.values() for name in called(function)}
    return set(functions) - inlined


def test_every_triton_kernel_has_a_kind() -> None:
    found = [name for path in SOURCES.rglob("*.py") for name in sorted(kernels(path))]
    assert len(found) == len(set(found)), "two kernels with one name cannot be told apart"
    assert set(found) == set(EXPECTED) == set(OWN_KERNELS), (
        "add it to OWN_KERNELS of kernel_names.py, and here"
    )


def test_inlined_functions_are_no_kernels(tmp_path: Path) -> None:
    source = tmp_path / "kernels.py"
    source.write_text("""
@triton.jit
def half(x): return x / 2
@triton.jit(debug=True)
def halve_kernel(x): half(x)
@functools.cache
def launch(): halve_kernel[1](0)
""")
    assert kernels(source) == {"halve_kernel"}


@pytest.mark.parametrize(("name", "kind"), EXPECTED.items())
def test_a_kernel_of_vflops_is_known_by_its_name(name: str, kind: str) -> None:
    # Inductor may number kernels that it did not write.
    assert kind_of(name) == kind_of(f"{name}_12") == kind
