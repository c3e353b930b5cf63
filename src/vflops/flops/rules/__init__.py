"""Rule sets: pure functions from an operation graph to integer counts, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points

from vflops.errors import unknown_name
from vflops.flops.rules.aiperf import AIPERF, AIPERF_ORIGINAL
from vflops.flops.rules.base import Ops, RuleSet
from vflops.flops.rules.executed import EXECUTED, EXECUTED_TORCH
from vflops.flops.rules.hpcai500 import HPCAI500, HPCAI500_FC2

BUILT_IN: tuple[RuleSet, ...] = (
    HPCAI500,
    HPCAI500_FC2,
    AIPERF,
    AIPERF_ORIGINAL,
    EXECUTED,
    EXECUTED_TORCH,
)

ENTRY_POINTS = "vflops.rules"
"""Other packages offer a rule set by an entry point of this group."""


@cache
def rule_sets() -> Mapping[str, RuleSet]:
    """All rule sets by id, built in and installed by others."""
    known = {rules.id: rules for rules in BUILT_IN}
    for entry in entry_points(group=ENTRY_POINTS):
        origin = entry.dist.name if entry.dist else "another package"
        known.setdefault(entry.name, replace(entry.load(), origin=origin))
    return known


def rule_set(name: str) -> RuleSet:
    """The rule set that is called ``name``."""
    for rules in BUILT_IN:
        if rules.id == name:
            return rules
    if name not in rule_sets():
        raise unknown_name("rule set", name, rule_sets())
    return rule_sets()[name]


__all__ = ["BUILT_IN", "ENTRY_POINTS", "Ops", "RuleSet", "rule_set", "rule_sets"]
