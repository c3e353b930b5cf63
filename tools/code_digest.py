"""Digests of Python code that change with what the code does, not with how it is written down.

Comments, docstrings and formatting do not count. The digest of a file is the same with every
version of Python that can parse it, unlike ``ast.dump`` and ``ast.unparse``, whose output changes.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ALWAYS_KEPT = re.compile(r"\bjit\b|gpu|kernel_test")
"""Decorators of Triton kernels, which Python never calls, and of GPU tests, which may be new."""


def code_digest(source: str, functions: Collection[str]) -> str:
    """Return the SHA-256 of a module's own statements and classes, and of the given functions.

    ``functions`` are qualified names such as ``ResNet.forward``. Others are left out, except
    Triton kernels and GPU tests.
    """
    text = "".join(_block(ast.parse(source).body, "", frozenset(functions)))
    return hashlib.sha256(text.encode()).hexdigest()


def imports_torch(source: str) -> bool:
    """Whether a module imports torch or Triton, if only inside a function or for its types."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
    return any(module.split(".")[0] in ("torch", "triton") for module in modules)


def _block(statements: list[ast.stmt], scope: str, functions: frozenset[str]) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, _FUNCTIONS):
            if scope + statement.name in functions or _always_kept(statement):
                yield _text(statement)
        elif isinstance(statement, ast.ClassDef):
            body = "".join(_block(statement.body, f"{scope}{statement.name}.", functions))
            statement.body = []
            yield f"{_text(statement)}{{{body}}}"
        elif not _is_docstring(statement):
            yield _text(statement)


def _always_kept(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(_ALWAYS_KEPT.search(ast.unparse(node)) for node in function.decorator_list)


def _text(node: object) -> str:
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__}:{node.value!r}"
    if isinstance(node, list):
        return f"[{','.join(_text(item) for item in node if not _is_docstring(item))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.11 and 3.12 differ in empty parts
        node.values = [part for part in node.values if not _is_string(part, "")]
    # Fields that are empty or None may be absent in another version of Python.
    fields = (
        f"{name}={_text(value)}"
        for name, value in ast.iter_fields(node)
        if value is not None and value != [] and not isinstance(value, ast.expr_context)
    )
    return f"{type(node).__name__}({','.join(fields)})"


def _is_docstring(node: object) -> bool:
    return isinstance(node, ast.Expr) and _is_string(node.value)


def _is_string(node: ast.expr, value: str | None = None) -> bool:
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    return value is None or node.value == value
