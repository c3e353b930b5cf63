"""``vflops list``: the names of workloads, models, rule sets and profiles, with their origin."""

from __future__ import annotations

import typer

from vflops.cli.terminal.columns import columns, heading


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="list")(list_)


def list_() -> None:
    """List workloads, models, rule sets, profiles. Also launchers, ceilings, precisions."""
    from vflops.cli.terminal.console import next_step
    from vflops.config.names import BENCHMARKS, PRECISIONS
    from vflops.config.profiles import PROFILES
    from vflops.counting.conventions import conventions
    from vflops.launch.factory import launcher_class, launcher_names, origin
    from vflops.models.model_registry import models
    from vflops.results.check.rule_set_names import NAMES
    from vflops.workloads.contract.registry import workloads

    trained = sorted(
        workloads().values(), key=lambda spec: not spec.in_suite
    )  # workloads of the suite come first
    profiles = {name: (make.__doc__ or "").splitlines()[0] for name, make in PROFILES.items()}
    sections: list[tuple[str, list[tuple[str, str, str]]]] = [
        ("workloads", [(spec.name, spec.title, spec.origin) for spec in trained]),
        ("models", [(spec.name, spec.title, spec.origin) for spec in models().values()]),
        (
            "counting conventions (--rules)",
            [
                (f"{rules.id}/{rules.version}", f"{rules.title}: {rules.source}", rules.origin)
                for rules in conventions().values()
            ],
        ),
        (
            "rule sets of vflops check",
            [(f"{name}/{rules.version}", rules.title, "vflops") for name, rules in NAMES.items()],
        ),
        (
            "launchers (--on)",
            [
                (name, (launcher_class(name).__doc__ or "").splitlines()[0], origin(name))
                for name in launcher_names()
            ],
        ),
        ("ceilings", [(name, text, "vflops") for name, text in BENCHMARKS.items()]),
        ("precisions", [(name, text, "vflops") for name, text in PRECISIONS.items()]),
        ("profiles", [(name, text, "vflops") for name, text in profiles.items()]),
    ]
    width = max(len(name) for _, rows in sections for name, _, _ in rows)
    for title, rows in sections:
        print(heading(title))
        print(
            columns(
                [
                    (f"  {name.ljust(width)}", _with_origin(text, origin))
                    for name, text, origin in rows
                ]
            )
        )
    next_step("vflops run", "run everything, with the profile for this machine")


def _with_origin(text: str, origin: str) -> str:
    return text if origin == "vflops" else f"{text} (from {origin})"
