"""Runs the code cells of a notebook in this process, without Jupyter.

A notebook is JSON: its code cells are run in order in one namespace, and the value of a cell is
that of its last expression, as in Jupyter. Magic commands (``%…``, ``!…``) are not supported.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any


def code_cells(path: Path) -> list[str]:
    """Return the source of every code cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def values(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Run all code cells; return the value of each, and the names that they defined."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [
        _run(source, f"{path.name}, cell {n}", names) for n, source in enumerate(code_cells(path))
    ], names


def _run(source: str, where: str, names: dict[str, Any]) -> Any:
    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if last is None or not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), where, "eval"), names)
