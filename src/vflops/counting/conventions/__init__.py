"""Rule sets: pure functions from an operation graph to integer counts, by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from vflops.counting.conventions.aiperf import AIPERF, AIPERF_ORIGINAL
from vflops.counting.conventions.base import Ops, RuleSet
from vflops.counting.conventions.executed import EXECUTED, EXECUTED_TORCH
from vflops.counting.conventions.hpcai500 import HPCAI500, HPCAI500_FC2
from vflops.errors import unknown_name
from vflops.extensions import offered

BUILT_IN: tuple[RuleSet, ...] = (
    HPCAI500,
    HPCAI500_FC2,
    AIPERF,
    AIPERF_ORIGINAL,
    EXECUTED,
    EXECUTED_TORCH,
)

SCORING_RULES = "hpcai500"
"""The rule set that trainings are scored by."""
ENTRY_POINTS = "vflops.rules"
"""Other packages offer a rule set by an entry point of this group."""


@cache
def rule_sets() -> Mapping[str, RuleSet]:
    """All rule sets by id, built in and installed by others."""
    own = {rules.id: rules for rules in BUILT_IN}
    return {**own, **offered(ENTRY_POINTS), **own}  # first in order, and never replaced


def rule_set(name: str) -> RuleSet:
    """The rule set that is called ``name``."""
    for rules in BUILT_IN:
        if rules.id == name:
            return rules
    if name not in rule_sets():
        raise unknown_name("rule set", name, rule_sets())
    return rule_sets()[name]


__all__ = ["BUILT_IN", "ENTRY_POINTS", "SCORING_RULES", "Ops", "RuleSet", "rule_set", "rule_sets"]
