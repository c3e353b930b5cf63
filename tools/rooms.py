"""The guard of the rooms: which package may import which; ``make check`` runs it.

python -m tools.rooms           complain about imports in a forbidden direction, and cycles
python -m tools.rooms --write   draw the picture and the table of docs/architecture.md anew
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from tools.import_graph import PACKAGE, Import, ImportGraph, room
from tools.room_picture import svg

ORDER = (
    "cli",
    "api",
    "testing",
    "studies",
    "run",
    "publish",
    "results",
    "workloads",
    "train",
    "launch",
    "models",
    "workloads.contract",
    "data",
    "counting",
    "machine",
    "train.communication",
    "record",
    "config",
    "metrics",
    "extensions",
    "text",
    "units",
    "python_start",
    "interruption",
    "errors",
)
"""From top to bottom: each entry sees itself and what is below it.

Two packages stand lower than their rooms because rooms below need them: the contract of workloads,
and the averaging between ranks, which is trained with and measured as a ceiling.
"""
FOUNDATION = ("extensions", "text", "units", "python_start", "interruption", "errors")
"""Modules that every room may import; the picture leaves out the arrows to them."""
STARTED_BY_NAME = {
    ("vflops.workloads.contract.spec", "vflops.train.engine"),
    ("vflops.launch.attempt", "vflops.train.rank"),
}
"""The modules that a lower room names in a string: the runner of a job, and a rank's program."""
INTERFACE = "api"
"""The room whose names ``vflops/__init__.py`` offers, imported on first use."""
TORCH_FREE = ("record", "results", "publish", "config", "metrics")
"""Rooms that never import torch, not even inside a function: they read results on any machine."""
TORCH_FREE_AT_IMPORT = ("cli", "api", "studies", "run")
"""Rooms that import torch only inside functions that run something."""
DOCUMENT = Path(__file__).parents[1] / "docs" / "architecture.md"
PICTURE = DOCUMENT.parent / "pictures" / "rooms.svg"
_BEGIN = "<!-- written by python -m tools.rooms --write -->"
_END = "<!-- end of what is written by tools.rooms -->"


def layer(module: str) -> str:
    """Return the entry of ``ORDER`` that holds ``module``: the longest that fits."""
    name = module.removeprefix(f"{PACKAGE}.")
    fitting = [entry for entry in ORDER if name == entry or name.startswith(f"{entry}.")]
    return max(fitting, key=len, default="")


def complaints(graph: ImportGraph) -> list[str]:
    """Return every broken rule, with the file, the line and where the import belongs."""
    return [*_unknown_rooms(graph), *_wrong_directions(graph), *_cycles(graph), *_torch(graph)]


def _unknown_rooms(graph: ImportGraph) -> list[str]:
    outside = {room(module) for module in graph.modules if not layer(module)}
    known = {PACKAGE, "__main__"}
    return [
        f"src/vflops/{name} is in no room: move it, or add it to ORDER in tools/rooms.py"
        for name in sorted(outside - known)
    ]


def _wrong_directions(graph: ImportGraph) -> list[str]:
    found = [
        f"{edge.file}:{edge.line}: vflops/__init__.py may import `{INTERFACE}` inside functions, "
        "and nothing else of the package"
        for edge in graph.imports
        if edge.importer == PACKAGE and (layer(edge.imported) != INTERFACE or edge.at_import_time)
    ]
    found += [
        f"{edge.file}:{edge.line}: {edge.imported} is for users of the package: import the module "
        "that defines it"
        for edge in graph.uses_of_package
        if edge.imported != f"{PACKAGE}.__version__"
    ]
    named = [edge for edge in graph.named if (edge.importer, edge.imported) not in STARTED_BY_NAME]
    for edge in (*graph.imports, *named):
        importer, imported = layer(edge.importer), layer(edge.imported)
        if importer and imported and ORDER.index(imported) < ORDER.index(importer):
            found.append(
                f"{edge.file}:{edge.line}: {edge.importer} imports {edge.imported}, but "
                f"`{importer}` is below `{imported}`: the import belongs in `{imported}` or above "
                f"it, or what is imported belongs in `{importer}` or below it"
            )
    return found


