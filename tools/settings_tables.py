"""The tables of the settings of workloads in docs/reference/settings.md, from their source.

python -m tools.settings_tables --write   write the tables between their markers anew

A row has a field's name, its default with the values of the profiles that differ, and its
docstring. A test compares the page with the source.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from vflops.config.profiles import SHARED_PROFILES
from vflops.config.training import WorkloadSettings
from vflops.record.files import atomic
from vflops.workloads.contract.registry import workload

PAGE = Path(__file__).parents[1] / "docs/reference/settings.md"
WORKLOADS = ("image-classification", "extreme-weather")
"""The workloads whose tables are generated."""
_BASE = set(WorkloadSettings.model_fields)


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of the fields that a class declares itself, each in one line."""
    source = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(source, ast.ClassDef)
    found = {}
    for field, text in zip(source.body, source.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                found[name] = " ".join(words.split()).replace("``", "`").replace("None ", "none ")
    return found


def rows(
    model: type[BaseModel], profiles: dict[str, BaseModel], prefix: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the values and the meaning of every setting."""
    meanings = docstrings(model)
    for name, field in model.model_fields.items():
        if not prefix and name in _BASE and name not in meanings:
            continue
        values = {profile: getattr(section, name) for profile, section in profiles.items()}
        if isinstance(field.default, BaseModel):
            yield from rows(type(field.default), values, f"{prefix}{name}.")
            continue
        texts = {profile: _text(value) for profile, value in values.items()}
        default = _text(field.default)
        others = [f"`{p}` {text}" for p, text in texts.items() if text != default]
        shown = "; ".join([default, *others])
        yield (
            f"{prefix}{name}",
            shown,
            meanings[name].replace("``", "`").replace("None ", "none ").rstrip("."),
        )


def table(name: str) -> str:
    """Return the table of a workload."""
    spec = workload(name)
    profiles = {profile: spec.profile(profile) for profile in SHARED_PROFILES}
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    settings = type(next(iter(profiles.values())))
    for key, shown, meaning in rows(settings, dict(profiles)):
        lines.append(f"| `{key}` | {shown} | {meaning[0].lower()}{meaning[1:]} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with the tables of today."""
    for name in WORKLOADS:
        start, end = f"<!-- settings of {name} -->\n", "\n<!-- end -->"
        before, _, rest = text.partition(start)
        text = before + start + table(name) + end + rest.partition(end)[2]
    return text


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple):
            return f"{len(value)} × {len(value[0])} values"
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return f"`{value}`" if isinstance(value, str) else f"{value:g}"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    atomic.write_bytes(PAGE, page(PAGE.read_text()).encode())
