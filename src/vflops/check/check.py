"""From the run folder to its findings."""

from __future__ import annotations

from vflops.check.level import levels
from vflops.check.record import Findings, LayerFinding
from vflops.check.sets import own_rule_set
from vflops.check.sets import rule_set as named
from vflops.errors import FolderError
from vflops.score.contents import Contents


def check(contents: Contents, rule_set: str | None = None) -> Findings:
    """Every verdict of the rule set called ``rule_set``; by default the one that the run is for."""
    record = contents.folder.record
    chosen = own_rule_set(record.settings) if rule_set is None else named(rule_set)
    try:
        layers = contents.once(levels).layers
    except FolderError:  # what cannot be read is a finding of the rules
        layers = ()
    return Findings(
        run=record.id,
        rule_set=chosen.name,
        rule_set_version=chosen.version,
        findings=tuple(rule.judged(contents) for rule in chosen.rules),
        layers=tuple(
            LayerFinding(
                layer=each.layer,
                level=each.level,
                differences=tuple(map(str, each.differences)),
            )
            for each in layers
        ),
    )
