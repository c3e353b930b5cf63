"""The imports between the modules of vflops, read from the source without importing anything."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "vflops"
SOURCE = Path(__file__).parents[1] / "src"
_WORDS = (ast.ImportFrom, ast.Attribute, ast.Constant)
_BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)
"""What can hold statements; expressions cannot."""


@dataclass(frozen=True)
class Import:
    """One import statement: which module imports which, and where."""

    importer: str
    imported: str
    file: str
    """Relative to the repository."""
    line: int
    at_import_time: bool
    """Whether it runs when the importer is imported: not in a function, not for types alone."""


def unit(module: str) -> str:
    """Return the second-level package or module that holds ``module``, such as ``record.log``."""
    return ".".join(module.split(".")[1:3])


def room(module: str) -> str:
    """Return the first-level package or module that holds ``module``."""
    return module.split(".")[1] if "." in module else module


class ImportGraph:
    """Every module of a source folder and every import between them."""

    def __init__(self, source: Path = SOURCE) -> None:
        self._source = source
        paths = sorted((source / PACKAGE).rglob("*.py"))
        self.modules = {self._name(path): path for path in paths}

    @cached_property
    def _trees(self) -> dict[str, ast.Module]:
        return {
            module: ast.parse(path.read_text(encoding="utf-8"))
            for module, path in self.modules.items()
        }

    @cached_property
    def _statements(self) -> dict[str, list[tuple[ast.Import | ast.ImportFrom, bool]]]:
        return {
            module: list(_import_statements(tree, True)) for module, tree in self._trees.items()
        }

    @cached_property
    def _words(self) -> dict[str, list[ast.ImportFrom | ast.Attribute | ast.Constant]]:
        """The parts of the modules that can name a module or something of the package."""
        return {
            module: [node for node in ast.walk(tree) if isinstance(node, _WORDS)]
            for module, tree in self._trees.items()
        }

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """All imports of one module of the package by another, in the order of the files."""
        return tuple(edge for module in self.modules for edge in self._imports(module))

    @cached_property
    def imports_of_torch(self) -> tuple[Import, ...]:
        """All imports of torch, or of a library that imports it."""
        return tuple(
            edge
            for module in self.modules
            for edge in self._imports(module, of=("torch", "torchvision", "triton"))
        )

    @cached_property
    def named(self) -> tuple[Import, ...]:
        """All modules that are named in strings, such as ``"vflops.train.engine:run"``."""
        return tuple(edge for module in self.modules for edge in self._named(module))

    @cached_property
    def uses_of_package(self) -> tuple[Import, ...]:
        """All uses of a name of the package itself, such as ``vflops.__version__``."""
        return tuple(edge for module in self.modules for edge in self._uses(module))

    def units(self) -> list[str]:
        """Return the names of all second-level units."""
        return sorted({unit(module) for module in self.modules if module != PACKAGE})

    def edges(self) -> dict[tuple[str, str], Import]:
        """Return the pairs of units of which one imports the other, with the first such import."""
        found: dict[tuple[str, str], Import] = {}
        for edge in self.imports:
            pair = unit(edge.importer), unit(edge.imported)
            if pair[0] != pair[1] and all(pair):
                found.setdefault(pair, edge)
        return found

    def cycles(self) -> list[list[str]]:
        """Return the groups of units that import each other in a circle."""
        targets: dict[str, set[str]] = {}
        for importer, imported in self.edges():
            targets.setdefault(importer, set()).add(imported)
        return [sorted(group) for group in _strongly_connected(targets) if len(group) > 1]

    def reaching_torch(self, modules: Iterable[str], *, local: bool) -> dict[str, list[str]]:
        """Return those of ``modules`` that import torch, each with the chain of modules to it.

        ``local``: follow imports inside functions too, except those of the package itself, which
        are for its users.
        """
        direct = {e.importer for e in self.imports_of_torch if local or e.at_import_time}
        targets: dict[str, set[str]] = {}
        for edge in self.imports:
            is_lazy_export = edge.importer == PACKAGE and not edge.at_import_time
            if (local or edge.at_import_time) and not is_lazy_export:
                targets.setdefault(edge.importer, set()).update(_with_parents(edge.imported))
        return {
            module: chain
            for module in modules
            if (chain := _chain(module, direct, targets)) is not None
        }

    def file(self, module: str) -> str:
        """Return the path of a module, relative to the repository."""
        return str(self.modules[module].relative_to(self._source.parent))

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self._source).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _imports(self, module: str, of: tuple[str, ...] = (PACKAGE,)) -> Iterator[Import]:
        file = self.file(module)
        for node, at_import_time in self._statements[module]:
            for name in self._names(node, module):
                if name.partition(".")[0] in of:
                    yield Import(module, name, file, node.lineno, at_import_time)

    def _names(self, node: ast.Import | ast.ImportFrom, importer: str) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        module = node.module or ""
        if node.level:  # relative to the importer's package
            is_package = self.modules[importer].name == "__init__.py"
            parts = importer.split(".")
            base = parts[: len(parts) - node.level + is_package]
            module = ".".join([*base, *([module] if module else [])])
        submodules = [f"{module}.{alias.name}" for alias in node.names]
        names = [name if name in self.modules else module for name in submodules]
        return list(dict.fromkeys(names))

    def _named(self, module: str) -> Iterator[Import]:
        """Yield the modules that a module names in a string, to import or start them later."""
        for node in self._words[module]:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value.partition(":")[0]
                if name in self.modules and name.count(".") > 1:
                    yield Import(module, name, self.file(module), node.lineno, False)

    def _uses(self, module: str) -> Iterator[Import]:
        """Yield the names, other than modules, that a module takes from the package itself."""
        for node in self._words[module]:
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module == PACKAGE:
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = [node.attr] if node.value.id == PACKAGE else []
            for name in (f"{PACKAGE}.{name}" for name in names):
                if name not in self.modules:
                    yield Import(module, name, self.file(module), node.lineno, False)


def _import_statements(
    parent: ast.AST, runs: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield every import below ``parent``, and whether it runs when the module is imported."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, runs
        elif (
            isinstance(node, ast.If) and (for_types := _tests_type_checking(node.test)) is not None
        ):
            for statements, typing_only in ((node.body, for_types), (node.orelse, not for_types)):
                block = ast.Module(statements, [])
                yield from _import_statements(block, runs and not typing_only)
        elif isinstance(node, _BLOCKS):
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _import_statements(node, runs and not inside)


def _tests_type_checking(test: ast.expr) -> bool | None:
    """Whether a condition holds for type checkers only; None if it is about something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        negated = _tests_type_checking(test.operand)
        return None if negated is None else not negated
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return True if name == "TYPE_CHECKING" else None


def _with_parents(module: str) -> Iterator[str]:
    """Importing ``a.b.c`` imports ``a`` and ``a.b`` first."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])


def _chain(start: str, goals: set[str], targets: dict[str, set[str]]) -> list[str] | None:
    before: dict[str, str | None] = {start: None}
    waiting = [start]
    while waiting:
        module = waiting.pop(0)
        if module in goals:
            chain: list[str] = []
            at: str | None = module
            while at is not None:
                chain.insert(0, at)
                at = before[at]
            return chain
        for target in sorted(targets.get(module, ())):
            if target not in before:
                before[target] = module
                waiting.append(target)
    return None


def _strongly_connected(targets: dict[str, set[str]]) -> list[set[str]]:
    """Tarjan's algorithm; the graph has a few hundred nodes."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(targets.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = set[str]()
            while node not in group:
                group.add(stack.pop())
            groups.append(group)

    for node in sorted(targets):
        if node not in index:
            visit(node)
    return groups
