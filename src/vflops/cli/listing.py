"""``vflops list``: what there is to run, count and choose from, with its origin."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="list")(list_)


def list_() -> None:
    """Models, rule sets, ceilings, precisions and profiles."""
    from rich import box
    from rich.table import Table

    from vflops.cli.console import console, next_step
    from vflops.config.names import BENCHMARKS, PRECISIONS
    from vflops.config.profiles import PROFILES
    from vflops.flops.rules import BUILT_IN, rule_sets
    from vflops.models.registry import models

    own = {rules.id for rules in BUILT_IN}
    profiles = {name: (make.__doc__ or "").splitlines()[0] for name, make in PROFILES.items()}
    sections: list[tuple[str, list[tuple[str, str, str]]]] = [
        ("models", [(spec.name, spec.title, spec.origin) for spec in models().values()]),
        (
            "rule sets",
            [
                (f"{rules.id}/{rules.version}", f"{rules.title}: {rules.source}", _origin(id, own))
                for id, rules in rule_sets().items()
            ],
        ),
        ("ceilings", [(name, text, "vflops") for name, text in BENCHMARKS.items()]),
        ("precisions", [(name, text, "vflops") for name, text in PRECISIONS.items()]),
        ("profiles", [(name, text, "vflops") for name, text in profiles.items()]),
    ]
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    for title, rows in sections:
        table.add_row(f"[bold]{title}", "", "")
        for name, text, origin in rows:
            table.add_row(f"  {name}", text, f"[dim]{origin}")
    console().print(table)
    next_step("vflops run", "everything, at the profile that suits this machine")


def _origin(name: str, own: set[str]) -> str:
    return "vflops" if name in own else "installed"