def _cycles(graph: ImportGraph) -> list[str]:
    edges = graph.edges()
    found = []
    for group in graph.cycles():
        inside: list[Import] = [
            edge for (one, other), edge in edges.items() if one in group and other in group
        ]
        lines = "".join(
            f"\n  {edge.file}:{edge.line}: {edge.importer} imports {edge.imported}"
            for edge in inside
        )
        found.append(f"{', '.join(group)} import each other in a circle:{lines}")
    return found


def _torch(graph: ImportGraph) -> list[str]:
    found = []
    for rooms, local in ((TORCH_FREE, True), (TORCH_FREE_AT_IMPORT, False)):
        modules = [module for module in graph.modules if room(module) in rooms]
        for module, chain in graph.reaching_torch(modules, local=local).items():
            when = "" if local else " when it is imported"
            path = " → ".join([*chain, "torch"])
            found.append(
                f"{graph.file(module)}: {module} must not import torch{when}, and does: {path}"
            )
    return found


def picture(graph: ImportGraph) -> str:
    """Return the rooms and the imports between them as an SVG."""
    imports: dict[str, set[str]] = {entry: set() for entry in ORDER}
    for edge in graph.imports:
        importer, imported = layer(edge.importer), layer(edge.imported)
        if importer and imported not in (importer, "", *FOUNDATION):
            imports[importer].add(imported)
    notes = {entry: _summary(graph.modules[f"{PACKAGE}.{entry}"]) for entry in ORDER}
    direct = {layer(edge.importer) for edge in graph.imports_of_torch if edge.at_import_time}
    return svg(ORDER, imports, {name: _first_clause(note) for name, note in notes.items()}, direct)


def _first_clause(text: str) -> str:
    """Return a docstring's summary up to its first colon, semicolon or full stop."""
    return re.split(r"[:;.](?:\s|$)", text.replace("``", ""))[0]


def table(graph: ImportGraph) -> str:
    """Return a table of the rooms, their packages and what each of them holds."""
    lines = ["| room | holds | packages |", "|---|---|---|"]
    for entry in ORDER:
        module = f"{PACKAGE}.{entry}"
        inside = [
            name
            for name in graph.modules
            if name.count(".") == module.count(".") + 1
            and name.startswith(f"{module}.")
            and graph.modules[name].name == "__init__.py"
            and layer(name) == entry
        ]
        packages = ", ".join(f"`{name.rpartition('.')[2]}`" for name in inside)
        lines.append(f"| `{entry}` | {_summary(graph.modules[module])} | {packages} |")
    return "\n".join(lines)


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[0].replace("|", "\\|") if docstring else ""


def drawn(text: str, graph: ImportGraph) -> str:
    """Return the document ``text`` with its table as the source has it now."""
    before, _, rest = text.partition(_BEGIN)
    _, found, after = rest.partition(_END)
    if not found:
        raise ValueError(f"{DOCUMENT} has no part between {_BEGIN!r} and {_END!r}")
    return f"{before}{_BEGIN}\n\n{table(graph)}\n\n{_END}{after}"


def main() -> int:
    """Check the rooms, or draw them."""
    graph = ImportGraph()
    if "--write" in sys.argv[1:]:
        PICTURE.write_text(picture(graph), encoding="utf-8")
        DOCUMENT.write_text(drawn(DOCUMENT.read_text(encoding="utf-8"), graph), encoding="utf-8")
        return 0
    found = complaints(graph)
    for line in found:
        print(line, file=sys.stderr)
    print(f"rooms: {len(graph.modules)} modules, {len(graph.imports)} imports, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
